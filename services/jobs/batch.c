/* batch.c - batch jobs: the launchers' allocations */
#include "batch.h"

#include "bad.h"
#include "batch.sql.h"
#include "notice.h"
#include <inttypes.h>

int batch_list(struct ab_call *call, struct ab_error *err)
{
    const char *from = "batch_jobs b";
    if (call->token_site)
        from = ab_printf(call->arena, "(SELECT * FROM batch_jobs WHERE site_id = %" PRId64 ") AS b",
                         call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_batch_job,
        .query = call->req->route->query,
        .from = from,
        .owner = "b.owner_id",
        .id = "b.id",
    };
    return ab_list_handler(call, &spec, err);
}

static PGresult *read_batch_jobs(struct ab_call *call, const int64_t *ids, size_t n,
                                 struct ab_error *err)
{
    ab_bind_ids(call, "ids", ids, n);
    ab_bind_int(call, "token_site", call->token_site);
    return ab_run(call, &SQL_batch_read, err);
}

int batch_get(struct ab_call *call, struct ab_error *err)
{
    return ab_reply_one(call, &ab_schema_batch_job, read_batch_jobs(call, &call->req->id, 1, err),
                        err);
}

int batch_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    return ab_reply_one(call, &ab_schema_batch_job, read_batch_jobs(call, ids->v, ids->n, err),
                        err);
}

int batches_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *r = read_batch_jobs(call, ids->v, ids->n, err);
    if (!r)
        return -1;
    ab_reply_rows(call, &ab_schema_batch_job, r);
    return 0;
}

/* The contract wants 400, not 404, for a site that is not there. */
int batch_create(struct ab_call *call, struct ab_error *err)
{
    const struct batch_job *req = call->req->body.v;
    PGresult *made = NULL;

    if (ab_site_allowed(call, req->site_id)) {
        made = ab_run(call, &SQL_batch_create, err);
        if (!made)
            return -1;
    }
    if (!made || PQntuples(made) == 0)
        return ab_fail_kind(err, AB_EINVAL, "bad_reference",
                            "site %" PRId64 " does not exist or is not yours", req->site_id);
    if (ab_reply_one(call, &ab_schema_batch_job, made, err) < 0)
        return -1;
    notice_reply(call, "create", "batch_job");
    return 0;
}

/* ---- updates */

static void bind_flags(struct ab_call *call, const char *name, const struct batch_job *items,
                       size_t n, int field)
{
    struct ab_db_value *flags = ab_alloc(call->arena, n, sizeof(*flags));
    for (size_t i = 0; i < n; i++)
        flags[i] = (struct ab_db_value){.type = AB_DB_BOOL, {.b = items[i].has >> field & 1}};
    struct ab_db_value value = {.type = AB_DB_ARRAY};
    value.items = flags;
    value.n_items = n;
    ab_bind_value(call, name, value);
}

/* Distinct ids, and all of them locked. */
static PGresult *store(struct ab_call *call, const struct batch_job *items, size_t n,
                       struct ab_error *err)
{
    ab_bind_each(call, &ab_schema_batch_job, items, n, "ids", "id", "states", "state",
                 "status_infos", "status_info", "scheduler_ids", "scheduler_id", "start_times",
                 "start_time", "end_times", "end_time", NULL);
    bind_flags(call, "set_scheduler_id", items, n, AB_FIELD_batch_job_scheduler_id);
    bind_flags(call, "set_start_time", items, n, AB_FIELD_batch_job_start_time);
    bind_flags(call, "set_end_time", items, n, AB_FIELD_batch_job_end_time);
    return ab_run(call, &SQL_batch_update, err);
}

static PGresult *lock(struct ab_call *call, const int64_t *ids, size_t n, struct ab_error *err)
{
    ab_bind_ids(call, "ids", ids, n);
    ab_bind_int(call, "token_site", call->token_site);
    return ab_run(call, &SQL_batch_lock, err);
}

