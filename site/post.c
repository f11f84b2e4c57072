/* post.c - see post.h */
#include "post.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "schema/json.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TRY_MS 60000
#define WAIT_BASE_MS 200
#define WAIT_CAP_MS 15000
#define LOOK_MS 5000 /* for parked calls */
#define ERRORS_MAX 6 /* of status 500, until a call is split or parked */
#define PARK_MS 60000

struct post {
    pthread_mutex_t mutex;
    pthread_cond_t more, empty;
    pthread_t thread;
    bool started, woken;
    outbox_t *outbox;
    ab_api_t *api;
    int event;
    atomic_int stop;
    struct post_state state;
    uint64_t failing; /* number of the call that got 500s */
    int errors, attempt;
};

/* ------------------------------------------------------------------ waiting */

static struct timespec in_ms(int64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return until;
}

static void wait_for(post_t *self, int64_t ms)
{
    struct timespec until = in_ms(ms);

    pthread_mutex_lock(&self->mutex);
    while (!self->woken && !self->stop)
        if (pthread_cond_timedwait(&self->more, &self->mutex, &until) != 0)
            break;
    self->woken = false;
    pthread_mutex_unlock(&self->mutex);
}

/* After a failure new updates are no reason to try earlier. */
static void back_off(post_t *self)
{
    int64_t end = ab_now_ms() + ab_backoff_ms(self->attempt++, WAIT_BASE_MS, WAIT_CAP_MS);
    for (int64_t left; !self->stop && (left = end - ab_now_ms()) > 0;)
        wait_for(self, left);
}

static void set_state(post_t *self, bool reached, const char *why)
{
    pthread_mutex_lock(&self->mutex);
    bool changed = self->state.reached != reached;
    self->state.reached = reached;
    snprintf(self->state.why, sizeof(self->state.why), "%s", why);
    pthread_mutex_unlock(&self->mutex);
    if (changed && reached)
        ab_log(AB_INFO, "outbox.flows");
    else if (changed)
        ab_log(AB_WARN, "outbox.waits", AB_KV("why", why));
}

/* ------------------------------------------------------------------ answers */

static bool mark(bool *bad, size_t n, int64_t index)
{
    if (index < 0 || (size_t)index >= n)
        return false;
    bad[index] = true;
    return true;
}

static bool blame_items(const struct ab_value *items, outbox_t *outbox,
                        const struct outbox_call *call, bool *bad)
{
    bool any = false;

    for (size_t i = 0; items && items->type == AB_V_LIST && i < items->n; i++) {
        int64_t index = ab_value_int(ab_value_get(&items->items[i], "index"), -1);
        int64_t id = ab_value_int(ab_value_get(&items->items[i], "id"), 0);
        if (mark(bad, call->n, index)) {
            any = true;
            continue;
        }
        for (size_t k = 0; id && k < call->n; k++)
            if (outbox_id(outbox, call->number, k) == id)
                any = mark(bad, call->n, (int64_t)k) || any;
    }
    return any;
}

/* 422: "loc": ["body", 3, "state"] */
static bool blame_issues(const struct ab_value *detail, const struct outbox_call *call, bool *bad)
{
    bool any = false;

    for (size_t i = 0; detail && detail->type == AB_V_LIST && i < detail->n; i++) {
        const struct ab_value *loc = ab_value_get(&detail->items[i], "loc");
        if (loc && loc->type == AB_V_LIST && loc->n > 1 && loc->items[1].type == AB_V_INT)
            any = mark(bad, call->n, loc->items[1].i) || any;
    }
    return any;
}

bool post_blame(const char *body, size_t len, outbox_t *outbox, const struct outbox_call *call,
                bool *bad)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *v = len ? ab_value_parse(arena, body, len, NULL) : NULL;
    bool items = blame_items(ab_value_get(v, "items"), outbox, call, bad);

    return blame_issues(ab_value_get(v, "detail"), call, bad) || items;
}

static int drop(post_t *self, const struct outbox_call *call, const bool *bad,
                const struct ab_error *why, struct ab_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < call->n; i++) {
        if (!bad[i])
            continue;
        n++;
        ab_log(AB_WARN, "outbox.dropped", AB_KV("target", outbox_paths[call->target]),
               AB_KV("id", outbox_id(self->outbox, call->number, i)), AB_KV("status", why->code),
               AB_KV("why", why->text));
    }
    pthread_mutex_lock(&self->mutex);
    self->state.dropped += n;
    pthread_mutex_unlock(&self->mutex);
    return outbox_drop(self->outbox, call->number, bad, err);
}

static int refused(post_t *self, const struct outbox_call *call, const struct ab_buf *reply,
                   const struct ab_error *why, struct ab_error *err)
{
    AB_AUTO(ab_free) bool *bad = calloc(call->n, sizeof(*bad));

    if (!post_blame(reply->data, reply->len, self->outbox, call, bad)) {
        if (call->n > 1)
            return outbox_split(self->outbox, call->number, err);
        bad[0] = true;
    }
    return drop(self, call, bad, why, err);
}

