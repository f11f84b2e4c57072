/* stream.c - see stream.h */
#include "stream.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "conn.h"
#include "piece.h"
#include "reply.h"
#include "schema/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE                                                                                    \
    ((size_t)64 << 10) /* msgpack up to this is rendered in one go: a fraction of a millisecond */
#define CHUNK_HEAD 6   /* "3fea" CR LF */
#define CHUNK_TAIL 16  /* "]}", CR LF, "0" CR LF CR LF */
#define WALK_ROOM 512  /* what ab_walk_json asks for at least */
#define PLACE_MAX 64   /* of a cursor of the event log */

struct stream {
    char *bytes; /* the value, or the page that is being sent */
    struct ab_walk walk;
    bool paged;
    bool prefix;  /* {"count":..,"results":[ has been sent */
    bool rows;    /* some row has been sent: the next page begins with a comma */
    bool opening; /* the walker's '[' is to be dropped */
    bool pulling; /* the next page has been asked for */
    bool ended;
    int64_t count;
    char place[PLACE_MAX]; /* where the client may go on */
    char *next;            /* msgpack of where the next page begins */
    size_t next_len;
};

void stream_free(struct conn *c)
{
    if (!c->stream)
        return;
    free(c->stream->bytes);
    free(c->stream->next);
    free(c->stream);
    c->stream = NULL;
}

/* ---- small answers */

