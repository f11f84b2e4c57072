/* dispatch.c - who gets the next request, and what becomes of those whose replica is gone */
#include "dispatch.h"
#include "base/log.h"
#include "roster.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_LIMIT 1024
#define MAX_TRIES 3
#define MAX_PENDING (1u << 20)
#define GRACE_MS 3000 /* no replica for this long: 503 at once instead of waiting */
#define NO_NUMBER 1   /* of a request that was over before it had one; real ones are larger */

struct ab_dispatch {
    struct ab_dispatch_options options;
    int64_t now, grace_ms, next_beat, last_tick, next_refusal_log;
    struct ab_pending_table table;
    struct ab_pending_list over;
    bool finishing;
    struct ab_roster roster;
    uint64_t strays;
    struct ab_buf header; /* scratch */
};

static void *need(void *p)
{
    if (!p) {
        fputs("bus: out of memory\n", stderr);
        abort();
    }
    return p;
}

/* Nobody to wait for. */
static bool deserted(const ab_dispatch_t *self, const struct service *service)
{
    return service->live == 0 && self->now - service->none_since >= self->grace_ms;
}

/* ------------------------------------------------------------------ ends of requests */

/* Nobody waits for what the holder does: it has one ghost more. */
static void release_holder(struct ab_pending *r, const struct replica *answered)
{
    struct replica *holder = r->holder;
    if (holder && holder != answered)
        holder->ghosts++;
    r->holder = NULL;
}

static void fail(ab_dispatch_t *self, struct ab_pending *r, int status, const char *reason)
{
    release_holder(r, NULL);
    ab_pending_unlink(r);
    ab_pending_forget_deadline(&self->table, r);
    r->state = AB_PENDING_OVER;
    r->status = status;
    snprintf(r->reason, sizeof(r->reason), "%s", reason);
    ab_pending_append(&self->over, r);
}

static void fail_named(ab_dispatch_t *self, struct ab_pending *r, int status, const char *format,
                       const char *name)
{
    char text[sizeof(r->reason)];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), format, name);
#pragma GCC diagnostic pop
    fail(self, r, status, text);
}

static void call_done(const struct ab_pending *r)
{
    struct ab_error err = {0};
    struct ab_buf body = {0};

    if (!r->done)
        return;
    (void)ab_fail(&err, r->status, "%s", r->reason);
    err.retry_sec = r->status == AB_EBUSY;
    ab_bus_error_pack(&body, &err);
    r->done(r->arg, r->status, body.data, body.len);
    ab_buf_free(&body);
}

/* Tell those that failed. A `done` may come back in here: the outermost call does all. */
static void finish(ab_dispatch_t *self)
{
    if (self->finishing)
        return;
    self->finishing = true;
    while (self->over.first) {
        struct ab_pending *r = self->over.first;
        ab_pending_unlink(r);
        ab_pending_table_remove(&self->table, r);
        call_done(r);
        ab_pending_destroy(&r);
    }
    self->finishing = false;
}

/* ------------------------------------------------------------------ sending */

static int send_header(ab_dispatch_t *self, uint64_t peer, int version, char command,
                       struct ab_shared *body)
{
    return self->options.send(self->options.arg, peer, version, command, &self->header, body);
}

static int transmit(ab_dispatch_t *self, struct ab_pending *r, struct replica *to)
{
    struct service *service = r->owner;

    r->head.remaining_ms = r->deadline_ms - self->now;
    ab_buf_clear(&self->header);
    ab_frame_pack_request(&self->header, to->version, &r->head);
    if (send_header(self, to->peer, to->version, AB_CMD_REQUEST, r->body) < 0)
        return -1;
    if (r->head.try++ > 0)
        service->resent++;
    else
        service->sent++;
    r->state = AB_PENDING_SENT;
    r->holder = to;
    ab_pending_append(&to->sent, r);
    return 0;
}

/* Its requests go back to the head of the queue, oldest first, or are over if they have been tried
 * often enough: a request that kills whoever touches it must not go round for ever. */
static void take_back(ab_dispatch_t *self, struct replica *r)
{
    while (r->sent.last) {
        struct ab_pending *p = r->sent.last;
        ab_pending_unlink(p);
        p->holder = NULL;
        if (p->head.try >= MAX_TRIES) {
            fail_named(self, p, AB_EBUSY,
                       "three replicas of %s in turn went away while they had this request; try "
                       "again later",
                       r->service->name);
            continue;
        }
        p->state = AB_PENDING_QUEUED;
        ab_pending_prepend(&r->service->queue, p);
    }
    r->ghosts = 0;
}

