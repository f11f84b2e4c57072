/* lifecycle.c - how jobs change state: the calls around lifecycle.sql
 *
 * Nothing is decided here: the statements lock, plan and write. What is left is to hand the items
 * over, to run job_release whenever a parent finished or was reopened, and to say whose events
 * there are.
 */
#include "lifecycle.h"
#include "lifecycle.sql.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static struct ab_ids ids_of(struct ab_call *call, const PGresult *r, int row, const char *column)
{
    struct ab_ids ids = {0};
    ids.v = ab_col_int8s(r, row, ab_col(r, column), call->arena, &ids.n);
    return ids;
}

static int64_t number_of(const PGresult *r, const char *column)
{
    return ab_col_int(r, 0, ab_col(r, column));
}

/* Two wishes for one job would be planned twice from the same locked row. */
static int check_distinct(struct ab_call *call, const struct job *items, size_t n,
                          struct ab_error *err)
{
    int64_t *ids = ab_alloc(call->arena, n + 1, sizeof(*ids));
    for (size_t i = 0; i < n; i++)
        ids[i] = items[i].id;
    qsort(ids, n, sizeof(*ids), by_number);
    for (size_t i = 1; i < n; i++)
        if (ids[i] == ids[i - 1])
            return ab_fail(err, AB_EINVAL,
                           "job %" PRId64 " is in the list more than once: send one item a job",
                           ids[i]);
    return 0;
}

static int release_children(struct ab_call *call, const struct ab_ids *finished,
                            const struct ab_ids *reopened, struct ab_error *err)
{
    if (finished->n == 0 && reopened->n == 0)
        return 0;
    ab_bind_ids(call, "finished", finished->v, finished->n);
    ab_bind_ids(call, "reopened", reopened->v, reopened->n);
    return ab_run(call, &SQL_job_release, err) ? 0 : -1;
}

int ab_job_step(struct ab_call *call, const struct job *items, size_t n, struct ab_step_result *out,
                struct ab_error *err)
{
    *out = (struct ab_step_result){0};
    if (n == 0)
        return 0;
    if (check_distinct(call, items, n, err) < 0)
        return -1;
    ab_bind_each(call, &ab_schema_job, items, n, "ids", "id", "states", "state", "timestamps",
                 "state_timestamp", "data", "state_data", "leases", "lease", NULL);
    PGresult *r = ab_run(call, &SQL_job_step, err);
    if (!r)
        return -1;
    out->matched = number_of(r, "matched");
    out->moved = number_of(r, "moved");
    out->finished = ids_of(call, r, 0, "finished");
    out->reopened = ids_of(call, r, 0, "reopened");
    out->stale = ids_of(call, r, 0, "stale");
    out->moved_ids = ids_of(call, r, 0, "moved_ids");
    out->moved_to = ids_of(call, r, 0, "moved_to");
    if (out->moved > 0)
        call->events = true;
    return release_children(call, &out->finished, &out->reopened, err);
}

/* ---- fields */

enum field_set {
    HOT,
    COLD
};

static bool sends_any(const struct job *item, enum field_set set)
{
    if (set == HOT)
        return AB_HAS(job, item, num_nodes) || AB_HAS(job, item, ranks_per_node)
               || AB_HAS(job, item, node_packing_count) || AB_HAS(job, item, wall_time_min)
               || AB_HAS(job, item, pending_file_cleanup) || AB_HAS(job, item, return_code)
               || AB_HAS(job, item, batch_job_id) || AB_HAS(job, item, priority);
    return AB_HAS(job, item, tags) || AB_HAS(job, item, data) || AB_HAS(job, item, workdir)
           || AB_HAS(job, item, launch_params) || AB_HAS(job, item, threads_per_rank)
           || AB_HAS(job, item, threads_per_core) || AB_HAS(job, item, gpus_per_rank)
           || AB_HAS(job, item, serialized_parameters) || AB_HAS(job, item, serialized_return_value)
           || AB_HAS(job, item, serialized_exception) || AB_HAS(job, item, parameters)
           || AB_HAS(job, item, retry);
}

static struct job *pick(struct ab_call *call, const struct job *items, size_t n, enum field_set set,
                        size_t *picked)
{
    struct job *some = ab_alloc(call->arena, n + 1, sizeof(*some));
    *picked = 0;
    for (size_t i = 0; i < n; i++)
        if (sends_any(&items[i], set))
            some[(*picked)++] = items[i];
    return some;
}

/* Columns that may be set to null need a flag beside the value. `field` is the field's number. */
static void bind_flags(struct ab_call *call, const char *name, const struct job *items, size_t n,
                       int field)
{
    struct ab_db_value *flags = ab_alloc(call->arena, n + 1, sizeof(*flags));
    for (size_t i = 0; i < n; i++)
        flags[i] = (struct ab_db_value){.type = AB_DB_BOOL, .b = (items[i].has >> field) & 1};
    ab_bind_value(call, name,
                  (struct ab_db_value){.type = AB_DB_ARRAY, .items = flags, .n_items = n});
}

static int set_hot(struct ab_call *call, const struct job *items, size_t n, struct ab_error *err)
{
    ab_bind_each(call, &ab_schema_job, items, n, "ids", "id", "num_nodes", "num_nodes",
                 "ranks_per_node", "ranks_per_node", "node_packing_count", "node_packing_count",
                 "wall_time_min", "wall_time_min", "pending_file_cleanup", "pending_file_cleanup",
                 "return_code", "return_code", "batch_job_id", "batch_job_id", "priority",
                 "priority", NULL);
    bind_flags(call, "set_return_code", items, n, AB_FIELD_job_return_code);
    bind_flags(call, "set_batch_job_id", items, n, AB_FIELD_job_batch_job_id);
    return ab_run(call, &SQL_job_fields, err) ? 0 : -1;
}

