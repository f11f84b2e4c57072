/* http.c - begin (head), dispatch (body), answer (bus) */
#include "http.h"
#include "auth.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "bus/client.h"
#include "conn.h"
#include "multipart.h"
#include "page.h"
#include "piece.h"
#include "pool.h"
#include "reply.h"
#include "schema/pack.h"
#include "stream.h"
#include "ws.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UNREAD_MAX ((int64_t)64 << 10) /* a body of a refused request that is still read */
#define OTHER_BODY_MAX ((int64_t)1 << 20)
#define KEY_MAX 255
#define HOST_MAX 255

static const char *bytes_of(const struct conn *c)
{
    return c->in + c->in_at;
}

void http_reset(struct conn *c)
{
    struct exchange *x = &c->x;

    if (x->bus)
        ab_bus_cancel(gw.bus, x->bus);
    if (x->pooled)
        pool_cancel(x->pooled);
    free(x->key);
    free(x->host);
    free(x->packed);
    *x = (struct exchange){0};
}

void http_overload(struct conn *c)
{
    if (c->state != CONN_HEAD || c->feeding) {
        conn_kill(c);
        return;
    }
    c->in_at = c->in_len = 0;
    reply_last(c, 503, "the server holds as many requests as it can; try again soon", NULL);
}

/* ---- the head */

static char *copy_field(const struct conn *c, enum ab_http_field field)
{
    struct ab_http_span s = c->x.head.field[field];
    return strndup(bytes_of(c) + s.at, s.n);
}

static bool visible(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] <= 0x20 || p[i] >= 0x7f)
            return false;
    return true;
}

static void verdict(struct exchange *x, int status, const char *text)
{
    if (!x->verdict) {
        x->verdict = status;
        x->verdict_text = text;
    }
}

/* Who asks, and may they? The answer comes later: malformed JSON is told first (contract 2). */
static void check_access(struct conn *c)
{
    struct exchange *x = &c->x;
    const struct ab_route *route = x->match.route;
    unsigned scopes = route ? route->scopes : AB_SCOPE_ADMIN;
    struct ab_http_span s = x->head.field[AB_H_AUTHORIZATION];

    if (scopes & AB_SCOPE_PUBLIC)
        return;
    switch (auth_check_header(bytes_of(c) + s.at, s.n, &x->token)) {
    case AUTH_NONE:
        verdict(x, 401, "Not authenticated");
        break;
    case AUTH_BAD:
        verdict(x, 401, "Could not validate credentials");
        break;
    case AUTH_NOT_YET:
        verdict(x, 503, "the server does not know yet how to check tokens; try again soon");
        break;
    case AUTH_OK:
        x->has_token = true;
        if (!(x->token.scopes & scopes))
            verdict(x, 403, "this token may not do that; log in, or make a token of another scope");
        break;
    }
}

static void take_headers(struct conn *c)
{
    struct exchange *x = &c->x;
    struct ab_http_span key = x->head.field[AB_H_IDEMPOTENCY_KEY];
    struct ab_http_span trace = x->head.field[AB_H_TRACEPARENT];
    struct ab_http_span host = x->head.field[AB_H_HOST];

    if (ab_http_has(&x->head, AB_H_IDEMPOTENCY_KEY)) {
        if (key.n == 0 || key.n > KEY_MAX || !visible(bytes_of(c) + key.at, key.n))
            verdict(x, 400, "Idempotency-Key must be 1 to 255 visible characters");
        else
            x->key = copy_field(c, AB_H_IDEMPOTENCY_KEY);
    }
    if (!ab_trace_read(bytes_of(c) + trace.at, trace.n, x->trace))
        ab_trace_of(x->uuid, x->trace);
    /* It tells browsers where to come back to. */
    if (x->match.route && strcmp(x->match.route->service, "auth") == 0 && host.n > 0
        && host.n <= HOST_MAX && visible(bytes_of(c) + host.at, host.n))
        x->host = copy_field(c, AB_H_HOST);
}

static int64_t body_limit(const struct exchange *x)
{
    const struct ab_route *route = x->match.route;
    return route && route->body_limit ? (int64_t)route->body_limit : OTHER_BODY_MAX;
}

static void find_route(struct conn *c)
{
    struct exchange *x = &c->x;
    const char *b = bytes_of(c);

    x->head_only = ab_http_span_is(b, x->head.method, "HEAD");
    route_find(b + x->head.method.at, x->head.method.n, b + x->head.path.at, x->head.path.n,
               &x->match);
    if (!x->match.route && x->match.page == PAGE_NONE) {
        if (x->match.allow)
            verdict(x, 405, "Method Not Allowed");
        else
            verdict(x, 404, "Not Found");
    } else if (x->match.route || x->match.page == PAGE_METRICS) {
        check_access(c);
    }
}