/* Nothing more comes from this peer. */
static void replica_remove(ab_dispatch_t *self, struct replica *r, const char *why)
{
    ab_log(r->draining ? AB_INFO : AB_WARN, "bus.replica.gone", AB_KV("instance", r->instance),
           AB_KV("why", why), AB_KV("had", r->sent.n));
    take_back(self, r);
    ab_roster_remove(&self->roster, r, self->now);
}

/* Give r to a replica. 0, or -1: none has room. */
static int place(ab_dispatch_t *self, struct ab_pending *r)
{
    struct replica *best;

    while ((best = ab_roster_pick(&self->roster, r->owner, self->now)) != NULL) {
        if (transmit(self, r, best) == 0)
            return 0;
        if (errno == EHOSTUNREACH)
            replica_remove(self, best, "unreachable");
        else
            best->full_until = self->now + self->options.beat_ms; /* try another */
    }
    return -1;
}

static void pump(ab_dispatch_t *self, struct service *service)
{
    while (service->queue.first) {
        struct ab_pending *r = service->queue.first;
        ab_pending_unlink(r);
        if (place(self, r) < 0) {
            ab_pending_prepend(&service->queue, r);
            return;
        }
    }
}

/* ------------------------------------------------------------------ requests in */

static void accept_request(ab_dispatch_t *self, struct ab_pending *r)
{
    struct service *service = r->owner;

    if (r->text_len > AB_BUS_HEADER_MAX / 2) {
        fail(self, r, AB_ETOOBIG, "the idempotency key, trace and names together are too long");
    } else if (r->body->len > AB_BUS_BODY_MAX) {
        fail(self, r, AB_ETOOBIG,
             "the request is larger than the 64 MiB that the bus carries; split it");
    } else if (r->deadline_ms <= self->now) {
        service->timed_out++;
        fail(self, r, AB_ETIMEOUT, "the time for this request was over before it could be sent");
    } else if (deserted(self, service)) {
        service->refused++;
        fail_named(self, r, AB_EBUSY, "no replica of the %s service is running; try again later",
                   service->name);
    } else if (service->queue.first || place(self, r) < 0) {
        if (service->queue.n >= self->options.queue_limit) {
            service->refused++;
            fail_named(self, r, AB_EBUSY,
                       "the %s service has more requests than it can take; try again",
                       service->name);
        } else {
            r->state = AB_PENDING_QUEUED;
            ab_pending_append(&service->queue, r);
        }
    }
}

uint64_t ab_dispatch_submit(ab_dispatch_t *self, struct ab_bus_request *request, int64_t now)
{
    struct service *service = ab_roster_service(&self->roster, request->service);
    struct ab_pending *r = ab_pending_new(request);
    self->now = now;

    if (!service || ab_pending_table_add(&self->table, r) < 0) {
        r->status = AB_EBUSY;
        snprintf(r->reason, sizeof(r->reason),
                 "the gateway has too many requests under way; try again");
        call_done(r);
        ab_pending_destroy(&r);
        return NO_NUMBER;
    }
    uint64_t number = r->head.number;
    r->owner = service;
    accept_request(self, r);
    finish(self);
    return number;
}

void ab_dispatch_cancel(ab_dispatch_t *self, uint64_t number, int64_t now)
{
    struct ab_pending *r = ab_pending_find(&self->table, number);

    self->now = now;
    if (!r)
        return;
    if (r->state == AB_PENDING_OVER) {
        r->done = NULL; /* finish() is about to come to it */
        return;
    }
    release_holder(r, NULL);
    ab_pending_unlink(r);
    ab_pending_table_remove(&self->table, r);
    ab_pending_destroy(&r);
}

/* ------------------------------------------------------------------ messages in */

static void refuse(ab_dispatch_t *self, uint64_t peer, int version, const char *text)
{
    ab_buf_clear(&self->header);
    ab_frame_pack_refused(&self->header, version, text);
    (void)send_header(self, peer, version, AB_CMD_REFUSED, NULL);
    if (self->now >= self->next_refusal_log) { /* it comes again with every beat */
        self->next_refusal_log = self->now + 10000;
        ab_log(AB_WARN, "bus.refused", AB_KV("text", text));
    }
}

/* Nothing of what a version too far away says is read but its number. */
static bool version_allowed(ab_dispatch_t *self, uint64_t peer, int version)
{
    char text[200];

    if (ab_frame_common_version(version) != 0)
        return true;
    snprintf(text, sizeof(text),
             "this gateway speaks bus version %d, you speak %d: versions may differ by one; "
             "upgrade the older side",
             ab_bus_version(), version);
    refuse(self, peer, ab_bus_version(), text);
    return false;
}

