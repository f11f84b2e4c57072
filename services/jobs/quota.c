/* quota.c - how many jobs and sites a user may have
 *
 * Jobs count while they have not ended: what a quota guards is the queues, and a user can always
 * make room by finishing, cancelling or deleting something.
 */
#include "quota.h"

#include "quota.sql.h"
#include <inttypes.h>

void quota_bind_jobs(struct ab_call *call)
{
    ab_bind_int(call, "max_jobs", ab_conf_int(call->conf, "max_jobs"));
}

static int used(struct ab_call *call, const struct ab_sql *sql, int64_t *n, struct ab_error *err)
{
    PGresult *r = ab_run(call, sql, err);
    if (!r)
        return -1;
    *n = ab_col_int(r, 0, 0);
    return 0;
}

int quota_check_jobs(struct ab_call *call, const PGresult *limit, size_t n, struct ab_error *err)
{
    int64_t most = ab_col_int(limit, 0, ab_col(limit, "most")), have;

    if (most <= 0)
        return 0;
    if (used(call, &SQL_quota_jobs_used, &have, err) < 0)
        return -1;
    if (have <= most && (int64_t)n <= most - have)
        return 0;
    return ab_fail_kind(err, AB_EDENIED, "quota",
                        "%zu more jobs are too many: you have %" PRId64
                        " that have not ended, and may have %" PRId64 " (max_jobs), so %" PRId64
                        " would do; no job was created. Wait until some have ended, cancel or "
                        "delete some, or ask those who run this centre for a higher limit",
                        n, have, most, have < most ? most - have : 0);
}

int quota_check_site(struct ab_call *call, struct ab_error *err)
{
    int64_t have;

    ab_bind_int(call, "max_sites", ab_conf_int(call->conf, "max_sites"));
    PGresult *limit = ab_run(call, &SQL_quota_sites, err);
    if (!limit)
        return -1;
    int64_t most = ab_col_int(limit, 0, ab_col(limit, "most"));
    if (most <= 0)
        return 0;
    if (used(call, &SQL_quota_sites_used, &have, err) < 0)
        return -1;
    if (have < most)
        return 0;
    return ab_fail_kind(err, AB_EDENIED, "quota",
                        "you have %" PRId64 " sites, and may have %" PRId64
                        " (max_sites): delete one that is no longer used, or ask those who run "
                        "this centre for a higher limit",
                        have, most);
}
