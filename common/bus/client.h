/* client.h - a service's end of the mesh: one I/O thread that owns all sockets
 *
 * A DEALER to every gateway (names re-resolved every 5 s), a PUB to every gateway's hint socket.
 * Requests wait in a mutex+cond queue for worker threads; replies come back through a list and an
 * eventfd.
 */
#ifndef AB_BUS_CLIENT_H
#define AB_BUS_CLIENT_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ab_replica ab_replica_t;
typedef struct ab_task ab_task_t; /* one request, from arrival to reply */

struct ab_replica_options {
    const char *service;         /* "jobs" */
    const char *instance;        /* "jobs-host-123-0a1b2c3d" */
    int capacity;                /* requests at a time, per gateway */
    const char *const *gateways; /* "tcp://host:7440", NULL-terminated; hint port = port + 1 */
    const char *curve_dir; /* SERVICE.key_secret, gateway.key; NULL: no CURVE (unit tests only) */
    int64_t beat_ms, dead_ms;
};

ab_replica_t *ab_replica_new(const struct ab_replica_options *options, struct ab_error *err);
void ab_replica_destroy(ab_replica_t **self); /* after the workers have been joined */

/* The I/O loop, on the calling thread: until drained after ab_replica_stop (or SIGTERM is read from
 * `signal_fd`, -1 none). Workers must be running (one may still be
 * busy with a request past its deadline when the loop has ended). Returns 0, or -1 when it could
 * not go on. */
int ab_replica_run(ab_replica_t *self, int signal_fd, struct ab_error *err);
void ab_replica_stop(ab_replica_t *self); /* any thread: DISCONNECT, finish what is here, leave */

/* Worker threads. Blocks for the next request; NULL: the replica stops, end the thread. */
ab_task_t *ab_replica_take(ab_replica_t *self);

/* What came. Pointers live as long as the task. */
struct ab_task_info {
    const char *verb;
    int64_t user;
    const char *username; /* NULL none */
    unsigned scopes;
    int64_t token_site;
    const char *key; /* Idempotency-Key or NULL */
    uint8_t uuid[16];
    const char *trace, *peer, *host;
    int64_t deadline_ms; /* arrival + what was left, ab_now_ms clock */
    const void *body;
    size_t body_len;
    int try; /* 0 first, more when re-sent */
};
const struct ab_task_info *ab_task_info(const ab_task_t *task);

/* Added to a status 200..299: this is the recorded reply of the same request, said before. */
#define AB_BUS_REPLAYED 1000

/* The status of a piece that is done, with more to do: the body is what the same request takes along
 * as `next`. Only for requests that had a `next`. */
#define AB_BUS_MORE 202

/* Any thread, once per task; the task is gone afterwards. The body is copied or, with `take`, a
 * malloc'ed buffer is taken over. */
void ab_replica_reply(ab_replica_t *self, ab_task_t **task, int status, void *body, size_t len,
                      bool take);

/* Any thread: tell all gateways. Lossy by design. Body is copied. */
void ab_replica_hint(ab_replica_t *self, char topic, int64_t owner, const void *body, size_t len);

struct ab_replica_stats {
    int gateways, queued, running;
    uint64_t taken, replied, lost_replies, hints, lost_hints;
};
void ab_replica_stats(ab_replica_t *self, struct ab_replica_stats *out);

#endif
