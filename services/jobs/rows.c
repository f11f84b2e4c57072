/* rows.c - planned jobs become rows
 *
 * Each COPY's data is complete in memory before the COPY begins: a process that is frozen in the
 * middle of one would hold its locks, and no timeout of the server's would end it.
 */
#include "rows.h"

#include "base/cleanup.h"
#include "create.sql.h"
#include <string.h>

enum {
    SLICE = 10000
};

/* The columns of job_copy, in its order. */
static void job_row(struct ab_buf *out, const struct ab_call *call, const struct plan *plan,
                    size_t i)
{
    const struct planned *job = &plan->jobs[i];
    const struct job *req = job->req;

    ab_copy_row(out, 15);
    ab_copy_int8(out, plan->ids[i]);
    ab_copy_int8(out, call->owner_id);
    ab_copy_int8(out, job->site_id);
    ab_copy_int8(out, req->app_id);
    ab_copy_time(out, plan->created);
    const char *state = ab_enum_job_state.names[job->state];
    ab_copy_text(out, state, strlen(state));
    ab_copy_int4(out, job->open_parents);
    ab_copy_int4(out, job->open_in);
    ab_copy_int4(out, job->open_out);
    ab_copy_int4(out, req->num_nodes);
    ab_copy_int4(out, req->ranks_per_node);
    ab_copy_int4(out, req->node_packing_count);
    ab_copy_int4(out, req->wall_time_min);
    if (AB_HAS(job, req, return_code) && !AB_IS_NULL(job, req, return_code))
        ab_copy_int4(out, req->return_code);
    else
        ab_copy_null(out);
    ab_copy_int4(out, req->priority);
}

/* The columns of job_spec_copy. */
static void spec_row(struct ab_buf *out, const struct ab_call *call, const struct plan *plan,
                     size_t i)
{
    const struct planned *job = &plan->jobs[i];
    const struct job *req = job->req;

    ab_copy_row(out, 14);
    ab_copy_int8(out, plan->ids[i]);
    ab_copy_int8(out, call->owner_id);
    ab_copy_int8(out, req->app_id);
    ab_copy_int4(out, req->threads_per_rank);
    ab_copy_int4(out, req->threads_per_core);
    ab_copy_float8(out, req->gpus_per_rank);
    ab_copy_text(out, job->workdir, strlen(job->workdir));
    ab_copy_int8s(out, job->parents.v, job->parents.n);
    ab_copy_jsonb(out, req->tags.p, req->tags.n);
    ab_copy_text(out, job->parameters.p, job->parameters.n);
    ab_copy_text(out, req->data.p, req->data.n);
    ab_copy_text(out, req->launch_params.p, req->launch_params.n);
    ab_copy_text(out, req->serialized_parameters, strlen(req->serialized_parameters));
    if (AB_HAS(job, req, retry) && !AB_IS_NULL(job, req, retry) && req->retry.n > 0)
        ab_copy_text(out, req->retry.p, req->retry.n);
    else
        ab_copy_null(out);
}

/* The columns of event_copy. */
static void event_row(struct ab_buf *out, const struct ab_call *call, const struct plan *plan,
                      size_t i)
{
    const char *from = ab_enum_job_state.names[AB_JOB_CREATED];
    const char *to = ab_enum_job_state.names[plan->jobs[i].state];

    ab_copy_row(out, 6);
    ab_copy_int8(out, plan->event_ids[i]);
    ab_copy_int8(out, call->owner_id);
    ab_copy_int8(out, plan->ids[i]);
    ab_copy_time(out, plan->created);
    ab_copy_text(out, from, strlen(from));
    ab_copy_text(out, to, strlen(to));
}

typedef void row_f(struct ab_buf *out, const struct ab_call *call, const struct plan *plan,
                   size_t i);

/* A part of the jobs, [from, to): what is in memory for the COPY of a large array is bounded. */
struct slice {
    const struct plan *plan;
    size_t from, to;
};

static int copy(struct ab_call *call, const struct slice *slice, const struct ab_sql *sql,
                row_f *row, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};

    ab_copy_begin(&data);
    for (size_t i = slice->from; i < slice->to; i++)
        row(&data, call, slice->plan, i);
    ab_copy_end(&data);
    if (data.failed)
        return ab_fail(err, AB_ETOOBIG,
                       "the jobs are too large for one request; send fewer at a time");
    return ab_db_copy(call->db, sql, &data, err);
}

static int add_counts(struct ab_call *call, const struct slice *slice, struct ab_error *err)
{
    size_t n = slice->to - slice->from;
    int64_t *sites = ab_alloc(call->arena, n, sizeof(*sites));
    int64_t *apps = ab_alloc(call->arena, n, sizeof(*apps));
    int64_t *nodes = ab_alloc(call->arena, n, sizeof(*nodes));
    const char **states = ab_alloc(call->arena, n, sizeof(*states));

    for (size_t i = 0; i < n; i++) {
        const struct planned *job = &slice->plan->jobs[slice->from + i];
        sites[i] = job->site_id;
        apps[i] = job->req->app_id;
        states[i] = ab_enum_job_state.names[job->state];
        nodes[i] = job->req->num_nodes * INT64_C(1000000) / job->req->node_packing_count;
    }
    ab_bind_ids(call, "site_ids", sites, n);
    ab_bind_ids(call, "app_ids", apps, n);
    ab_bind_ids(call, "nodes", nodes, n);
    bind_texts(call, "states", states, n);
    return ab_run(call, &SQL_job_counts_add, err) ? 0 : -1;
}

