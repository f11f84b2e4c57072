/* test_faults.c - one failure at any place of a call leaves nothing half done, and asking again
 * works
 *
 * The loop breaks each step in turn, until the call runs through unbroken.
 */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define I PRId64

static int64_t user, site, app, parent, child, staging, session, item;
static int round_no;

/* All that the calls below can change, in one number. */
static char *books(void)
{
    const char *digest =
        pg_text(desk_db(), "SELECT md5(concat("
                           "(SELECT string_agg(j::text, ',' ORDER BY id) FROM jobs j),"
                           "(SELECT string_agg(s::text, ',' ORDER BY id) FROM job_specs s),"
                           "(SELECT string_agg(e.job_id || e.from_state::text || e.to_state, ',' "
                           "ORDER BY id) FROM events e),"
                           "(SELECT string_agg(t::text, ',' ORDER BY id) FROM transfer_items t),"
                           "(SELECT string_agg(s::text, ',' ORDER BY id) FROM sessions s),"
                           "(SELECT count(*) FROM job_parents), (SELECT count(*) FROM job_counts),"
                           "(SELECT count(*) FROM requests)))");
    return strdup(digest);
}

/* A parent that runs under a lease, a child that waits for it, a job whose file is awaited. */
static void arrange(void)
{
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    parent = new_job(user, app, "");
    child = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    staging =
        new_job(user, app, "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}");
    item = pg_int(desk_db(), "SELECT id FROM transfer_items WHERE job_id = %" I, staging);
    session = new_session(user, site, 0);
    move(user, parent, "PREPROCESSED");
    assert_int_equal(
        ask(user, "POST", path("/sessions/%" I, session), "{'max_num_jobs': 5, 'filter_tags': {}}"),
        200);
    move(user, parent, "RUNNING");
}

struct deed {
    const char *name;
    int (*run)(const char *key);
    void (*done)(void); /* what must be true after it */
};

static int ask_keyed(const char *key, const char *method, const char *where, const char *body)
{
    return ask_as(&(struct who){.user = user, .key = key}, method, where, "%s", body);
}

static int run_create(const char *key)
{
    char body[400];
    snprintf(body, sizeof(body),
             "[{'app_id': %" I ", 'workdir': 'new', 'parent_ids': [%" I "], 'transfers': {'output':"
             " {'location_alias': 'archive', 'path': '/y'}}}, {'app_id': %" I
             ", 'workdir': 'new2'}]",
             app, parent, app);
    return ask_keyed(key, "POST", "/jobs/", body);
}

static void done_create(void)
{
    assert_int_equal(pg_int(desk_db(),
                            "SELECT count(*) FROM job_specs WHERE owner_id = %" I
                            " AND workdir LIKE 'new%%'",
                            user),
                     2);
}

static int run_finish(const char *key)
{
    char body[200];
    snprintf(body, sizeof(body),
             "[{'id': %" I ", 'state': 'JOB_FINISHED', 'return_code': 0, 'tags': {'a': 'b'}}]",
             parent);
    return ask_keyed(key, "PATCH", "/jobs/", body);
}

static void done_finish(void)
{
    assert_string_equal(state_of(parent), "JOB_FINISHED");
    assert_string_equal(state_of(child), "STAGED_IN");
    assert_string_equal(history_of(child),
                        "CREATED>AWAITING_PARENTS AWAITING_PARENTS>STAGED_IN:Skipped stage in");
}

static int run_transfer(const char *key)
{
    char body[100];
    snprintf(body, sizeof(body), "[{'id': %" I ", 'state': 'done'}]", item);
    return ask_keyed(key, "PATCH", "/transfers/", body);
}

static void done_transfer(void)
{
    assert_string_equal(history_of(staging), "CREATED>READY READY>STAGED_IN");
}

static int run_acquire(const char *key)
{
    return ask_keyed(
        key, "POST", path("/sessions/%" I, session),
        "{'max_num_jobs': 5, 'filter_tags': {}, 'states': ['READY', 'AWAITING_PARENTS']}");
}

static void done_acquire(void)
{
    assert_string_equal(state_of(staging), "READY held");
    assert_int_equal(pg_int(desk_db(), "SELECT max(lease) FROM jobs WHERE id IN (%" I ", %" I ")",
                            staging, child),
                     1);
}

static int run_end(const char *key)
{
    return ask_keyed(key, "DELETE", path("/sessions/%" I, session), "");
}

static void done_end(void)
{
    assert_string_equal(state_of(parent), "RUN_TIMEOUT");
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM sessions WHERE id = %" I, session), 0);
}

static int run_delete(const char *key)
{
    return ask_keyed(key, "DELETE", path("/jobs/%" I, staging), "");
}

static void done_delete(void)
{
    assert_int_equal(pg_int(desk_db(),
                            "SELECT (SELECT count(*) FROM jobs WHERE id = %" I ")"
                            " + (SELECT count(*) FROM events WHERE job_id = %" I ")"
                            " + (SELECT count(*) FROM transfer_items WHERE job_id = %" I ")",
                            staging, staging, staging),
                     0);
}

/* Break it at the nth place; true: it was not reached. */
__attribute__((unused)) static bool break_at(const struct deed *deed, int nth)
{
    char key[64];
    snprintf(key, sizeof(key), "%s-%d", deed->name, ++round_no);
    arrange();
    char *before = books();
    ab_fault_arm(nth);
    int status = deed->run(key);
    bool fired = ab_fault_fired();
    ab_fault_arm(0);
    if (status >= 300) {
        assert_true(fired);
        assert_int_equal(status, 503);
        char *after = books();
        if (strcmp(before, after) != 0)
            fail_msg("%s, broken at place %d, left something behind", deed->name, nth);
        free(after);
        assert_in_range(deed->run(key), 200, 204); /* the same request again */
    }
    free(before);
    deed->done();
    check_books();
    return !fired;
}

static void one_failure_anywhere_leaves_nothing_half_done(void **state)
{
    static const struct deed deeds[] = {
        {"create", run_create, done_create},
        {"finish", run_finish, done_finish},
        {"transfer", run_transfer, done_transfer},
        {"acquire", run_acquire, done_acquire},
        {"end", run_end, done_end},
        {"delete", run_delete, done_delete},
    };
    (void)state;
#ifdef AB_FAULTS
    for (size_t i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
        int nth = 1;
        while (!break_at(&deeds[i], nth))
            assert_true(++nth < 100);
        assert_true(nth > 3); /* a call has more places than BEGIN and COMMIT */
    }
#else
    (void)deeds;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_failure_anywhere_leaves_nothing_half_done),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
