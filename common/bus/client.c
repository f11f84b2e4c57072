/* client.c - the I/O thread of a replica: gateways come and go, requests in, replies and hints out
 */
#include "client.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "certs.h"
#include "curve.h"
#include "parcel.h"
#include "resolve.h"
#include "server.h"
#include "socket.h"
#include "task.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define TAKE_AT_ONCE 256
#define QUIET_MS 300 /* what was sent before our DISCONNECT arrived may still be under way */
#define REFUSAL_LOG_MS 60000
#define RENEW_MS 3000
#define LEAVE_MS 60000 /* the longest that leaving may take, whatever still comes */

struct gateway {
    uint64_t serial; /* never used twice: a reply for a connection that is gone finds none */
    char endpoint[96], hint_endpoint[96];
    zsock_t *dealer;
    void *socket;
    int64_t heard_ms, refused_ms;
    int64_t made_ms; /* when `dealer` was made */
    bool wanted;     /* still in the answer of the resolver */
    bool announced;  /* our READY or DISCONNECT went out since the link was made */
    bool up;
};

struct ab_replica {
    char service[32], instance[128];
    int capacity;
    int64_t beat_ms, dead_ms;
    zcert_t *cert;
    char server_key[41];
    ab_resolver_t *resolver;
    zsock_t *pub;
    struct gateway **gateways;
    size_t n_gateways;
    uint64_t serials;
    zmq_pollitem_t *items;
    struct ab_desk desk;
    struct ab_buf header; /* scratch of the I/O thread */
    atomic_bool stop;
    atomic_int n_up;
    atomic_ullong lost_replies;
    bool draining;
    int64_t next_beat, drain_ms;
    int64_t busy_ms; /* last time that something came or went */
};

/* ------------------------------------------------------------------ gateways */

static void gateway_destroy(struct gateway **self_p)
{
    struct gateway *self = *self_p;
    if (!self)
        return;
    zsock_destroy(&self->dealer);
    free(self);
    *self_p = NULL;
}

static int gateway_open(ab_replica_t *self, struct gateway *g)
{
    g->dealer = ab_socket_new(ZMQ_DEALER);
    g->socket = zsock_resolve(g->dealer);
    g->made_ms = ab_now_ms();
    g->announced = false;
    zsock_set_immediate(g->dealer, 1);
    if (self->cert)
        ab_socket_use_curve(g->dealer, self->cert, self->server_key);
    if (ab_socket_connect(g->dealer, g->endpoint) < 0) {
        ab_log(AB_WARN, "bus.connect.failed", AB_KV("gateway", g->endpoint),
               AB_KV("error", zmq_strerror(errno)));
        return -1;
    }
    (void)ab_socket_connect(self->pub, g->hint_endpoint);
    return 0;
}

static void gateway_close(ab_replica_t *self, struct gateway *g)
{
    (void)zmq_disconnect(zsock_resolve(self->pub), g->hint_endpoint);
    zsock_destroy(&g->dealer);
}

static void gateway_add(ab_replica_t *self, const char *endpoint)
{
    AB_AUTO(gateway_destroy) struct gateway *g = calloc(1, sizeof(*g));
    struct gateway **all =
        realloc(self->gateways, (self->n_gateways + 1) * sizeof(struct gateway *));
    if (all)
        self->gateways = all;
    zmq_pollitem_t *items = realloc(self->items, (self->n_gateways + 3) * sizeof(self->items[0]));
    if (items)
        self->items = items;
    if (!g || !all || !items || !ab_socket_spare())
        return; /* tried again when the names are next looked up */

    g->serial = ++self->serials;
    g->wanted = true;
    snprintf(g->endpoint, sizeof(g->endpoint), "%s", endpoint);
    if (ab_next_port(endpoint, g->hint_endpoint, sizeof(g->hint_endpoint)) == 0
        && gateway_open(self, g) == 0)
        self->gateways[self->n_gateways++] = AB_TAKE(g);
}

