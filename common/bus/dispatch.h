/* dispatch.h - the gateway's state machine: replicas, queues, deaths, deadlines; no socket, no
 * clock
 *
 * Messages go out through a callback and come in through ab_dispatch_receive; every function is
 * told the time. Failures are collected and their `done` called at the end of the entry points, so
 * that a `done` may submit and cancel freely.
 */
#ifndef AB_DISPATCH_H
#define AB_DISPATCH_H

#include "pending.h"

typedef struct ab_dispatch ab_dispatch_t;

/* Send without waiting to a peer that speaks `version`; `body` NULL for none, to be held if it is
 * kept. 0, or -1 with errno EHOSTUNREACH (the peer is gone) or EAGAIN (it takes no more now). */
typedef int ab_dispatch_send_f(void *arg, uint64_t peer, int version, char command,
                               const struct ab_buf *header, struct ab_shared *body);

struct ab_dispatch_options {
    int64_t beat_ms, dead_ms;
    size_t queue_limit; /* per service; 0 = 1024 */
    ab_dispatch_send_f *send;
    void *arg;
};

ab_dispatch_t *ab_dispatch_new(const struct ab_dispatch_options *options, int64_t now);
void ab_dispatch_destroy(ab_dispatch_t **self); /* no `done` is called */

uint64_t ab_dispatch_submit(ab_dispatch_t *self, struct ab_bus_request *request, int64_t now);
void ab_dispatch_cancel(ab_dispatch_t *self, uint64_t number, int64_t now);

/* One message. `key_name` is the name of the CURVE key that the link has, NULL where there is no
 * CURVE. */
struct ab_dispatch_message {
    uint64_t peer;
    const char *key_name;
    char command;
    const void *header;
    size_t header_len;
    const void *body;
    size_t body_len;
};
void ab_dispatch_receive(ab_dispatch_t *self, const struct ab_dispatch_message *message,
                         int64_t now);

/* Returns ms until it wants to be called again: 1 to beat_ms. */
int64_t ab_dispatch_tick(ab_dispatch_t *self, int64_t now);

bool ab_dispatch_stats(const ab_dispatch_t *self, size_t i, struct ab_bus_service_stats *out);
uint64_t ab_dispatch_strays(const ab_dispatch_t *self); /* messages that made no sense */

#endif
