/* lease.c - jobs handed to a session
 *
 * The statement locks its candidates and skips those that others have locked, so two launchers
 * never wait for each other and never get the same job. The heartbeat is part of the same
 * transaction, and its row lock keeps the sweeper away: a session that was just swept gets 404 and
 * no jobs.
 */
#include "lease.h"

#include "base/cleanup.h"
#include "figures.h"
#include "lease.sql.h"
#include <math.h>
#include <string.h>

enum {
    WALKED_AT_MOST = 4096, /* the LIMIT of the tagged walks */
    PASSES = 1 + 8         /* the first, and `look_ahead` */
};

struct order {
    const char *name; /* as lease_again's :sort */
    const struct ab_sql *take;
    const struct ab_sql *walk, *find; /* with tags; NULL: `take` tests them */
};

enum {
    SMALL_FIRST,
    LONG_FIRST,
    TO_PROCESS,
    ANY
};

static const struct order orders[] = {
    [SMALL_FIRST] = {"small_first", &SQL_lease_small_first, &SQL_lease_tagged_walk,
                     &SQL_lease_tagged_find},
    [LONG_FIRST] = {"long_first", &SQL_lease_long_first, &SQL_lease_tagged_walk_long,
                    &SQL_lease_tagged_find_long},
    [TO_PROCESS] = {"by_id", &SQL_lease_to_process, NULL, NULL},
    [ANY] = {"by_id", &SQL_lease_any, NULL, NULL},
};

static const int runnable[] = {AB_JOB_PREPROCESSED, AB_JOB_RESTART_READY};
static const int to_process[] = {AB_JOB_STAGED_IN, AB_JOB_RUN_DONE, AB_JOB_RUN_ERROR,
                                 AB_JOB_RUN_TIMEOUT};

/* ---- what is asked for */

static bool all_among(const struct ab_enums *states, const int *set, size_t n_set)
{
    for (size_t i = 0; i < states->n; i++) {
        size_t k = 0;
        while (k < n_set && set[k] != states->v[i])
            k++;
        if (k == n_set)
            return false;
    }
    return true;
}

static bool has_budget(const struct session_acquire *req)
{
    return AB_HAS(session_acquire, req, max_aggregate_nodes)
           && !AB_IS_NULL(session_acquire, req, max_aggregate_nodes);
}

/* sort_by has a meaning only with a budget (contract, sessions.md 3.1). */
static const struct order *choose(const struct session_acquire *req)
{
    if (all_among(&req->states, runnable, AB_COUNT(runnable))) {
        bool long_first =
            has_budget(req) && req->sort_by && strcmp(req->sort_by, "long_large_first") == 0;
        return &orders[long_first ? LONG_FIRST : SMALL_FIRST];
    }
    return &orders[all_among(&req->states, to_process, AB_COUNT(to_process)) ? TO_PROCESS : ANY];
}

/* Null, absent and 0 mean "no limit". */
static int64_t limit(bool given, int32_t value)
{
    return given && value != 0 ? value : INT32_MAX;
}

static bool has_tags(const struct session_acquire *req)
{
    return memchr(req->filter_tags.p, '"', req->filter_tags.n) != NULL;
}

static void bind_states(struct ab_call *call, const struct ab_enums *states)
{
    struct ab_db_value *items = ab_alloc(call->arena, states->n, sizeof(*items));
    for (size_t i = 0; i < states->n; i++) {
        items[i].type = AB_DB_TEXT;
        items[i].p = ab_enum_job_state.names[states->v[i]];
        items[i].n = strlen(items[i].p);
    }
    struct ab_db_value value = {.type = AB_DB_ARRAY};
    value.items = items;
    value.n_items = states->n;
    ab_bind_value(call, "states", value);
}

static bool given_nodes(const struct session_acquire *req)
{
    return AB_HAS(session_acquire, req, max_nodes_per_job)
           && !AB_IS_NULL(session_acquire, req, max_nodes_per_job);
}

static bool given_wall_time(const struct session_acquire *req)
{
    return AB_HAS(session_acquire, req, max_wall_time_min)
           && !AB_IS_NULL(session_acquire, req, max_wall_time_min);
}

static bool nothing_fits(const struct session_acquire *req)
{
    return req->states.n == 0
           || (req->zero_fits_nothing
               && ((given_nodes(req) && req->max_nodes_per_job == 0)
                   || (given_wall_time(req) && req->max_wall_time_min == 0)));
}

static void bind_request(struct ab_call *call, const struct session_acquire *req)
{
    bind_states(call, &req->states);
    ab_bind_int(call, "max_wall_time", limit(given_wall_time(req), req->max_wall_time_min));
    ab_bind_ids(call, "app_ids", req->app_ids.v, req->app_ids.n);
    if (has_tags(req)) {
        struct ab_db_value tags = {.type = AB_DB_TEXT};
        tags.p = req->filter_tags.p;
        tags.n = req->filter_tags.n;
        ab_bind_value(call, "tags", tags);
    } else {
        ab_bind_text(call, "tags", "{}");
    }
}

/* ---- taking */

/* Rows of up to two statements a pass. A walk that took nothing has one row of nulls beside its
 * counts. */
struct taken {
    struct part {
        PGresult *r;
        int n;
    } parts[2 * PASSES];
    int n_parts, n;    /* statements, jobs */
    int32_t max_jobs;  /* still wanted */
    int64_t max_nodes; /* of a job of this pass */
    double budget;     /* what is left of it */
};

static int rows_of(const PGresult *r)
{
    int n = PQntuples(r);
    return n > 0 && ab_col_null(r, 0, ab_col(r, "id")) ? 0 : n;
}