int render_value(struct ab_buf *out, const void *bytes, size_t len)
{
    struct ab_walk walk;

    ab_walk_start(&walk, bytes, len);
    for (;;) {
        char *room = ab_buf_room(out, PIECE), *at = room;
        if (!room)
            return -1;
        int rc = ab_walk_json(&walk, &at, room + PIECE);
        out->len += (size_t)(at - room);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
}

static void bad_reply(struct conn *c)
{
    ab_log(AB_ERROR, "bus.bad_reply", AB_KV("req", c->x.id), AB_KV("trace", c->x.trace),
           AB_KV("verb", c->x.match.route->verb));
    reply_text(c, 502, "the service gave an answer that makes no sense", NULL);
}

static void answer_whole(struct conn *c, int status, const void *body, size_t len)
{
    static struct ab_buf out;

    ab_buf_clear(&out);
    if (len == 0)
        ab_buf_str(&out, "null");
    if (len > 0 && render_value(&out, body, len) < 0)
        bad_reply(c);
    else
        reply_json(c, status, &out, NULL);
}

/* ---- pages */

struct list_page {
    int64_t count;
    struct ab_cursor results;
    uint32_t rows;
    struct ab_cursor next; /* at == NULL: the last page */
    size_t next_len;
    char place[PLACE_MAX]; /* "cursor" of GET /events/?since=; the client reads it as "next" */
};

/* Digits and a dash: written as it is. */
static int read_place(struct ab_cursor page, char place[PLACE_MAX])
{
    struct ab_cursor at;
    const char *p;
    size_t n;

    place[0] = '\0';
    if (ab_cursor_find(page, "cursor", &at) < 0)
        return 0;
    if (ab_cursor_str(&at, &p, &n) < 0 || n >= PLACE_MAX)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (p[i] != '-' && (p[i] < '0' || p[i] > '9'))
            return -1;
    memcpy(place, p, n);
    place[n] = '\0';
    return 0;
}

static int read_page(const void *body, size_t len, bool first, struct list_page *out)
{
    struct ab_cursor page = ab_cursor(body, len), at;

    *out = (struct list_page){0};
    if (ab_cursor_find(page, "results", &out->results) < 0)
        return -1;
    at = out->results;
    if (ab_cursor_array(&at, &out->rows) < 0)
        return -1;
    if (first
        && (ab_cursor_find(page, "count", &at) < 0 || ab_cursor_int(&at, &out->count) < 0
            || read_place(page, out->place) < 0))
        return -1;
    if (ab_cursor_find(page, "next", &at) == 0 && ab_cursor_peek(&at) != AB_TK_NIL) {
        out->next = at;
        if (ab_cursor_skip(&at) < 0)
            return -1;
        out->next_len = (size_t)(at.at - out->next.at);
    }
    return 0;
}

/* {"count":1,"next":"5-6","results": into at least 256 bytes */
static int put_prefix(char *at, int64_t count, const char *place)
{
    if (place[0])
        return snprintf(at, 256, "{\"count\":%lld,\"next\":\"%s\",\"results\":", (long long)count,
                        place);
    return snprintf(at, 256, "{\"count\":%lld,\"results\":", (long long)count);
}

static void answer_page(struct conn *c, int status, const struct list_page *page)
{
    static struct ab_buf out;
    struct ab_cursor end = page->results;
    char prefix[256];

    ab_buf_clear(&out);
    ab_buf_add(&out, prefix, (size_t)put_prefix(prefix, page->count, page->place));
    if (ab_cursor_skip(&end) < 0
        || render_value(&out, page->results.at, (size_t)(end.at - page->results.at)) < 0) {
        bad_reply(c);
        return;
    }
    ab_buf_char(&out, '}');
    reply_json(c, status, &out, NULL);
}

/* Keep a copy of the page: the body is the bus's. */
static int load_page(struct stream *s, const void *body, const struct list_page *page)
{
    struct ab_cursor end = page->results;

    (void)body;
    if (ab_cursor_skip(&end) < 0)
        return -1;
    size_t n = (size_t)(end.at - page->results.at);
    char *bytes = malloc(n);
    char *next = page->next_len ? malloc(page->next_len) : NULL;
    if (!bytes || (page->next_len && !next)) {
        free(bytes);
        free(next);
        return -1;
    }
    memcpy(bytes, page->results.at, n);
    if (next)
        memcpy(next, page->next.at, page->next_len);
    free(s->next);
    s->bytes = bytes;
    s->next = next;
    s->next_len = page->next_len;
    s->opening = true;
    if (page->rows == 0) { /* nothing to walk: no brackets to drop, no comma */
        free(s->bytes);
        s->bytes = NULL;
    } else {
        ab_walk_start(&s->walk, s->bytes, n);
    }
    gw.count.pages++;
    return 0;
}

/* ---- the stream */

void stream_start(struct conn *c, int status, const void *body, size_t len, bool paged)
{
    struct list_page page = {0};

    if (paged && read_page(body, len, true, &page) < 0) {
        bad_reply(c);
        return;
    }
    if (len <= AT_ONCE && page.next_len == 0) {
        if (paged)
            answer_page(c, status, &page);
        else
            answer_whole(c, status, body, len);
        return;
    }
    struct stream *s = calloc(1, sizeof(*s));
    if (!s) {
        conn_kill(c);
        return;
    }
    c->stream = s;
    s->paged = paged;
    s->count = page.count;
    memcpy(s->place, page.place, sizeof(s->place));
    if (paged) {
        if (load_page(s, body, &page) < 0) {
            stream_free(c);
            bad_reply(c);
            return;
        }
    } else {
        s->bytes = malloc(len);
        if (!s->bytes) {
            conn_kill(c);
            return;
        }
        memcpy(s->bytes, body, len);
        ab_walk_start(&s->walk, s->bytes, len);
    }
    struct ab_buf head = {0};
    if (!c->x.chunked)
        c->x.close = true; /* HTTP/1.0: the end of the connection ends the body */
    reply_head(c, &head, status, "application/json", -1, NULL);
    c->state = CONN_STREAM;
    c->until_ms = ab_now_ms() + STALL_MS;
    conn_write(c, head.data, head.len);
    ab_buf_free(&head);
    conn_wake(c);
}

/* The request again, with where to go on: its map gets one member more. */
static int ask_next(struct conn *c)
{
    struct stream *s = c->stream;
    struct exchange *x = &c->x;
    struct ab_buf body = {0};

    if (piece_pack(x, s->next, s->next_len, &body) < 0) {
        ab_buf_free(&body);
        return -1;
    }
    s->pulling = true;
    x->deadline_ms = ab_now_ms() + gw.deadline_ms;
    c->until_ms = 0;   /* the bus has a deadline for it */
    ab_uuid7(x->uuid); /* another page is another request */
    size_t len = body.len;
    http_submit(c, ab_buf_take(&body), len);
    return 0;
}

void stream_page(struct conn *c, int status, const void *body, size_t len)
{
    struct stream *s = c->stream;
    struct list_page page;

    s->pulling = false;
    if (status < 200 || status > 299 || read_page(body, len, false, &page) < 0
        || load_page(s, body, &page) < 0) {
        ab_log(AB_WARN, "stream.broken", AB_KV("req", c->x.id), AB_KV("trace", c->x.trace),
               AB_KV("status", status));
        conn_kill(c); /* no last chunk: the client sees that the list is not whole */
        return;
    }
    c->until_ms = ab_now_ms() + STALL_MS;
    conn_wake(c);
}

/* Walk into [at, end). Returns the new end; NULL: broken. */
static char *walk_rows(struct stream *s, char *at, char *end)
{
    char *from = at;

    if (s->opening) { /* put the '[' where it hurts nobody: over the byte before, which is put back
                       */
        char kept = *--from;
        at = from;
        int rc = ab_walk_json(&s->walk, &at, end);
        *from = kept;
        s->opening = false;
        if (rc < 0)
            return NULL;
        if (rc == 0)
            return at;
    } else {
        int rc = ab_walk_json(&s->walk, &at, end);
        if (rc < 0)
            return NULL;
        if (rc == 0)
            return at;
    }
    free(s->bytes);
    s->bytes = NULL;
    s->rows = true;
    return at - 1; /* and the ']' goes */
}

static char *fill_paged(struct stream *s, char *at, char *end)
{
    if (!s->prefix) {
        at += put_prefix(at, s->count, s->place);
        *at++ = '[';
        s->prefix = true;
    }
    if (s->bytes) {
        if (s->opening && s->rows)
            *at++ = ',';
        at = walk_rows(s, at, end);
        if (!at)
            return NULL;
    }
    if (!s->bytes && !s->next) {
        *at++ = ']';
        *at++ = '}';
        s->ended = true;
    }
    return at;
}

static char *fill_whole(struct stream *s, char *at, char *end)
{
    int rc = ab_walk_json(&s->walk, &at, end);

    if (rc < 0)
        return NULL;
    s->ended = rc == 1;
    return at;
}

/* One piece, framed as a chunk. */
static void send_chunk(struct conn *c, char *piece, char *at)
{
    size_t n = (size_t)(at - piece) - CHUNK_HEAD;

    if (!c->x.chunked) {
        conn_write(c, piece + CHUNK_HEAD, n);
        return;
    }
    if (n > 0) {
        static const char hex[] = "0123456789abcdef";
        for (int i = 0; i < 4; i++)
            piece[i] = hex[n >> (12 - 4 * i) & 15];
        piece[4] = '\r';
        piece[5] = '\n';
        *at++ = '\r';
        *at++ = '\n';
    } else {
        at = piece;
    }
    if (c->stream->ended) {
        memcpy(at, "0\r\n\r\n", 5);
        at += 5;
    }
    conn_write(c, piece, (size_t)(at - piece));
}

void stream_more(struct conn *c)
{
    static char piece[PIECE];
    struct stream *s = c->stream;
    char *at = piece + CHUNK_HEAD, *end = piece + PIECE - CHUNK_TAIL;

    if (s->pulling)
        return;
    c->until_ms = ab_now_ms() + STALL_MS;
    at = s->paged ? fill_paged(s, at, end) : fill_whole(s, at, end);
    if (!at) {
        ab_log(AB_ERROR, "bus.bad_reply", AB_KV("req", c->x.id), AB_KV("trace", c->x.trace),
               AB_KV("verb", c->x.match.route->verb));
        conn_kill(c);
        return;
    }
    bool ended = s->ended;
    if (ended || at > piece + CHUNK_HEAD)
        send_chunk(c, piece, at);
    if (c->dying)
        return;
    if (ended) {
        stream_free(c);
        conn_done(c);
    } else if (!s->bytes && s->next) {
        if (ask_next(c) < 0)
            conn_kill(c);
    } else {
        conn_wake(c);
    }
}
