/* lease.c - the session thread */
#include "lease.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "schema/json.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    CALL_MS = 30000,      /* the longest call */
    CALL_LEAST_MS = 2000, /* no call is given less, though a beat may be due */
    BEAT_LEAST_MS = 200,
    BEAT_AGAIN_MS = 500,  /* after a beat that failed */
    EMPTY_FIRST_MS = 200, /* after an empty answer; then twice that, and so on */
    EMPTY_MOST_MS = 1000
};

struct held {
    int64_t job;
    int lease;
    bool named; /* in a heartbeat */
};

struct held_list {
    struct held *v;
    size_t n, cap;
};

struct lease {
    struct ab_client_file file; /* borrowed texts: the options' file outlives us */
    int64_t site_id, batch_job_id, heartbeat_ms;
    const char *filter_tags, *sort_by;
    bool serial_only;

    ab_api_t *api; /* the thread's, and lease_end's after it has ended: so are all down to `end` */
    int64_t session; /* 0: none now */
    int64_t beat_at, beat_every_ms;
    int failures;
    char key[AB_UUID_TEXT]; /* of the acquire that was not answered; "": none */
    atomic_int end;

    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int event;
    bool asked;
    int64_t acquire_at, empty_ms; /* not before; pause after the next empty answer */
    struct lease_want want;
    struct ab_error refused; /* why there will be no session */
    struct lease_batch *first, **last;
    struct held_list held, cancelled, lost;
};

void lease_batch_drop(struct lease_batch *batch)
{
    if (--batch->refs > 0)
        return;
    ab_arena_destroy(&batch->arena);
    free(batch);
}

static void held_add(struct held_list *list, struct held one)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 16;
        list->v = realloc(list->v, list->cap * sizeof(*list->v));
        if (!list->v)
            abort();
    }
    list->v[list->n++] = one;
}

static void ring(lease_t *self)
{
    uint64_t one = 1;
    (void)!write(self->event, &one, sizeof(one));
}

/* ---------------------------------------------------------------- calls */

/* A call must not keep the next beat from being sent. */
static int64_t patience(const lease_t *self)
{
    int64_t ms = self->session ? self->beat_at - ab_now_ms() : CALL_MS;
    return ms < CALL_LEAST_MS ? CALL_LEAST_MS : ms > CALL_MS ? CALL_MS : ms;
}

static int call(lease_t *self, const char *method, const char *path, const char *key,
                const struct ab_buf *body, struct ab_buf *reply, struct ab_error *err)
{
    struct ab_api_options options = {
        .timeout_ms = patience(self), .retries = 2, .key = key, .stop = &self->end};
    return ab_api_call(self->api, method, path, body ? body->data : NULL, body ? body->len : 0,
                       &options, reply, err);
}

static int open_session(lease_t *self, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, reply = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    ab_buf_printf(&body, "{\"site_id\":%" PRId64, self->site_id);
    if (self->batch_job_id)
        ab_buf_printf(&body, ",\"batch_job_id\":%" PRId64, self->batch_job_id);
    ab_buf_str(&body, "}");
    int status = call(self, "POST", "/sessions/", NULL, &body, &reply, err);
    if (status < 0 || status >= 400)
        return status < 0 ? -1 : status;
    const struct ab_value *v = ab_value_parse(arena, reply.data, reply.len, err);
    self->session = ab_value_int(ab_value_get(v, "id"), 0);
    if (self->session == 0)
        return ab_fail(err, AB_EUPSTREAM, "the centre answered POST /sessions/ without an id");
    ab_log(AB_INFO, "session.open", AB_KV("session", self->session));
    return 0;
}

static void free_batches(lease_t *self)
{
    while (self->first) {
        struct lease_batch *b = self->first;
        self->first = b->next;
        b->refs = 1;
        lease_batch_drop(b);
    }
    self->last = &self->first;
}

/* Everything leased under the session that has gone is somebody else's now. */
static void session_gone(lease_t *self)
{
    ab_log(AB_WARN, "session.gone", AB_KV("session", self->session));
    self->key[0] = '\0';
    pthread_mutex_lock(&self->lock);
    free_batches(self);
    for (size_t i = 0; i < self->held.n; i++)
        held_add(&self->lost, self->held.v[i]);
    self->session = 0;
    self->held.n = 0;
    pthread_mutex_unlock(&self->lock);
    ring(self);
}