static void answer_verdict(struct conn *c)
{
    struct exchange *x = &c->x;

    if (x->verdict == 401) {
        reply_text(c, 401, x->verdict_text, "www-authenticate: Bearer\r\n");
    } else if (x->verdict == 405) {
        char allow[64], line[80];
        route_allow_text(x->match.allow, allow, sizeof(allow));
        (void)snprintf(line, sizeof(line), "allow: %s\r\n", allow);
        reply_text(c, 405, x->verdict_text, line);
    } else {
        reply_text(c, x->verdict, x->verdict_text, NULL);
    }
}

/* The head is complete. 0 go on with the body, -1 answered for good. */
static int begin(struct conn *c)
{
    struct exchange *x = &c->x;
    int64_t body = x->head.content_length, now_ms = ab_now_ms();

    x->begun = true;
    x->start_us = ab_now_us();
    x->deadline_ms = now_ms + gw.deadline_ms;
    ab_uuid7(x->uuid);
    ab_uuid_text(x->uuid, x->id);
    x->close = x->head.close;
    x->chunked = x->head.minor == 1;
    gw.count.requests++;
    find_route(c);
    take_headers(c);

    if (body > body_limit(x)) {
        reply_last(c, 413, "the body is larger than this route takes", NULL);
        return -1;
    }
    /* Nobody sends megabytes for nothing, and nobody unknown may make us hold them. */
    if (x->verdict && body > 0 && (x->head.expect || body > UNREAD_MAX)) {
        x->close = c->linger = true;
        answer_verdict(c);
        return -1;
    }
    if (conn_in_reserve(c, x->head.length + (size_t)body) < 0) {
        reply_last(c, 503, "the server holds as many requests as it can; try again soon", NULL);
        return -1;
    }
    if (body > 0)
        c->until_ms = now_ms + 10000 + body / 100;
    return 0;
}

/* ---- the body */

/* Path parameters, decoded, into one malloc'ed block. 0, or -1 for a bad escape. */
static int take_parameters(struct conn *c, struct parse *p)
{
    const struct route_match *m = &c->x.match;
    const char *path = bytes_of(c) + c->x.head.path.at;
    int64_t id = 0, name = 0;

    if (m->id_n + m->name_n == 0)
        return 0;
    p->params = malloc(m->id_n + m->name_n);
    if (!p->params)
        return -1;
    if (m->id_n)
        id = ab_percent_decode(path + m->id_at, m->id_n, false, p->params);
    if (m->name_n)
        name = ab_percent_decode(path + m->name_at, m->name_n, false, p->params + m->id_n);
    if (id < 0 || name < 0 || memchr(p->params + m->id_n, 0, (size_t)name))
        return -1;
    p->parts.path_id = m->id_n ? p->params : NULL;
    p->parts.path_id_len = (size_t)id;
    p->parts.path_name = m->name_n ? p->params + m->id_n : NULL;
    p->parts.path_name_len = (size_t)name;
    return 0;
}

/* application/json, x/y+json, or none at all; parameters behind ';' do not count. */
static void content_type(struct conn *c, struct ab_http_parts *parts)
{
    struct ab_http_span s = c->x.head.field[AB_H_CONTENT_TYPE];
    const char *p = bytes_of(c) + s.at;
    size_t n = 0;

    while (n < s.n && p[n] != ';' && p[n] != ' ')
        n++;
    parts->content_json = n == 0 || (n == 16 && strncasecmp(p, "application/json", 16) == 0)
                          || (n > 5 && strncasecmp(p + n - 5, "+json", 5) == 0);
    parts->content_form = n == 33 && strncasecmp(p, "application/x-www-form-urlencoded", 33) == 0;
}

/* The log-in routes take both kinds of form: here the second becomes the first. One that cannot be
 * read stays what it is, and its fields will be missing. */
static void take_multipart(struct conn *c, struct parse *p)
{
    struct ab_http_span s = c->x.head.field[AB_H_CONTENT_TYPE];
    struct boundary boundary = multipart_boundary(bytes_of(c) + s.at, s.n);

    if (boundary.n == 0
        || multipart_to_form(&boundary, p->parts.body, p->parts.body_len, &p->form) < 0
        || p->form.len == 0)
        return;
    p->parts.body = p->form.data;
    p->parts.body_len = p->form.len;
    p->parts.content_form = true;
}

