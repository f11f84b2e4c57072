/* uplink.h - the site's way to the centre: API calls of the modules, a few at a time
 *
 * Threads with an HTTPS client each take calls from a bounded queue; answers come back through
 * another, announced on a descriptor. The token stays here: modules never see it.
 */
#ifndef SITE_UPLINK_H
#define SITE_UPLINK_H

#include "base/buf.h"
#include "base/error.h"
#include "base/trace.h"
#include "client/api.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPLINK_QUEUE 256

typedef struct uplink uplink_t;

struct uplink_call {
    char link[64];   /* who asked; "" the broker itself */
    uint64_t number; /* the asker's */
    char method[8];
    char trace[AB_TRACE_TEXT]; /* traceparent; "": one of its own */
    char *path, *body;         /* malloc'ed; body may be NULL */
    size_t len;
    int64_t timeout_ms; /* total, the wait in the queue included */
    int64_t until_ms;   /* set by uplink_submit */
};

struct uplink_reply {
    char link[64];
    uint64_t number;
    int status;          /* -1: no answer */
    struct ab_error err; /* for -1 and >= 300 */
    struct ab_buf body;
    struct uplink_reply *next;
};

uplink_t *uplink_new(const struct ab_client_file *file, size_t threads, struct ab_error *err);
/* Calls that run are given up; no answer comes any more. */
void uplink_destroy(uplink_t **self);

/* Takes the call's memory over. -1: the queue is full (the memory is freed all the same). */
int uplink_submit(uplink_t *self, struct uplink_call *call, struct ab_error *err);

int uplink_fd(const uplink_t *self);              /* readable: uplink_take until NULL */
struct uplink_reply *uplink_take(uplink_t *self); /* uplink_reply_free */
void uplink_reply_free(struct uplink_reply *reply);

/* How it went, for health.json. */
struct uplink_state {
    bool reached;           /* the last call got an answer */
    int64_t reached_utc_us; /* the last answer; 0 never */
    char why[480];          /* of the last failure */
    size_t waiting;         /* calls in the queue */
    uint64_t calls, failures;
};
void uplink_state(uplink_t *self, struct uplink_state *out);

#endif