static void log_failure(const lease_t *self, const char *what, const struct ab_error *err)
{
    if (!self->end)
        ab_log(AB_WARN, what, AB_KV("code", err->code), AB_KV("error", err->text));
}

static void acquire_body(const lease_t *self, const struct lease_want *want, struct ab_buf *body)
{
    ab_buf_printf(body, "{\"max_num_jobs\":%d,\"max_nodes_per_job\":%d,\"max_wall_time_min\":%d",
                  want->max_jobs, want->max_nodes, want->max_minutes);
    if (want->max_aggregate_nodes >= 0)
        ab_buf_printf(body, ",\"max_aggregate_nodes\":%.6f", want->max_aggregate_nodes);
    if (self->serial_only)
        ab_buf_str(body, ",\"serial_only\":true");
    if (self->sort_by) {
        ab_buf_str(body, ",\"sort_by\":");
        ab_buf_json_str(body, self->sort_by, strlen(self->sort_by));
    }
    ab_buf_printf(body, ",\"filter_tags\":%s}", self->filter_tags);
}

static void add_batch(lease_t *self, struct lease_batch *batch)
{
    const struct job *jobs = batch->jobs.v;
    pthread_mutex_lock(&self->lock);
    for (size_t i = 0; i < batch->jobs.n; i++)
        held_add(&self->held, (struct held){.job = jobs[i].id, .lease = jobs[i].lease});
    *self->last = batch;
    self->last = &batch->next;
    pthread_mutex_unlock(&self->lock);
}

static int take_jobs(lease_t *self, const struct ab_buf *reply)
{
    struct ab_error err = {0};
    struct lease_batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        abort();
    batch->arena = ab_arena_new();
    if (ab_json_read(&ab_schema_job, reply->data, reply->len, batch->arena, &batch->jobs, NULL,
                     &err)
        < 0)
        log_failure(self, "acquire.unreadable", &err);
    batch->refs = batch->jobs.n + 1;
    batch->session = self->session;
    if (batch->jobs.n == 0) {
        batch->refs = 1;
        lease_batch_drop(batch);
        return 0;
    }
    ab_log(AB_INFO, "lease.taken", AB_KV("session", self->session), AB_KV("jobs", batch->jobs.n));
    add_batch(self, batch);
    return 1;
}

static void fresh_key(char key[AB_UUID_TEXT])
{
    uint8_t uuid[16];
    ab_uuid7(uuid);
    ab_uuid_text(uuid, key);
}

/* 1 jobs came, 0 none, -1 failed. A call whose answer did not come may have leased jobs: it is made
 * again as it was, under the same key, until it is answered. */
static int acquire(lease_t *self, const struct ab_buf *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_error err = {0};
    char path[64];
    if (!self->key[0])
        fresh_key(self->key);
    snprintf(path, sizeof(path), "/sessions/%" PRId64, self->session);
    int status = call(self, "POST", path, self->key, body, &reply, &err);
    if (status >= 200 && status < 500 && status != 401 && status != 408 && status != 429)
        self->key[0] = '\0';
    if (status == 404)
        session_gone(self);
    if (status >= 200 && status < 300)
        return take_jobs(self, &reply);
    log_failure(self, "acquire.failed", &err);
    return -1;
}

/* The leases that an answer to a heartbeat speaks of: of the jobs that it named. One that was given
 * back and leased again while it was under way is not meant. */
static void take_ids(lease_t *self, const struct ab_value *list, bool lost)
{
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        int64_t job = ab_value_int(&list->items[i], 0);
        for (size_t k = 0; k < self->held.n; k++) {
            struct held one = self->held.v[k];
            if (one.job != job || !one.named)
                continue;
            held_add(lost ? &self->lost : &self->cancelled, one);
            if (lost)
                self->held.v[k] = self->held.v[--self->held.n];
            break;
        }
    }
}

/* A third of what is left of the lease. */
static int64_t next_beat(const lease_t *self, const struct ab_value *reply)
{
    int64_t third = (int64_t)(ab_value_real(ab_value_get(reply, "expires_in_sec"), 60) * 1000 / 3);
    if (third < BEAT_LEAST_MS)
        third = BEAT_LEAST_MS;
    return third < self->heartbeat_ms ? third : self->heartbeat_ms;
}