static void fill_parts(struct conn *c, struct parse *p)
{
    struct exchange *x = &c->x;
    const char *b = bytes_of(c);

    p->conn = c->number;
    p->route = x->match.route;
    p->parts.query = x->head.query.n ? b + x->head.query.at : "";
    p->parts.query_len = x->head.query.n;
    p->parts.body = b + x->head.length;
    p->parts.body_len = (size_t)x->head.content_length;
    p->parts.has_body = x->head.content_length > 0;
    content_type(c, &p->parts);
    if (p->route->body_form == AB_BODY_FORM)
        take_multipart(c, p);
}

static void submit_parsed(struct conn *c, struct parse *p)
{
    struct exchange *x = &c->x;
    bool pieces = piece_may(p->route);

    if (pieces || p->route->reply_form == AB_REPLY_PAGE) {
        x->packed = malloc(p->packed.len);
        x->packed_len = x->packed ? p->packed.len : 0;
        if (x->packed)
            memcpy(x->packed, p->packed.data, p->packed.len);
    }
    struct ab_buf body = {0};
    if (!pieces || piece_pack(x, "\0", 1, &body) < 0) { /* a 0: from the beginning */
        ab_buf_free(&body);
        body = p->packed;
        p->packed = (struct ab_buf){0};
    }
    size_t len = body.len;
    http_submit(c, ab_buf_take(&body), len);
}

/* Parsed: the contract's order is broken JSON, 401, 403, what does not match, then the service. */
static void finish_parse(struct conn *c, struct parse *p)
{
    struct exchange *x = &c->x;

    if (p->rc == -2) {
        reply_issues(c, &p->issues);
    } else if (x->verdict) {
        answer_verdict(c);
    } else if (p->rc < 0) {
        reply_issues(c, &p->issues);
    } else if (p->packed.failed || !p->packed.data) {
        reply_text(c, 500, "the request could not be packed", NULL);
    } else {
        submit_parsed(c, p);
    }
}

void http_parsed(struct parse *p)
{
    struct conn *c = conn_find(p->conn);

    if (!c || c->x.pooled != p) { /* gone, or on to something else */
        gw.count.late++;
        return;
    }
    c->x.pooled = NULL;
    if (!c->dying)
        finish_parse(c, p);
}

/* Large: give the buffer away. */
static int hand_over(struct conn *c, const struct parse *from, size_t total)
{
    struct parse *p = malloc(sizeof(*p));
    const char *old = bytes_of(c);

    if (!p)
        return -1;
    *p = *from;
    p->bytes = conn_in_take(c, total, &p->counted);
    if (!p->bytes) {
        free(p);
        return -1;
    }
    /* The buffer was moved to its own front. */
    p->parts.query = p->parts.query_len ? p->bytes + (p->parts.query - old) : "";
    if (!p->form.data)
        p->parts.body = p->bytes + (p->parts.body - old);
    c->x.pooled = p;
    pool_submit(p);
    return 0;
}

/* Head and body are here. Returns how many bytes of the buffer are used up. */
static size_t dispatch(struct conn *c)
{
    struct exchange *x = &c->x;
    size_t total = x->head.length + (size_t)x->head.content_length;
    struct parse p = {0};

    c->state = CONN_WAIT;
    c->until_ms = 0; /* the bus has a deadline for it */
    if (!x->match.route || (x->verdict && x->head.content_length == 0)) {
        if (x->verdict)
            answer_verdict(c);
        else
            page_serve(c);
        return total;
    }
    if (take_parameters(c, &p) < 0) {
        reply_text(c, 400, "the path has a bad percent escape", NULL);
        parse_free(&p);
        return total;
    }
    fill_parts(c, &p);
    if (p.parts.query_len > POOL_FROM || p.parts.body_len > POOL_FROM) {
        if (hand_over(c, &p, total) == 0)
            return 0;
        parse_free(&p);
        reply_last(c, 503, "the server holds as many requests as it can; try again soon", NULL);
        return total;
    }
    parse_run(&p);
    finish_parse(c, &p);
    parse_free(&p);
    return total;
}

