/* parcel.h - a command, its header and its body as the frames of one message
 *
 *   command | header [| body]                      commands about the bus itself, and version 1
 *   command, length of header (2 bytes), header, body [| body]     requests and replies since version 2
 *
 * CURVE seals and libzmq carries each frame by itself: with a frame for each part a small request cost
 * half as much again. A body above AB_PARCEL_JOINED still has its own frame, which is not copied.
 */
#ifndef AB_PARCEL_H
#define AB_PARCEL_H

#include "socket.h"

#define AB_PARCEL_JOINED ((size_t)16 * 1024)

/* Does this command travel in one frame between peers that speak `version`? */
bool ab_parcel_is_joined(int version, char command);

/* What was sent before it (a routing id) may be refused; once that is taken the rest is, so a failure
 * of all but the first frame ends the process: nothing behind half a message could be read. 0, or -1
 * with errno. `body` (NULL: none) is taken over, also when it fails. */
int ab_parcel_send(void *socket, bool is_first, int version, char command,
                   const struct ab_buf *header, zmq_msg_t *body);

/* The parts of a received message, from frame `at` on; they point into it. */
struct ab_parcel {
    char command;
    const void *header;
    size_t header_len;
    zmq_msg_t *frame; /* that the body is in; NULL: there is none */
    size_t body_at;   /* where it begins there */
};
int ab_parcel_read(struct ab_parts *m, int at, struct ab_parcel *out); /* -1: it is none */
const void *ab_parcel_body(const struct ab_parcel *self, size_t *len);

#endif
