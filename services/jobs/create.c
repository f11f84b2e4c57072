/* create.c - POST /jobs/: n jobs in one transaction, the same number of statements for any n
 *
 * Draw ids and lock what is referred to (one round trip), check in the contract's order, work out
 * each job's first state, COPY the rows. The reply is made from the request.
 */
#include "create.h"

#include "bad.h"
#include "base/cleanup.h"
#include "create.sql.h"
#include "notice.h"
#include "quota.h"
#include "quota.sql.h"
#include "rows.h"
#include "schema/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    AT_MOST = 5000
};

/* ids of all jobs' apps and parents, with the place of the job that names them */
static void collect(struct ab_call *call, struct plan *plan)
{
    size_t n = plan_kinds(plan), n_parents = 0;
    for (size_t i = 0; i < n; i++)
        n_parents += plan->jobs[i].req->parent_ids.n;

    plan->app_places = ab_alloc(call->arena, n, sizeof(*plan->app_places));
    plan->parent_places =
        ab_alloc(call->arena, n_parents ? n_parents : 1, sizeof(*plan->parent_places));
    for (size_t i = 0; i < n; i++) {
        const struct job *req = plan->jobs[i].req;
        plan->app_places[i] = (struct place){req->app_id, i};
        for (size_t k = 0; k < req->parent_ids.n; k++)
            plan->parent_places[plan->n_parent_places++] = (struct place){req->parent_ids.v[k], i};
    }
    place_sort(plan->app_places, n);
    place_sort(plan->parent_places, plan->n_parent_places);
}

/* One round trip: the quota, ids, event ids, the apps and parents, locked. */
static int fetch(struct ab_call *call, struct plan *plan, struct ab_error *err)
{
    const struct ab_sql *blocks[] = {&SQL_quota_jobs, &SQL_create_apps, &SQL_create_parents,
                                     &SQL_job_ids, &SQL_event_ids};
    PGresult *r[AB_COUNT(blocks)];
    struct ab_ids apps = place_ids(call, plan->app_places, plan_kinds(plan));
    struct ab_ids parents = place_ids(call, plan->parent_places, plan->n_parent_places);
    size_t n_ids, n_event_ids;

    ab_bind_ids(call, "app_ids", apps.v, apps.n);
    ab_bind_ids(call, "parent_ids", parents.v, parents.n);
    ab_bind_int(call, "n", (int64_t)plan->n);
    quota_bind_jobs(call);
    if (ab_run_many(call, blocks, AB_COUNT(blocks), r, err) < 0)
        return -1;
    plan->quota = r[0];
    plan->apps = r[1];
    plan->parents = r[2];
    plan->ids = ab_col_int8s(r[3], 0, ab_col(r[3], "ids"), call->arena, &n_ids);
    plan->created = ab_col_time(r[3], 0, ab_col(r[3], "created"));
    plan->event_ids = ab_col_int8s(r[4], 0, ab_col(r[4], "ids"), call->arena, &n_event_ids);
    if (n_ids != plan->n || n_event_ids != plan->n)
        return ab_fail(err, AB_EINTERNAL, "the database drew %zu ids instead of %zu", n_ids,
                       plan->n);
    return 0;
}

/* The reply: what was stored, in the request's order. */
static void reply(struct ab_call *call, const struct plan *plan)
{
    ab_pack_array(&call->reply, (uint32_t)plan->n);
    for (size_t i = 0; i < plan->n; i++) {
        struct job row = *plan->jobs[i].req;
        bool no_return_code = !AB_HAS(job, &row, return_code) || AB_IS_NULL(job, &row, return_code);
        bool no_retry =
            !AB_HAS(job, &row, retry) || AB_IS_NULL(job, &row, retry) || row.retry.n == 0;

        row.has = UINT64_MAX;
        row.null = 0;
        row.id = plan->ids[i];
        row.state = plan->jobs[i].state;
        row.last_update = plan->created;
        row.parent_ids = plan->jobs[i].parents;
        row.pending_file_cleanup = true;
        row.serialized_return_value = row.serialized_exception = "";
        row.lease = row.attempts = 0;
        row.cancel = false;
        if (no_return_code)
            AB_SET_NULL(job, &row, return_code);
        if (no_retry)
            AB_SET_NULL(job, &row, retry);
        AB_SET_NULL(job, &row, batch_job_id);
        AB_SET_NULL(job, &row, session_id);
        ab_pack_item(&call->reply, &ab_schema_job, AB_OUT, &row);
    }
}

int create_planned(struct ab_call *call, struct plan *plan, struct ab_error *err)
{
    collect(call, plan);
    if (fetch(call, plan, err) < 0 || plan_check(call, plan, err) < 0
        || quota_check_jobs(call, plan->quota, plan->n, err) < 0
        || rows_insert(call, plan, err) < 0)
        return -1;
    call->events = true;
    ab_record_ids(call, plan->ids, plan->n);
    return 0;
}

int job_create(struct ab_call *call, struct ab_error *err)
{
    struct plan plan = {.n = call->req->body.n};
    const struct job *items = call->req->body.v;

    if (plan.n > AT_MOST)
        return ab_fail(err, AB_EINVAL, "%zu jobs in one request; send at most %d at a time", plan.n,
                       AT_MOST);
    if (plan.n == 0) {
        ab_pack_array(&call->reply, 0);
        return 0;
    }
    plan.jobs = ab_alloc(call->arena, plan.n, sizeof(*plan.jobs));
    for (size_t i = 0; i < plan.n; i++)
        plan.jobs[i] = (struct planned){
            .req = &items[i], .workdir = items[i].workdir, .parameters = items[i].parameters};
    if (create_planned(call, &plan, err) < 0)
        return -1;
    reply(call, &plan);
    notice_created(call, plan.ids, plan.n, true);
    return 0;
}