static void gateway_remove(ab_replica_t *self, size_t i)
{
    struct gateway *g = self->gateways[i];

    ab_log(AB_INFO, "bus.gateway.removed", AB_KV("gateway", g->endpoint));
    gateway_close(self, g);
    self->gateways[i] = self->gateways[--self->n_gateways];
    gateway_destroy(&g);
}

static struct gateway *gateway_find(const ab_replica_t *self, uint64_t serial)
{
    for (size_t i = 0; i < self->n_gateways; i++) {
        if (self->gateways[i]->serial == serial)
            return self->gateways[i];
    }
    return NULL;
}

static void follow_names(ab_replica_t *self)
{
    struct ab_addresses *now = malloc(sizeof(*now));

    if (!now || !ab_resolver_take(self->resolver, now)) {
        free(now);
        return;
    }
    for (size_t i = 0; i < self->n_gateways; i++)
        self->gateways[i]->wanted = false;
    for (size_t k = 0; k < now->n; k++) {
        bool known = false;
        for (size_t i = 0; i < self->n_gateways; i++) {
            if (strcmp(self->gateways[i]->endpoint, now->endpoint[k]) == 0)
                known = self->gateways[i]->wanted = true;
        }
        if (!known)
            gateway_add(self, now->endpoint[k]);
    }
    free(now);
}

/* libzmq never calls again after its key was refused, yet the key may be allowed by now: a link
 * that has brought nothing for long is made anew. */
static void renew(ab_replica_t *self, struct gateway *g, int64_t now)
{
    int64_t patience = 2 * self->dead_ms > RENEW_MS ? 2 * self->dead_ms : RENEW_MS;
    int64_t since = g->heard_ms > g->made_ms ? g->heard_ms : g->made_ms;

    if (now - since < patience || !ab_socket_spare())
        return;
    zsock_set_linger(g->dealer, 0);
    gateway_close(self, g);
    g->serial = ++self->serials; /* replies to what came on the old one find nobody */
    (void)gateway_open(self, g);
}

/* Up, down, and away: an address that its name has lost is left only when it is silent too, because
 * a name server may tell some of many addresses at a time. */
static void watch_gateways(ab_replica_t *self, int64_t now)
{
    int up = 0;
    for (size_t i = self->n_gateways; i-- > 0;) {
        struct gateway *g = self->gateways[i];
        bool heard = g->heard_ms && now - g->heard_ms < self->dead_ms;
        if (heard != g->up)
            ab_log(heard ? AB_INFO : AB_WARN, heard ? "bus.gateway.up" : "bus.gateway.down",
                   AB_KV("gateway", g->endpoint));
        g->up = heard;
        if (!g->wanted && !heard)
            gateway_remove(self, i);
        else if (!heard)
            renew(self, g, now);
        else
            up++;
    }
    atomic_store(&self->n_up, up);
}

/* ------------------------------------------------------------------ out */

/* READY, or DISCONNECT once we are leaving. When it does not go out now, POLLOUT tells when it can.
 */
static void announce(ab_replica_t *self, struct gateway *g, const struct ab_desk_state *state)
{
    struct ab_frame_ready ready = {
        .capacity = self->capacity,
        .queued = state->queued,
        .oldest_ms = state->oldest_ms,
    };
    memcpy(ready.service, self->service, sizeof(ready.service));
    memcpy(ready.instance, self->instance, sizeof(ready.instance));
    ab_buf_clear(&self->header);
    ab_frame_pack_ready(&self->header, ab_bus_version(), &ready);
    g->announced = ab_parcel_send(g->socket, true, ab_bus_version(),
                                  self->draining ? AB_CMD_LEAVE : AB_CMD_READY, &self->header, NULL)
                   == 0;
}

static void announce_all(ab_replica_t *self, int64_t now)
{
    struct ab_desk_state state;
    ab_desk_look(&self->desk, now, &state);
    for (size_t i = 0; i < self->n_gateways; i++)
        announce(self, self->gateways[i], &state);
    self->next_beat = now + self->beat_ms;
}

