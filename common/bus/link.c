/* link.c - a module's or node worker's end of local messages */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "certs.h"
#include "curve.h"
#include "message.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HWM 10000

struct ab_link {
    zsock_t *dealer;
    void *socket;
    struct ab_envelope self; /* name and token */
    int64_t beat_ms, dead_ms, next_beat, heard_ms, last_tick;
    struct ab_parts current;
};

static int send_kind(ab_link_t *self, const char *kind, uint64_t number, const void *body,
                     size_t len)
{
    struct ab_envelope envelope = self->self;
    envelope.number = number;
    memcpy(envelope.kind, kind, strlen(kind) + 1);
    return ab_envelope_send(self->socket, &envelope, body, len);
}

int ab_link_send(ab_link_t *self, const char *kind, uint64_t number, const void *body, size_t len)
{
    if (!ab_kind_ok(kind))
        return -1;
    return send_kind(self, kind, number, body, len);
}

int ab_link_receive(ab_link_t *self, struct ab_message *out)
{
    ab_parts_close(&self->current);
    for (;;) {
        struct ab_envelope from;
        if (ab_parts_receive(self->socket, 3, &self->current) != 1)
            break;
        self->heard_ms = ab_now_ms();
        if (ab_envelope_read(&self->current, 0, &from) < 0 || !ab_kind_ok(from.kind)) {
            ab_parts_close(&self->current);
            continue; /* a pulse */
        }
        memset(out, 0, sizeof(*out));
        memcpy(out->kind, from.kind, sizeof(out->kind));
        out->number = from.number;
        if (self->current.n > 2) {
            out->body = zmq_msg_data(&self->current.part[2]);
            out->len = zmq_msg_size(&self->current.part[2]);
        }
        return 1;
    }
    /* Only now, with nothing left to read: what came while we were stopped counts as heard. */
    return ab_now_ms() - self->heard_ms >= self->dead_ms ? -1 : 0;
}

int64_t ab_link_tick(ab_link_t *self, int64_t now_ms)
{
    int64_t gap = now_ms - self->last_tick;

    if (self->last_tick && gap > 2 * self->beat_ms)
        self->heard_ms += gap - self->beat_ms; /* we were away, not the hub */
    self->last_tick = now_ms;
    if (now_ms >= self->next_beat) {
        self->next_beat = now_ms + self->beat_ms;
        (void)send_kind(self, AB_KIND_BEAT, 0, NULL, 0);
    }
    return self->next_beat - now_ms;
}

int ab_link_wait(ab_link_t *self, const int *fds, size_t n, int64_t timeout_ms)
{
    return ab_local_wait(self->socket, fds, n, timeout_ms);
}

static int use_curve(ab_link_t *self, const struct ab_local_options *options, struct ab_error *err)
{
    if (!options->server_key)
        return 0;
    zcert_t *own = ab_cert_of_texts(options->public_key, options->secret_key);
    if (!own || strlen(options->server_key) != 40) {
        zcert_destroy(&own);
        return ab_fail(err, AB_EINVAL,
                       "a link with CURVE needs its own pair and the hub's public key");
    }
    ab_socket_use_curve(self->dealer, own, options->server_key);
    zcert_destroy(&own);
    return 0;
}

ab_link_t *ab_link_new(const struct ab_local_options *options, struct ab_error *err)
{
    AB_AUTO(ab_link_destroy) ab_link_t *self = calloc(1, sizeof(*self));

    if (!self) {
        (void)ab_fail(err, AB_EINTERNAL, "out of memory");
        return NULL;
    }
    ab_bus_init();
    if (ab_socket_room(err) < 0)
        return NULL;
    if (!options->name || !options->name[0] || strlen(options->name) >= sizeof(self->self.name)) {
        (void)ab_fail(err, AB_EINVAL, "a link needs a name of 1 to 63 characters");
        return NULL;
    }
    memcpy(self->self.name, options->name, strlen(options->name) + 1);
    ab_random(&self->self.token, sizeof(self->self.token));
    self->beat_ms = options->beat_ms;
    self->dead_ms = options->dead_ms;
    self->heard_ms = ab_now_ms();
    self->dealer = ab_socket_new(ZMQ_DEALER);
    self->socket = zsock_resolve(self->dealer);
    zsock_set_sndhwm(self->dealer, HWM);
    zsock_set_rcvhwm(self->dealer, HWM);
    if (use_curve(self, options, err) < 0)
        return NULL;
    if (ab_socket_connect(self->dealer, options->endpoint) < 0) {
        (void)ab_fail(err, AB_EINTERNAL, "cannot connect to %s: %s", options->endpoint,
                      zmq_strerror(errno));
        return NULL;
    }
    ab_link_tick(self, ab_now_ms());
    return AB_TAKE(self);
}

void ab_link_destroy(ab_link_t **self_p)
{
    ab_link_t *self = *self_p;
    if (!self)
        return;
    ab_parts_close(&self->current);
    if (self->socket && self->next_beat)
        (void)send_kind(self, AB_KIND_BYE, 0, NULL, 0);
    zsock_destroy(&self->dealer);
    free(self);
    *self_p = NULL;
}

int ab_link_fd(const ab_link_t *self)
{
    return zsock_fd(self->dealer);
}
