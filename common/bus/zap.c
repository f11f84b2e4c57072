/* zap.c - RFC 27: one question, one answer */
#include "zap.h"
#include "base/fault.h"
#include "base/log.h"
#include "socket.h"
#include <string.h>
#include <unistd.h>

#define KEY_BYTES 32
#define ENDPOINT "inproc://zeromq.zap.01" /* RFC 27: the only one of a process */

struct zap {
    uint8_t allow[KEY_BYTES];
    bool bound;
};

static bool is(zframe_t *frame, const char *text)
{
    return frame && zframe_streq(frame, text);
}

/* version, request id, domain, address, identity, mechanism, key */
static bool allowed(const struct zap *self, zmsg_t *question)
{
    zframe_t *frame[7] = {NULL};

    frame[0] = zmsg_first(question);
    for (int i = 1; i < 7; i++)
        frame[i] = zmsg_next(question);
    return is(frame[0], "1.0") && is(frame[2], AB_ZAP_DOMAIN) && is(frame[5], "CURVE") && frame[6]
           && zframe_size(frame[6]) == KEY_BYTES
           && memcmp(zframe_data(frame[6]), self->allow, KEY_BYTES) == 0;
}

static void answer(struct zap *self, zsock_t *handler)
{
    zmsg_t *question = zmsg_recv(handler);
    if (!question)
        return;
    zmsg_t *reply = zmsg_new();
    bool yes = allowed(self, question);
    (void)zmsg_first(question);
    zframe_t *id = zmsg_next(question);

    zmsg_addstr(reply, "1.0");
    zmsg_addmem(reply, id ? zframe_data(id) : (byte *)"", id ? zframe_size(id) : 0);
    zmsg_addstr(reply, yes ? "200" : "400");
    zmsg_addstr(reply, yes ? "OK" : "No access");
    zmsg_addstr(reply, "");
    zmsg_addmem(reply, "", 0);
    zmsg_send(&reply, handler);
    zmsg_destroy(&reply);
    zmsg_destroy(&question);
}

static void run(zsock_t *pipe, void *arg)
{
    struct zap self = *(struct zap *)arg;
    zsock_t *handler = zsock_new(ZMQ_REP);
    bool go_on = zsock_bind(handler, ENDPOINT) == 0;

    self.bound = ((struct zap *)arg)->bound = go_on;
    zsock_signal(pipe, 0);
    zmq_pollitem_t items[] = {{zsock_resolve(pipe), 0, ZMQ_POLLIN, 0},
                              {zsock_resolve(handler), 0, ZMQ_POLLIN, 0}};
    while (go_on && zmq_poll(items, 2, -1) >= 0) {
        if (items[0].revents & ZMQ_POLLIN) {
            char *command = zstr_recv(pipe);
            go_on = command && strcmp(command, "$TERM") != 0;
            zstr_free(&command);
        }
        if (items[1].revents & ZMQ_POLLIN)
            answer(&self, handler);
    }
    if (self.bound) /* now: a socket that is destroyed keeps its name for a while */
        (void)zsock_unbind(handler, ENDPOINT);
    zsock_destroy(&handler);
}

zactor_t *ab_zap_new(const char *allow, struct ab_error *err)
{
    struct zap arg = {.bound = false};

    if (strlen(allow) != 40 || !zmq_z85_decode(arg.allow, allow)) {
        (void)ab_fail(err, AB_EINVAL, "the public key that is allowed is not 40 characters of Z85");
        return NULL;
    }
    zactor_t *self = zactor_new(run, &arg);
    if (self && !arg.bound)
        zactor_destroy(&self);
    if (!self)
        (void)ab_fail(err, AB_EINTERNAL,
                      "cannot start the key check (ZAP): another one runs in this process");
    return self;
}

void ab_zap_check(zactor_t *zap)
{
    if (!zap)
        return;
    if (ab_fault("bus.zap.end"))
        (void)zstr_send(zap, "$TERM");
    if (zsock_events(zap) & ZMQ_POLLIN) {
        ab_log(AB_ERROR, "bus.zap.gone",
               AB_KV("action", "the process ends: without its key check the bus is open"));
        _exit(70);
    }
}
