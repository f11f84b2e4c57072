/* socket.h - sockets with our limits set before any bind or connect, and one message of up to three
 * frames */
#ifndef AB_SOCKET_H
#define AB_SOCKET_H

#include "base/buf.h"
#include "base/error.h"
#include "pending.h"
#include <czmq.h>

#define AB_SOCKET_HWM 10000
#define AB_SOCKET_LINGER_MS 300
#define AB_ZAP_DOMAIN "abies"

/* czmq aborts the process when a socket cannot be made: ask before the first one. */
int ab_socket_room(struct ab_error *err);
bool ab_socket_spare(void); /* ... and before one that comes later: are there descriptors for it? */

/* Linger, high-water marks, message size, heartbeats, reconnection. */
zsock_t *ab_socket_new(int type);

/* CURVE server with the given pair, under the ZAP domain; CURVE client that expects this server. */
void ab_socket_serve_curve(zsock_t *sock, zcert_t *own);
void ab_socket_use_curve(zsock_t *sock, zcert_t *own, const char *server_key);

/* Bind; *endpoint (malloc'ed) is what can be connected to. Errors name the address and the remedy.
 */
int ab_socket_bind(zsock_t *sock, const char *address, char **endpoint, struct ab_error *err);

int ab_socket_connect(zsock_t *sock, const char *address); /* 0 or -1 with errno */

/* The same address with the port after it: where hints go. -1: it has none. */
int ab_next_port(const char *endpoint, char *out, size_t size);

/* The frames of one message. Received: n frames are there, more were dropped. */
struct ab_parts {
    zmq_msg_t part[4];
    int n;
};
/* Without waiting. 1 a message, 0 none, -1 the socket is broken. Close after use. */
int ab_parts_receive(void *socket, int max, struct ab_parts *out);
void ab_parts_close(struct ab_parts *self);

/* One frame, DONTWAIT; bytes are copied. 0 or -1 with errno. */
int ab_send_frame(void *socket, const void *bytes, size_t len, bool more);
int ab_send_msg(void *socket, zmq_msg_t *msg, bool more); /* takes it over, also when it fails */

#endif
