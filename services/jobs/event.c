/* event.c - events: lists, and the log behind a cursor
 *
 * A cursor is "<xid>-<id>". Ids alone would not do: a transaction that drew its ids early and
 * commits late would be skipped. Rows come in the order (xid, id), and only those that no running
 * transaction can still slip under, so a reader that goes on from its last cursor misses nothing
 * and sees nothing twice.
 */
#include "event.h"

#include "bad.h"
#include "base/str.h"
#include "count.h"
#include "event.sql.h"
#include <inttypes.h>
#include <string.h>

enum {
    TAIL_AT_MOST = 1000,
    TAIL_BYTES = 1 << 20, /* of their data: what the one who changed a state had to say is free */
};

struct cursor {
    int64_t xid, id;
};

static int parse_cursor(const char *text, struct cursor *out, struct ab_error *err)
{
    const char *dash = strchr(text, '-');
    if (!dash || ab_parse_i64(text, (size_t)(dash - text), 0, INT64_MAX, &out->xid) < 0
        || ab_parse_i64(dash + 1, strlen(dash + 1), 0, INT64_MAX, &out->id) < 0)
        return ab_fail(err, AB_ESCHEMA, "since=%s is no cursor; use one that an answer gave you",
                       text);
    return 0;
}

/* Whose rows are wanted; empty lists: all. */
struct wish {
    struct ab_ids sites, apps, jobs;
    const char **states;
    size_t n_states;
    struct ab_bytes tags;
};

/* A page of the log, and where its reader stands. */
struct page {
    const PGresult *r;
    int n;            /* rows */
    struct cursor at; /* behind the last one */
    struct cursor head;
    bool more, held;
};

/* 0-0 is the oldest event that there is: where forgetting has come to. Transactions that were open at
 * the same time leave some behind it for a while, and whoever began with those would have a gap. */
static int find_oldest(struct ab_call *call, struct cursor *at, struct ab_error *err)
{
    if (at->xid != 0 || at->id != 0)
        return 0;
    PGresult *r = ab_run(call, &SQL_event_floor, err);
    if (!r)
        return -1;
    if (PQntuples(r) > 0)
        *at = (struct cursor){ab_col_int(r, 0, 0), ab_col_int(r, 0, 1)};
    return 0;
}

/* Behind the cursor `since`; an empty one is now. */
static int tail(struct ab_call *call, const char *since, int64_t limit, const struct wish *wish,
                struct page *out, struct ab_error *err)
{
    struct ab_db_value tags = {.type = AB_DB_TEXT};
    struct cursor from = {0};
    bool now = !since || !*since;

    if (!now && (parse_cursor(since, &from, err) < 0 || find_oldest(call, &from, err) < 0))
        return -1;
    tags.p = wish->tags.n ? wish->tags.p : "{}";
    tags.n = wish->tags.n ? wish->tags.n : 2;
    limit = limit < TAIL_AT_MOST ? limit : TAIL_AT_MOST;

    if (now)
        ab_bind_null(call, "xid");
    else
        ab_bind_int(call, "xid", from.xid);
    ab_bind_int(call, "id", from.id);
    ab_bind_int(call, "limit", limit);
    ab_bind_int(call, "bytes", TAIL_BYTES);
    ab_bind_ids(call, "site_ids", wish->sites.v, wish->sites.n);
    ab_bind_ids(call, "app_ids", wish->apps.v, wish->apps.n);
    ab_bind_ids(call, "job_ids", wish->jobs.v, wish->jobs.n);
    bind_texts(call, "states", wish->states, wish->n_states);
    ab_bind_value(call, "tags", tags);
    PGresult *r = ab_run(call, &SQL_event_tail, err);
    if (!r)
        return -1;
    if (ab_col_bool(r, 0, ab_col(r, "lost")))
        return ab_fail(
            err, AB_EGONE,
            "events behind the cursor %s are kept no longer; begin again without one, or "
            "from 0-0, the oldest event there is",
            since);
    *out = (struct page){.r = r, .at = from};
    out->head.xid = ab_col_int(r, 0, ab_col(r, "head"));
    out->held = ab_col_bool(r, 0, ab_col(r, "held"));
    out->n = ab_col_null(r, 0, ab_col(r, "id")) ? 0 : PQntuples(r);
    int64_t there = ab_col_int(r, 0, ab_col(r, "n"));
    out->more = there > out->n || (there > 0 && there == limit);
    if (now)
        out->at = out->head;
    else if (out->n > 0)
        out->at = (struct cursor){ab_col_int(r, out->n - 1, ab_col(r, "xid")),
                                  ab_col_int(r, out->n - 1, ab_col(r, "id"))};
    return 0;
}

/* The rows that are wanted, as a list: how many. */
static uint32_t pack_rows(struct ab_call *call, const struct ab_schema *schema,
                          const struct page *page)
{
    int wanted = ab_col(page->r, "wanted");
    uint32_t kept = 0;

    for (int i = 0; i < page->n; i++)
        kept += ab_col_bool(page->r, i, wanted);
    ab_pack_array(&call->reply, kept);
    for (int i = 0; i < page->n; i++)
        if (ab_col_bool(page->r, i, wanted))
            ab_reply_row(call, schema, page->r, i);
    return kept;
}

static void pack_cursor(struct ab_call *call, const char *key, const struct cursor *cursor)
{
    ab_pack_str(&call->reply, key);
    ab_pack_str(&call->reply,
                ab_printf(call->arena, "%" PRId64 "-%" PRId64, cursor->xid, cursor->id));
}

