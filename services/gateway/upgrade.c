/* upgrade.c - the request that makes a connection a WebSocket, see ws.h */
#include "auth.h"
#include "base/buf.h"
#include "conn.h"
#include "live.h"
#include "reply.h"
#include "ws.h"
#include <stdlib.h>
#include <string.h>

static bool field_is(const struct conn *c, enum ab_http_field field, const char *text)
{
    return ab_http_span_is(c->in + c->in_at, c->x.head.field[field], text);
}

/* RFC 6455 4.2.2: SHA-1 of the key and a fixed text, in base64. */
static int accept_text(const char *key, char *out, size_t size)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[64], raw[24];
    unsigned char digest[20];

    if (lws_b64_decode_string_len(key, 24, raw, sizeof(raw)) != 16)
        return -1;
    int n = snprintf(text, sizeof(text), "%.24s%s", key, guid);
    lws_SHA1((unsigned char *)text, (size_t)n, digest);
    return lws_b64_encode_string((const char *)digest, sizeof(digest), out, (int)size) < 0 ? -1 : 0;
}

/* A member of the sub-protocol list that begins with `prefix`; its rest, or n == 0. */
static struct ab_http_span protocol_with(const struct conn *c, const char *prefix)
{
    struct ab_http_span s = c->x.head.field[AB_H_WS_PROTOCOL];
    const char *b = c->in + c->in_at;
    size_t want = strlen(prefix);
    uint32_t at = s.at, end = s.at + s.n;

    while (at < end) {
        while (at < end && (b[at] == ' ' || b[at] == ',' || b[at] == '\t'))
            at++;
        uint32_t from = at;
        while (at < end && b[at] != ',' && b[at] != ' ' && b[at] != '\t')
            at++;
        if (at - from > want && memcmp(b + from, prefix, want) == 0)
            return (struct ab_http_span){from + (uint32_t)want, at - from - (uint32_t)want};
    }
    return (struct ab_http_span){0, 0};
}

/* Authorization counts for /events/stream only: the other one takes its token from the first frame.
 */
static int check_header(struct conn *c, struct ab_token *token, bool *has)
{
    struct ab_http_span s = c->x.head.field[AB_H_AUTHORIZATION];

    *has = false;
    if (c->x.match.page != PAGE_EVENTS_STREAM || !ab_http_has(&c->x.head, AB_H_AUTHORIZATION))
        return 0;
    switch (auth_check_header(c->in + c->in_at + s.at, s.n, token)) {
    case AUTH_OK:
        *has = true;
        if (token->scopes & (AB_SCOPE_USER | AB_SCOPE_SITE | AB_SCOPE_READ))
            return 0;
        reply_text(c, 403, "this token may not listen", NULL);
        return -1;
    case AUTH_NOT_YET:
        reply_text(c, 503, "the server does not know yet how to check tokens; try again soon",
                   NULL);
        return -1;
    case AUTH_NONE:
        reply_text(c, 401, "Not authenticated", "www-authenticate: Bearer\r\n");
        return -1;
    default:
        reply_text(c, 401, "Could not validate credentials", "www-authenticate: Bearer\r\n");
        return -1;
    }
}

static void send_101(struct conn *c, const char *accept, bool protocol)
{
    struct ab_buf out = {0};

    ab_buf_printf(
        &out,
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        "sec-websocket-accept: %s\r\nx-request-id: %s\r\n%s\r\n",
        accept, c->x.id, protocol ? "sec-websocket-protocol: abies.events.v1\r\n" : "");
    conn_write(c, out.data, out.len);
    ab_buf_free(&out);
}

/* From here on the connection speaks frames; those that came with the request are taken at once. */
static void switch_over(struct conn *c, const char *token, size_t token_len)
{
    size_t used = c->x.head.length + (size_t)c->x.head.content_length;
    size_t rest = c->in_len - c->in_at - used;
    char *early = rest ? malloc(rest) : NULL;

    if (early)
        memcpy(early, c->in + c->in_at + used, rest);
    ws_begin(c, token, token_len);
    http_reset(c);
    conn_in_drop(c, c->in_len - c->in_at);
    if (early)
        ws_input(c, early, rest);
    free(early);
    conn_wake(c);
}

/* The query says which events; *live stays NULL for the other kind of stream. */
static int read_query(struct conn *c, struct live **live)
{
    struct exchange *x = &c->x;
    struct ab_issues issues = {0};

    *live = NULL;
    if (x->match.page != PAGE_EVENTS_STREAM)
        return 0;
    *live = live_new(c->in + c->in_at + x->head.query.at, x->head.query.n, &issues);
    if (!*live)
        reply_issues(c, &issues);
    ab_issues_free(&issues);
    return *live ? 0 : -1;
}

static int make(struct conn *c, struct live *live, const struct ab_token *token)
{
    int status = ws_make(c, live, token);

    if (status == 429)
        reply_text(c, 429, WS_TOO_MANY_TEXT, "retry-after: 5\r\n");
    else if (status)
        reply_text(c, status, "no memory for a WebSocket", NULL);
    return status ? -1 : 0;
}

void ws_upgrade(struct conn *c)
{
    struct exchange *x = &c->x;
    struct ab_http_span upgrade = x->head.field[AB_H_UPGRADE], key = x->head.field[AB_H_WS_KEY];
    struct ab_http_span name = protocol_with(c, "abies.events.v"), bearer = {0, 0};
    bool events = x->match.page == PAGE_EVENTS_STREAM;
    const char *b = c->in + c->in_at;
    char accept[40];
    struct ab_token token = {0};
    struct live *live;
    bool authed;

    if (!x->head.upgrade || !ab_http_list_has(b + upgrade.at, upgrade.n, "websocket")
        || !field_is(c, AB_H_WS_VERSION, "13")) {
        reply_text(c, 426, "this is a WebSocket: connect with a client of version 13",
                   "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n");
        return;
    }
    if (key.n != 24 || accept_text(b + key.at, accept, sizeof(accept)) < 0) {
        reply_text(c, 400, "Sec-WebSocket-Key is not 16 bytes in base64", NULL);
        return;
    }
    if (check_header(c, &token, &authed) < 0 || read_query(c, &live) < 0
        || make(c, live, authed ? &token : NULL) < 0)
        return;
    if (events)
        bearer = protocol_with(c, "bearer.");
    send_101(c, accept, events && name.n == 1 && b[name.at] == '1');
    switch_over(c, b + bearer.at, bearer.n);
}