static double footprint(const PGresult *r, int n)
{
    int nodes = ab_col(r, "num_nodes"), packing = ab_col(r, "node_packing_count");
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)ab_col_int(r, i, nodes) / (double)ab_col_int(r, i, packing);
    return sum;
}

static void add_part(struct taken *out, PGresult *r)
{
    struct part *part = &out->parts[out->n_parts++];
    *part = (struct part){r, rows_of(r)};
    out->n += part->n;
    out->max_jobs -= part->n;
    out->budget -= footprint(r, part->n);
}

static void bind_wanted(struct ab_call *call, const struct taken *out)
{
    ab_bind_int(call, "max_jobs", out->max_jobs);
    ab_bind_int(call, "max_nodes", out->max_nodes);
    ab_bind_real(call, "budget", out->budget);
}

/* The walk sees the first 4096 of the queue. Unless it came to its end, or found enough, or spent
 * the budget, the rest is looked for from the tag index. */
static int take_tagged(struct ab_call *call, const struct order *order, struct taken *out,
                       struct ab_error *err)
{
    int32_t wanted = out->max_jobs;
    PGresult *r = ab_run(call, order->walk, err);
    if (!r)
        return -1;
    add_part(out, r);
    int64_t walked = ab_col_int(r, 0, ab_col(r, "walked"));
    int64_t candidates = ab_col_int(r, 0, ab_col(r, "candidates"));
    if (walked < WALKED_AT_MOST || rows_of(r) < candidates || candidates >= wanted)
        return 0;

    bind_wanted(call, out);
    if (ab_ahead(call, &SQL_lease_bitmaps, err) < 0 || !(r = ab_run(call, order->find, err)))
        return -1;
    add_part(out, r);
    return 0;
}

static int take(struct ab_call *call, const struct order *order, struct taken *out,
                struct ab_error *err)
{
    bind_wanted(call, out);
    if (order->walk && has_tags(call->req->body.v))
        return take_tagged(call, order, out, err);
    PGresult *r = ab_run(call, order->take, err);
    if (!r)
        return -1;
    add_part(out, r);
    return 0;
}

/* What stopped the last pass may have been a job of more nodes than are left: once more, without
 * such jobs. A job that shares a node may still fit into less than one. */
static bool look_further(struct taken *out)
{
    if (out->max_jobs <= 0 || out->budget <= 0 || out->budget >= (double)out->max_nodes)
        return false;
    int64_t left = out->budget >= 1 ? (int64_t)out->budget : 1;
    if (left >= out->max_nodes)
        return false;
    out->max_nodes = left;
    return true;
}

static int take_passes(struct ab_call *call, struct taken *out, struct ab_error *err)
{
    const struct session_acquire *req = call->req->body.v;
    const struct order *order = choose(req);
    int pass = 0;
    do {
        if (take(call, order, out, err) < 0)
            return -1;
    } while (has_budget(req) && pass++ < req->look_ahead && look_further(out));
    return 0;
}

static void reply(struct ab_call *call, const struct taken *taken)
{
    int n = taken->n, k = 0;
    int64_t *ids = ab_alloc(call->arena, n ? (size_t)n : 1, sizeof(*ids));

    ab_pack_array(&call->reply, (uint32_t)n);
    for (const struct part *part = taken->parts; part < taken->parts + taken->n_parts; part++)
        for (int i = 0; i < part->n; i++) {
            ids[k++] = ab_col_int(part->r, i, ab_col(part->r, "id"));
            ab_reply_row(call, &ab_schema_job, part->r, i);
        }
    ab_record_ids(call, ids, (size_t)n);
    figures_leased(n);
}

int lease_acquire(struct ab_call *call, struct ab_error *err)
{
    const struct session_acquire *req = call->req->body.v;
    struct taken taken = {
        .max_jobs = req->max_num_jobs,
        .max_nodes = limit(given_nodes(req), req->max_nodes_per_job),
        .budget = has_budget(req) ? req->max_aggregate_nodes : INFINITY,
    };

    ab_bind_int(call, "session_id", call->req->id);
    PGresult *alive = ab_run(call, &SQL_lease_touch, err);
    if (!alive)
        return -1;
    if (PQntuples(alive) == 0)
        return ab_not_found(call, err);
    int64_t site_id = ab_col_int(alive, 0, ab_col(alive, "site_id"));
    int batch_job = ab_col(alive, "batch_job_id");
    if (!ab_site_allowed(call, site_id))
        return ab_not_found(call, err);

    ab_bind_int(call, "site_id", site_id);
    if (ab_col_null(alive, 0, batch_job))
        ab_bind_null(call, "batch_job_id");
    else
        ab_bind_int(call, "batch_job_id", ab_col_int(alive, 0, batch_job));
    if (!nothing_fits(req)) {
        bind_request(call, req);
        if (take_passes(call, &taken, err) < 0)
            return -1;
    }
    reply(call, &taken);
    return 0;
}

static PGresult *still_held(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    ab_bind_int(call, "session_id", call->req->id);
    ab_bind_ids(call, "ids", ids->v, ids->n);
    ab_bind_text(call, "sort", choose(call->req->body.v)->name);
    return ab_run(call, &SQL_lease_again, err);
}

/* The reply was lost and the request came again: only what the session still holds, or a job that
 * was meanwhile given to another would run twice. */
int lease_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *held = still_held(call, ids, err);
    if (!held)
        return -1;
    ab_reply_rows(call, &ab_schema_job, held);
    return 0;
}

int lease_still_true(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *held = still_held(call, ids, err);
    return held ? (size_t)PQntuples(held) == ids->n : -1;
}