int http_take(struct conn *c)
{
    struct exchange *x = &c->x;

    if (!x->begun) {
        int rc = ab_http_head_parse(&x->head, bytes_of(c), c->in_len - c->in_at);
        if (rc == 0)
            return 0;
        if (rc < 0) {
            reply_last(c, x->head.status, x->head.why, NULL);
            return -1;
        }
        if (begin(c) < 0)
            return -1;
    }
    size_t total = x->head.length + (size_t)x->head.content_length;
    if (c->in_len - c->in_at < total) {
        if (x->head.expect && !x->continued) {
            x->continued = true;
            conn_write(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        }
        return 0;
    }
    size_t used = dispatch(c);
    if (c->state != CONN_WS) /* ws.c has taken what came behind its head */
        conn_in_drop(c, used);
    return 1;
}

/* ---- the bus */

static void redirect(struct conn *c, int status, const void *body, size_t len)
{
    struct ab_cursor at = ab_cursor(body, len), where;
    struct ab_buf line = {0};
    const char *to;
    size_t n;

    if (ab_cursor_find(at, "location", &where) == 0)
        at = where;
    if (ab_cursor_str(&at, &to, &n) < 0 || n == 0 || !visible(to, n)) {
        reply_text(c, 502, "the service gave no place to go to", NULL);
        return;
    }
    ab_buf_str(&line, "location: ");
    ab_buf_add(&line, to, n);
    ab_buf_str(&line, "\r\n");
    reply_empty(c, status, line.data);
    ab_buf_free(&line);
}

static void answer_error(struct conn *c, int status, const void *body, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};

    if (ab_bus_error_unpack(body, len, status, arena, &err) < 0 || err.code < 400 || err.code > 599)
        (void)ab_fail(&err, AB_EUPSTREAM, "the service gave an answer that makes no sense");
    /* A service that is away answers every request so: that is said once, by the bus, and counted.
     */
    enum ab_level level = err.code == AB_EBUSY ? AB_DEBUG : AB_WARN;
    if (err.code >= 500)
        ab_log(level, "http.failed", AB_KV("req", c->x.id), AB_KV("trace", c->x.trace),
               AB_KV("status", err.code), AB_KV("verb", c->x.match.route->verb),
               AB_KV("text", (const char *)err.text));
    piece_explain(&c->x, &err);
    reply_error(c, &err, NULL);
}

static void answer(struct conn *c, int status, const void *body, size_t len)
{
    const struct ab_route *route = c->x.match.route;

    if (status >= AB_BUS_REPLAYED) {
        status -= AB_BUS_REPLAYED;
        c->x.replayed = true;
    }
    if (status == AB_BUS_MORE && piece_may(route)) {
        piece_next(c, body, len);
    } else if (status < 200 || status > 399) {
        answer_error(c, status, body, len);
    } else if (status == 204 || route->reply_form == AB_REPLY_NONE) {
        reply_empty(c, 204, NULL);
    } else if (route->reply_form == AB_REPLY_REDIRECT) {
        if (status < 300)
            page_user_code(c);
        else
            redirect(c, status, body, len);
    } else {
        stream_start(c, status, body, len, route->reply_form == AB_REPLY_PAGE);
    }
}

static void on_reply(void *arg, int status, const void *body, size_t len)
{
    struct conn *c = conn_find((uint64_t)(uintptr_t)arg);

    if (!c || c->dying || !c->x.waiting) {
        gw.count.late++;
        return;
    }
    c->x.waiting = false;
    c->x.bus = 0;
    if (c->state == CONN_STREAM)
        stream_page(c, status, body, len);
    else
        answer(c, status, body, len);
}

void http_submit(struct conn *c, void *body, size_t len)
{
    struct exchange *x = &c->x;
    const struct ab_route *route = x->match.route;
    uint8_t uuid[16];
    char trace[AB_TRACE_TEXT];
    ab_trace_write(x->trace, x->uuid, trace);
    struct ab_bus_request request = {
        .service = route->service,
        .verb = route->verb,
        .user = x->token.user,
        .username = x->has_token ? x->token.username : NULL,
        .scopes = x->token.scopes,
        .token_site = x->token.site,
        .key = x->key,
        .trace = trace,
        .peer = c->peer,
        .host = x->host,
        .deadline_ms = x->deadline_ms,
        .body = body,
        .body_len = len,
        .done = on_reply,
        .arg = (void *)(uintptr_t)c->number,
    };
    memcpy(request.uuid, x->uuid, sizeof(uuid));
    memcpy(uuid, x->uuid, sizeof(uuid));
    x->waiting = true;
    uint64_t number = ab_bus_submit(gw.bus, &request);
    /* It may have been answered in there, and the next request begun. */
    if (x->waiting && memcmp(uuid, x->uuid, sizeof(uuid)) == 0)
        x->bus = number;
}
