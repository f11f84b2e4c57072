/* hub.c - the broker's end of local messages: who is there, who came, who went */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "certs.h"
#include "curve.h"
#include "message.h"
#include "probe.h"
#include "zap.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINKS 65536
#define PEER_BYTES 5
#define HWM 10000

struct peer {
    uint8_t id[PEER_BYTES];
    char name[64];
    uint64_t token;
    int64_t heard_ms;
};

/* "+" or "-", not yet told. */
struct event {
    char kind;
    char name[64];
};

struct ab_hub {
    zsock_t *router;
    void *socket;
    zactor_t *zap;
    char *endpoint;
    int64_t beat_ms, dead_ms, next_beat, last_tick;
    struct peer *peers;
    size_t n_peers, cap_peers;
    struct event *events; /* ring */
    size_t first_event, n_events, cap_events;
    struct ab_parts held; /* a first message: told after its sender's "+" */
    bool holds;
    struct ab_parts current; /* what the last receive gave away */
};

static void *need(void *p)
{
    if (!p) {
        fputs("bus: out of memory\n", stderr);
        abort();
    }
    return p;
}

/* ------------------------------------------------------------------ events */

static void tell(ab_hub_t *self, char kind, const char *name)
{
    if (self->n_events == self->cap_events) {
        size_t cap = self->cap_events ? self->cap_events * 2 : 16;
        struct event *events = need(calloc(cap, sizeof(*events)));
        for (size_t i = 0; i < self->n_events; i++)
            events[i] = self->events[(self->first_event + i) % self->cap_events];
        free(self->events);
        self->events = events;
        self->first_event = 0;
        self->cap_events = cap;
    }
    struct event *e = &self->events[(self->first_event + self->n_events++) % self->cap_events];
    e->kind = kind;
    memcpy(e->name, name, sizeof(e->name));
}

static void take_event(ab_hub_t *self, struct ab_message *out)
{
    struct event *e = &self->events[self->first_event];

    memset(out, 0, sizeof(*out));
    out->kind[0] = e->kind;
    memcpy(out->link, e->name, sizeof(out->link));
    self->first_event = (self->first_event + 1) % self->cap_events;
    self->n_events--;
}

/* ------------------------------------------------------------------ peers */

static struct peer *by_name(const ab_hub_t *self, const char *name)
{
    for (size_t i = 0; i < self->n_peers; i++) {
        if (strcmp(self->peers[i].name, name) == 0)
            return &self->peers[i];
    }
    return NULL;
}

static struct peer *by_id(const ab_hub_t *self, const void *id)
{
    for (size_t i = 0; i < self->n_peers; i++) {
        if (memcmp(self->peers[i].id, id, PEER_BYTES) == 0)
            return &self->peers[i];
    }
    return NULL;
}

static void remove_peer(ab_hub_t *self, struct peer *peer)
{
    tell(self, '-', peer->name);
    *peer = self->peers[--self->n_peers];
}

static int send_to(ab_hub_t *self, const struct peer *peer, const struct ab_envelope *envelope,
                   const void *body, size_t len)
{
    if (ab_send_frame(self->socket, peer->id, PEER_BYTES, true) < 0)
        return -1;
    if (ab_envelope_send(self->socket, envelope, body, len) < 0) {
        ab_log(AB_ERROR, "bus.send.torn", AB_KV("error", zmq_strerror(errno)));
        abort(); /* only the routing id can be refused */
    }
    return 0;
}

static bool reachable(ab_hub_t *self, const struct peer *peer)
{
    struct ab_envelope pulse = {.kind = AB_KIND_PULSE};
    return send_to(self, peer, &pulse, NULL, 0) == 0 || errno != EHOSTUNREACH;
}

/* A name belongs to who has it as long as that one lives. The same process on a new connection
 * takes its own place: what was under way on the old one may be lost, so its user is told "-" and
 * "+". */
static struct peer *add_peer(ab_hub_t *self, const void *id, const struct ab_envelope *from)
{
    struct peer *old = by_name(self, from->name);

    if (from->name[0] == '\0' || self->n_peers == MAX_LINKS)
        return NULL;
    if (old) {
        if (old->token != from->token && reachable(self, old))
            return NULL;
        remove_peer(self, old);
    }
    if (self->n_peers == self->cap_peers) {
        self->cap_peers = self->cap_peers ? self->cap_peers * 2 : 16;
        self->peers = need(realloc(self->peers, self->cap_peers * sizeof(self->peers[0])));
    }
    struct peer *peer = &self->peers[self->n_peers++];
    memcpy(peer->id, id, PEER_BYTES);
    memcpy(peer->name, from->name, sizeof(peer->name));
    peer->token = from->token;
    tell(self, '+', peer->name);
    return peer;
}

/* ------------------------------------------------------------------ in */

static void give(ab_hub_t *self, struct ab_parts *m, const struct ab_envelope *from,
                 struct ab_message *out)
{
    self->current = *m;
    m->n = 0;
    memset(out, 0, sizeof(*out));
    memcpy(out->link, from->name, sizeof(out->link));
    memcpy(out->kind, from->kind, sizeof(out->kind));
    out->number = from->number;
    if (self->current.n > 3) {
        out->body = zmq_msg_data(&self->current.part[3]);
        out->len = zmq_msg_size(&self->current.part[3]);
    }
}

