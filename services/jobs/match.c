/* match.c - which jobs do the filters of a request mean?
 *
 * Found first, locked then: between the two a job may have moved on, so the filters are tried again
 * under the lock (match_again). Locking while searching would take locks in the order of the
 * search.
 */
#include "match.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ab_list_spec match_spec(struct ab_call *call, const char *more)
{
    const char *site = "";
    if (call->token_site)
        site = ab_printf(call->arena, " AND j.site_id = %" PRId64, call->token_site);
    return (struct ab_list_spec){
        .out = &ab_schema_job,
        .query = call->req->route->query,
        .from = ab_printf(call->arena, "job_specs s JOIN jobs j ON j.id = s.id%s %s", site, more),
        .owner = "s.owner_id",
        .id = "s.id",
    };
}

int match_ids(struct ab_call *call, const char *more, int64_t after, size_t limit,
              struct ab_ids *out, struct ab_error *err)
{
    const struct ab_list_spec spec =
        match_spec(call, ab_printf(call->arena, "%s AND s.id > %" PRId64, more, after));
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
    const struct ab_list_spec spec = match_spec(call, "");
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
