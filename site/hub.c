/* hub.c - see hub.h */
#include "hub.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORED_MAX 256

/* Somebody waits until what was put up to a number has left. */
struct drain {
    char link[64];
    uint64_t number, up_to;
    enum outbox_target target;
};

/* Confirmations that go out after one flush for all. */
struct stored {
    char link[64];
    uint64_t number;
    struct ab_error err;
};

struct hub {
    ab_hub_t *socket;
    outbox_t *outbox;
    post_t *post;
    uplink_t *uplink;
    void (*on_health)(void *arg, const char *link, const char *json, size_t len);
    void *arg;
    struct drain drains[HUB_DRAINS];
    size_t n_drains;
    struct stored stored[STORED_MAX];
    size_t n_stored;
};

hub_t *hub_new(ab_hub_t *socket, outbox_t *outbox, post_t *post, uplink_t *uplink,
               void (*on_health)(void *arg, const char *link, const char *json, size_t len),
               void *arg)
{
    hub_t *self = calloc(1, sizeof(*self));

    self->socket = socket;
    self->outbox = outbox;
    self->post = post;
    self->uplink = uplink;
    self->on_health = on_health;
    self->arg = arg;
    return self;
}

void hub_destroy(hub_t **self)
{
    free(*self);
    *self = NULL;
}

/* ------------------------------------------------------------------ calls */

static void send_reply(hub_t *self, const char *link, uint64_t number, int status,
                       const struct ab_error *err, const struct ab_buf *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf message = {0};

    wire_pack_reply(&message, status, err, body);
    if (!message.failed
        && ab_hub_send(self->socket, link, WIRE_REPLY, number, message.data, message.len) == 0)
        return;
    /* gone, or larger than a message may be: who waits must not wait for ever */
    struct ab_error why = {0};
    ab_fail(&why, AB_ETOOBIG,
            "the centre's answer does not fit into a message to the module; ask for less");
    ab_buf_clear(&message);
    wire_pack_reply(&message, -1, &why, NULL);
    (void)ab_hub_send(self->socket, link, WIRE_REPLY, number, message.data, message.len);
}

void hub_answer(hub_t *self, const struct uplink_reply *reply)
{
    send_reply(self, reply->link, reply->number, reply->status, &reply->err, &reply->body);
}

static void on_call(hub_t *self, const struct ab_message *m)
{
    struct wire_text method, path, body, trace;
    struct uplink_call call = {.number = m->number};
    struct ab_error err = {0};

    if (wire_read_call(m->body, m->len, &method, &path, &call.timeout_ms, &body, &trace) < 0
        || method.n >= sizeof(call.method)) {
        ab_fail(&err, AB_EINVAL, "a broken call");
        send_reply(self, m->link, m->number, -1, &err, NULL);
        return;
    }
    snprintf(call.link, sizeof(call.link), "%s", m->link);
    snprintf(call.method, sizeof(call.method), "%.*s", (int)method.n, method.p);
    snprintf(call.trace, sizeof(call.trace), "%.*s", (int)trace.n, trace.p);
    call.path = strndup(path.p, path.n);
    if (body.p) {
        call.len = body.n;
        call.body = malloc(body.n + 1);
        memcpy(call.body, body.p, body.n);
    }
    if (uplink_submit(self->uplink, &call, &err) < 0)
        send_reply(self, m->link, m->number, -1, &err, NULL);
}

/* ------------------------------------------------------------------ updates */

static int put_one(void *arg, const char *target, const char *json, size_t len,
                   struct ab_error *err)
{
    hub_t *self = arg;
    int which = outbox_target_of(target);

    if (which < 0)
        return ab_fail(err, AB_EINVAL, "%s is nothing that the outbox takes", target);
    return outbox_put(self->outbox, (enum outbox_target)which, json, len, err);
}

