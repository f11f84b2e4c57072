/* reply.c - status lines, headers, error bodies */
#include "reply.h"
#include "base/clock.h"
#include "base/log.h"
#include "conn.h"
#include "metrics.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define JSON_TYPE "application/json"

static void add_items(struct ab_buf *out, const struct ab_error *err)
{
    ab_buf_str(out, ",\"items\":[");
    for (size_t i = 0; i < err->n_items; i++) {
        const struct ab_error_item *item = &err->items[i];
        ab_buf_str(out, i ? ",{" : "{");
        if (item->index >= 0) {
            ab_buf_str(out, "\"index\":");
            ab_buf_int(out, item->index);
            ab_buf_char(out, ',');
        }
        if (item->id) {
            ab_buf_str(out, "\"id\":");
            ab_buf_int(out, item->id);
            ab_buf_char(out, ',');
        }
        const char *reason = item->reason ? item->reason : "";
        ab_buf_str(out, "\"reason\":");
        ab_buf_json_str(out, reason, strlen(reason));
        ab_buf_char(out, '}');
    }
    ab_buf_char(out, ']');
}

/* A service found what the gateway could not see: the same form as all validation. Of kind
 * "query.NAME" it is a parameter that is missing, else it is about the body. */
static void add_detail(struct ab_buf *out, const struct ab_error *err, const char *text,
                       int64_t index)
{
    if (strncmp(err->kind, "query.", 6) == 0) {
        ab_buf_printf(out, "{\"loc\":[\"query\",\"%s\"],\"msg\":", err->kind + 6);
        ab_buf_json_str(out, text, strlen(text));
        ab_buf_str(out, ",\"type\":\"value_error.missing\"}");
        return;
    }
    ab_buf_str(out, "{\"loc\":[\"body\"");
    if (index >= 0) {
        ab_buf_char(out, ',');
        ab_buf_int(out, index);
    }
    ab_buf_str(out, "],\"msg\":");
    ab_buf_json_str(out, text, strlen(text));
    ab_buf_str(out, ",\"type\":\"value_error\"}");
}

static void render_validation(struct ab_buf *out, const struct ab_error *err)
{
    ab_buf_str(out, "{\"detail\":[");
    for (size_t i = 0; i < err->n_items; i++) {
        if (i)
            ab_buf_char(out, ',');
        add_detail(out, err, err->items[i].reason ? err->items[i].reason : err->text,
                   err->items[i].index);
    }
    if (err->n_items == 0)
        add_detail(out, err, err->text, -1);
    ab_buf_str(out, "]}");
}

void render_error(struct ab_buf *out, const struct ab_error *err)
{
    if (err->code == AB_ESCHEMA) {
        render_validation(out, err);
        return;
    }
    if (err->code == AB_ENOENT && strcmp(err->kind, "not_found") == 0)
        ab_buf_str(out, "{\"error\":\"Not found\",\"message\":");
    else
        ab_buf_str(out, "{\"detail\":");
    ab_buf_json_str(out, err->text, strlen(err->text));
    if (err->n_items)
        add_items(out, err);
    ab_buf_char(out, '}');
}

/* RFC 9110 date, made once a second. */
static const char *date_now(void)
{
    static time_t last;
    static char text[64];
    time_t now = time(NULL);

    if (now != last) {
        struct tm utc;
        gmtime_r(&now, &utc);
        (void)strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc);
        last = now;
    }
    return text;
}

static void count(struct conn *c, int status)
{
    if (status >= 500)
        gw.count.s5xx++;
    else if (status >= 400)
        gw.count.s4xx++;
    else
        gw.count.s2xx++;
    if (c->x.start_us) {
        int64_t us = ab_now_us() - c->x.start_us;
        gw.count.took_us += (uint64_t)us;
        metrics_answer(c->x.match.route, status, us);
        ab_log(AB_DEBUG, "http.done", AB_KV("req", c->x.id), AB_KV("trace", c->x.trace),
               AB_KV("verb", c->x.match.route ? c->x.match.route->verb : "-"),
               AB_KV("status", status), AB_KV("us", us));
    }
}

void reply_head(struct conn *c, struct ab_buf *out, int status, const char *type, int64_t length,
                const char *extra)
{
    if (c->x.id[0] == '\0') { /* refused before its head was complete */
        ab_uuid7(c->x.uuid);
        ab_uuid_text(c->x.uuid, c->x.id);
    }
    if (gw.draining)
        c->x.close = true;
    ab_buf_printf(out, "HTTP/1.1 %d %s\r\ndate: %s\r\nx-request-id: %s\r\n", status,
                  ab_http_reason(status), date_now(), c->x.id);
    if (type)
        ab_buf_printf(out, "content-type: %s\r\ncache-control: no-store\r\n", type);
    if (length >= 0 && status != 204)
        ab_buf_printf(out, "content-length: %" PRId64 "\r\n", length);
    else if (length < 0 && c->x.chunked)
        ab_buf_str(out, "transfer-encoding: chunked\r\n");
    if (c->x.close)
        ab_buf_str(out, "connection: close\r\n");
    if (c->x.replayed)
        ab_buf_str(out, "idempotent-replayed: true\r\n");
    if (extra)
        ab_buf_str(out, extra);
    ab_buf_str(out, "\r\n");
    count(c, status);
}

/* Headers and a small body in one write: a second one would cost a packet and a wake-up. */
void reply_body(struct conn *c, int status, const char *type, const void *body, size_t n,
                const char *extra)
{
    static struct ab_buf out; /* kept: one allocation for all small answers */

    ab_buf_clear(&out);
    reply_head(c, &out, status, type, (int64_t)n, extra);
    if (!c->x.head_only)
        ab_buf_add(&out, body, n);
    if (out.failed)
        conn_kill(c);
    else
        conn_write(c, out.data, out.len);
    if (out.cap > 4 * PIECE)
        ab_buf_free(&out);
    conn_done(c);
}

void reply_json(struct conn *c, int status, const struct ab_buf *body, const char *extra)
{
    reply_body(c, status, JSON_TYPE, body->data, body->len, extra);
}

void reply_empty(struct conn *c, int status, const char *extra)
{
    reply_body(c, status, NULL, "", 0, extra);
}

void reply_issues(struct conn *c, const struct ab_issues *issues)
{
    struct ab_buf body = {0};

    ab_buf_str(&body, "{\"detail\":[");
    ab_buf_add(&body, issues->list.data, issues->list.len);
    ab_buf_str(&body, "]}");
    reply_json(c, 422, &body, NULL);
    ab_buf_free(&body);
}

void reply_error(struct conn *c, const struct ab_error *err, const char *extra)
{
    struct ab_buf body = {0};
    char retry[64] = "";

    if (err->code == AB_EBUSY || err->code == AB_ERATE)
        (void)snprintf(retry, sizeof(retry), "retry-after: %d\r\n",
                       err->retry_sec > 0 ? err->retry_sec : 1);
    render_error(&body, err);
    reply_json(c, err->code, &body, extra ? extra : retry[0] ? retry : NULL);
    ab_buf_free(&body);
}

void reply_text(struct conn *c, int status, const char *text, const char *extra)
{
    struct ab_error err = {.code = status};

    /* "Not Found" of an unknown route has another form than that of a missing row. */
    (void)snprintf(err.kind, sizeof(err.kind), "http");
    (void)snprintf(err.text, sizeof(err.text), "%s", text);
    reply_error(c, &err, extra);
}

void reply_last(struct conn *c, int status, const char *text, const char *extra)
{
    c->x.close = true;
    c->linger = true;
    reply_text(c, status, text, extra);
}