/* 500 may be the centre's trouble or this call's: try, then halve, then let others go first. */
static int failed_inside(post_t *self, const struct outbox_call *call, struct ab_error *err)
{
    if (self->failing != call->number) {
        self->failing = call->number;
        self->errors = 0;
    }
    if (++self->errors < ERRORS_MAX) {
        back_off(self);
        return 0;
    }
    self->errors = 0;
    if (call->n > 1)
        return outbox_split(self->outbox, call->number, err);
    outbox_park(self->outbox, call->number, PARK_MS);
    return 0;
}

/* Only what the centre says of updates; a 404 is of something that stands in front of it. */
static bool is_refusal(int status)
{
    return status == 400 || status == 409 || status == 413 || status == 422;
}

static int send_call(post_t *self, const struct outbox_call *call, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_error why = {0};
    struct ab_api_options options = {
        .timeout_ms = TRY_MS, .retries = 0, .key = call->key, .stop = &self->stop};

    int status = ab_api_call(self->api, "PATCH", outbox_paths[call->target], call->body.data,
                             call->body.len, &options, &reply, &why);
    if (status >= 200 && status < 300) {
        self->attempt = 0;
        set_state(self, true, "");
        pthread_mutex_lock(&self->mutex);
        self->state.sent += call->n;
        pthread_mutex_unlock(&self->mutex);
        return outbox_done(self->outbox, call->number, err);
    }
    if (is_refusal(status)) {
        self->attempt = 0;
        set_state(self, true, "");
        return refused(self, call, &reply, &why, err);
    }
    set_state(self, status == 500, why.text);
    if (status == 500)
        return failed_inside(self, call, err);
    back_off(self);
    return 0;
}

/* ------------------------------------------------------------------ the thread */

static void tell(post_t *self)
{
    uint64_t one = 1;
    (void)!write(self->event, &one, sizeof(one));
}

static void say_empty(post_t *self)
{
    pthread_mutex_lock(&self->mutex);
    pthread_cond_broadcast(&self->empty);
    pthread_mutex_unlock(&self->mutex);
}

static void *carry(void *arg)
{
    post_t *self = arg;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};

    while (!self->stop) {
        struct outbox_call call = {.body = body};
        struct ab_error err = {0};
        int got = outbox_next(self->outbox, &call, &err);
        if (got > 0)
            got = send_call(self, &call, &err) < 0 ? -1 : 1;
        body = call.body;
        if (got < 0) {
            ab_log(AB_ERROR, "outbox.disk", AB_KV("why", err.text));
            back_off(self);
        } else if (got == 0) {
            say_empty(self);
            wait_for(self, LOOK_MS);
        } else {
            tell(self);
        }
    }
    return NULL;
}

post_t *post_new(outbox_t *outbox, const struct ab_client_file *file, int event,
                 struct ab_error *err)
{
    post_t *self = calloc(1, sizeof(*self));
    pthread_condattr_t attr;

    pthread_mutex_init(&self->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->more, &attr);
    pthread_cond_init(&self->empty, &attr);
    pthread_condattr_destroy(&attr);
    self->outbox = outbox;
    self->event = event;
    self->state.reached = true; /* until we know better */
    self->api = ab_api_new(file, true, err);
    if (self->api && pthread_create(&self->thread, NULL, carry, self) == 0)
        self->started = true;
    else if (self->api)
        ab_fail(err, AB_EINTERNAL, "cannot start a thread for the outbox");
    if (!self->started)
        post_destroy(&self, 0);
    return self;
}

void post_wake(post_t *self)
{
    pthread_mutex_lock(&self->mutex);
    self->woken = true;
    pthread_cond_signal(&self->more);
    pthread_mutex_unlock(&self->mutex);
}

static void wait_until_empty(post_t *self, int64_t grace_ms)
{
    struct timespec until = in_ms(grace_ms);
    struct outbox_figures figures;

    pthread_mutex_lock(&self->mutex);
    for (;;) {
        outbox_figures(self->outbox, &figures);
        if (!figures.updates || pthread_cond_timedwait(&self->empty, &self->mutex, &until) != 0)
            break;
    }
    pthread_mutex_unlock(&self->mutex);
}

void post_destroy(post_t **self, int64_t grace_ms)
{
    if (!*self)
        return;
    if ((*self)->started)
        wait_until_empty(*self, grace_ms);
    pthread_mutex_lock(&(*self)->mutex);
    (*self)->stop = 1;
    pthread_cond_broadcast(&(*self)->more);
    pthread_mutex_unlock(&(*self)->mutex);
    if ((*self)->started)
        pthread_join((*self)->thread, NULL);
    ab_api_destroy(&(*self)->api);
    pthread_cond_destroy(&(*self)->more);
    pthread_cond_destroy(&(*self)->empty);
    pthread_mutex_destroy(&(*self)->mutex);
    free(*self);
    *self = NULL;
}

void post_state(post_t *self, struct post_state *out)
{
    pthread_mutex_lock(&self->mutex);
    *out = self->state;
    pthread_mutex_unlock(&self->mutex);
}
