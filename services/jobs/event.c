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
    TAIL_AT_MOST = 1000
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

/* From now on: the lowest transaction that may still be running. */
static int start_cursor(struct ab_call *call, struct cursor *out, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_event_tail_start, err);
    if (!r)
        return -1;
    out->xid = ab_col_int(r, 0, 0);
    out->id = 0;
    return 0;
}

/* Whose rows are wanted; empty lists: all. */
struct wish {
    struct ab_ids sites, apps, jobs;
    const char **states;
    size_t n_states;
    struct ab_bytes tags;
};

static PGresult *tail(struct ab_call *call, const struct cursor *from, int64_t limit,
                      const struct wish *wish, struct ab_error *err)
{
    struct ab_db_value tags = {.type = AB_DB_TEXT};
    tags.p = wish->tags.n ? wish->tags.p : "{}";
    tags.n = wish->tags.n ? wish->tags.n : 2;

    ab_bind_int(call, "xid", from->xid);
    ab_bind_int(call, "id", from->id);
    ab_bind_int(call, "limit", limit);
    ab_bind_ids(call, "site_ids", wish->sites.v, wish->sites.n);
    ab_bind_ids(call, "app_ids", wish->apps.v, wish->apps.n);
    ab_bind_ids(call, "job_ids", wish->jobs.v, wish->jobs.n);
    bind_texts(call, "states", wish->states, wish->n_states);
    ab_bind_value(call, "tags", tags);
    return ab_run(call, &SQL_event_tail, err);
}

/* The rows that are wanted, as a list; *next is the cursor behind all that were read. */
static uint32_t pack_rows(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                          struct cursor *next)
{
    int n = PQntuples(r), wanted = ab_col(r, "wanted");
    uint32_t kept = 0;

    for (int i = 0; i < n; i++)
        kept += ab_col_bool(r, i, wanted);
    ab_pack_array(&call->reply, kept);
    for (int i = 0; i < n; i++)
        if (ab_col_bool(r, i, wanted))
            ab_reply_row(call, schema, r, i);
    if (n > 0)
        *next = (struct cursor){ab_col_int(r, n - 1, ab_col(r, "xid")),
                                ab_col_int(r, n - 1, ab_col(r, "id"))};
    return kept;
}

static void pack_cursor(struct ab_call *call, const char *key, const struct cursor *cursor)
{
    ab_pack_str(&call->reply, key);
    ab_pack_str(&call->reply,
                ab_printf(call->arena, "%" PRId64 "-%" PRId64, cursor->xid, cursor->id));
}

/* The token's site and the sites asked for; false: none in common. */
static bool narrow_to_token(const struct ab_call *call, struct ab_ids *sites)
{
    bool found = sites->n == 0;
    if (call->token_site == 0)
        return true;
    for (size_t i = 0; i < sites->n; i++)
        found |= sites->v[i] == call->token_site;
    *sites = (struct ab_ids){(int64_t *)&call->token_site, 1};
    return found;
}

/* For the gateway: {"next": cursor, "more": are there more at once?, "results": [...]} */
int event_tail(struct ab_call *call, struct ab_error *err)
{
    const struct event_tail *q = call->req->query;
    struct wish wish = {.sites = q->site_id, .apps = q->app_id, .jobs = q->job_id, .tags = q->tags};
    struct cursor at;
    int64_t limit = q->limit < TAIL_AT_MOST ? q->limit : TAIL_AT_MOST;
    PGresult *r = NULL;

    if (q->since && *q->since ? parse_cursor(q->since, &at, err) < 0
                              : start_cursor(call, &at, err) < 0)
        return -1;
    wish.n_states = q->state.n;
    wish.states = ab_alloc(call->arena, q->state.n ? q->state.n : 1, sizeof(*wish.states));
    for (size_t i = 0; i < q->state.n; i++)
        wish.states[i] = ab_enum_job_state.names[q->state.v[i]];
    bool any = narrow_to_token(call, &wish.sites);
    if (any && !(r = tail(call, &at, limit, &wish, err)))
        return -1;

    ab_pack_map(&call->reply, 3);
    ab_pack_str(&call->reply, "results");
    if (any)
        pack_rows(call, &ab_schema_tail_event, r, &at);
    else
        ab_pack_array(&call->reply, 0);
    pack_cursor(call, "next", &at);
    ab_pack_str(&call->reply, "more");
    ab_pack_bool(&call->reply, any && PQntuples(r) == limit);
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
    struct cursor at;
    int64_t limit = q->limit < TAIL_AT_MOST ? q->limit : TAIL_AT_MOST;

    if (q->has & ~may)
        return ab_fail(err, AB_ESCHEMA,
                       "with since=, only limit, job_id, tags and to_state may be asked for");
    if (*q->since ? parse_cursor(q->since, &at, err) < 0 : start_cursor(call, &at, err) < 0)
        return -1;
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
    PGresult *r = tail(call, &at, limit, &wish, err);
    if (!r)
        return -1;

    ab_pack_map(&call->reply, 3);
    ab_pack_str(&call->reply, "results");
    uint32_t kept = pack_rows(call, &ab_schema_event, r, &at);
    ab_pack_str(&call->reply, "count");
    ab_pack_int(&call->reply, kept);
    pack_cursor(call, "cursor", &at);
    return 0;
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
        .total = count_events,
    };
    return ab_list_handler(call, &spec, err);
}