static int set_cold(struct ab_call *call, const struct job *items, size_t n, struct ab_error *err)
{
    ab_bind_each(call, &ab_schema_job, items, n, "ids", "id", "tags", "tags", "data", "data",
                 "workdir", "workdir", "launch_params", "launch_params", "threads_per_rank",
                 "threads_per_rank", "threads_per_core", "threads_per_core", "gpus_per_rank",
                 "gpus_per_rank", "serialized_parameters", "serialized_parameters",
                 "serialized_return_value", "serialized_return_value", "serialized_exception",
                 "serialized_exception", "parameters", "parameters", "retry", "retry", NULL);
    bind_flags(call, "set_retry", items, n, AB_FIELD_job_retry);
    return ab_run(call, &SQL_job_spec_fields, err) ? 0 : -1;
}

int ab_job_set_fields(struct ab_call *call, const struct job *items, size_t n, struct ab_error *err)
{
    size_t hot, cold;
    struct job *some = pick(call, items, n, HOT, &hot);
    if (hot > 0 && set_hot(call, some, hot, err) < 0)
        return -1;
    some = pick(call, items, n, COLD, &cold);
    return cold > 0 ? set_cold(call, some, cold, err) : 0;
}

/* ---- transfer items */

struct place {
    int64_t id;
    size_t at;
};

static int by_id_then_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->id != y->id)
        return x->id > y->id ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

/* An id that comes twice: the last one counts. In the order of ids. */
static struct transfer *last_of_each(struct ab_call *call, const struct transfer *items, size_t n,
                                     size_t *left)
{
    struct place *places = ab_alloc(call->arena, n + 1, sizeof(*places));
    struct transfer *kept = ab_alloc(call->arena, n + 1, sizeof(*kept));
    for (size_t i = 0; i < n; i++)
        places[i] = (struct place){items[i].id, i};
    qsort(places, n, sizeof(*places), by_id_then_place);
    *left = 0;
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || places[i].id != places[i + 1].id)
            kept[(*left)++] = items[places[i].at];
    return kept;
}

int ab_item_step(struct ab_call *call, const struct transfer *items, size_t n, int64_t *matched,
                 PGresult **rows, struct ab_error *err)
{
    size_t distinct;
    struct transfer *kept = last_of_each(call, items, n, &distinct);
    *rows = NULL;
    *matched = 0;
    ab_bind_each(call, &ab_schema_transfer, kept, distinct, "ids", "id", "states", "state",
                 "task_ids", "task_id", "infos", "transfer_info", NULL);
    PGresult *r = ab_run(call, &SQL_item_lock, err);
    if (!r)
        return -1;
    /* In the caller's count, in which repeated ids stand more than once. */
    *matched = number_of(r, "matched") + (int64_t)(n - distinct);
    if (*matched < (int64_t)n)
        return 0;
    r = *rows = ab_run(call, &SQL_item_step, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return 0;
    if (number_of(r, "moved") > 0)
        call->events = true;
    struct ab_ids finished = ids_of(call, r, 0, "finished"), none = {0};
    return release_children(call, &finished, &none, err);
}

/* ---- the next attempt */

static int64_t wake(struct ab_call *call, const struct ab_sql *sql, int64_t batch,
                    struct ab_error *err)
{
    ab_bind_int(call, "batch", batch);
    PGresult *r = ab_run(call, sql, err);
    return r ? strtoll(PQcmdTuples(r), NULL, 10) : -1;
}

int64_t ab_job_wake(struct ab_call *call, int64_t batch, struct ab_error *err)
{
    return wake(call, &SQL_job_wake, batch, err);
}

int64_t ab_item_wake(struct ab_call *call, int64_t batch, struct ab_error *err)
{
    return wake(call, &SQL_item_wake, batch, err);
}

/* ---- sessions, deletion */

static void add_owners(struct ab_call *call, const struct ab_ids *owners)
{
    struct ab_ids *all = &call->event_owners;
    if (owners->n == 0)
        return;
    int64_t *v = ab_alloc(call->arena, all->n + owners->n, sizeof(*v));
    if (all->n > 0)
        memcpy(v, all->v, all->n * sizeof(*v));
    memcpy(v + all->n, owners->v, owners->n * sizeof(*v));
    *all = (struct ab_ids){v, all->n + owners->n};
}

int ab_session_end(struct ab_call *call, const int64_t *sessions, size_t n,
                   struct ab_session_end *out, struct ab_error *err)
{
    *out = (struct ab_session_end){.at_most = out->at_most};
    if (n == 0)
        return 0;
    ab_bind_ids(call, "sessions", sessions, n);
    if (out->at_most > 0)
        ab_bind_int(call, "batch", out->at_most);
    else
        ab_bind_null(call, "batch");
    PGresult *r = ab_run(call, &SQL_session_end, err);
    if (!r)
        return -1;
    out->ended = number_of(r, "sessions");
    out->freed = number_of(r, "freed");
    out->timed_out = number_of(r, "timed_out");
    out->more = ab_col_bool(r, 0, ab_col(r, "more"));
    struct ab_ids owners = ids_of(call, r, 0, "owners");
    add_owners(call, &owners);
    return 0;
}

int ab_job_delete(struct ab_call *call, const int64_t *ids, size_t n, struct ab_ids *deleted,
                  struct ab_error *err)
{
    *deleted = (struct ab_ids){0};
    if (n == 0)
        return 0;
    ab_bind_ids(call, "ids", ids, n);
    PGresult *r = ab_run(call, &SQL_job_delete, err);
    if (!r)
        return -1;
    *deleted = ids_of(call, r, 0, "ids");
    return 0;
}
