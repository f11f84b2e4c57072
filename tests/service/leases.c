/* leases.c - see leases.h */
#include "leases.h"
#include <inttypes.h>

#define I PRId64

int64_t user, site, app;

int fresh(void **state)
{
    (void)state;
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    return 0;
}

int books(void **state)
{
    (void)state;
    check_books();
    return 0;
}

int64_t runnable(int n, int64_t *ids, const char *fields)
{
    int64_t first = new_jobs(user, app, n, ids, fields);
    assert_int_equal(ask(user, "PUT", "/jobs/?state=STAGED_IN", "{'state': 'PREPROCESSED'}"), 200);
    return first;
}

int acquire(int64_t session, const char *spec)
{
    int status = ask(user, "POST", path("/sessions/%" I, session), "{%s}", spec);
    if (status != 200)
        fail_msg("%d: %s", status, answer());
    return len("");
}