static int add_edges(struct ab_call *call, const struct slice *slice, struct ab_error *err)
{
    const struct plan *plan = slice->plan;
    size_t n = 0, k = 0;
    for (size_t i = slice->from; i < slice->to; i++)
        n += plan->jobs[i].parents.n;
    if (n == 0)
        return 0;

    int64_t *parents = ab_alloc(call->arena, n, sizeof(*parents));
    int64_t *children = ab_alloc(call->arena, n, sizeof(*children));
    for (size_t i = slice->from; i < slice->to; i++)
        for (size_t p = 0; p < plan->jobs[i].parents.n; p++, k++) {
            parents[k] = plan->jobs[i].parents.v[p];
            children[k] = plan->ids[i];
        }
    ab_bind_ids(call, "parents", parents, n);
    ab_bind_ids(call, "children", children, n);
    return ab_run(call, &SQL_job_edges, err) ? 0 : -1;
}

/* Columns of all items, side by side. */
struct columns {
    int64_t *sites, *jobs;
    const char **directions, **locals, **remotes, **aliases;
    struct ab_db_value *recursive;
};

static struct columns columns_new(struct ab_call *call, size_t n)
{
    return (struct columns){
        .sites = ab_alloc(call->arena, n, sizeof(int64_t)),
        .jobs = ab_alloc(call->arena, n, sizeof(int64_t)),
        .directions = ab_alloc(call->arena, n, sizeof(char *)),
        .locals = ab_alloc(call->arena, n, sizeof(char *)),
        .remotes = ab_alloc(call->arena, n, sizeof(char *)),
        .aliases = ab_alloc(call->arena, n, sizeof(char *)),
        .recursive = ab_alloc(call->arena, n, sizeof(struct ab_db_value)),
    };
}

static int add_items(struct ab_call *call, const struct slice *slice, struct ab_error *err)
{
    const struct plan *plan = slice->plan;
    size_t n = 0, k = 0;
    for (size_t i = slice->from; i < slice->to; i++)
        n += plan->jobs[i].n_items;
    if (n == 0)
        return 0;

    struct columns c = columns_new(call, n);
    for (size_t i = slice->from; i < slice->to; i++)
        for (size_t m = 0; m < plan->jobs[i].n_items; m++, k++) {
            const struct slot_item *item = &plan->jobs[i].items[m];
            c.sites[k] = plan->jobs[i].site_id;
            c.jobs[k] = plan->ids[i];
            c.directions[k] = item->direction;
            c.recursive[k] = (struct ab_db_value){.type = AB_DB_BOOL, {.b = item->recursive}};
            c.locals[k] = item->local_path;
            c.remotes[k] = item->remote_path;
            c.aliases[k] = item->wish->location_alias;
        }
    ab_bind_ids(call, "site_ids", c.sites, n);
    ab_bind_ids(call, "job_ids", c.jobs, n);
    bind_texts(call, "directions", c.directions, n);
    struct ab_db_value recursive = {.type = AB_DB_ARRAY};
    recursive.items = c.recursive;
    recursive.n_items = n;
    ab_bind_value(call, "recursive", recursive);
    bind_texts(call, "local_paths", c.locals, n);
    bind_texts(call, "remote_paths", c.remotes, n);
    bind_texts(call, "location_aliases", c.aliases, n);
    return ab_run(call, &SQL_job_items, err) ? 0 : -1;
}

static int insert_slice(struct ab_call *call, const struct slice *slice, struct ab_error *err)
{
    if (copy(call, slice, &SQL_job_copy, job_row, err) < 0
        || copy(call, slice, &SQL_job_spec_copy, spec_row, err) < 0
        || copy(call, slice, &SQL_event_copy, event_row, err) < 0)
        return -1;
    if (add_counts(call, slice, err) < 0 || add_edges(call, slice, err) < 0)
        return -1;
    return add_items(call, slice, err);
}

int rows_insert(struct ab_call *call, const struct plan *plan, struct ab_error *err)
{
    ab_arena_t *kept = call->arena;
    int rc = 0;

    for (size_t from = 0; from < plan->n && rc == 0; from += SLICE) {
        size_t to = plan->n - from < SLICE ? plan->n : from + SLICE;
        AB_AUTO(ab_arena_destroy) ab_arena_t *scratch = ab_arena_new();
        call->arena = scratch;
        rc = insert_slice(call, &(struct slice){plan, from, to}, err);
        call->arena = kept;
    }
    return rc;
}
