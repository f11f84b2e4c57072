/* script.h - an HTTP server that says what it is told to, for tests of clients
 *
 *     script_t *centre = script_new();
 *     script_say(centre, "POST /sessions/7", 200, "[]");      // one answer for such a call
 *     script_always(centre, "POST /sessions/7/heartbeat", 200, "{}"); // when nothing else is said
 *     ...
 *     const struct script_call *c = script_wait(centre, "POST /sessions/7", 0);   // the first one
 *
 * A route is the method and the path without its query, matched whole. A call that nothing is said
 * about is answered with 404. All functions fail the test instead of returning errors.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

#include "base/error.h"
#include "client/api.h"
#include <stddef.h>
#include <stdint.h>

typedef struct script script_t;

enum {
    SCRIPT_LOSE = 0,  /* as status: read the call, hang up without an answer */
    SCRIPT_STALL = 1, /* read the call, never answer (until script_destroy) */
};

struct script_call {
    char route[256], key[64];
    char *body;
    int64_t at_ms; /* ab_now_ms when it came */
};

script_t *script_new(void);
void script_destroy(script_t **self);
void script_say(script_t *self, const char *route, int status, const char *body);
void script_always(script_t *self, const char *route, int status, const char *body);

/* The nth call (from 0) of a route, waited for: at most 20 s. Lives as long as the server. */
const struct script_call *script_wait(script_t *self, const char *route, size_t n);
size_t script_count(script_t *self, const char *route);

/* A client file that points to it. Its texts are the server's. */
struct ab_client_file script_client(script_t *self);

#endif
