/* lease.h - the session of a launcher: acquire, heartbeat, give back
 *
 * One thread with its own HTTPS client, so that a slow centre never stops the launcher's loop. The
 * loop says what it wants and polls lease_fd(). A session that is gone (404: it was swept) is
 * replaced by a new one, and all jobs held under the old one are reported lost.
 */
#ifndef LEASE_H
#define LEASE_H

#include "client/api.h"
#include "schema/schema.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct lease lease_t;

struct lease_options {
    const struct ab_client_file *file;
    int64_t site_id, batch_job_id; /* batch_job_id 0: none */
    const char *filter_tags;       /* JSON object */
    const char *sort_by;           /* NULL: the default order */
    bool serial_only;
    int64_t heartbeat_ms; /* at most; a third of what is left of the lease if that is less */
};

struct lease_want {
    int max_jobs;               /* 1 to 2048 */
    int max_nodes;              /* per job */
    double max_aggregate_nodes; /* below 0: no budget */
    int max_minutes;            /* at least 1 */
};

/* Jobs of one acquire; they live in the batch's arena until the last one is dropped. */
struct lease_batch {
    struct lease_batch *next;
    ab_arena_t *arena;
    struct ab_list jobs; /* struct job */
    int64_t session;     /* under which they were leased */
    size_t refs;
};
void lease_batch_drop(struct lease_batch *batch);

/* The thread opens the session, and tries for as long as the centre is away. */
lease_t *lease_new(const struct lease_options *options, struct ab_error *err);

int lease_fd(const lease_t *self); /* an eventfd: read it, then ask the four below */
bool lease_refused(lease_t *self, struct ab_error *err); /* there will never be a session */
void lease_ask(lease_t *self, const struct lease_want *want);
bool lease_asking(lease_t *self);              /* an answer is still to come */
struct lease_batch *lease_take(lease_t *self); /* NULL: none */
/* Next lease whose job is to be killed: the user cancelled it, or it is not ours any more. */
struct lease_news {
    int64_t job;
    int lease;
    bool lost;
};
bool lease_news(lease_t *self, struct lease_news *out);

void lease_drop(lease_t *self, int64_t job, int lease); /* over: named in no heartbeat any more */

/* Stops the thread and deletes the session: what is still leased goes back. At most timeout_ms. */
void lease_end(lease_t **self, int64_t timeout_ms);

#endif
