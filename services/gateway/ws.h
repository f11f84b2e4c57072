/* ws.h - WebSockets: upgrade, frames in (libwslay), shared frames out, who listens to what
 *
 * A frame from the server is not masked, so one frame serves all who get the same message: it is
 * counted by reference and put in the ring of each. A ring that is full ends its connection with
 * 4008 and the cursor to go on from; nothing is dropped in silence and nothing grows without end.
 */
#ifndef WS_H
#define WS_H

#include "crypt/crypt.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WS_TEXT 1
#define WS_BINARY 2

#define WS_POLICY 1008  /* token absent or refused */
#define WS_RESTART 1012 /* this gateway leaves */
#define WS_TOKEN_ENDED 4001
#define WS_SLOW 4008 /* reason: cursor */
#define WS_FORGOTTEN 4010
#define WS_TOO_MANY 4029 /* of this user */
#define WS_TOO_MANY_TEXT                                                                           \
    "you have as many WebSockets here as a user may: close some, then try again"

struct conn;
struct live;

/* One message, shared. */
struct frame {
    size_t refs, len;
    unsigned char bytes[]; /* header and payload */
};
/* payload is copied; refs is 1. NULL: no memory. */
struct frame *frame_new(int opcode, const void *payload, size_t len);
void frame_drop(struct frame *f);

/* upgrade.c: the request asks for one; 101, or an answer that says why not. */
void ws_upgrade(struct conn *c);

/* part: its part of /events/stream, taken in any case; NULL: /subscribe-user. token: of the
 * request's head; NULL: a frame brings it. 0, or the status that says why there is none: 429 (the
 * user has as many as they may), 503. */
int ws_make(struct conn *c, struct live *part, const struct ab_token *token);
/* 101 has been written. text: a token from the head that is not checked yet, if any. */
void ws_begin(struct conn *c, const char *text, size_t len);
void ws_input(struct conn *c, const char *bytes, size_t n);
void ws_more(struct conn *c); /* WRITEABLE */
void ws_free(struct conn *c);
void ws_leave(struct conn *c); /* 1012 */
void ws_close(struct conn *c, int code, const char *reason);
void ws_check(struct conn *c, int64_t now_ms); /* pings, silence, end of the token */

/* So much waits for slow readers that nobody should fetch more for them. */
bool ws_crowded(void);

/* Put a frame into the connection's ring (a reference is taken). -1: it is full. */
int ws_push(struct conn *c, struct frame *f);

/* Its part of /events/stream; NULL: it is the other kind. */
struct live *ws_live(struct conn *c);

/* A notice of a service: whole message for /subscribe-user. */
void ws_notice(int64_t owner, const void *body, size_t len);

#endif
