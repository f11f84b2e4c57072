/* health.h - the health port of every process: GET /healthz, /readyz and /metrics over plain HTTP
 *
 * One small thread, at most AB_HEALTH_CONNECTIONS at a time, one request a connection, 5 s each;
 * the parser is head.h. Only figures leave here, never data of a tenant: bind it to loopback or to
 * the containers' own network.
 */
#ifndef AB_HTTP_HEALTH_H
#define AB_HTTP_HEALTH_H

#include "base/buf.h"
#include "base/error.h"
#include "metric.h"

#define AB_HEALTH_CONNECTIONS 16

typedef struct ab_health ab_health_t;

struct ab_health_options {
    const char *listen; /* "127.0.0.1:0"; port 0 picks one */
    /* All three run on the health thread: they must be thread safe and must not block. Each appends
     * its text to `out`. live, ready: 0 well, -1 not (answered 503); NULL: always well. metrics:
     * Prometheus text; NULL: an empty page. */
    int (*live)(void *arg, struct ab_buf *out);
    int (*ready)(void *arg, struct ab_buf *out);
    void (*metrics)(void *arg, struct ab_buf *out);
    void *arg;
};

/* Starts the thread (all signals blocked in it). NULL: the address cannot be had. */
ab_health_t *ab_health_new(const struct ab_health_options *options, struct ab_error *err);
void ab_health_destroy(ab_health_t **self);

/* "127.0.0.1:43211": with the port that was picked. */
const char *ab_health_address(const ab_health_t *self);

#endif
