/* job.c - jobs: list, read, update, delete
 *
 * What a job's change of state brings with it (events, children, transfer items, counts) is in
 * common/lifecycle; here is what the contract says about the requests.
 */
#include "job.h"

#include "base/cleanup.h"
#include "count.h"
#include "job.sql.h"
#include "lifecycle/lifecycle.h"
#include "match.h"
#include "notice.h"
#include "walk.h"
#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum {
    AT_MOST = 5000,
};

/* ---- reading */

int job_list(struct ab_call *call, struct ab_error *err)
{
    struct ab_list_spec spec = match_spec(call);
    const struct job_query *query = call->req->query;
    spec.total = count_jobs;
    spec.total_first = AB_HAS(job_query, query, site_id) || call->token_site;
    return ab_list_handler(call, &spec, err);
}

static PGresult *read_jobs(struct ab_call *call, const int64_t *ids, size_t n, struct ab_error *err)
{
    ab_bind_ids(call, "ids", ids, n);
    ab_bind_int(call, "token_site", call->token_site);
    return ab_run(call, &SQL_job_read, err);
}

int job_get(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = read_jobs(call, &call->req->id, 1, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_not_found(call, err);
    ab_reply_row(call, &ab_schema_job, r, 0);
    return 0;
}

/* POST /jobs/ once more: what was created, as it is now. Ids ascend, so the order is the request's.
 */
int jobs_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *r = read_jobs(call, ids->v, ids->n, err);
    if (!r)
        return -1;
    ab_reply_rows(call, &ab_schema_job, r);
    return 0;
}

/* ---- updates by id */

/* places: the ids of the call, sorted. 400 naming each that is not there; 0 when all are. */
static int check_all_there(struct ab_call *call, const struct place *places, size_t n,
                           struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    struct ab_ids ids = place_ids(call, places, n);

    ab_bind_ids(call, "ids", ids.v, ids.n);
    ab_bind_int(call, "token_site", call->token_site);
    PGresult *absent = ab_run(call, &SQL_job_absent, err);
    if (!absent)
        return -1;
    for (int i = 0; i < PQntuples(absent); i++) {
        const struct place *place = place_find(places, n, ab_col_int(absent, i, 0));
        bad_add(&bad, place->index, place->id, "no such job, or not yours");
    }
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_EINVAL, "bad_reference",
                    "%zu of %zu jobs are not there or not yours (first: %" PRId64
                    "); nothing was changed",
                    bad.n, n, bad.items[0].id);
}

/* Jobs have no foreign key to batch jobs: look, and keep what is there until COMMIT. */
static int check_batch_jobs(struct ab_call *call, const struct job *items, size_t n,
                            struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    struct place *wanted = ab_alloc(call->arena, n ? n : 1, sizeof(*wanted));
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        if (AB_HAS(job, &items[i], batch_job_id) && !AB_IS_NULL(job, &items[i], batch_job_id))
            wanted[m++] = (struct place){items[i].batch_job_id, i};
    if (m == 0)
        return 0;
    place_sort(wanted, m);
    struct ab_ids ids = place_ids(call, wanted, m);
    ab_bind_ids(call, "batch_ids", ids.v, ids.n);
    ab_bind_int(call, "token_site", call->token_site);
    PGresult *there = ab_run(call, &SQL_job_batch_jobs, err);
    if (!there)
        return -1;
    if ((size_t)PQntuples(there) == ids.n)
        return 0;
    for (size_t i = 0, k = 0; i < m; i++) {
        while (k < (size_t)PQntuples(there) && ab_col_int(there, (int)k, 0) < wanted[i].id)
            k++;
        if (k == (size_t)PQntuples(there) || ab_col_int(there, (int)k, 0) != wanted[i].id)
            bad_add(&bad, wanted[i].index, items[wanted[i].index].id,
                    ab_printf(call->arena, "batch job %" PRId64 " does not exist or is not yours",
                              wanted[i].id));
    }
    assert(bad.items); /* fewer rows than ids */
    return bad_fail(&bad, err, AB_EINVAL, "bad_reference",
                    "batch job %" PRId64 " does not exist or is not yours; nothing was changed",
                    items[bad.items[0].index].batch_job_id);
}