/* One message off the socket: 1 it is in *out, 0 there was nothing to tell in it. */
static int take(ab_hub_t *self, struct ab_parts *m, struct ab_message *out)
{
    struct ab_envelope from;

    if (m->n < 3 || zmq_msg_size(&m->part[0]) != PEER_BYTES || ab_envelope_read(m, 1, &from) < 0)
        return 0;
    const void *id = zmq_msg_data(&m->part[0]);
    struct peer *peer = by_id(self, id);
    bool bye = strcmp(from.kind, AB_KIND_BYE) == 0;
    if (bye) {
        if (peer)
            remove_peer(self, peer);
        return 0;
    }
    bool fresh = !peer;
    if (fresh && !(peer = add_peer(self, id, &from)))
        return 0;
    if (strcmp(peer->name, from.name) != 0)
        return 0;
    peer->heard_ms = ab_now_ms();
    if (!ab_kind_ok(from.kind))
        return 0; /* a beat */
    if (fresh) {
        self->held = *m;
        m->n = 0;
        self->holds = true;
        return 0;
    }
    give(self, m, &from, out);
    return 1;
}

int ab_hub_receive(ab_hub_t *self, struct ab_message *out)
{
    struct ab_parts m;

    ab_parts_close(&self->current);
    for (;;) {
        if (self->n_events > 0) {
            take_event(self, out);
            return 1;
        }
        if (self->holds) {
            struct ab_envelope from;
            self->holds = false;
            (void)ab_envelope_read(&self->held, 1, &from);
            give(self, &self->held, &from, out);
            return 1;
        }
        if (ab_parts_receive(self->socket, 4, &m) != 1)
            return 0;
        int got = take(self, &m, out);
        ab_parts_close(&m);
        if (got)
            return 1;
    }
}

/* ------------------------------------------------------------------ out, time */

int ab_hub_send(ab_hub_t *self, const char *link, const char *kind, uint64_t number,
                const void *body, size_t len)
{
    struct ab_envelope envelope = {.number = number};
    struct peer *peer = by_name(self, link);

    if (!peer || !ab_kind_ok(kind) || len > AB_BUS_BODY_MAX)
        return -1;
    memcpy(envelope.kind, kind, strlen(kind) + 1);
    if (send_to(self, peer, &envelope, body, len) == 0)
        return 0;
    if (errno == EHOSTUNREACH)
        remove_peer(self, peer);
    return -1;
}

static void beat(ab_hub_t *self, int64_t now)
{
    bool unread = zsock_events(self->router) & ZMQ_POLLIN; /* who seems silent may stand in there */
    for (size_t i = self->n_peers; i-- > 0;) {
        struct peer *peer = &self->peers[i];
        if (!reachable(self, peer) || (!unread && now - peer->heard_ms >= self->dead_ms))
            remove_peer(self, peer); /* the last one moves here: it has been seen */
    }
}

int64_t ab_hub_tick(ab_hub_t *self, int64_t now_ms)
{
    int64_t gap = now_ms - self->last_tick;

    ab_zap_check(self->zap);
    if (self->last_tick && gap > 2 * self->beat_ms) { /* we were away, not they */
        for (size_t i = 0; i < self->n_peers; i++)
            self->peers[i].heard_ms += gap - self->beat_ms;
    }
    self->last_tick = now_ms;
    if (now_ms >= self->next_beat) {
        self->next_beat = now_ms + self->beat_ms;
        beat(self, now_ms);
    }
    return self->next_beat - now_ms;
}

int ab_hub_wait(ab_hub_t *self, const int *fds, size_t n, int64_t timeout_ms)
{
    if (self->n_events > 0 || self->holds)
        return 0;
    return ab_local_wait(self->socket, fds, n, timeout_ms);
}

/* ------------------------------------------------------------------ life */

static int guard(ab_hub_t *self, const struct ab_local_options *options, struct ab_error *err)
{
    if (!options->secret_key)
        return 0;
    if (!options->public_key || !options->allow)
        return ab_fail(err, AB_EINVAL, "a hub with CURVE needs its own pair and the key it allows");
    zcert_t *own = ab_cert_of_texts(options->public_key, options->secret_key);
    if (!own)
        return ab_fail(err, AB_EINVAL, "the hub's keys are not a CURVE pair");
    self->zap = ab_zap_new(options->allow, err);
    if (self->zap)
        ab_socket_serve_curve(self->router, own);
    zcert_destroy(&own);
    if (!self->zap)
        return -1;
    return ab_probe_prove(self->router, options->public_key, err);
}

ab_hub_t *ab_hub_new(const struct ab_local_options *options, struct ab_error *err)
{
    AB_AUTO(ab_hub_destroy) ab_hub_t *self = need(calloc(1, sizeof(*self)));

    ab_bus_init();
    if (ab_socket_room(err) < 0)
        return NULL;
    self->beat_ms = options->beat_ms;
    self->dead_ms = options->dead_ms;
    self->router = ab_socket_new(ZMQ_ROUTER);
    self->socket = zsock_resolve(self->router);
    zsock_set_router_mandatory(self->router, 1);
    zsock_set_sndhwm(self->router, HWM);
    zsock_set_rcvhwm(self->router, HWM);
    if (guard(self, options, err) < 0
        || ab_socket_bind(self->router, options->endpoint, &self->endpoint, err) < 0)
        return NULL;
    return AB_TAKE(self);
}

void ab_hub_destroy(ab_hub_t **self_p)
{
    ab_hub_t *self = *self_p;
    if (!self)
        return;
    ab_parts_close(&self->current);
    ab_parts_close(&self->held);
    zsock_destroy(&self->router);
    zactor_destroy(&self->zap); /* after what it guards */
    free(self->endpoint);
    free(self->peers);
    free(self->events);
    free(self);
    *self_p = NULL;
}

const char *ab_hub_endpoint(const ab_hub_t *self)
{
    return self->endpoint;
}

int ab_hub_fd(const ab_hub_t *self)
{
    return zsock_fd(self->router);
}
