/* local.h - messages between processes of one site or one allocation
 *
 * A hub (ROUTER) and its links (DEALER), on ipc:// for the site's modules, on tcp:// with CURVE for
 * a launcher's node workers. Messages are (kind, number, body); who is who is said in the first one
 * (the link's name). The hub sees links come and go. Nothing blocks but ab_link_wait/ab_hub_wait.
 */
#ifndef AB_BUS_LOCAL_H
#define AB_BUS_LOCAL_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ab_hub ab_hub_t;
typedef struct ab_link ab_link_t;

struct ab_local_options {
    const char *endpoint; /* "ipc:///run/.../broker.sock" or "tcp://0.0.0.0:*" */
    const char *name;     /* of a link: "processing", a host name; NULL for a hub */
    /* CURVE, all NULL on ipc: the hub's own pair, or the hub's public key and the link's own pair;
     * the hub lets in only `allow` (one public key that all links share). */
    const char *public_key, *secret_key, *server_key, *allow;
    int64_t beat_ms,
        dead_ms; /* links beat; a hub forgets a link after dead_ms of silence, and the other way */
};

struct ab_message {
    char link[64];    /* hub: from whom */
    char kind[32];    /* "call", "run" ...: the user's; "+" link came, "-" link went */
    uint64_t number;  /* the user's; 0 if unused */
    const void *body; /* until the next receive */
    size_t len;
};

ab_hub_t *ab_hub_new(const struct ab_local_options *options, struct ab_error *err);
void ab_hub_destroy(ab_hub_t **self);
const char *ab_hub_endpoint(const ab_hub_t *self);
int ab_hub_fd(const ab_hub_t *self); /* edge triggered: receive until 0 before sleeping */
int ab_hub_receive(ab_hub_t *self, struct ab_message *out); /* 1 a message, 0 none now */
int ab_hub_send(ab_hub_t *self, const char *link, const char *kind, uint64_t number,
                const void *body, size_t len);       /* -1 gone or full */
int64_t ab_hub_tick(ab_hub_t *self, int64_t now_ms); /* beats; ms until the next */

ab_link_t *ab_link_new(const struct ab_local_options *options, struct ab_error *err);
void ab_link_destroy(ab_link_t **self);
int ab_link_fd(const ab_link_t *self);
int ab_link_receive(ab_link_t *self,
                    struct ab_message *out); /* 1, 0, or -1: the hub has been silent for dead_ms */
int ab_link_send(ab_link_t *self, const char *kind, uint64_t number, const void *body, size_t len);
int64_t ab_link_tick(ab_link_t *self, int64_t now_ms);
/* Sleep until a message, one of n more descriptors (POLLIN) or timeout_ms. 0. */
int ab_link_wait(ab_link_t *self, const int *fds, size_t n, int64_t timeout_ms);
int ab_hub_wait(ab_hub_t *self, const int *fds, size_t n, int64_t timeout_ms);

#endif
