/* server.c - the gateway's sockets around the state machine of dispatch.c */
#include "server.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "certs.h"
#include "curve.h"
#include "dispatch.h"
#include "parcel.h"
#include "probe.h"
#include "socket.h"
#include "zap.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEER_BYTES 5 /* routing ids that libzmq gives */
#define PROBE_EVERY_MS 60000
#define PROBE_GIVE_UP_MS 10000
#define PORT_TRIES 50

struct ab_bus {
    ab_dispatch_t *dispatch;
    zactor_t *zap;
    zcert_t *cert;
    zsock_t *router, *hints;
    char *endpoint, *hint_endpoint;
    ab_probe_t *probe;
    struct ab_bus_figures figures;
    int64_t probe_at; /* when the next begins, or the running one is given up */
};

/* ------------------------------------------------------------------ out */

static void pack_peer(uint64_t peer, uint8_t out[PEER_BYTES])
{
    for (int i = PEER_BYTES; i-- > 0; peer >>= 8)
        out[i] = (uint8_t)peer;
}

static int unpack_peer(zmq_msg_t *msg, uint64_t *peer)
{
    const uint8_t *p = zmq_msg_data(msg);
    if (zmq_msg_size(msg) != PEER_BYTES)
        return -1;
    *peer = 0;
    for (int i = 0; i < PEER_BYTES; i++)
        *peer = *peer << 8 | p[i];
    return 0;
}

static void drop_shared(void *data, void *hint)
{
    (void)data;
    ab_shared_drop(hint);
}

static int body_message(zmq_msg_t *msg, struct ab_shared *body)
{
    if (body->len > AB_PARCEL_JOINED) { /* shared with libzmq, not copied */
        ab_shared_hold(body);
        if (zmq_msg_init_data(msg, body->data, body->len, drop_shared, body) == 0)
            return 0;
        ab_shared_drop(body);
        return -1;
    }
    if (zmq_msg_init_size(msg, body->len) < 0)
        return -1;
    if (body->len)
        memcpy(zmq_msg_data(msg), body->data, body->len);
    return 0;
}

/* Only the routing id can be refused (EHOSTUNREACH, EAGAIN). */
static int send_message(void *arg, uint64_t peer, int version, char command,
                        const struct ab_buf *header, struct ab_shared *body)
{
    ab_bus_t *self = arg;
    void *router = zsock_resolve(self->router);
    uint8_t id[PEER_BYTES];
    zmq_msg_t msg;

    if (body && body_message(&msg, body) < 0)
        return -1;
    pack_peer(peer, id);
    if (ab_send_frame(router, id, sizeof(id), true) < 0) {
        int error = errno;
        if (body)
            zmq_msg_close(&msg);
        errno = error;
        return -1;
    }
    return ab_parcel_send(router, false, version, command, header, body ? &msg : NULL);
}

/* ------------------------------------------------------------------ in */

static void receive_one(ab_bus_t *self, struct ab_parts *m, int64_t now)
{
    struct ab_dispatch_message message = {0};
    struct ab_parcel parcel;

    if (m->n < 2 || unpack_peer(&m->part[0], &message.peer) < 0
        || ab_parcel_read(m, 1, &parcel) < 0)
        return;
    message.command = parcel.command;
    message.header = parcel.header;
    message.header_len = parcel.header_len;
    message.body = ab_parcel_body(&parcel, &message.body_len);
    if (self->cert && message.command != AB_CMD_REPLY) {
        message.key_name = zmq_msg_gets(&m->part[1], "name");
        if (!message.key_name)
            message.key_name = "";
    }
    ab_dispatch_receive(self->dispatch, &message, now);
}

bool ab_bus_drain(ab_bus_t *self, int max)
{
    void *router = zsock_resolve(self->router);
    int64_t now = ab_now_ms();

    for (int i = 0; i < max; i++) {
        struct ab_parts m;
        if (ab_parts_receive(router, 4, &m) != 1)
            return false;
        receive_one(self, &m, now);
        ab_parts_close(&m);
    }
    return true;
}

