/* wire.c - see wire.h */
#include "wire.h"
#include "schema/pack.h"

#include <stdio.h>
#include <string.h>

void wire_pack_call(struct ab_buf *out, const char *method, const char *path, int64_t timeout_ms,
                    const struct ab_buf *body, const char *trace)
{
    ab_pack_array(out, 5);
    ab_pack_str(out, method);
    ab_pack_str(out, path);
    ab_pack_int(out, timeout_ms);
    if (body)
        ab_pack_bin(out, body->data ? body->data : "", body->len);
    else
        ab_pack_nil(out);
    ab_pack_str(out, trace);
}

static int read_array(struct ab_cursor *c, const void *bytes, size_t len, uint32_t want)
{
    uint32_t n;

    if (!ab_wire_ok(bytes, len))
        return -1;
    *c = ab_cursor(bytes, len);
    return ab_cursor_array(c, &n) < 0 || n != want ? -1 : 0;
}

static int read_bin(struct ab_cursor *c, struct wire_text *out)
{
    const void *p;

    if (ab_cursor_bin(c, &p, &out->n) < 0)
        return -1;
    out->p = p;
    return 0;
}

int wire_read_call(const void *bytes, size_t len, struct wire_text *method, struct wire_text *path,
                   int64_t *timeout_ms, struct wire_text *body, struct wire_text *trace)
{
    struct ab_cursor c;

    *body = (struct wire_text){0};
    if (read_array(&c, bytes, len, 5) < 0 || ab_cursor_str(&c, &method->p, &method->n) < 0
        || ab_cursor_str(&c, &path->p, &path->n) < 0 || ab_cursor_int(&c, timeout_ms) < 0)
        return -1;
    if (ab_cursor_nil(&c) != 1 && read_bin(&c, body) < 0)
        return -1;
    return ab_cursor_str(&c, &trace->p, &trace->n);
}

void wire_pack_reply(struct ab_buf *out, int status, const struct ab_error *err,
                     const struct ab_buf *body)
{
    ab_pack_array(out, 4);
    ab_pack_int(out, status);
    ab_pack_str(out, err ? err->kind : "");
    ab_pack_str(out, err ? err->text : "");
    ab_pack_bin(out, body && body->data ? body->data : "", body ? body->len : 0);
}

int wire_read_reply(const void *bytes, size_t len, int *status, struct ab_error *err,
                    struct ab_buf *body)
{
    struct ab_cursor c;
    struct wire_text kind, text, rest;
    int64_t number;

    if (read_array(&c, bytes, len, 4) < 0 || ab_cursor_int(&c, &number) < 0
        || ab_cursor_str(&c, &kind.p, &kind.n) < 0 || ab_cursor_str(&c, &text.p, &text.n) < 0
        || read_bin(&c, &rest) < 0 || number < -1 || number > 999)
        return -1;
    *status = (int)number;
    if (number < 0 || number >= 300) {
        ab_fail(err, number < 0 ? AB_EUPSTREAM : (int)number, "%.*s", (int)text.n, text.p);
        if (err && kind.n)
            snprintf(err->kind, sizeof(err->kind), "%.*s", (int)kind.n, kind.p);
    }
    if (body)
        ab_buf_add(body, rest.p, rest.n);
    return 0;
}

void wire_pack_put(struct ab_buf *out, const char *target, const struct ab_buf *updates, size_t n)
{
    ab_pack_array(out, 2);
    ab_pack_str(out, target);
    ab_pack_array(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        ab_pack_bin(out, updates[i].data, updates[i].len);
}

int wire_read_put(const void *bytes, size_t len,
                  int (*fn)(void *arg, const char *target, const char *json, size_t len,
                            struct ab_error *err),
                  void *arg, struct ab_error *err)
{
    struct ab_cursor c;
    struct wire_text path, update;
    char target[32];
    uint32_t n;

    if (read_array(&c, bytes, len, 2) < 0 || ab_cursor_str(&c, &path.p, &path.n) < 0
        || path.n >= sizeof(target) || ab_cursor_array(&c, &n) < 0)
        return ab_fail(err, AB_EINVAL, "a broken message to the outbox");
    snprintf(target, sizeof(target), "%.*s", (int)path.n, path.p);
    for (uint32_t i = 0; i < n; i++) {
        if (read_bin(&c, &update) < 0)
            return ab_fail(err, AB_EINVAL, "a broken message to the outbox");
        if (fn(arg, target, update.p, update.n, err) < 0)
            return -1;
    }
    return 0;
}

void wire_pack_stored(struct ab_buf *out, const struct ab_error *err)
{
    ab_pack_array(out, 2);
    ab_pack_int(out, err ? err->code : 0);
    ab_pack_str(out, err ? err->text : "");
}

int wire_read_stored(const void *bytes, size_t len, struct ab_error *err)
{
    struct ab_cursor c;
    struct wire_text text;
    int64_t code;

    if (read_array(&c, bytes, len, 2) < 0 || ab_cursor_int(&c, &code) < 0
        || ab_cursor_str(&c, &text.p, &text.n) < 0)
        return ab_fail(err, AB_EINTERNAL, "a broken answer of the broker");
    return code ? ab_fail(err, (int)code, "%.*s", (int)text.n, text.p) : 0;
}