static void send_reply(ab_replica_t *self, ab_task_t **task_p)
{
    ab_task_t *task = *task_p;
    struct gateway *g = gateway_find(self, task->gateway);

    ab_buf_clear(&self->header);
    ab_frame_pack_reply(&self->header, task->version, task->number, task->status);
    /* Gone or full: the gateway asks another replica or its client has given up. Never wait here.
     */
    if (!g
        || ab_parcel_send(g->socket, true, task->version, AB_CMD_REPLY, &self->header, &task->reply)
               < 0)
        atomic_fetch_add(&self->lost_replies, 1);
    ab_task_destroy(task_p);
}

static void send_hint(ab_replica_t *self, const struct ab_hint_note *note)
{
    void *pub = zsock_resolve(self->pub);
    if (ab_send_frame(pub, note->head, sizeof(note->head), true) == 0)
        (void)ab_send_frame(pub, note->body, note->len, false);
}

static void send_waiting(ab_replica_t *self, int64_t now)
{
    struct ab_desk_out out;

    ab_desk_collect(&self->desk, &out);
    if (out.results)
        self->busy_ms = now;
    while (out.results) {
        ab_task_t *task = out.results;
        out.results = task->next;
        send_reply(self, &task);
    }
    while (out.hints) {
        struct ab_hint_note *note = out.hints;
        out.hints = note->next;
        send_hint(self, note);
        free(note);
    }
}

/* ------------------------------------------------------------------ in */

/* More than all gateways together should send: a gateway that does not count. */
static int queue_limit(const ab_replica_t *self)
{
    return 2 * self->capacity * (int)(self->n_gateways ? self->n_gateways : 1) + 64;
}

static void refuse_task(ab_replica_t *self, ab_task_t **task_p)
{
    ab_task_t *task = *task_p;
    struct ab_error err = {0};
    struct ab_buf body = {0};

    (void)ab_fail(&err, AB_EBUSY, "replica %s has more requests than it can take; try again",
                  self->instance);
    err.retry_sec = 1;
    ab_bus_error_pack(&body, &err);
    task->status = AB_EBUSY;
    zmq_msg_close(&task->reply);
    zmq_msg_init_size(&task->reply, body.len);
    memcpy(zmq_msg_data(&task->reply), body.data, body.len);
    ab_buf_free(&body);
    send_reply(self, task_p);
}

static void on_request(ab_replica_t *self, struct gateway *g, const struct ab_parcel *parcel,
                       int64_t now)
{
    ab_task_t *task = ab_task_new(parcel, now);
    if (!task) {
        if (now - g->refused_ms >= REFUSAL_LOG_MS) {
            g->refused_ms = now;
            ab_log(AB_WARN, "bus.request.unreadable", AB_KV("gateway", g->endpoint));
        }
        return;
    }
    self->busy_ms = now;
    task->gateway = g->serial;
    if (ab_desk_put(&self->desk, task, queue_limit(self)) < 0)
        refuse_task(self, &task);
}

static void on_refused(struct gateway *g, const struct ab_parcel *parcel, int64_t now)
{
    char text[256];

    if (g->refused_ms && now - g->refused_ms < REFUSAL_LOG_MS)
        return;
    g->refused_ms = now;
    if (ab_frame_read_refused(parcel->header, parcel->header_len, text, sizeof(text)) == 0)
        ab_log(AB_ERROR, "bus.refused", AB_KV("gateway", g->endpoint), AB_KV("text", text));
}

static void on_command(ab_replica_t *self, struct gateway *g, const struct ab_parcel *parcel,
                       int64_t now)
{
    switch (parcel->command) {
    case AB_CMD_REQUEST:
        g->heard_ms = now;
        on_request(self, g, parcel, now);
        break;
    case AB_CMD_PING:
        g->heard_ms = now;
        break;
    case AB_CMD_REFUSED:
        on_refused(g, parcel, now);
        break;
    default:
        break; /* a newer gateway's: not for us */
    }
}