static void heartbeat(lease_t *self)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, reply = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    char path[64];
    ab_buf_str(&body, "{\"jobs\":[");
    pthread_mutex_lock(&self->lock);
    for (size_t i = 0; i < self->held.n; i++) {
        ab_buf_printf(&body, "%s%" PRId64, i ? "," : "", self->held.v[i].job);
        self->held.v[i].named = true;
    }
    pthread_mutex_unlock(&self->lock);
    ab_buf_str(&body, "]}");
    snprintf(path, sizeof(path), "/sessions/%" PRId64 "/heartbeat", self->session);
    self->beat_at = ab_now_ms() + self->beat_every_ms; /* what the call may take */
    int status = call(self, "POST", path, NULL, &body, &reply, &err);
    if (status == 404)
        session_gone(self);
    if (status < 0 || status >= 400) {
        log_failure(self, "heartbeat.failed", &err);
        self->beat_at = ab_now_ms() + (status == 404 ? 0 : BEAT_AGAIN_MS);
        return;
    }
    const struct ab_value *v = ab_value_parse(arena, reply.data, reply.len, NULL);
    pthread_mutex_lock(&self->lock);
    take_ids(self, ab_value_get(v, "cancel"), false);
    take_ids(self, ab_value_get(v, "lost"), true);
    bool news = self->cancelled.n + self->lost.n > 0;
    pthread_mutex_unlock(&self->lock);
    if (news)
        ring(self);
    self->beat_every_ms = next_beat(self, v);
    self->beat_at = ab_now_ms() + self->beat_every_ms;
}

/* ---------------------------------------------------------------- the thread */

static void wait_until(lease_t *self, int64_t at_ms)
{
    struct timespec ts = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000};
    pthread_cond_timedwait(&self->wake, &self->lock, &ts);
}

/* What no later call can mend: the site is not ours, or gone. */
static bool is_final(int status)
{
    return status >= 400 && status < 500 && status != 401 && status != 408 && status != 429;
}

static void reopen(lease_t *self)
{
    struct ab_error err = {0};
    int rc = open_session(self, &err);
    if (rc == 0) {
        self->failures = 0;
        self->beat_at = ab_now_ms();
        return;
    }
    log_failure(self, "session.refused", &err);
    self->beat_at = ab_now_ms() + ab_backoff_ms(self->failures++, 500, 15000);
    if (is_final(rc)) {
        pthread_mutex_lock(&self->lock);
        self->refused = err;
        pthread_mutex_unlock(&self->lock);
        ring(self);
    }
}

/* Soon again while there was work a moment ago, else once a second. */
static void pause_after(lease_t *self, int got)
{
    int64_t ms = got > 0 ? 0 : got == 0 ? self->empty_ms : ab_backoff_ms(1, 200, 1000);
    self->acquire_at = ab_now_ms() + ms;
    if (got > 0)
        self->empty_ms = EMPTY_FIRST_MS;
    else if (got == 0)
        self->empty_ms = ms * 2 < EMPTY_MOST_MS ? ms * 2 : EMPTY_MOST_MS;
}

static void serve_want(lease_t *self, const struct ab_buf *body)
{
    int got = acquire(self, body);
    bool answered = !self->key[0]; /* else asked for as long as it is not known what it got */
    pthread_mutex_lock(&self->lock);
    pause_after(self, got);
    self->asked = self->asked && !answered;
    pthread_mutex_unlock(&self->lock);
    if (answered)
        ring(self);
}

/* Sleeps until there is something to do. True: an acquire is. */
static bool wait_for_work(lease_t *self, struct lease_want *want)
{
    bool ask = false;
    pthread_mutex_lock(&self->lock);
    while (!self->end && !ask) {
        int64_t now = ab_now_ms(), until = self->beat_at;
        bool asked = self->asked && self->session != 0;
        if (asked && self->acquire_at < until)
            until = self->acquire_at;
        ask = asked && now >= self->acquire_at && now < self->beat_at;
        if (ask || now >= self->beat_at)
            break;
        wait_until(self, until);
    }
    *want = self->want;
    pthread_mutex_unlock(&self->lock);
    return ask;
}

static void *live(void *arg)
{
    lease_t *self = arg;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct lease_want want;
    while (!self->end) {
        if (wait_for_work(self, &want)) {
            if (!self->key[0]) {
                ab_buf_clear(&body);
                acquire_body(self, &want, &body);
            }
            serve_want(self, &body);
        } else if (!self->end && self->session == 0) {
            reopen(self);
        } else if (!self->end) {
            heartbeat(self);
        }
    }
    return NULL;
}

