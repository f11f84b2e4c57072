/* dispatch_rig.h - the gateway's state machine with a wire of our own and a clock that we turn */
#ifndef DISPATCH_RIG_H
#define DISPATCH_RIG_H

#include "bus/dispatch.h"
#include "bus/frame.h"
#include "schema/pack.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BEAT 250
#define DEAD 1500

/* ------------------------------------------------------------------ a wire */

struct sent {
    uint64_t peer;
    char command;
    uint64_t number;
    uint8_t uuid[16];
    int try;
    int64_t remaining_ms;
    char text[256];
};

struct answer {
    int calls, status;
    char body[64];
    char kind[32], text[480];
    uint64_t cancels;            /* cancelled from within `done` */
    struct ab_bus_request *next; /* submitted from within `done` */
    struct rig *rig;
};

struct rig {
    ab_dispatch_t *dispatch;
    int64_t now;
    struct sent log[4096];
    size_t n;
    uint64_t gone, full; /* peers that the wire refuses */
};

static inline int wire_send(void *arg, uint64_t peer, int version, char command,
                            const struct ab_buf *header, struct ab_shared *body)
{
    struct rig *rig = arg;
    struct ab_frame_request head;
    char text[AB_BUS_HEADER_MAX + AB_FRAME_TEXTS];

    assert_int_equal(ab_frame_version(header->data, header->len), version);
    if (peer == rig->gone) {
        errno = EHOSTUNREACH;
        return -1;
    }
    if (peer == rig->full) {
        errno = EAGAIN;
        return -1;
    }
    assert_true(rig->n < 4096);
    struct sent *s = &rig->log[rig->n++];
    *s = (struct sent){.peer = peer, .command = command};
    if (command == AB_CMD_REQUEST) {
        assert_int_equal(ab_frame_read_request(header->data, header->len, &head, text), 0);
        s->number = head.number;
        s->try = head.try;
        s->remaining_ms = head.remaining_ms;
        memcpy(s->uuid, head.uuid, 16);
        assert_non_null(body);
    }
    if (command == AB_CMD_REFUSED)
        assert_int_equal(ab_frame_read_refused(header->data, header->len, s->text, sizeof(s->text)),
                         0);
    return 0;
}

static inline int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->now = 1000000;
    struct ab_dispatch_options options = {
        .beat_ms = BEAT, .dead_ms = DEAD, .queue_limit = 3, .send = wire_send, .arg = rig};
    rig->dispatch = ab_dispatch_new(&options, rig->now);
    *state = rig;
    return 0;
}

static inline int tear_down(void **state)
{
    struct rig *rig = *state;
    ab_dispatch_destroy(&rig->dispatch);
    free(rig);
    return 0;
}

/* ------------------------------------------------------------------ what replicas say */

static inline void say_as(struct rig *rig, uint64_t peer, const char *key, char command,
                          int version, const char *service, const char *instance, int capacity,
                          int64_t oldest_ms)
{
    struct ab_frame_ready ready = {.capacity = capacity, .oldest_ms = oldest_ms};
    struct ab_buf header = {0};

    snprintf(ready.service, sizeof(ready.service), "%s", service);
    snprintf(ready.instance, sizeof(ready.instance), "%s", instance);
    ab_frame_pack_ready(&header, version, &ready);
    struct ab_dispatch_message m = {.peer = peer,
                                    .key_name = key,
                                    .command = command,
                                    .header = header.data,
                                    .header_len = header.len};
    ab_dispatch_receive(rig->dispatch, &m, rig->now);
    ab_buf_free(&header);
}

/* READY of the replica with this peer number, busy so that its ghosts are kept. */
static inline void ready(struct rig *rig, uint64_t peer, int capacity)
{
    char instance[32];
    snprintf(instance, sizeof(instance), "jobs-%d", (int)peer);
    say_as(rig, peer, NULL, AB_CMD_READY, AB_BUS_VERSION, "jobs", instance, capacity, 5);
}

static inline void leave(struct rig *rig, uint64_t peer)
{
    char instance[32];
    snprintf(instance, sizeof(instance), "jobs-%d", (int)peer);
    say_as(rig, peer, NULL, AB_CMD_LEAVE, AB_BUS_VERSION, "jobs", instance, 4, 5);
}

static inline void reply(struct rig *rig, uint64_t peer, uint64_t number, int status,
                         const char *body)
{
    struct ab_buf header = {0};
    ab_frame_pack_reply(&header, AB_BUS_VERSION, number, status);
    struct ab_dispatch_message m = {.peer = peer,
                                    .command = AB_CMD_REPLY,
                                    .header = header.data,
                                    .header_len = header.len,
                                    .body = body,
                                    .body_len = strlen(body)};
    ab_dispatch_receive(rig->dispatch, &m, rig->now);
    ab_buf_free(&header);
}

/* ------------------------------------------------------------------ what clients ask */

static inline void on_done(void *arg, int status, const void *body, size_t len)
{
    struct answer *a = arg;
    struct ab_error err;

    a->calls++;
    a->status = status;
    if (status >= 400) {
        assert_int_equal(ab_bus_error_unpack(body, len, status, NULL, &err), 0);
        snprintf(a->kind, sizeof(a->kind), "%s", err.kind);
        snprintf(a->text, sizeof(a->text), "%s", err.text);
    } else {
        assert_true(len < sizeof(a->body));
        memcpy(a->body, body, len);
        a->body[len] = '\0';
    }
    if (a->cancels)
        ab_dispatch_cancel(a->rig->dispatch, a->cancels, a->rig->now);
    if (a->next) {
        struct ab_bus_request *next = a->next;
        a->next = NULL;
        ab_dispatch_submit(a->rig->dispatch, next, a->rig->now);
    }
}

static inline struct ab_bus_request request(struct rig *rig, struct answer *a)
{
    static uint8_t count;
    struct ab_bus_request r = {.service = "jobs",
                               .verb = "job.list",
                               .user = 7,
                               .deadline_ms = rig->now + 30000,
                               .body = strdup("body"),
                               .body_len = 4,
                               .done = on_done,
                               .arg = a};
    r.uuid[0] = ++count;
    a->rig = rig;
    return r;
}

static inline uint64_t ask(struct rig *rig, struct answer *a)
{
    struct ab_bus_request r = request(rig, a);
    return ab_dispatch_submit(rig->dispatch, &r, rig->now);
}

static inline struct sent *last(struct rig *rig, char command)
{
    for (size_t i = rig->n; i-- > 0;) {
        if (rig->log[i].command == command)
            return &rig->log[i];
    }
    return NULL;
}

static inline size_t requests_to(const struct rig *rig, uint64_t peer)
{
    size_t n = 0;
    for (size_t i = 0; i < rig->n; i++)
        n += rig->log[i].peer == peer && rig->log[i].command == AB_CMD_REQUEST;
    return n;
}

static inline void pass(struct rig *rig, int64_t ms)
{
    for (int64_t end = rig->now + ms; rig->now < end;) {
        int64_t wait = ab_dispatch_tick(rig->dispatch, rig->now);
        assert_in_range(wait, 1, BEAT);
        rig->now += wait < end - rig->now ? wait : end - rig->now;
    }
    ab_dispatch_tick(rig->dispatch, rig->now);
}

static inline struct ab_bus_service_stats stats(const struct rig *rig)
{
    struct ab_bus_service_stats s = {0};
    assert_true(ab_dispatch_stats(rig->dispatch, 0, &s));
    return s;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