bool ab_bus_hint_drain(ab_bus_t *self, int max, ab_hint_f *fn, void *arg)
{
    void *sub = zsock_resolve(self->hints);

    for (int i = 0; i < max; i++) {
        struct ab_parts m;
        char topic;
        int64_t owner;
        if (ab_parts_receive(sub, 2, &m) != 1)
            return false;
        if (m.n == 2
            && ab_frame_read_hint(zmq_msg_data(&m.part[0]), zmq_msg_size(&m.part[0]), &topic,
                                  &owner)
                   == 0)
            fn(arg, topic, owner, zmq_msg_data(&m.part[1]), zmq_msg_size(&m.part[1]));
        ab_parts_close(&m);
    }
    return true;
}

/* ------------------------------------------------------------------ the watch over the door */

static void check_stranger(ab_bus_t *self, int64_t now)
{
    if (!self->cert)
        return;
    if (!self->probe) {
        if (now < self->probe_at || !ab_socket_spare())
            return;
        self->probe = ab_probe_new(ZMQ_ROUTER, self->endpoint, zcert_public_txt(self->cert));
        self->probe_at = now + PROBE_GIVE_UP_MS;
        return;
    }
    enum ab_probe_result result = ab_probe_check(self->probe);
    if (result == AB_PROBE_LET_IN) {
        ab_log(AB_ERROR, "bus.stranger.let_in",
               AB_KV("action", "the process ends: the bus is open"));
        _exit(70);
    }
    if (result == AB_PROBE_REFUSED || now >= self->probe_at) {
        if (result == AB_PROBE_REFUSED) {
            self->figures.self_tests++;
        } else {
            self->figures.self_tests_unanswered++;
            ab_log(AB_WARN, "bus.probe.unanswered", AB_KV("endpoint", self->endpoint));
        }
        ab_probe_destroy(&self->probe);
        self->probe_at = now + PROBE_EVERY_MS;
    }
}

int64_t ab_bus_tick(ab_bus_t *self, int64_t now)
{
    ab_zap_check(self->zap);
    check_stranger(self, now);
    return ab_dispatch_tick(self->dispatch, now);
}

/* ------------------------------------------------------------------ start */

static int start_zap(ab_bus_t *self, const char *curve_dir, struct ab_error *err)
{
    char allowed[4096];

    self->cert = ab_cert_own(curve_dir, "gateway", err);
    if (!self->cert)
        return -1;
    snprintf(allowed, sizeof(allowed), "%s/allowed", curve_dir);
    if (ab_cert_check_allowed(allowed, err) < 0)
        return -1;
    self->zap = zactor_new(zauth, NULL);
    if (!self->zap)
        return ab_fail(err, AB_EINTERNAL, "cannot start the bus's key check (ZAP)");
    if (zstr_sendx(self->zap, "CURVE", allowed, NULL) < 0 || zsock_wait(self->zap) < 0)
        return ab_fail(err, AB_EINTERNAL, "the bus's key check does not take %s", allowed);
    return 0;
}

static int make_sockets(ab_bus_t *self, struct ab_error *err)
{
    self->router = ab_socket_new(ZMQ_ROUTER);
    zsock_set_router_mandatory(self->router, 1);
    self->hints = ab_socket_new(ZMQ_SUB);
    if (self->cert) {
        const char *key = zcert_public_txt(self->cert);
        ab_socket_serve_curve(self->router, self->cert);
        ab_socket_serve_curve(self->hints, self->cert);
        if (ab_probe_prove(self->router, key, err) < 0 || ab_probe_prove(self->hints, key, err) < 0)
            return -1;
    }
    zsock_set_subscribe(self->hints, "");
    return 0;
}

