/* plans.h - a database with statistics of a real one, and what a plan must not do there */
#ifndef PLANS_H
#define PLANS_H

#include "db/db.h"
#include <stdbool.h>

/* 240,000 jobs with specs, some with parents, items and several events each (in two partitions), as
 * many requests, and the rest in proportion; analysed. */
void plans_fill(ab_db_t *owner);

/* Of a large table every row is read: by a sequential scan, or by an index without a condition
 * (unless it is a partial one, which holds no more than what it is for). The table that is read, or
 * NULL: the plan is good. `plan` is EXPLAIN (FORMAT JSON). */
const char *plans_reads_all(const char *plan, const char **how);

/* Is the head of a queue taken off an index in its order, so that no more is read than is wanted? The
 * index, or NULL: all of the queue is read and sorted. */
const char *plans_queue(const char *plan);

#endif
