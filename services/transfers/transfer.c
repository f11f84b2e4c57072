/* transfer.c - list, read and update transfer items
 *
 * An update stores the fields as given (there is no transition table); the lifecycle then looks
 * whether the job of the item has all its inputs, or outputs, and moves it and its children.
 */
#include "transfer.h"

#include "lifecycle/lifecycle.h"
#include "transfer.sql.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAKE_BATCH = 1000
};

/* Has a filter an index? Items that are not done have, and those of jobs that are found so. */
static bool finds_few(const struct transfer_query *q)
{
    bool open = AB_HAS(transfer_query, q, state) && q->state.n > 0;
    for (size_t i = 0; open && i < q->state.n; i++)
        open = q->state.v[i] != AB_TRANSFER_DONE;
    return open || AB_HAS(transfer_query, q, tags) || AB_HAS(transfer_query, q, job_state);
}

static bool is_job_state(const struct transfer_query *q)
{
    return !AB_HAS(transfer_query, q, job_state) || !*q->job_state
           || ab_enum_find(&ab_enum_job_state, q->job_state, strlen(q->job_state)) >= 0;
}

int transfer_list(struct ab_call *call, struct ab_error *err)
{
    /* A word that is no state matches nothing, and must not reach the database as one. */
    struct transfer_query query = *(const struct transfer_query *)call->req->query;
    bool found = is_job_state(&query);
    if (!found)
        query.has &= ~(UINT64_C(1) << AB_FIELD_transfer_query_job_state);
    struct ab_request req = *call->req;
    const struct ab_request *saved = call->req;
    req.query = &query;
    call->req = &req;
    const char *from = "transfer_items t";
    if (call->token_site)
        from = ab_printf(call->arena,
                         "(SELECT * FROM transfer_items WHERE site_id = %" PRId64 ") AS t",
                         call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_transfer,
        .query = call->req->route->query,
        .from = from,
        .owner = "t.owner_id",
        .id = "t.id",
        .where = found ? NULL : "false",
        .gathers = finds_few(&query),
    };
    int rc = ab_list_handler(call, &spec, err);
    call->req = saved;
    return rc;
}

static PGresult *read_items(struct ab_call *call, const int64_t *ids, size_t n,
                            struct ab_error *err)
{
    ab_bind_ids(call, "ids", ids, n);
    ab_bind_int(call, "token_site", call->token_site);
    return ab_run(call, &SQL_transfer_read, err);
}

int transfer_get(struct ab_call *call, struct ab_error *err)
{
    return ab_reply_one(call, &ab_schema_transfer, read_items(call, &call->req->id, 1, err), err);
}

/* A repeated id: its last item counts, as a whole. The list becomes sorted by id. */
struct place {
    int64_t id;
    size_t index;
};

static int by_id_then_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static size_t last_of_each(struct ab_call *call, const struct transfer *items, size_t n,
                           struct transfer **out, struct place **places)
{
    struct place *order = ab_alloc(call->arena, n, sizeof(*order));
    struct transfer *kept = ab_alloc(call->arena, n, sizeof(*kept));
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        order[i] = (struct place){items[i].id, i};
    qsort(order, n, sizeof(*order), by_id_then_place);
    for (size_t i = 0; i < n; i++) {
        if (m > 0 && kept[m - 1].id == order[i].id)
            m--;
        kept[m] = items[order[i].index];
        order[m++] = order[i];
    }
    *out = kept;
    *places = order;
    return m;
}

/* 400 that names each item which is not there; 1: all are. */
static int check_all_there(struct ab_call *call, const struct place *places, size_t n,
                           struct ab_error *err)
{
    int64_t *ids = ab_alloc(call->arena, n, sizeof(*ids));
    for (size_t i = 0; i < n; i++)
        ids[i] = places[i].id;
    ab_bind_ids(call, "ids", ids, n);
    ab_bind_int(call, "token_site", call->token_site);
    PGresult *missing = ab_run(call, &SQL_transfer_missing, err);
    if (!missing)
        return -1;
    int m = PQntuples(missing);
    if (m == 0)
        return 0;

    struct ab_error_item *items = ab_alloc(call->arena, (size_t)m, sizeof(*items));
    for (size_t i = 0, k = 0; i < n && k < (size_t)m; i++)
        if (places[i].id == ab_col_int(missing, (int)k, 0))
            items[k++] = (struct ab_error_item){(int64_t)places[i].index, places[i].id,
                                                "no such transfer item, or not yours"};
    ab_fail_kind(err, AB_EINVAL, "bad_reference",
                 "%d of the transfer items are not there or not yours (first: %" PRId64
                 "); nothing was changed",
                 m, items[0].id);
    if (err) {
        err->items = items;
        err->n_items = (size_t)m;
    }
    return -1;
}

static int reply_items(struct ab_call *call, const PGresult *rows)
{
    int n = PQntuples(rows), id = ab_col(rows, "id");
    int64_t *ids = ab_alloc(call->arena, (size_t)n, sizeof(*ids));
    for (int i = 0; i < n; i++)
        ids[i] = ab_col_int(rows, i, id);
    ab_record_ids(call, ids, (size_t)n);
    ab_reply_rows(call, &ab_schema_transfer, rows);
    return 0;
}

int transfer_patch(struct ab_call *call, struct ab_error *err)
{
    struct transfer *items;
    struct place *places;
    PGresult *rows;
    int64_t matched;

    if (call->req->body.n == 0) {
        ab_pack_array(&call->reply, 0);
        return 0;
    }
    size_t n = last_of_each(call, call->req->body.v, call->req->body.n, &items, &places);
    if (check_all_there(call, places, n, err) < 0
        || ab_item_step(call, items, n, &matched, &rows, err) < 0)
        return -1;
    if (matched < (int64_t)n) /* deleted between the two statements */
        return check_all_there(call, places, n, err) < 0
                   ? -1
                   : ab_fail(err, AB_EBUSY, "transfer items changed meanwhile; try again");
    return reply_items(call, rows);
}

int transfer_update(struct ab_call *call, struct ab_error *err)
{
    struct transfer item = *(const struct transfer *)call->req->body.v;
    PGresult *rows;
    int64_t matched;

    item.id = call->req->id;
    AB_SET(transfer, &item, id);
    rows = read_items(call, &item.id, 1, err);
    if (!rows)
        return -1;
    if (PQntuples(rows) == 0)
        return ab_not_found(call, err);
    if (ab_item_step(call, &item, 1, &matched, &rows, err) < 0)
        return -1;
    if (matched == 0)
        return ab_not_found(call, err);
    ab_record_ids(call, &item.id, 1);
    ab_reply_row(call, &ab_schema_transfer, rows, 0);
    return 0;
}

int transfers_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *rows = read_items(call, ids->v, ids->n, err);
    if (!rows)
        return -1;
    ab_reply_rows(call, &ab_schema_transfer, rows);
    return 0;
}

int transfer_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    PGresult *rows = read_items(call, ids->v, ids->n, err);
    if (!rows)
        return -1;
    if (PQntuples(rows) == 0)
        return ab_not_found(call, err);
    ab_reply_row(call, &ab_schema_transfer, rows, 0);
    return 0;
}

/* Items that waited for their next attempt become pending. */
int transfer_wake(struct ab_call *call, struct ab_error *err)
{
    int64_t n = ab_item_wake(call, WAKE_BATCH, err);
    return n < 0 ? -1 : n == WAKE_BATCH;
}
