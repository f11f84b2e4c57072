/* server.h - the gateway's end of the mesh: find a replica, send, wait, send again if it died
 *
 * ROUTER (CURVE, allow-list) that services connect to. One thread owns it. Nothing here blocks.
 * The replica with the fewest outstanding requests gets the next one, at most `capacity` each; a
 * bounded queue per service behind that; past it AB_EBUSY at once. A replica that is gone has its
 * requests sent to another (same number and id), at most 3 tries and within the deadline.
 */
#ifndef AB_BUS_SERVER_H
#define AB_BUS_SERVER_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ab_bus ab_bus_t;

struct ab_bus_options {
    const char *listen;      /* "tcp://127.0.0.1:7440"; port * picks one, see ab_bus_endpoint */
    const char *hint_listen; /* SUB for hints and notices; NULL (and always with port *): bus port +
                                1, where services look for it */
    const char
        *curve_dir; /* gateway.key_secret and allowed/NAME.key; NULL: no CURVE (unit tests only) */
    int64_t beat_ms, dead_ms; /* ping period; silence after which a replica is gone */
    size_t queue_limit;       /* per service; 0 = 1024 */
};

/* Starts ZAP first, proves that a stranger is refused, then binds. */
ab_bus_t *ab_bus_new(const struct ab_bus_options *options, struct ab_error *err);
void ab_bus_destroy(ab_bus_t **self); /* requests that wait are dropped: no `done` */
const char *ab_bus_endpoint(const ab_bus_t *self);
const char *ab_bus_hint_endpoint(const ab_bus_t *self);

/* What to send. Everything is copied but the body, which is taken over (malloc'ed, freed by the bus
 * when the request is finished: a re-send needs it). */
struct ab_bus_request {
    const char *service, *verb;
    int64_t user;         /* 0: nobody */
    const char *username; /* may be NULL */
    unsigned scopes;
    int64_t token_site;       /* site tokens: the only site they speak for; 0 else */
    const char *key;          /* Idempotency-Key; NULL none */
    uint8_t uuid[16];         /* request id */
    const char *trace, *peer; /* may be NULL */
    const char *host;         /* the address that the client used; NULL: nobody asks */
    int64_t deadline_ms;      /* ab_now_ms clock */
    void *body;
    size_t body_len;
    /* Called exactly once from drain, tick or submit, unless cancelled. status 200..299: `body` is
     * the reply (borrowed); so it is with AB_BUS_REPLAYED (client.h) added. Otherwise `body` is
     * {kind, text, items} in msgpack (see ab_bus_error_unpack); the bus makes such bodies for its
     * own 503 and 504. */
    void (*done)(void *arg, int status, const void *body, size_t len);
    void *arg;
};

/* Returns the request's number (never 0). `done` may be called before this returns. */
uint64_t ab_bus_submit(ab_bus_t *self, struct ab_bus_request *request);
void ab_bus_cancel(ab_bus_t *self,
                   uint64_t number); /* no `done` any more; a late reply is dropped */

int ab_bus_fd(const ab_bus_t *self); /* edge triggered: drain before every sleep */
int ab_bus_hint_fd(const ab_bus_t *self);
bool ab_bus_drain(ab_bus_t *self, int max); /* true: there may be more */
/* Pings, deaths, deadlines. Returns ms until it wants to be called again (at most beat_ms). */
int64_t ab_bus_tick(ab_bus_t *self, int64_t now_ms);

/* A hint or notice: topic 'e' events of owner, 'n' notice, 'r' revoked token, 'k' keys changed. */
typedef void ab_hint_f(void *arg, char topic, int64_t owner, const void *body, size_t len);
bool ab_bus_hint_drain(ab_bus_t *self, int max, ab_hint_f *fn, void *arg);

/* For /readyz and /metrics. */
struct ab_bus_service_stats {
    const char *service;
    int replicas, outstanding, queued;
    int64_t oldest_ms; /* oldest running request as the replicas tell */
    uint64_t sent, resent, refused, timed_out, late;
};
bool ab_bus_stats(const ab_bus_t *self, size_t i, struct ab_bus_service_stats *out);

/* Messages that made no sense; strangers of the self-test that were refused, as they should be (one
 * a minute), and those that nothing was heard of. */
struct ab_bus_figures {
    uint64_t strays, self_tests, self_tests_unanswered;
};
void ab_bus_figures(const ab_bus_t *self, struct ab_bus_figures *out);

/* Error bodies: {kind, text, items:[{index,id,reason}], retry} <-> struct ab_error. */
struct ab_buf;
struct ab_arena;
void ab_bus_error_pack(struct ab_buf *out, const struct ab_error *err);
int ab_bus_error_unpack(const void *body, size_t len, int status, struct ab_arena *arena,
                        struct ab_error *out);

#endif
