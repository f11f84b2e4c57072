/* wire.h - the messages between broker and modules
 *
 *     module -> broker   call    [method, path, timeout_ms, body | nil,   reply    [status, kind, text, body]
 *                         traceparent]
 *                        put     [target, [update, ...]]                  stored   [0 | code, text]
 *                        drain   target                                   drained  -
 *                        health  JSON text                                -
 *     broker -> module   wake    -   (there may be work)                   -
 *
 * Each question has a number, and its answer the same one.
 */
#ifndef SITE_WIRE_H
#define SITE_WIRE_H

#include "base/buf.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define WIRE_CALL "call"
#define WIRE_REPLY "reply"
#define WIRE_PUT "put"
#define WIRE_STORED "stored"
#define WIRE_DRAIN "drain"
#define WIRE_DRAINED "drained"
#define WIRE_HEALTH "health"
#define WIRE_WAKE "wake"

#define WIRE_ENDPOINT "ABIES_BROKER" /* environment of a module */
#define WIRE_PID "ABIES_BROKER_PID"
#define WIRE_BEAT_MS 1000
#define WIRE_DEAD_MS 15000
#define WIRE_MAX ((size_t)48 << 20) /* below what a socket takes */

struct wire_text {
    const char *p;
    size_t n;
};

void wire_pack_call(struct ab_buf *out, const char *method, const char *path, int64_t timeout_ms,
                    const struct ab_buf *body, const char *trace);
int wire_read_call(const void *bytes, size_t len, struct wire_text *method, struct wire_text *path,
                   int64_t *timeout_ms, struct wire_text *body, /* body.p NULL: none */
                   struct wire_text *trace);

void wire_pack_reply(struct ab_buf *out, int status, const struct ab_error *err,
                     const struct ab_buf *body);
int wire_read_reply(const void *bytes, size_t len, int *status, struct ab_error *err,
                    struct ab_buf *body);

void wire_pack_put(struct ab_buf *out, const char *target, const struct ab_buf *updates, size_t n);
/* Calls fn for each update; stops at the first -1. */
int wire_read_put(const void *bytes, size_t len,
                  int (*fn)(void *arg, const char *target, const char *json, size_t len,
                            struct ab_error *err),
                  void *arg, struct ab_error *err);

void wire_pack_stored(struct ab_buf *out, const struct ab_error *err);
int wire_read_stored(const void *bytes, size_t len,
                     struct ab_error *err); /* 0; -1 and err; broken: -1 as well */

#endif
