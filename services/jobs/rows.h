/* rows.h - planned jobs become rows */
#ifndef ROWS_H
#define ROWS_H

#include "plan.h"

/* jobs, job_specs, events by COPY; counts, edges and transfer items by one statement each. */
int rows_insert(struct ab_call *call, const struct plan *plan, struct ab_error *err);

#endif