/* A READY must name the service whose key its link has. */
static bool key_allowed(ab_dispatch_t *self, const struct ab_dispatch_message *m, int version,
                        const struct ab_frame_ready *ready)
{
    char text[200];

    if (!m->key_name || strcmp(m->key_name, ready->service) == 0)
        return true;
    snprintf(text, sizeof(text), "service %s came with the key of '%.40s': give it its own key",
             ready->service, m->key_name);
    refuse(self, m->peer, version, text);
    return false;
}

static struct replica *replica_add(ab_dispatch_t *self, uint64_t peer,
                                   const struct ab_frame_ready *ready)
{
    struct service *service = ab_roster_service(&self->roster, ready->service);
    struct replica *old = ab_roster_namesake(&self->roster, ready->service, ready->instance);

    if (old) /* the same process on a new connection: what went out on the old one may be lost */
        replica_remove(self, old, "reconnected");
    struct replica *r =
        service ? ab_roster_add(&self->roster, peer, service, ready->instance) : NULL;
    if (!r) {
        refuse(self, peer, ab_bus_version(),
               "this gateway has as many services and replicas as it can hold");
        return NULL;
    }
    ab_log(AB_INFO, "bus.replica.ready", AB_KV("instance", r->instance),
           AB_KV("capacity", ready->capacity));
    return r;
}

static void on_ready(ab_dispatch_t *self, const struct ab_dispatch_message *m, bool leaving)
{
    struct ab_frame_ready ready;
    int version = ab_frame_version(m->header, m->header_len);

    struct replica *r = ab_roster_find(&self->roster, m->peer);
    if (!r && !leaving && version > 0 && !version_allowed(self, m->peer, version))
        return;
    if (ab_frame_read_ready(m->header, m->header_len, &ready) < 0) {
        self->strays++;
        return;
    }
    if (r && strcmp(r->service->name, ready.service) != 0) {
        self->strays++;
        return;
    }
    if (!r) {
        if (leaving || !key_allowed(self, m, version, &ready))
            return;
        r = replica_add(self, m->peer, &ready);
        if (!r)
            return;
    }
    if (leaving && !r->draining)
        ab_log(AB_INFO, "bus.replica.leaving", AB_KV("instance", r->instance));
    if (r->silent)
        ab_log(AB_INFO, "bus.replica.back", AB_KV("instance", r->instance));
    r->version = ab_frame_common_version(version) ? ab_frame_common_version(version) : r->version;
    r->capacity = ready.capacity;
    r->queued = ready.queued;
    r->oldest_ms = ready.oldest_ms;
    r->heard_ms = self->now;
    r->silent = false;
    r->draining = leaving;
    r->full_until = 0;
    if (ready.queued == 0 && ready.oldest_ms == 0)
        r->ghosts = 0; /* it is idle: replies to what we gave up were lost */
    ab_roster_count_live(&self->roster, r->service, self->now);
    pump(self, r->service);
}

static void on_reply(ab_dispatch_t *self, const struct ab_dispatch_message *m)
{
    struct replica *from = ab_roster_find(&self->roster, m->peer);
    uint64_t number;
    int status;

    if (!from || ab_frame_read_reply(m->header, m->header_len, &number, &status) < 0) {
        self->strays++;
        return;
    }
    from->heard_ms = self->now;
    struct ab_pending *r = ab_pending_find(&self->table, number);
    if (!r || r->state == AB_PENDING_OVER) {
        from->service->late++;
        if (from->ghosts > 0)
            from->ghosts--;
        pump(self, from->service);
        return;
    }
    if (r->owner != from->service) {
        self->strays++; /* not a reply that it could have */
        return;
    }
    release_holder(r, from); /* the first reply wins, whoever holds it now */
    ab_pending_unlink(r);
    ab_pending_table_remove(&self->table, r);
    pump(self, from->service);
    if (r->done)
        r->done(r->arg, status, m->body, m->body_len);
    ab_pending_destroy(&r);
}

void ab_dispatch_receive(ab_dispatch_t *self, const struct ab_dispatch_message *message,
                         int64_t now)
{
    self->now = now;
    switch (message->command) {
    case AB_CMD_REPLY:
        on_reply(self, message);
        break;
    case AB_CMD_READY:
        on_ready(self, message, false);
        break;
    case AB_CMD_LEAVE:
        on_ready(self, message, true);
        break;
    default:
        self->strays++;
    }
    finish(self);
}

