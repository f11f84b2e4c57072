/* count.h - job_counts: exact totals without counting, and the timers that keep them small */
#ifndef COUNT_H
#define COUNT_H

#include "service/service.h"

/* Totals for ab_list_spec: the statement, bound; NULL if the filters need a real count. */
const struct ab_sql *count_jobs(struct ab_call *call, const void *query);
const struct ab_sql *count_events(struct ab_call *call, const void *query);

/* Timers. */
int count_fold(struct ab_call *call, struct ab_error *err);
int count_end_frozen(struct ab_call *call, struct ab_error *err);

#endif