/* Services take the hint port to be the bus port + 1, so a free port is one whose neighbour is free
 * too. */
static int bind_pair(ab_bus_t *self, const struct ab_bus_options *options, struct ab_error *err)
{
    size_t len = strlen(options->listen);
    bool any = len > 2 && strcmp(options->listen + len - 2, ":*") == 0;

    for (int i = 0;; i++) {
        char next[512];
        if (ab_socket_bind(self->router, options->listen, &self->endpoint, err) < 0)
            return -1;
        const char *hint = options->hint_listen;
        if (any || !hint)
            hint = ab_next_port(self->endpoint, next, sizeof(next)) == 0 ? next : NULL;
        if (!hint)
            (void)ab_fail(err, AB_EINVAL, "%s has no next port for hints; choose a lower one",
                          self->endpoint);
        else if (ab_socket_bind(self->hints, hint, &self->hint_endpoint, err) == 0)
            return 0;
        if (!any || i == PORT_TRIES)
            return -1;
        (void)zmq_unbind(zsock_resolve(self->router), self->endpoint);
        free(self->endpoint);
        self->endpoint = NULL;
    }
}

ab_bus_t *ab_bus_new(const struct ab_bus_options *options, struct ab_error *err)
{
    AB_AUTO(ab_bus_destroy) ab_bus_t *self = calloc(1, sizeof(*self));
    int64_t now = ab_now_ms();

    if (!self) {
        (void)ab_fail(err, AB_EINTERNAL, "out of memory");
        return NULL;
    }
    ab_bus_init();
    if (ab_socket_room(err) < 0)
        return NULL;
    if (options->curve_dir && start_zap(self, options->curve_dir, err) < 0)
        return NULL;
    if (make_sockets(self, err) < 0 || bind_pair(self, options, err) < 0)
        return NULL;
    struct ab_dispatch_options dispatch = {
        .beat_ms = options->beat_ms,
        .dead_ms = options->dead_ms,
        .queue_limit = options->queue_limit,
        .send = send_message,
        .arg = self,
    };
    self->dispatch = ab_dispatch_new(&dispatch, now);
    self->probe_at = now + PROBE_EVERY_MS;
    return AB_TAKE(self);
}

void ab_bus_destroy(ab_bus_t **self_p)
{
    ab_bus_t *self = *self_p;
    if (!self)
        return;
    ab_probe_destroy(&self->probe);
    zsock_destroy(&self->router);
    zsock_destroy(&self->hints);
    zactor_destroy(&self->zap); /* after what it guards */
    ab_dispatch_destroy(&self->dispatch);
    zcert_destroy(&self->cert);
    free(self->endpoint);
    free(self->hint_endpoint);
    free(self);
    *self_p = NULL;
}

/* ------------------------------------------------------------------ the rest of server.h */

uint64_t ab_bus_submit(ab_bus_t *self, struct ab_bus_request *request)
{
    return ab_dispatch_submit(self->dispatch, request, ab_now_ms());
}

void ab_bus_cancel(ab_bus_t *self, uint64_t number)
{
    ab_dispatch_cancel(self->dispatch, number, ab_now_ms());
}

const char *ab_bus_endpoint(const ab_bus_t *self)
{
    return self->endpoint;
}

const char *ab_bus_hint_endpoint(const ab_bus_t *self)
{
    return self->hint_endpoint;
}

int ab_bus_fd(const ab_bus_t *self)
{
    return zsock_fd(self->router);
}

int ab_bus_hint_fd(const ab_bus_t *self)
{
    return zsock_fd(self->hints);
}

bool ab_bus_stats(const ab_bus_t *self, size_t i, struct ab_bus_service_stats *out)
{
    return ab_dispatch_stats(self->dispatch, i, out);
}

void ab_bus_figures(const ab_bus_t *self, struct ab_bus_figures *out)
{
    *out = self->figures;
    out->strays = ab_dispatch_strays(self->dispatch);
}