/* The token's site and the sites asked for. None in common: a site that there is not. */
static void narrow_to_token(const struct ab_call *call, struct ab_ids *sites)
{
    static const int64_t none = 0;
    bool found = sites->n == 0;

    if (call->token_site == 0)
        return;
    for (size_t i = 0; i < sites->n; i++)
        found |= sites->v[i] == call->token_site;
    *sites = (struct ab_ids){(int64_t *)(found ? &call->token_site : &none), 1};
}

/* For the gateway, which asks for many owners at once: a list of those that it should look after. */
int event_moved(struct ab_call *call, struct ab_error *err)
{
    const struct event_moved *q = call->req->query;

    if (q->owner.n != q->xid.n || q->owner.n != q->id.n)
        return ab_fail(err, AB_EINVAL, "each owner has one place: a transaction and an event");
    ab_bind_ids(call, "owners", q->owner.v, q->owner.n);
    ab_bind_ids(call, "xids", q->xid.v, q->xid.n);
    ab_bind_ids(call, "places", q->id.v, q->id.n);
    PGresult *r = ab_run(call, &SQL_event_moved, err);
    if (!r)
        return -1;
    ab_pack_array(&call->reply, (uint32_t)PQntuples(r));
    for (int i = 0; i < PQntuples(r); i++)
        ab_pack_int(&call->reply, ab_col_int(r, i, 0));
    return 0;
}

/* For the gateway: {"next": cursor, "more": are there more at once?, "head": the page knows everything
 * below this cursor, "held": more have happened, but an older transaction is still open,
 * "results": [...]} */
int event_tail(struct ab_call *call, struct ab_error *err)
{
    const struct event_tail *q = call->req->query;
    struct wish wish = {.sites = q->site_id, .apps = q->app_id, .jobs = q->job_id, .tags = q->tags};
    struct page page;

    wish.n_states = q->state.n;
    wish.states = ab_alloc(call->arena, q->state.n ? q->state.n : 1, sizeof(*wish.states));
    for (size_t i = 0; i < q->state.n; i++)
        wish.states[i] = ab_enum_job_state.names[q->state.v[i]];
    narrow_to_token(call, &wish.sites);
    if (tail(call, q->since, q->limit, &wish, &page, err) < 0)
        return -1;

    ab_pack_map(&call->reply, 5);
    ab_pack_str(&call->reply, "results");
    pack_rows(call, &ab_schema_tail_event, &page);
    pack_cursor(call, "next", &page.at);
    pack_cursor(call, "head", &page.head);
    ab_pack_str(&call->reply, "more");
    ab_pack_bool(&call->reply, page.more);
    ab_pack_str(&call->reply, "held");
    ab_pack_bool(&call->reply, page.held);
    return 0;
}

/* ---- GET /events/ */

#define BIT(field) (UINT64_C(1) << AB_FIELD_event_query_##field)

/* ?since=CURSOR: oldest first, with the cursor to go on from. An empty one: from now on. */
static int list_since(struct ab_call *call, const struct event_query *q, struct ab_error *err)
{
    const uint64_t may = BIT(since) | BIT(limit) | BIT(offset) | BIT(job_id) | BIT(to_state)
                         | BIT(tags) | BIT(ordering);
    struct wish wish = {0};
    struct page page;

    if (q->has & ~may)
        return ab_fail(err, AB_ESCHEMA,
                       "with since=, only limit, job_id, tags and to_state may be asked for");
    if (AB_HAS(event_query, q, job_id))
        wish.jobs = q->job_id;
    if (AB_HAS(event_query, q, tags))
        wish.tags = q->tags;
    if (AB_HAS(event_query, q, to_state)) {
        if (ab_enum_find(&ab_enum_job_state, q->to_state, strlen(q->to_state)) < 0)
            return ab_fail(err, AB_ESCHEMA, "there is no job state %s", q->to_state);
        wish.states = ab_memdup(call->arena, &q->to_state, sizeof(q->to_state));
        wish.n_states = 1;
    }
    narrow_to_token(call, &wish.sites);
    if (tail(call, q->since, q->limit, &wish, &page, err) < 0)
        return -1;

    ab_pack_map(&call->reply, 3);
    ab_pack_str(&call->reply, "results");
    uint32_t kept = pack_rows(call, &ab_schema_event, &page);
    ab_pack_str(&call->reply, "count");
    ab_pack_int(&call->reply, kept);
    pack_cursor(call, "cursor", &page.at);
    return 0;
}

/* As text of ours: rare states have an index of their own, which a parameter does not imply. */
static const char *to_state_text(struct ab_call *call, const struct event_query *q)
{
    int state = AB_HAS(event_query, q, to_state)
                    ? ab_enum_find(&ab_enum_job_state, q->to_state, strlen(q->to_state))
                    : -1;
    return state < 0 ? NULL
                     : ab_printf(call->arena, "e.to_state = '%s'", ab_enum_job_state.names[state]);
}

int event_list(struct ab_call *call, struct ab_error *err)
{
    const struct event_query *q = call->req->query;
    const char *from = "events e";

    if (AB_HAS(event_query, q, since) && q->since)
        return list_since(call, q, err);
    if (call->token_site)
        from = ab_printf(call->arena,
                         "events e JOIN jobs j ON j.id = e.job_id AND j.site_id = %" PRId64,
                         call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_event,
        .query = call->req->route->query,
        .from = from,
        .owner = "e.owner_id",
        .id = "e.id",
        .default_order = "timestamp DESC",
        .where = to_state_text(call, q),
        .total = count_events,
        .total_first = AB_HAS(event_query, q, to_state),
    };
    return ab_list_handler(call, &spec, err);
}