static int fail_stale(struct ab_call *call, const struct place *places, size_t n,
                      const struct ab_ids *stale, struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    for (size_t i = 0; i < stale->n; i++) {
        const struct place *place = place_find(places, n, stale->v[i]);
        bad_add(&bad, place ? place->index : 0, stale->v[i],
                "the lease is lost: the job is no longer held under it");
    }
    return bad_fail(&bad, err, AB_ECONFLICT, "lost_lease",
                    "the leases of %zu jobs are lost (first: %" PRId64
                    "); nothing was changed: drop these jobs and send the rest again",
                    stale->n, stale->v[0]);
}

/* All items, each with its own keys, or none. places: their ids, sorted and distinct. */
static int change(struct ab_call *call, const struct job *items, const struct place *places,
                  size_t n, bool all, struct ab_error *err)
{
    struct ab_step_result step = {0};

    if (all && call->token_site && check_all_there(call, places, n, err) < 0)
        return -1;
    if (check_batch_jobs(call, items, n, err) < 0) {
        if (!all && err)
            err->n_items = 0; /* one wish for all: no item of the request is to blame */
        return -1;
    }
    if (ab_job_step(call, items, n, &step, err) < 0)
        return -1;
    if (all && step.matched < (int64_t)n)
        return check_all_there(call, places, n, err) < 0
                   ? -1
                   : ab_fail(err, AB_EBUSY, "jobs changed meanwhile; try again");
    if (step.stale.n > 0)
        return fail_stale(call, places, n, &step.stale, err);
    if (ab_job_set_fields(call, items, n, err) < 0)
        return -1;
    notice_changed(call, items, n, &step);
    ab_pack_int(&call->reply, step.matched);
    return 0;
}

static int check_distinct(struct ab_call *call, const struct place *places, size_t n,
                          struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    for (size_t i = 1; i < n; i++)
        if (places[i].id == places[i - 1].id)
            bad_add(&bad, places[i].index, places[i].id, "the job is named twice");
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_EINVAL, "duplicate",
                    "job %" PRId64 " is named more than once; send one item for each job",
                    bad.items[0].id);
}

int job_patch(struct ab_call *call, struct ab_error *err)
{
    const struct job *items = call->req->body.v;
    size_t n = call->req->body.n;

    if (n > AT_MOST)
        return ab_fail(err, AB_EINVAL, "%zu jobs in one request; send at most %d at a time", n,
                       AT_MOST);
    if (n == 0) {
        ab_pack_int(&call->reply, 0);
        return 0;
    }
    struct place *places = ab_alloc(call->arena, n, sizeof(*places));
    for (size_t i = 0; i < n; i++)
        places[i] = (struct place){items[i].id, i};
    place_sort(places, n);
    if (check_distinct(call, places, n, err) < 0)
        return -1;
    return change(call, items, places, n, true, err);
}

int job_update(struct ab_call *call, struct ab_error *err)
{
    struct job item = *(const struct job *)call->req->body.v;
    struct place place = {call->req->id, 0};

    item.id = call->req->id;
    AB_SET(job, &item, id);
    return change(call, &item, &place, 1, true, err);
}

/* ---- updates and deletion by filter */

/* Matches, locked with their children in one order, that still match under the lock. */
static int lock_matches(struct ab_call *call, size_t limit, struct ab_ids *out,
                        struct ab_error *err)
{
    struct ab_ids found;
    if (match_ids(call, false, 0, INT64_MAX, limit, &found, err) < 0)
        return -1;
    if (found.n == 0 || found.n == limit) {
        *out = found;
        return 0;
    }
    ab_bind_ids(call, "ids", found.v, found.n);
    if (!ab_run(call, &SQL_where_lock, err))
        return -1;
    return match_again(call, &found, out, err);
}

