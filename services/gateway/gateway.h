/* gateway.h - what the files of the gateway share: one process, one loop, one thread
 *
 * Everything here belongs to the loop thread. The pool's threads and the health thread get copies.
 */
#ifndef GATEWAY_H
#define GATEWAY_H

#include "base/conf.h"
#include "base/error.h"
#include "bus/server.h"
#include <libwebsockets.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define PIECE 16384    /* bytes in one lws_write; must not exceed pt_serv_buf_size */
#define IDLE_MS 60000  /* between two requests of a connection */
#define HEAD_MS 10000  /* TLS handshake and head, not renewed by bytes */
#define STALL_MS 60000 /* a reader that takes nothing for so long is gone */
#define LINGER_MS                                                                                  \
    2000 /* read and drop after an early answer, so that it is not lost in a reset                 \
          */
#define BUDGET ((size_t)256 << 20) /* bytes of requests in memory, over all connections */
#define BUDGET_FREE 16384          /* smaller buffers are not counted */

struct counters {
    uint64_t accepted, refused, requests, s2xx, s4xx, s5xx;
    uint64_t late, killed_idle, accept_errors, over_budget, pooled, pages;
    uint64_t ws_opened, ws_frames, ws_slow, notices, hints;
    uint64_t took_us; /* sum over all requests */
};

struct gateway {
    const ab_conf_t *conf;
    uv_loop_t loop;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    ab_bus_t *bus;
    bool tls;
    bool relayed;  /* a balancer in front says who the clients are */
    bool draining; /* SIGTERM came: finish what is here, take nothing new */
    int64_t deadline_ms;
    int64_t ping_ms;              /* of WebSockets */
    size_t per_user, per_address; /* connections */
    size_t budget_used;
    char instance[160];
    struct counters count;
};

extern struct gateway gw;

/* Take n bytes of the budget, or give them back. -1: it is used up. */
int budget_take(size_t n);
void budget_give(size_t n);

#endif