static void take_messages(ab_replica_t *self, struct gateway *g, int64_t now)
{
    for (int i = 0; i < TAKE_AT_ONCE; i++) {
        struct ab_parts m;
        struct ab_parcel parcel;
        if (ab_parts_receive(g->socket, 3, &m) != 1)
            return;
        if (ab_parcel_read(&m, 0, &parcel) == 0)
            on_command(self, g, &parcel, now);
        ab_parts_close(&m);
    }
}

/* ------------------------------------------------------------------ the loop */

static void begin_drain(ab_replica_t *self, int64_t now)
{
    if (self->draining)
        return;
    ab_log(AB_INFO, "bus.leaving", AB_KV("instance", self->instance));
    self->draining = true;
    self->drain_ms = self->busy_ms = now;
    announce_all(self, now);
}

/* All answered and quiet for long enough, or what still runs is past every deadline. */
static bool drained(ab_replica_t *self, int64_t now)
{
    struct ab_desk_state state;

    bool enough = self->draining && now - self->drain_ms >= LEAVE_MS;
    if (!enough && (!self->draining || now - self->busy_ms < QUIET_MS))
        return false;
    ab_desk_look(&self->desk, now, &state);
    if (state.queued + state.running + state.results == 0)
        return true;
    if (!enough && (state.results > 0 || now < state.deadline_ms + QUIET_MS))
        return false;
    ab_log(AB_WARN, "bus.left.running", AB_KV("requests", state.queued + state.running));
    return true;
}

static void read_signal(ab_replica_t *self, int fd, int64_t now)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        begin_drain(self, now);
        break; /* the descriptor may be a blocking one */
    }
}

static long patience(const ab_replica_t *self, int64_t now)
{
    int64_t until = self->next_beat;
    if (self->draining && self->busy_ms + QUIET_MS < until && self->busy_ms + QUIET_MS > now)
        until = self->busy_ms + QUIET_MS;
    return until > now ? (long)(until - now) : 0;
}

/* Sockets of the gateways, the workers' wake-up, the signals. What zmq_poll says, 0 if it was
 * interrupted. */
static int wait_for_work(ab_replica_t *self, int signal_fd)
{
    size_t n = self->n_gateways;
    for (size_t i = 0; i < n; i++) {
        struct gateway *g = self->gateways[i];
        self->items[i] = (zmq_pollitem_t){
            g->socket, 0, (short)(g->announced ? ZMQ_POLLIN : ZMQ_POLLIN | ZMQ_POLLOUT), 0};
    }
    self->items[n] = (zmq_pollitem_t){NULL, self->desk.wake_fd, ZMQ_POLLIN, 0};
    self->items[n + 1] = (zmq_pollitem_t){NULL, signal_fd, ZMQ_POLLIN, 0};
    int rc = zmq_poll(self->items, (int)n + (signal_fd >= 0 ? 2 : 1), patience(self, ab_now_ms()));
    return rc < 0 && errno == EINTR ? 0 : rc;
}

/* n gateways were waited for. */
static void serve_sockets(ab_replica_t *self, size_t n, int64_t now)
{
    for (size_t i = 0; i < n; i++) {
        if (self->items[i].revents & ZMQ_POLLIN)
            take_messages(self, self->gateways[i], now);
    }
    send_waiting(self, now);
    for (size_t i = 0; i < n; i++) {
        if ((self->items[i].revents & ZMQ_POLLOUT) && !self->gateways[i]->announced) {
            struct ab_desk_state state;
            ab_desk_look(&self->desk, now, &state);
            announce(self, self->gateways[i], &state);
        }
    }
}

int ab_replica_run(ab_replica_t *self, int signal_fd, struct ab_error *err)
{
    follow_names(self);
    self->next_beat = ab_now_ms();
    for (;;) {
        size_t n = self->n_gateways;
        int rc = wait_for_work(self, signal_fd);
        if (rc < 0)
            return ab_fail(err, AB_EINTERNAL, "the bus of %s broke: %s", self->instance,
                           zmq_strerror(errno));
        int64_t now = ab_now_ms();

        if (atomic_load(&self->stop))
            begin_drain(self, now);
        if (rc > 0 && signal_fd >= 0 && self->items[n + 1].revents)
            read_signal(self, signal_fd, now);
        serve_sockets(self, rc > 0 ? n : 0, now);
        if (now >= self->next_beat)
            announce_all(self, now);
        watch_gateways(self, now);
        follow_names(self);
        if (drained(self, now))
            break;
    }
    ab_desk_close(&self->desk);
    return 0;
}