/* ------------------------------------------------------------------ time */

static void fail_expired(ab_dispatch_t *self)
{
    struct ab_pending *r;
    while ((r = ab_pending_earliest(&self->table)) && r->deadline_ms <= self->now) {
        struct service *service = r->owner;
        service->timed_out++;
        fail_named(self, r, AB_ETIMEOUT,
                   r->state == AB_PENDING_SENT
                       ? "the %s service did not answer in time; the request may still take effect"
                       : "the %s service had no time for this request; try again",
                   service->name);
    }
}

static void fail_deserted(ab_dispatch_t *self)
{
    for (size_t i = 0; i < self->roster.n_services; i++) {
        struct service *service = self->roster.services[i];
        while (deserted(self, service) && service->queue.first) {
            service->refused++;
            fail_named(self, service->queue.first, AB_EBUSY,
                       "no replica of the %s service is running; try again later", service->name);
        }
    }
}

/* If we were stopped ourselves, replicas were not silent: we were deaf. */
static void forgive_gap(ab_dispatch_t *self)
{
    int64_t gap = self->now - self->last_tick;
    if (self->last_tick && gap > 2 * self->options.beat_ms) {
        for (size_t i = 0; i < self->roster.n_replicas; i++)
            self->roster.replicas[i]->heard_ms += gap - self->options.beat_ms;
    }
    self->last_tick = self->now;
}

static void beat(ab_dispatch_t *self)
{
    for (size_t i = self->roster.n_replicas; i-- > 0;) {
        struct replica *r = self->roster.replicas[i];
        if (!r->silent && self->now - r->heard_ms >= self->options.dead_ms) {
            ab_log(AB_WARN, "bus.replica.silent", AB_KV("instance", r->instance),
                   AB_KV("had", r->sent.n));
            r->silent = true;
            take_back(self, r);
            ab_roster_count_live(&self->roster, r->service, self->now);
        }
        ab_buf_clear(&self->header);
        ab_frame_pack_ping(&self->header, r->version);
        if (send_header(self, r->peer, r->version, AB_CMD_PING, NULL) < 0 && errno == EHOSTUNREACH)
            replica_remove(self, r, "unreachable"); /* the last one moves to i: it has been seen */
    }
}

int64_t ab_dispatch_tick(ab_dispatch_t *self, int64_t now)
{
    self->now = now;
    forgive_gap(self);
    fail_expired(self);
    if (now >= self->next_beat) {
        self->next_beat = now + self->options.beat_ms;
        beat(self);
    }
    for (size_t i = 0; i < self->roster.n_services; i++)
        pump(self, self->roster.services[i]);
    fail_deserted(self);
    finish(self);

    int64_t next = self->next_beat;
    const struct ab_pending *r = ab_pending_earliest(&self->table);
    if (r && r->deadline_ms < next)
        next = r->deadline_ms;
    return next > now ? next - now : 1;
}

/* ------------------------------------------------------------------ life, figures */

ab_dispatch_t *ab_dispatch_new(const struct ab_dispatch_options *options, int64_t now)
{
    ab_dispatch_t *self = need(calloc(1, sizeof(*self)));
    self->options = *options;
    assert(options->beat_ms > 0 && options->dead_ms >= options->beat_ms);
    if (self->options.queue_limit == 0)
        self->options.queue_limit = QUEUE_LIMIT;
    self->grace_ms = options->dead_ms < GRACE_MS ? options->dead_ms : GRACE_MS;
    self->now = self->roster.started_ms = now;
    self->next_beat = now;
    ab_pending_table_init(&self->table, MAX_PENDING);
    return self;
}

void ab_dispatch_destroy(ab_dispatch_t **self_p)
{
    ab_dispatch_t *self = *self_p;
    if (!self)
        return;
    for (uint32_t i = 0; i < self->table.n; i++)
        ab_pending_destroy(&self->table.slots[i].r);
    ab_pending_table_free(&self->table);
    ab_roster_free(&self->roster);
    ab_buf_free(&self->header);
    free(self);
    *self_p = NULL;
}

bool ab_dispatch_stats(const ab_dispatch_t *self, size_t i, struct ab_bus_service_stats *out)
{
    if (i >= self->roster.n_services)
        return false;
    ab_roster_stats(&self->roster, self->roster.services[i], out);
    return true;
}

uint64_t ab_dispatch_strays(const ab_dispatch_t *self)
{
    return self->strays;
}
