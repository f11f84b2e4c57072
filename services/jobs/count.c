/* count.c - job_counts: exact totals without counting, and the timers that keep them small
 *
 * Every statement that changes states adds signed rows to job_counts; their sum by site, app and
 * state is the truth at any snapshot, and a sum over some hundred rows beats counting a million.
 */
#include "count.h"

#include "bad.h"
#include "base/log.h"
#include "count.sql.h"
#include "match.h"
#include <string.h>

#define BIT(schema, field) (UINT64_C(1) << AB_FIELD_##schema##_##field)

static const int64_t nowhere[] = {0}; /* no site has this number; an empty list means all */

/* The sites that the token and the filter leave. */
static void bind_sites(struct ab_call *call, const struct ab_ids *wanted)
{
    if (call->token_site == 0) {
        ab_bind_ids(call, "site_ids", wanted->v, wanted->n);
        return;
    }
    bool found = wanted->n == 0;
    for (size_t i = 0; i < wanted->n; i++)
        found |= wanted->v[i] == call->token_site;
    ab_bind_ids(call, "site_ids", found ? &call->token_site : nowhere, 1);
}

const struct ab_sql *count_jobs(struct ab_call *call, const void *query)
{
    const struct job_query *q = query;
    const uint64_t counted = BIT(job_query, limit) | BIT(job_query, offset)
                             | BIT(job_query, ordering) | BIT(job_query, app_id)
                             | BIT(job_query, site_id) | BIT(job_query, state)
                             | BIT(job_query, state__ne);
    const struct ab_ids none = {0};

    if (q->has & ~counted)
        return NULL;
    bind_sites(call, AB_HAS(job_query, q, site_id) ? &q->site_id : &none);
    ab_bind_ids(call, "app_ids", &q->app_id, AB_HAS(job_query, q, app_id) && q->app_id ? 1 : 0);
    uint64_t wanted = match_states(q);
    const char *states[64];
    size_t n = 0;
    for (int i = 0; i < 64 && wanted != MATCH_ALL_STATES; i++)
        if (wanted >> i & 1)
            states[n++] = ab_enum_job_state.names[i];
    if (wanted == 0)
        bind_sites(call, &(struct ab_ids){.v = (int64_t *)nowhere, .n = 1});
    bind_texts(call, "states", states, n);
    return &SQL_job_total;
}

/* to_state is free text by contract: a word that is no state matches nothing. */
const struct ab_sql *count_events(struct ab_call *call, const void *query)
{
    const struct event_query *q = query;
    const uint64_t counted = BIT(event_query, limit) | BIT(event_query, offset)
                             | BIT(event_query, ordering) | BIT(event_query, to_state);
    const struct ab_ids none = {0};

    if (q->has & ~counted)
        return NULL;
    bind_sites(call, &none);
    bool filtered = AB_HAS(event_query, q, to_state) && *q->to_state;
    if (filtered && ab_enum_find(&ab_enum_job_state, q->to_state, strlen(q->to_state)) < 0) {
        ab_bind_ids(call, "site_ids", nowhere, 1);
        filtered = false;
    }
    bind_texts(call, "states", &q->to_state, filtered);
    return &SQL_event_total;
}

int count_fold(struct ab_call *call, struct ab_error *err)
{
    return ab_run(call, &SQL_fold_counts, err) ? 0 : -1;
}

/* Our COPY data is complete before a COPY begins, so one that waits this long is a frozen or
 * cut-off host's; it holds locks, and none of the server's timeouts applies to it. */
int count_end_frozen(struct ab_call *call, struct ab_error *err)
{
    ab_bind_text(call, "age", "5 seconds");
    PGresult *r = ab_run(call, &SQL_end_frozen_copies, err);
    if (!r)
        return -1;
    int64_t ended = ab_col_int(r, 0, 0);
    if (ended > 0)
        ab_log(AB_WARN, "copy.frozen_ended", AB_KV("backends", ended));
    return 0;
}
