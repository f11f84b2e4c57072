/* stats.h - what a service counts: calls by verb and status, latency, time in the database
 *
 * Workers add, the health thread and the verb `stats` read; everything is atomic.
 */
#ifndef AB_SERVICE_STATS_H
#define AB_SERVICE_STATS_H

#include "base/buf.h"
#include "bus/client.h"
#include "service.h"

struct stats *stats_new(const struct ab_service *service);
void stats_free(struct stats **self);

/* One call of a verb (NULL or unknown: counted as "other"). */
void stats_call(struct stats *self, const char *verb, int status, int64_t us, int64_t db_us);
void stats_replay(struct stats *self);
void stats_retry(struct stats *self);
void stats_timer(struct stats *self, const char *timer, bool ok, int64_t us);

/* Prometheus text; `replica` NULL: not there yet. */
void stats_text(struct stats *self, ab_replica_t *replica, struct ab_buf *out);
/* The body of `stats`: {verb: {"count", "errors", "us"}}. */
void stats_pack(struct stats *self, struct ab_buf *out);

#endif
