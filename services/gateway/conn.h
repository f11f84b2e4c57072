/* conn.h - one client connection: bytes in, bytes out, and what state it is in
 *
 *  ADOPT -> HEAD --head and body complete--> WAIT --short answer--> HEAD (next pipelined request)
 *             |                               '--long answer--> STREAM --last piece--> HEAD
 *             |-- upgrade --> WS
 *             '-- error --> answered with "connection: close", LINGER, closed
 *
 * A connection is named by its number (generation and slot), never by its pointer, in whatever
 * waits for something else. Only lws frees it (RAW_CLOSE): inside our own calls a pointer stays
 * valid.
 */
#ifndef CONN_H
#define CONN_H

#include "base/buf.h"
#include "gateway.h"
#include "http.h"

enum conn_state {
    CONN_HEAD,
    CONN_WAIT,
    CONN_STREAM,
    CONN_WS,
    CONN_LINGER
};

struct stream;
struct ws;

struct conn {
    uint64_t number;
    struct lws *wsi;
    enum conn_state state;
    int64_t until_ms; /* killed at this time; 0: never */
    char peer[64];
    uint64_t party; /* share.h */

    char *in; /* received and not used: in[in_at .. in_len) */
    size_t in_at, in_len, in_cap;
    struct ab_buf out; /* to send: out.data[out_at ..) */
    size_t out_at;

    uint64_t served; /* requests answered */
    bool heard;      /* its first bytes have come */
    bool reading;    /* read_rest() runs */
    bool feeding;    /* feed() runs: an answer made inside it must not start the next request */
    bool closing;    /* close once everything has left */
    bool linger;     /* ... but read and drop for a moment first */
    bool dying;      /* close as soon as lws lets us */
    bool rx_off;
    struct exchange x;
    struct stream *stream;
    struct ws *ws;
};

int conn_table_init(size_t max_connections);
void conn_limit(size_t connections); /* fewer than the table holds; more are refused */
bool conn_full(size_t more);         /* no room for one besides so many that are still to come */
void conn_table_free(void);
struct conn *conn_find(uint64_t number); /* NULL: gone */
size_t conn_count(void);
/* Calls fn for each connection; fn may kill it. */
void conn_each(void (*fn)(struct conn *c));

/* A socket that was accepted becomes a connection; it is closed if that fails. */
void conn_adopt(int fd, const char *peer);

/* Send or queue. The bytes are copied if they cannot leave at once. */
void conn_write(struct conn *c, const void *bytes, size_t n);
bool conn_idle(
    const struct conn *c); /* what is written now leaves at once, as far as the socket takes it */
bool conn_sent_all(const struct conn *c); /* nothing of ours waits, lws may still hold a piece */
void conn_wake(struct conn *c);           /* ask for WRITEABLE */

/* The answer is complete: next request, or close. */
void conn_done(struct conn *c);
void conn_kill(struct conn *c);
void conn_check_time(struct conn *c,
                     int64_t now_ms); /* the loop calls it for each, a few times a second */
void conn_feed(struct conn *c);

/* Room for n bytes from in_at on, counted in the budget; -1 when that is used up. */
int conn_in_reserve(struct conn *c, size_t n);
void conn_in_drop(struct conn *c, size_t n);
/* Move the whole buffer out (the caller frees it and gives `*cap` back to the budget); what lies
 * behind the first `used` bytes is kept for the next request. NULL: no memory. */
char *conn_in_take(struct conn *c, size_t used, size_t *cap);

extern const struct lws_protocols conn_protocols[];

#endif