static void flush_stored(hub_t *self)
{
    struct ab_error disk = {0};

    if (!self->n_stored)
        return;
    int rc = outbox_sync(self->outbox, &disk);
    for (size_t i = 0; i < self->n_stored; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf message = {0};
        struct stored *s = &self->stored[i];
        wire_pack_stored(&message, rc < 0 ? &disk : &s->err);
        (void)ab_hub_send(self->socket, s->link, WIRE_STORED, s->number, message.data, message.len);
    }
    self->n_stored = 0;
    post_wake(self->post);
}

static void on_put(hub_t *self, const struct ab_message *m)
{
    struct stored *s = &self->stored[self->n_stored++];

    snprintf(s->link, sizeof(s->link), "%s", m->link);
    s->number = m->number;
    s->err = (struct ab_error){0};
    if (wire_read_put(m->body, m->len, put_one, self, &s->err) < 0)
        ab_log(AB_ERROR, "outbox.refused", AB_KV("module", m->link), AB_KV("why", s->err.text));
    if (self->n_stored == STORED_MAX)
        flush_stored(self);
}

/* ------------------------------------------------------------------ draining */

static void say_drained(hub_t *self, const char *link, uint64_t number)
{
    (void)ab_hub_send(self->socket, link, WIRE_DRAINED, number, NULL, 0);
}

static void on_drain(hub_t *self, const struct ab_message *m)
{
    char path[32];
    uint64_t last = outbox_last(self->outbox);

    snprintf(path, sizeof(path), "%.*s", (int)(m->len < 31 ? m->len : 31),
             m->len ? (const char *)m->body : "");
    int target = outbox_target_of(path);
    if (target < 0 || !outbox_waits(self->outbox, (enum outbox_target)target, last)) {
        say_drained(self, m->link, m->number);
        return;
    }
    if (self->n_drains == HUB_DRAINS) /* the oldest has given up long ago */
        memmove(self->drains, self->drains + 1, --self->n_drains * sizeof(self->drains[0]));
    struct drain *drain = &self->drains[self->n_drains++];
    *drain =
        (struct drain){.number = m->number, .up_to = last, .target = (enum outbox_target)target};
    snprintf(drain->link, sizeof(drain->link), "%s", m->link);
}

void hub_drained(hub_t *self)
{
    size_t n = 0;

    for (size_t i = 0; i < self->n_drains; i++) {
        const struct drain *drain = &self->drains[i];
        if (outbox_waits(self->outbox, drain->target, drain->up_to))
            self->drains[n++] = *drain;
        else
            say_drained(self, drain->link, drain->number);
    }
    self->n_drains = n;
}

void hub_wake(hub_t *self, const char *module)
{
    (void)ab_hub_send(self->socket, module, WIRE_WAKE, 0, NULL, 0);
}

/* ------------------------------------------------------------------ */

static void on_come(hub_t *self, const struct ab_message *m)
{
    (void)self;
    ab_log(AB_INFO, "module.linked", AB_KV("module", m->link));
}

static void on_go(hub_t *self, const struct ab_message *m)
{
    (void)self;
    ab_log(AB_INFO, "module.left", AB_KV("module", m->link));
}

static void on_health(hub_t *self, const struct ab_message *m)
{
    self->on_health(self->arg, m->link, m->body, m->len);
}

static const struct {
    const char *kind;
    void (*fn)(hub_t *self, const struct ab_message *m);
} kinds[] = {
    {WIRE_CALL, on_call},     {WIRE_PUT, on_put}, {WIRE_DRAIN, on_drain},
    {WIRE_HEALTH, on_health}, {"+", on_come},     {"-", on_go},
};

void hub_receive(hub_t *self)
{
    struct ab_message m;

    while (ab_hub_receive(self->socket, &m) > 0)
        for (size_t i = 0; i < AB_COUNT(kinds); i++)
            if (strcmp(kinds[i].kind, m.kind) == 0)
                kinds[i].fn(self, &m);
    flush_stored(self);
}
