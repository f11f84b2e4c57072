/* message.h - what a hub and its links send: kind, [version, number, name, token], body
 *
 * Every message of a link carries its name, so a hub that has restarted learns its links from
 * whatever comes first. The token is drawn at the link's start: it tells the same process on a new
 * connection from another one of the same name.
 */
#ifndef AB_MESSAGE_H
#define AB_MESSAGE_H

#include "local.h"
#include "socket.h"

#define AB_KIND_BEAT "+"  /* link: I am here */
#define AB_KIND_BYE "-"   /* link: I go */
#define AB_KIND_PULSE "." /* hub: I am here */

struct ab_envelope {
    char kind[32];
    uint64_t number;
    char name[64]; /* "" from a hub */
    uint64_t token;
};

/* Kinds that users may send: 1 to 31 visible characters, none of ours. */
bool ab_kind_ok(const char *kind);

/* Everything after the routing id; DONTWAIT. Once the first frame is taken the rest is. */
int ab_envelope_send(void *socket, const struct ab_envelope *envelope, const void *body,
                     size_t len);

/* parts[at] kind, [at + 1] header, [at + 2] body if any. 0 or -1. */
int ab_envelope_read(struct ab_parts *m, int at, struct ab_envelope *out);

/* zmq_poll on a socket and descriptors. */
int ab_local_wait(void *socket, const int *fds, size_t n, int64_t timeout_ms);

#endif