/* ------------------------------------------------------------------ life */

ab_replica_t *ab_replica_new(const struct ab_replica_options *options, struct ab_error *err)
{
    ab_bus_init();
    if (ab_socket_room(err) < 0)
        return NULL;
    AB_AUTO(ab_replica_destroy) ab_replica_t *self = calloc(1, sizeof(*self));
    if (!self || ab_desk_init(&self->desk) < 0) {
        free(self);
        self = NULL;
        (void)ab_fail_errno(err, AB_EINTERNAL, "cannot make the request queue");
        return NULL;
    }
    self->items = calloc(2, sizeof(self->items[0]));
    if (!self->items || strlen(options->service) >= sizeof(self->service)
        || strlen(options->instance) >= sizeof(self->instance)) {
        (void)ab_fail(err, AB_EINVAL, "the name of replica %s is too long", options->instance);
        return NULL;
    }
    memcpy(self->service, options->service, strlen(options->service) + 1);
    memcpy(self->instance, options->instance, strlen(options->instance) + 1);
    self->capacity = options->capacity > 0 ? options->capacity : 1;
    self->beat_ms = options->beat_ms;
    self->dead_ms = options->dead_ms;
    if (options->curve_dir) {
        self->cert = ab_cert_own(options->curve_dir, self->service, err);
        if (!self->cert || ab_cert_public(options->curve_dir, "gateway", self->server_key, err) < 0)
            return NULL;
    }
    self->pub = ab_socket_new(ZMQ_PUB);
    if (self->cert)
        ab_socket_use_curve(self->pub, self->cert, self->server_key);
    self->resolver = ab_resolver_new(options->gateways, self->desk.wake_fd, err);
    if (!self->resolver)
        return NULL;
    return AB_TAKE(self);
}

void ab_replica_destroy(ab_replica_t **self_p)
{
    ab_replica_t *self = *self_p;
    if (!self)
        return;
    ab_resolver_destroy(&self->resolver);
    for (size_t i = 0; i < self->n_gateways; i++)
        gateway_destroy(&self->gateways[i]);
    free(self->gateways);
    free(self->items);
    zsock_destroy(&self->pub);
    zcert_destroy(&self->cert);
    ab_buf_free(&self->header);
    ab_desk_free(&self->desk);
    free(self);
    *self_p = NULL;
}

void ab_replica_stop(ab_replica_t *self)
{
    atomic_store(&self->stop, true);
    ab_desk_wake(&self->desk);
}

ab_task_t *ab_replica_take(ab_replica_t *self)
{
    return ab_desk_take(&self->desk);
}

void ab_replica_reply(ab_replica_t *self, ab_task_t **task, int status, void *body, size_t len,
                      bool take)
{
    ab_desk_reply(&self->desk, *task, status, body, len, take);
    *task = NULL;
}

void ab_replica_hint(ab_replica_t *self, char topic, int64_t owner, const void *body, size_t len)
{
    ab_desk_hint(&self->desk, topic, owner, body, len);
}

void ab_replica_stats(ab_replica_t *self, struct ab_replica_stats *out)
{
    struct ab_desk_state state;

    ab_desk_look(&self->desk, ab_now_ms(), &state);
    *out = (struct ab_replica_stats){
        .gateways = atomic_load(&self->n_up),
        .queued = state.queued,
        .running = state.running,
        .lost_replies = atomic_load(&self->lost_replies),
    };
    pthread_mutex_lock(&self->desk.lock);
    out->taken = self->desk.taken;
    out->replied = self->desk.replied;
    out->hints = self->desk.hint_count;
    out->lost_hints = self->desk.lost_hints;
    pthread_mutex_unlock(&self->desk.lock);
}