static int start_thread(lease_t *self, struct ab_error *err)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&self->thread, NULL, live, self) != 0)
        return ab_fail(err, AB_EINTERNAL, "cannot start the session thread");
    self->running = true;
    return 0;
}

lease_t *lease_new(const struct lease_options *o, struct ab_error *err)
{
    lease_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->site_id = o->site_id;
    self->batch_job_id = o->batch_job_id;
    self->heartbeat_ms = o->heartbeat_ms;
    self->beat_every_ms = CALL_LEAST_MS;
    self->empty_ms = EMPTY_FIRST_MS;
    self->filter_tags = o->filter_tags;
    self->sort_by = o->sort_by;
    self->serial_only = o->serial_only;
    self->last = &self->first;
    self->api = ab_api_new_late(o->file, err);
    if (!self->api || start_thread(self, err) < 0)
        lease_end(&self, 0);
    return self;
}

void lease_end(lease_t **self_p, int64_t timeout_ms)
{
    lease_t *self = *self_p;
    if (!self)
        return;
    if (self->running) {
        pthread_mutex_lock(&self->lock);
        self->end = 1;
        pthread_cond_signal(&self->wake);
        pthread_mutex_unlock(&self->lock);
        pthread_join(self->thread, NULL);
        pthread_mutex_destroy(&self->lock);
        pthread_cond_destroy(&self->wake);
    }
    if (self->api && self->session && timeout_ms > 0) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};
        struct ab_error err = {0};
        struct ab_api_options options = {.timeout_ms = timeout_ms, .retries = 3};
        ab_buf_printf(&path, "/sessions/%" PRId64, self->session);
        int status = ab_api_call(self->api, "DELETE", path.data, NULL, 0, &options, &reply, &err);
        if (status < 0 || (status >= 400 && status != 404))
            ab_log(AB_WARN, "session.left", AB_KV("session", self->session),
                   AB_KV("error", err.text));
        else
            ab_log(AB_INFO, "session.closed", AB_KV("session", self->session));
    }
    free_batches(self);
    ab_api_destroy(&self->api);
    ab_close(&self->event);
    free(self->held.v);
    free(self->cancelled.v);
    free(self->lost.v);
    free(self);
    *self_p = NULL;
}

/* ---------------------------------------------------------------- the loop's side */

int lease_fd(const lease_t *self)
{
    return self->event;
}

void lease_ask(lease_t *self, const struct lease_want *want)
{
    pthread_mutex_lock(&self->lock);
    self->want = *want;
    self->asked = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

bool lease_refused(lease_t *self, struct ab_error *err)
{
    pthread_mutex_lock(&self->lock);
    *err = self->refused;
    pthread_mutex_unlock(&self->lock);
    return err->code != 0;
}

bool lease_asking(lease_t *self)
{
    pthread_mutex_lock(&self->lock);
    bool asked = self->asked;
    pthread_mutex_unlock(&self->lock);
    return asked;
}

struct lease_batch *lease_take(lease_t *self)
{
    pthread_mutex_lock(&self->lock);
    struct lease_batch *batch = self->first;
    if (batch) {
        self->first = batch->next;
        if (!self->first)
            self->last = &self->first;
    }
    pthread_mutex_unlock(&self->lock);
    return batch;
}

bool lease_news(lease_t *self, struct lease_news *out)
{
    *out = (struct lease_news){0};
    pthread_mutex_lock(&self->lock);
    out->lost = self->lost.n > 0;
    struct held_list *list = out->lost ? &self->lost : &self->cancelled;
    bool any = list->n > 0;
    if (any) {
        const struct held *one = &list->v[--list->n];
        out->job = one->job;
        out->lease = one->lease;
    }
    pthread_mutex_unlock(&self->lock);
    return any;
}

/* The end of a job may be what others wait for. */
void lease_drop(lease_t *self, int64_t job, int lease)
{
    int64_t soon = ab_now_ms() + EMPTY_FIRST_MS;
    pthread_mutex_lock(&self->lock);
    self->empty_ms = EMPTY_FIRST_MS;
    if (self->acquire_at > soon) {
        self->acquire_at = soon;
        pthread_cond_signal(&self->wake);
    }
    for (size_t i = 0; i < self->held.n; i++)
        if (self->held.v[i].job == job && self->held.v[i].lease == lease) {
            self->held.v[i] = self->held.v[--self->held.n];
            break;
        }
    pthread_mutex_unlock(&self->lock);
}
