/* http.h - one request: from its head to the bus, and back to an answer */
#ifndef HTTP_H
#define HTTP_H

#include "base/rand.h"
#include "base/trace.h"
#include "crypt/crypt.h"
#include "http/head.h"
#include "route.h"
#include "schema/schema.h"
#include <stdbool.h>
#include <stdint.h>

struct conn;
struct parse;

/* The request a connection works on. */
struct exchange {
    struct ab_http_head head;
    bool begun;     /* head complete, route and token looked at */
    bool continued; /* 100 Continue has been sent */
    struct route_match match;
    bool has_token;
    struct ab_token token;
    char *key;               /* Idempotency-Key, malloc'ed; NULL none */
    char trace[AB_TRACE_ID]; /* of the client's traceparent; else the request's own number */
    char *host;              /* for the auth service; NULL */
    uint8_t uuid[16];
    char id[AB_UUID_TEXT];
    uint64_t bus; /* number of the bus request that is waited for; 0 none */
    char *packed; /* of lists and of what is done in pieces: sent again with `next` */
    size_t packed_len;
    unsigned pieces; /* done so far */
    int64_t start_us, deadline_ms;
    bool close, head_only, chunked;
    bool replayed;
    bool waiting;         /* for the bus */
    struct parse *pooled; /* being parsed off the loop; NULL: not */
    int verdict;          /* an answer that was clear from the head alone; 0 none */
    const char *verdict_text;
};

/* Take the next request from the connection's bytes. 1 took one, 0 more bytes are needed, -1
 * closing. */
int http_take(struct conn *c);

/* The pool is done with it; the connection may be gone. */
void http_parsed(struct parse *p);

/* The budget is used up: 503 if the request can still be answered, else the end of the connection.
 */
void http_overload(struct conn *c);

/* Send the request to its service; takes `body`. The answer comes through http.c or, in state
 * STREAM, through stream_page. */
void http_submit(struct conn *c, void *body, size_t len);

/* Forget the request (cancels what is on the bus). */
void http_reset(struct conn *c);

#endif
