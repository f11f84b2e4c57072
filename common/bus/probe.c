/* probe.c - a stranger at the door */
#include "probe.h"
#include "base/clock.h"
#include "socket.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROVE_MS 5000

struct ab_probe {
    zsock_t *stranger, *monitor;
    enum ab_probe_result result;
};

/* 0.0.0.0 and [::] can be bound, but connecting to them is not portable. */
static void connectable(const char *endpoint, char *out, size_t size)
{
    const char *port = strrchr(endpoint, ':');
    if (strncmp(endpoint, "tcp://0.0.0.0:", 14) == 0 && port)
        snprintf(out, size, "tcp://127.0.0.1%s", port);
    else if (strncmp(endpoint, "tcp://[::]:", 11) == 0 && port)
        snprintf(out, size, "tcp://[::1]%s", port);
    else
        snprintf(out, size, "%s", endpoint);
}

ab_probe_t *ab_probe_new(int type, const char *endpoint, const char *server_key)
{
    static atomic_uint count;
    char to[512], name[64];
    ab_probe_t *self = calloc(1, sizeof(*self));
    zcert_t *unknown = zcert_new();

    if (!self || !unknown) {
        zcert_destroy(&unknown);
        free(self);
        return NULL;
    }
    snprintf(name, sizeof(name), "inproc://abies-probe-%u", atomic_fetch_add(&count, 1));
    connectable(endpoint, to, sizeof(to));
    self->stranger = ab_socket_new(type == ZMQ_SUB ? ZMQ_PUB : ZMQ_DEALER);
    zsock_set_linger(self->stranger, 0);
    zsock_set_immediate(self->stranger, 1);
    zsock_set_reconnect_ivl(self->stranger, 200);
    ab_socket_use_curve(self->stranger, unknown, server_key);
    zcert_destroy(&unknown);
    self->monitor = zsock_new(ZMQ_PAIR);
    zsock_set_linger(self->monitor, 0);
    if (zmq_socket_monitor(zsock_resolve(self->stranger), name,
                           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            < 0
        || zmq_connect(zsock_resolve(self->monitor), name) < 0
        || ab_socket_connect(self->stranger, to) < 0) {
        ab_probe_destroy(&self);
        return NULL;
    }
    return self;
}

void ab_probe_destroy(ab_probe_t **self_p)
{
    ab_probe_t *self = *self_p;
    if (!self)
        return;
    if (self->stranger)
        (void)zmq_socket_monitor(zsock_resolve(self->stranger), NULL, 0);
    zsock_destroy(&self->monitor);
    zsock_destroy(&self->stranger);
    free(self);
    *self_p = NULL;
}

enum ab_probe_result ab_probe_check(ab_probe_t *self)
{
    struct ab_parts event;

    while (ab_parts_receive(zsock_resolve(self->monitor), 2, &event) == 1) {
        uint16_t what = 0;
        if (zmq_msg_size(&event.part[0]) >= sizeof(what))
            memcpy(&what, zmq_msg_data(&event.part[0]), sizeof(what));
        ab_parts_close(&event);
        if (what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
            self->result = AB_PROBE_LET_IN;
        else if (what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH && self->result == AB_PROBE_WAITING)
            self->result = AB_PROBE_REFUSED;
    }
    return self->result;
}

int ab_probe_prove(zsock_t *sock, const char *server_key, struct ab_error *err)
{
    char *endpoint = NULL;
    int rc = -1;

    if (ab_socket_bind(sock, "tcp://127.0.0.1:*", &endpoint, err) < 0)
        return -1;
    ab_probe_t *probe = ab_probe_new(zsock_type(sock), endpoint, server_key);
    int64_t until = ab_now_ms() + PROVE_MS;
    enum ab_probe_result result = AB_PROBE_WAITING;
    while (probe && (result = ab_probe_check(probe)) == AB_PROBE_WAITING && ab_now_ms() < until) {
        zmq_pollitem_t item = {zsock_resolve(probe->monitor), 0, ZMQ_POLLIN, 0};
        (void)zmq_poll(&item, 1, (long)(until - ab_now_ms()));
    }
    if (result == AB_PROBE_REFUSED)
        rc = 0;
    else if (result == AB_PROBE_LET_IN)
        (void)ab_fail(err, AB_EINTERNAL,
                      "the bus lets in a stranger: its key check does not work; refusing to start");
    else
        (void)ab_fail(
            err, AB_EINTERNAL,
            "could not prove within 5 s that the bus refuses strangers; refusing to start");
    ab_probe_destroy(&probe);
    (void)zmq_unbind(zsock_resolve(sock), endpoint);
    free(endpoint);
    return rc;
}