int job_update_where(struct ab_call *call, struct ab_error *err)
{
    const struct job *patch = call->req->body.v;
    struct ab_ids ids;

    if (lock_matches(call, AT_MOST + 1, &ids, err) < 0)
        return -1;
    if (ids.n > AT_MOST)
        return ab_fail(err, AB_EINVAL, "more than %d jobs match; narrow the filters", AT_MOST);
    if (ids.n == 0) {
        ab_pack_int(&call->reply, 0);
        return 0;
    }
    struct job *items = ab_alloc(call->arena, ids.n, sizeof(*items));
    struct place *places = ab_alloc(call->arena, ids.n, sizeof(*places));
    for (size_t i = 0; i < ids.n; i++) {
        items[i] = *patch;
        items[i].id = ids.v[i];
        AB_SET(job, &items[i], id);
        places[i] = (struct place){ids.v[i], i};
    }
    return change(call, items, places, ids.n, false, err);
}

/* A job that a session holds is kept, and the answer is 204 all the same (contract). */
int job_delete(struct ab_call *call, struct ab_error *err)
{
    struct ab_ids deleted = {0};

    ab_bind_int(call, "job_id", call->req->id);
    ab_bind_int(call, "token_site", call->token_site);
    PGresult *locked = ab_run(call, &SQL_job_lock, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    if (ab_job_delete(call, &call->req->id, 1, &deleted, err) < 0)
        return -1;
    if (deleted.n > 0)
        notice_ids(call, "bulk-delete", "job", deleted.v, deleted.n);
    return 0;
}

/* What is gone in this piece; the ids are for the notice, which names some. */
struct gone {
    struct ab_ids ids;
    int64_t n;
};

static void add_gone(struct ab_call *call, struct gone *gone, const struct ab_ids *deleted)
{
    gone->n += (int64_t)deleted->n;
    if (gone->ids.n >= AT_MOST || deleted->n == 0)
        return;
    int64_t *ids = ab_alloc(call->arena, gone->ids.n + deleted->n, sizeof(*ids));
    if (gone->ids.n)
        memcpy(ids, gone->ids.v, gone->ids.n * sizeof(*ids));
    memcpy(ids + gone->ids.n, deleted->v, deleted->n * sizeof(*ids));
    gone->ids = (struct ab_ids){ids, gone->ids.n + deleted->n};
}

static int delete_part(struct ab_call *call, const struct ab_ids *found, void *arg,
                       struct ab_error *err)
{
    struct gone *gone = arg;
    struct ab_ids locked, still, deleted = {0};

    ab_bind_ids(call, "ids", found->v, found->n);
    PGresult *r = ab_run(call, &SQL_delete_lock, err);
    if (!r)
        return -1;
    locked.n = (size_t)PQntuples(r);
    locked.v = ab_alloc(call->arena, locked.n ? locked.n : 1, sizeof(*locked.v));
    for (size_t i = 0; i < locked.n; i++)
        locked.v[i] = ab_col_int(r, (int)i, 0);
    if (match_again(call, &locked, &still, err) < 0)
        return -1;
    if (still.n == 0)
        return 0;
    if (ab_job_delete(call, still.v, still.n, &deleted, err) < 0)
        return -1;
    add_gone(call, gone, &deleted);
    return 0;
}

int job_delete_where(struct ab_call *call, struct ab_error *err)
{
    struct ab_piece piece;
    struct gone gone = {0};

    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    int done = walk_matches(call, &piece, true, delete_part, &gone, err);
    if (done < 0)
        return -1;
    notice_many(call, "bulk-delete", gone.ids.v, gone.ids.n, gone.n);
    return done ? 0 : ab_piece_more(&piece, call);
}
