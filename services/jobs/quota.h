/* quota.h - how many jobs and sites a user may have */
#ifndef QUOTA_H
#define QUOTA_H

#include "service/service.h"

/* For SQL_quota_jobs, which a create sends with its first statements. */
void quota_bind_jobs(struct ab_call *call);

/* limit: the row of SQL_quota_jobs. -1 (403) when n more jobs would be too many. */
int quota_check_jobs(struct ab_call *call, const PGresult *limit, size_t n, struct ab_error *err);

/* -1 (403) when one more site would be too many. */
int quota_check_site(struct ab_call *call, struct ab_error *err);

#endif
