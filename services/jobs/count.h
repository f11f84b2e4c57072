/* count.h - job_counts: exact totals without counting, and the timers that keep them small */
#ifndef COUNT_H
#define COUNT_H

#include "service/service.h"

/* Totals for ab_list_spec: 0 and *total, 1 if the filters need a real count, -1. */
int count_jobs(struct ab_call *call, const void *query, int64_t *total, struct ab_error *err);
int count_events(struct ab_call *call, const void *query, int64_t *total, struct ab_error *err);

/* Timers. */
int count_fold(struct ab_call *call, struct ab_error *err);
int count_end_frozen(struct ab_call *call, struct ab_error *err);

#endif
