/* uplink.c - see uplink.h */
#include "uplink.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define THREADS_MAX 16
#define CALL_TIMEOUT_MS 60000

struct lane {
    uplink_t *uplink;
    ab_api_t *api;
    pthread_t thread;
    bool started;
};

struct uplink {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct uplink_call queue[UPLINK_QUEUE]; /* a ring */
    size_t head, waiting;
    struct uplink_reply *first, **end;
    struct uplink_state state;
    struct lane lanes[THREADS_MAX];
    size_t n_lanes;
    int event;
    atomic_int stop;
};

static void free_call(struct uplink_call *call)
{
    free(call->path);
    free(call->body);
    call->path = call->body = NULL;
}

void uplink_reply_free(struct uplink_reply *reply)
{
    ab_buf_free(&reply->body);
    free(reply);
}

static bool next_call(uplink_t *self, struct uplink_call *out)
{
    pthread_mutex_lock(&self->mutex);
    while (!self->waiting && !self->stop)
        pthread_cond_wait(&self->more, &self->mutex);
    bool got = !self->stop;
    if (got) {
        *out = self->queue[self->head];
        self->head = (self->head + 1) % UPLINK_QUEUE;
        self->waiting--;
    }
    pthread_mutex_unlock(&self->mutex);
    return got;
}

static void note(uplink_t *self, const struct uplink_reply *reply)
{
    self->state.calls++;
    self->state.reached = reply->status >= 0;
    if (reply->status >= 0) {
        self->state.reached_utc_us = ab_utc_us();
        self->state.why[0] = '\0';
    }
    if (reply->status < 0 || reply->status >= 500) {
        self->state.failures++;
        snprintf(self->state.why, sizeof(self->state.why), "%s", reply->err.text);
    }
}

static void give_reply(uplink_t *self, struct uplink_reply *reply)
{
    uint64_t one = 1;

    pthread_mutex_lock(&self->mutex);
    note(self, reply);
    *self->end = reply;
    self->end = &reply->next;
    pthread_mutex_unlock(&self->mutex);
    (void)!write(self->event, &one, sizeof(one));
}

static void *serve(void *arg)
{
    struct lane *lane = arg;
    uplink_t *self = lane->uplink;
    struct uplink_call call;

    while (next_call(self, &call)) {
        struct uplink_reply *reply = calloc(1, sizeof(*reply));
        int64_t left = call.until_ms - ab_now_ms();
        struct ab_api_options options = {
            .timeout_ms = left,
            .retries = -1,
            .trace = call.trace[0] ? call.trace : NULL,
            .stop = &self->stop,
        };
        memcpy(reply->link, call.link, sizeof(reply->link));
        reply->number = call.number;
        /* whoever asked has given up by now, and may be asking again */
        if (left <= 0)
            reply->status = ab_fail(&reply->err, AB_ETIMEOUT,
                                    "other calls to the centre took all the time of this one");
        else
            reply->status = ab_api_call(lane->api, call.method, call.path, call.body, call.len,
                                        &options, &reply->body, &reply->err);
        free_call(&call);
        give_reply(self, reply);
    }
    return NULL;
}

static int start_lane(uplink_t *self, const struct ab_client_file *file, struct ab_error *err)
{
    struct lane *lane = &self->lanes[self->n_lanes];

    lane->uplink = self;
    lane->api = ab_api_new(file, true, err);
    if (!lane->api)
        return -1;
    self->n_lanes++;
    if (pthread_create(&lane->thread, NULL, serve, lane) != 0)
        return ab_fail(err, AB_EINTERNAL, "cannot start a thread for calls to the centre");
    lane->started = true;
    return 0;
}

uplink_t *uplink_new(const struct ab_client_file *file, size_t threads, struct ab_error *err)
{
    AB_AUTO(uplink_destroy) uplink_t *self = calloc(1, sizeof(*self));

    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->more, NULL);
    self->end = &self->first;
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->event < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "eventfd");
        return NULL;
    }
    for (size_t i = 0; i < threads && i < THREADS_MAX; i++)
        if (start_lane(self, file, err) < 0)
            return NULL;
    return AB_TAKE(self);
}

void uplink_destroy(uplink_t **self)
{
    if (!*self)
        return;
    pthread_mutex_lock(&(*self)->mutex);
    (*self)->stop = 1;
    pthread_cond_broadcast(&(*self)->more);
    pthread_mutex_unlock(&(*self)->mutex);
    for (size_t i = 0; i < (*self)->n_lanes; i++) {
        if ((*self)->lanes[i].started)
            pthread_join((*self)->lanes[i].thread, NULL);
        ab_api_destroy(&(*self)->lanes[i].api);
    }
    for (; (*self)->waiting; (*self)->waiting--, (*self)->head = ((*self)->head + 1) % UPLINK_QUEUE)
        free_call(&(*self)->queue[(*self)->head]);
    for (struct uplink_reply *reply; (reply = uplink_take(*self));)
        uplink_reply_free(reply);
    ab_close(&(*self)->event);
    pthread_cond_destroy(&(*self)->more);
    pthread_mutex_destroy(&(*self)->mutex);
    free(*self);
    *self = NULL;
}

int uplink_submit(uplink_t *self, struct uplink_call *call, struct ab_error *err)
{
    bool full;

    call->until_ms = ab_now_ms() + (call->timeout_ms > 0 ? call->timeout_ms : CALL_TIMEOUT_MS);
    pthread_mutex_lock(&self->mutex);
    full = self->waiting == UPLINK_QUEUE;
    if (!full) {
        self->queue[(self->head + self->waiting++) % UPLINK_QUEUE] = *call;
        pthread_cond_signal(&self->more);
    }
    pthread_mutex_unlock(&self->mutex);
    if (!full)
        return 0;
    free_call(call);
    return ab_fail(err, AB_EBUSY, "%d calls wait for the centre already", UPLINK_QUEUE);
}

int uplink_fd(const uplink_t *self)
{
    return self->event;
}

struct uplink_reply *uplink_take(uplink_t *self)
{
    uint64_t count;

    pthread_mutex_lock(&self->mutex);
    struct uplink_reply *reply = self->first;
    if (reply) {
        self->first = reply->next;
        if (!self->first)
            self->end = &self->first;
        reply->next = NULL;
    } else {
        (void)!read(self->event, &count, sizeof(count));
    }
    pthread_mutex_unlock(&self->mutex);
    return reply;
}

void uplink_state(uplink_t *self, struct uplink_state *out)
{
    pthread_mutex_lock(&self->mutex);
    *out = self->state;
    out->waiting = self->waiting;
    pthread_mutex_unlock(&self->mutex);
}
