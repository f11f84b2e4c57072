/* match.c - which jobs do the filters of a request mean?
 *
 * Found first, locked then: between the two a job may have moved on, so the filters are tried again
 * under the lock (match_again). Locking while searching would take locks in the order of the
 * search.
 */
#include "match.h"

#include "base/buf.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t match_states(const struct job_query *query)
{
    uint64_t wanted = MATCH_ALL_STATES;
    if (AB_HAS(job_query, query, state) && query->state.n > 0) {
        wanted = 0;
        for (size_t i = 0; i < query->state.n; i++)
            wanted |= UINT64_C(1) << query->state.v[i];
    }
    if (AB_HAS(job_query, query, state__ne))
        wanted &= ~(UINT64_C(1) << query->state__ne);
    return wanted;
}

/* Which of the jobs that match. */
struct bounds {
    int64_t after, upto; /* ids */
    bool free;           /* held by no session */
};

static void add(struct ab_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct ab_buf *out, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ab_buf_printf(out, "%s%s", out->len ? " AND " : "", text);
}

static const char *take(struct ab_call *call, struct ab_buf *text)
{
    const char *copy = ab_strndup(call->arena, text->data ? text->data : "", text->len);
    ab_buf_free(text);
    return copy;
}

static const char *about_specs(struct ab_call *call, const struct bounds *bounds)
{
    struct ab_buf out = {0};
    if (bounds->after > 0)
        add(&out, "s.id > %" PRId64, bounds->after);
    if (bounds->upto < INT64_MAX)
        add(&out, "s.id <= %" PRId64, bounds->upto);
    return take(call, &out);
}

static const char *about_jobs(struct ab_call *call, const struct bounds *bounds)
{
    struct ab_buf out = {0};
    if (bounds->after > 0)
        add(&out, "j.id > %" PRId64, bounds->after);
    if (bounds->upto < INT64_MAX)
        add(&out, "j.id <= %" PRId64, bounds->upto);
    if (bounds->free)
        add(&out, "j.session_id IS NULL");
    if (call->token_site)
        add(&out, "j.site_id = %" PRId64, call->token_site);
    return take(call, &out);
}

/* As ranges of one value: an equality would take the state out of the order again, and then the
 * primary key, with all tenants' jobs in it, would seem to do as well as jobs_state. */
static const char *const *by_state(struct ab_call *call)
{
    const struct job_query *query = call->req->query;
    uint64_t wanted = match_states(query);
    bool backwards = AB_HAS(job_query, query, ordering) && query->ordering == AB_JOB_BY_STATE_DESC;
    if (wanted == 0 || (wanted == MATCH_ALL_STATES && !backwards))
        return NULL;
    const char **out = ab_alloc(call->arena, (size_t)ab_enum_job_state.n + 1, sizeof(*out));
    size_t n = 0;
    for (int i = 0; i < ab_enum_job_state.n; i++) {
        const char *name = ab_enum_job_state.names[i];
        if (wanted >> i & 1)
            out[n++] = ab_printf(call->arena, "j.state >= '%s' AND j.state <= '%s'", name, name);
    }
    return out;
}

static bool by_time(const struct job_query *query)
{
    return AB_HAS(job_query, query, last_update_before)
           || AB_HAS(job_query, query, last_update_after);
}

/* Jobs are looked up one by one (behind a fence), unless a filter or the order has an index of theirs. */
static const char *both_tables(struct ab_call *call)
{
    const struct job_query *query = call->req->query;
    bool ordered = AB_HAS(job_query, query, ordering) && query->ordering != AB_JOB_BY_ID;
    if ((AB_HAS(job_query, query, state) && query->state.n > 0)
        || (AB_HAS(job_query, query, batch_job_id) && query->batch_job_id != 0)
        || (ordered && by_time(query)))
        return "job_specs s JOIN jobs j ON j.id = s.id AND j.owner_id = s.owner_id";
    return "job_specs s CROSS JOIN LATERAL (SELECT * FROM jobs k WHERE k.id = s.id OFFSET 0) AS j";
}

static struct ab_list_spec spec_within(struct ab_call *call, const struct bounds *bounds)
{
    const char *specs = about_specs(call, bounds), *jobs = about_jobs(call, bounds);
    struct ab_list_part *parts = ab_alloc(call->arena, 4, sizeof(*parts)); /* and an end */
    bool needs_jobs = bounds->free || call->token_site;

    parts[0] = (struct ab_list_part){
        .alias = "s.",
        .from = needs_jobs ? NULL : "job_specs s",
        .owner = "s.owner_id",
        .id = "s.id",
        .where = specs,
        .by_id = true,
    };
    parts[1] = (struct ab_list_part){
        .alias = "j.",
        .from = "jobs j",
        .owner = "j.owner_id",
        .id = "j.id",
        .where = jobs,
        .gathers = by_time(call->req->query),
    };
    if (!parts[1].gathers) {
        parts[1].branches = by_state(call);
        parts[1].alike = "j.state";
    }
    if (parts[1].gathers || parts[1].branches) {
        parts[2] = parts[1];
        parts[2].alias = "all.";
        parts[2].from =
            "jobs j JOIN job_specs s ON s.id = j.id"; /* the owner again would count twice */
        parts[2].all = true;
    }
    return (struct ab_list_spec){
        .out = &ab_schema_job,
        .query = call->req->route->query,
        .from = both_tables(call),
        .owner = "s.owner_id",
        .id = "s.id",
        .where = *specs && *jobs ? ab_printf(call->arena, "%s AND %s", specs, jobs)
                 : *specs        ? specs
                                 : jobs,
        .parts = parts,
    };
}

struct ab_list_spec match_spec(struct ab_call *call)
{
    return spec_within(call, &(struct bounds){.upto = INT64_MAX});
}

int match_ids(struct ab_call *call, bool free, int64_t after, int64_t upto, size_t limit,
              struct ab_ids *out, struct ab_error *err)
{
    const struct ab_list_spec spec = spec_within(call, &(struct bounds){after, upto, free});
    return ab_list_ids(call, &spec, limit, out, err);
}

static int by_id(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The id filter of the request, if it has one, has let these pass already. */
int match_again(struct ab_call *call, const struct ab_ids *locked, struct ab_ids *out,
                struct ab_error *err)
{
    struct job_query query = *(const struct job_query *)call->req->query;
    struct ab_request req = *call->req;
    const struct ab_request *saved = call->req;

    if (locked->n == 0) {
        *out = (struct ab_ids){0};
        return 0;
    }
    query.id.v = ab_memdup(call->arena, locked->v, locked->n * sizeof(*locked->v));
    query.id.n = locked->n;
    qsort(query.id.v, query.id.n, sizeof(*query.id.v), by_id);
    AB_SET(job_query, &query, id);
    req.query = &query;
    call->req = &req;
    const struct ab_list_spec spec = match_spec(call);
    int rc = ab_list_ids(call, &spec, locked->n, out, err);
    call->req = saved;
    return rc;
}

bool match_has_filter(const struct ab_call *call)
{
    const struct job_query *query = call->req->query;
    const uint64_t no_filters = UINT64_C(1) << AB_FIELD_job_query_limit
                                | UINT64_C(1) << AB_FIELD_job_query_offset
                                | UINT64_C(1) << AB_FIELD_job_query_ordering;
    return (query->has & ~no_filters) != 0;
}
