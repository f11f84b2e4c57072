/* sync.c - see sync.h */
#include "sync.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "schema/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 5000
#define CALL_MS 30000

static bool equal(const struct ab_value *a, const struct ab_value *b);

static bool equal_maps(const struct ab_value *a, const struct ab_value *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(&a->items[i], ab_value_get(b, a->keys[i])))
            return false;
    return true;
}

static bool equal(const struct ab_value *a, const struct ab_value *b)
{
    if (!a || !b || a->type != b->type)
        return false;
    switch (a->type) {
    case AB_V_NULL:
        return true;
    case AB_V_BOOL:
        return a->b == b->b;
    case AB_V_INT:
        return a->i == b->i;
    case AB_V_REAL:
        return a->f == b->f;
    case AB_V_TEXT:
        return a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
    case AB_V_MAP:
        return equal_maps(a, b);
    case AB_V_LIST:
        break;
    }
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!equal(&a->items[i], &b->items[i]))
            return false;
    return true;
}

bool sync_equal(const char *have, size_t have_len, const char *want, size_t want_len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *h = ab_value_parse(arena, have, have_len, NULL);
    const struct ab_value *w = ab_value_parse(arena, want, want_len, NULL);

    if (!h || !w || h->type != AB_V_MAP || w->type != AB_V_MAP)
        return false;
    for (size_t i = 0; i < w->n; i++)
        if (!equal(&w->items[i], ab_value_get(h, w->keys[i])))
            return false;
    return true;
}

static int submit(uplink_t *uplink, int64_t site_id, const char *method, struct ab_buf *body)
{
    struct ab_buf path = {0};
    struct uplink_call call = {.timeout_ms = CALL_MS};

    ab_buf_printf(&path, "/sites/%" PRId64, site_id);
    snprintf(call.method, sizeof(call.method), "%s", method);
    call.path = ab_buf_take(&path);
    if (body) {
        call.len = body->len;
        call.body = ab_buf_take(body);
    }
    return uplink_submit(uplink, &call, NULL);
}

int64_t sync_step(struct sync *self, int64_t site_id, uplink_t *uplink)
{
    int64_t now = ab_now_ms();

    if (self->at != SYNC_TO_GET)
        return INT64_MAX;
    if (now < self->next_ms)
        return self->next_ms - now;
    self->at = SYNC_GETS;
    if (submit(uplink, site_id, "GET", NULL) < 0) {
        self->at = SYNC_TO_GET;
        self->next_ms = now + AGAIN_MS;
        return AGAIN_MS;
    }
    return INT64_MAX;
}

void sync_reply(struct sync *self, const struct ab_settings *settings, int64_t site_id,
                uplink_t *uplink, const struct uplink_reply *reply)
{
    AB_AUTO(ab_buf_free) struct ab_buf want = {0};

    if (reply->status < 200 || reply->status >= 300) {
        if (!self->complained)
            ab_log(AB_WARN, "sync.failed", AB_KV("status", reply->status),
                   AB_KV("why", reply->err.text));
        self->complained = true;
        snprintf(self->why, sizeof(self->why), "%s", reply->err.text);
        self->at = SYNC_TO_GET;
        self->next_ms = ab_now_ms() + AGAIN_MS;
        return;
    }
    ab_settings_site_json(settings, &want);
    bool same = sync_equal(reply->body.data, reply->body.len, want.data, want.len);
    if (self->at == SYNC_GETS && !same) {
        self->at = submit(uplink, site_id, "PUT", &want) < 0 ? SYNC_TO_GET : SYNC_PUTS;
        self->next_ms = ab_now_ms() + AGAIN_MS;
        return;
    }
    ab_log(AB_INFO, "sync.done", AB_KV("changed", self->at == SYNC_PUTS));
    self->at = SYNC_DONE;
    self->why[0] = '\0';
}