int batch_update(struct ab_call *call, struct ab_error *err)
{
    struct batch_job item = *(const struct batch_job *)call->req->body.v;

    item.id = call->req->id;
    AB_SET(batch_job, &item, id);
    PGresult *locked = lock(call, &item.id, 1, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    if (ab_reply_one(call, &ab_schema_batch_job, store(call, &item, 1, err), err) < 0)
        return -1;
    notice_reply(call, "update", "batch_job");
    return 0;
}

static int check_all_there(struct ab_call *call, const PGresult *locked, const struct place *places,
                           size_t n, struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    int rows = PQntuples(locked), k = 0;

    for (size_t i = 0; i < n; i++) {
        while (k < rows && ab_col_int(locked, k, 0) < places[i].id)
            k++;
        if (k == rows || ab_col_int(locked, k, 0) != places[i].id)
            bad_add(&bad, places[i].index, places[i].id, "no such batch job, or not yours");
    }
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_EINVAL, "bad_reference",
                    "batch job %" PRId64 " does not exist or is not yours; nothing was changed",
                    bad.items[0].id);
}

/* A repeated id: its last item counts, as a whole. */
int batch_patch(struct ab_call *call, struct ab_error *err)
{
    const struct batch_job *sent = call->req->body.v;
    size_t n = call->req->body.n, m = 0;

    if (n == 0) {
        ab_pack_array(&call->reply, 0);
        return 0;
    }
    struct place *places = ab_alloc(call->arena, n, sizeof(*places));
    struct batch_job *items = ab_alloc(call->arena, n, sizeof(*items));
    for (size_t i = 0; i < n; i++)
        places[i] = (struct place){sent[i].id, i};
    place_sort(places, n);
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || places[i + 1].id != places[i].id)
            items[m++] = sent[places[i].index];

    struct ab_ids ids = place_ids(call, places, n);
    PGresult *locked = lock(call, ids.v, ids.n, err);
    if (!locked || check_all_there(call, locked, places, n, err) < 0)
        return -1;
    PGresult *stored = store(call, items, m, err);
    if (!stored)
        return -1;
    ab_record_ids(call, ids.v, ids.n);
    ab_reply_rows(call, &ab_schema_batch_job, stored);
    notice_reply(call, "bulk-update", "batch_job");
    return 0;
}

/* ---- the end */

/* Its jobs do not know it any more. 1 none is left that does, 0 the piece is full, -1. */
static int forget(struct ab_call *call, const struct ab_piece *piece, struct ab_error *err)
{
    for (;;) {
        if (check_time(call, err) < 0)
            return -1;
        PGresult *r = ab_run(call, &SQL_batch_forget, err);
        if (!r)
            return -1;
        if (ab_col_int(r, 0, 0) == 0)
            return 1;
        if (piece && ab_piece_full(piece))
            return 0;
    }
}

/* While its jobs are many, pieces forget it and nothing else: whoever deletes its row locks sessions,
 * and may have locked no job before. */
static int forget_many(struct ab_call *call, const struct ab_piece *piece, struct ab_error *err)
{
    PGresult *r = piece->may ? ab_run(call, &SQL_batch_many, err) : NULL;
    if (piece->may && !r)
        return -1;
    if (!r || !ab_col_bool(r, 0, 0))
        return 0;
    return forget(call, piece, err) < 0 ? -1 : 1;
}

/* Its row goes before the last jobs, which makes sessions forget it: the order of all locks. */
int batch_delete(struct ab_call *call, struct ab_error *err)
{
    struct ab_piece piece;

    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    ab_bind_int(call, "batch_id", call->req->id);
    PGresult *locked = lock(call, &call->req->id, 1, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    int more = forget_many(call, &piece, err);
    if (more != 0)
        return more < 0 ? -1 : ab_piece_more(&piece, call);
    if (!ab_run(call, &SQL_batch_delete, err) || forget(call, NULL, err) < 0)
        return -1;
    notice_id(call, "delete", "batch_job", call->req->id);
    return 0;
}
