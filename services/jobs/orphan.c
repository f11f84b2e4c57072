/* orphan.c - jobs that wait for a parent that FAILED or was deleted
 *
 * Nothing else looks at them: a parent's end is told to its children only when it is a good one.
 * They are looked through a page at a time, in the background, and their own children with them: a
 * page later, or in the next round.
 */
#include "orphan.h"

#include "lifecycle/lifecycle.h"
#include "orphan.sql.h"
#include <inttypes.h>
#include <string.h>

enum {
    PAGE = 500 /* jobs looked at, and failed at most, in one transaction */
};

static void set_failed(struct ab_call *call, struct job *item, const PGresult *r, int row)
{
    const char *why =
        ab_col_bool(r, row, ab_col(r, "deleted")) ? "a parent was deleted" : "a parent has failed";
    char *data = ab_printf(call->arena, "{\"message\":\"%s\",\"parent_id\":%" PRId64 "}", why,
                           ab_col_int(r, row, ab_col(r, "parent_id")));

    item->id = ab_col_int(r, row, ab_col(r, "id"));
    AB_SET(job, item, id);
    item->state = AB_JOB_FAILED;
    AB_SET(job, item, state);
    item->state_data = (struct ab_bytes){data, strlen(data)};
    AB_SET(job, item, state_data);
}

/* The rows of one owner from `first` on; how many, -1. */
static int fail_of_one(struct ab_call *call, const PGresult *r, int first, struct ab_error *err)
{
    int col = ab_col(r, "owner_id"), n = 0;
    struct ab_step_result step = {0};
    struct job *items = ab_alloc(call->arena, (size_t)PQntuples(r), sizeof(*items));

    call->owner_id = ab_col_int(r, first, col);
    while (first + n < PQntuples(r) && ab_col_int(r, first + n, col) == call->owner_id) {
        set_failed(call, &items[n], r, first + n);
        n++;
    }
    return ab_job_step(call, items, (size_t)n, &step, err) < 0 ? -1 : n;
}

int orphan_fail(struct ab_call *call, struct ab_error *err)
{
    static _Thread_local int64_t after; /* one round of all that wait takes several pages */

    if (!ab_conf_bool(call->conf, "fail_orphans"))
        return 0;
    ab_bind_int(call, "after", after);
    ab_bind_int(call, "page", PAGE);
    PGresult *r = ab_run(call, &SQL_orphan_find, err);
    if (!r)
        return -1;
    if (ab_col_null(r, 0, ab_col(r, "last"))) { /* the round is over */
        after = 0;
        return 0;
    }
    if (!ab_col_null(r, 0, ab_col(r, "id"))) {
        int64_t *owners = ab_alloc(call->arena, (size_t)PQntuples(r), sizeof(*owners));
        size_t n_owners = 0;
        for (int row = 0, n; row < PQntuples(r); row += n) {
            if ((n = fail_of_one(call, r, row, err)) < 0)
                return -1;
            owners[n_owners++] = call->owner_id;
        }
        call->owner_id = 0;
        call->events = false; /* of the last one: all of them are told */
        call->event_owners = (struct ab_ids){owners, n_owners};
    }
    after = ab_col_int(r, 0, ab_col(r, "last"));
    return 1;
}
