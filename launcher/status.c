/* status.c - the updater thread */
#include "status.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "ids.h"
#include "schema/json.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    QUIET_MS = 50,
    LONGEST_MS = 500,
    MOST = 1000,
    CALL_MS = 30000
};

struct update {
    struct update *next;
    int64_t job;
    int lease;
    bool claim;
    char *json;
};

/* Leases that the loop is to hear of. */
struct told {
    struct ids job, lease; /* in step */
};

struct status {
    ab_api_t *api;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    struct update *first, **last;
    size_t n;
    int64_t first_at, newest_at;
    bool claims, hurry; /* there are some in the queue; and a program waits for them */
    atomic_int ending, give_up;
    bool finished; /* the thread has */
    size_t lost;   /* updates that it could not deliver */
    int event;
    struct told refused, accepted;
};

static void update_free(struct update *u)
{
    free(u->json);
    free(u);
}

static void put(status_t *self, const struct job *item, bool claim)
{
    struct ab_buf json = {0};
    struct update *u = calloc(1, sizeof(*u));
    ab_json_write(&json, &ab_schema_job, AB_UPDATE | AB_KEY, item);
    if (!u || json.failed)
        abort();
    u->job = item->id;
    u->lease = item->lease;
    u->claim = claim;
    u->json = ab_buf_take(&json);
    pthread_mutex_lock(&self->lock);
    self->newest_at = ab_now_ms();
    self->claims = self->claims || claim;
    if (!self->first)
        self->first_at = self->newest_at;
    *self->last = u;
    self->last = &u->next;
    self->n++;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

void status_put(status_t *self, const struct job *item)
{
    put(self, item, false);
}

void status_claim(status_t *self, const struct job *item)
{
    put(self, item, true);
}

void status_hurry(status_t *self)
{
    pthread_mutex_lock(&self->lock);
    self->hurry = self->claims;
    if (self->hurry)
        pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

static void tell(status_t *self, struct told *what, const struct update *u)
{
    uint64_t one = 1;
    pthread_mutex_lock(&self->lock);
    ids_add(&what->job, u->job);
    ids_add(&what->lease, u->lease);
    pthread_mutex_unlock(&self->lock);
    (void)!write(self->event, &one, sizeof(one));
}

/* ---------------------------------------------------------------- batches */

/* Take out of the queue the first update of each job, in order; what follows for the same job
 * stays. */
static struct update *take_batch(status_t *self, size_t *n)
{
    struct update *batch = NULL, **tail = &batch, **at = &self->first;
    struct ids seen = {0};
    *n = 0;
    while (*at && *n < MOST) {
        struct update *u = *at;
        if (ids_has(&seen, u->job)) {
            at = &u->next;
            continue;
        }
        ids_add(&seen, u->job);
        *at = u->next;
        u->next = NULL;
        *tail = u;
        tail = &u->next;
        (*n)++;
    }
    self->last = &self->first;
    while (*self->last)
        self->last = &(*self->last)->next;
    self->n -= *n;
    self->first_at = ab_now_ms();
    self->claims = false;
    for (const struct update *u = self->first; u && !self->claims; u = u->next)
        self->claims = u->claim;
    self->hurry = self->hurry && self->claims;
    ids_free(&seen);
    return batch;
}

static void refuse(status_t *self, struct update **at, const char *reason)
{
    struct update *u = *at;
    *at = u->next;
    ab_log(AB_WARN, "status.refused", AB_KV("job", u->job), AB_KV("reason", reason));
    tell(self, &self->refused, u);
    update_free(u);
}

/* Drop the updates that the error names; false if it names none of ours. */
static bool drop_named(status_t *self, struct update **batch, const struct ab_buf *reply)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *items =
        ab_value_get(ab_value_parse(arena, reply->data, reply->len, NULL), "items");
    bool dropped = false;
    for (size_t i = 0; items && items->type == AB_V_LIST && i < items->n; i++) {
        int64_t id = ab_value_int(ab_value_get(&items->items[i], "id"), 0);
        const char *reason = ab_value_text(ab_value_get(&items->items[i], "reason"), "refused");
        for (struct update **at = batch; *at; at = &(*at)->next)
            if ((*at)->job == id) {
                refuse(self, at, reason);
                dropped = true;
                break;
            }
    }
    return dropped;
}

static int patch(status_t *self, const struct update *batch, const char *key, struct ab_buf *reply,
                 struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    ab_buf_char(&body, '[');
    for (const struct update *u = batch; u; u = u->next) {
        ab_buf_str(&body, u->json);
        ab_buf_char(&body, u->next ? ',' : ']');
    }
    struct ab_api_options options = {
        .timeout_ms = CALL_MS, .retries = 2, .key = key, .stop = &self->give_up};
    return ab_api_call(self->api, "PATCH", "/jobs/", body.data, body.len, &options, reply, err);
}

static void fresh_key(char key[AB_UUID_TEXT])
{
    uint8_t uuid[16];
    ab_uuid7(uuid);
    ab_uuid_text(uuid, key);
}

static void wait_until(status_t *self, int64_t at_ms)
{
    struct timespec ts = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000};
    pthread_cond_timedwait(&self->wake, &self->lock, &ts);
}

static void pause_before_retry(status_t *self, int failures)
{
    int64_t until = ab_now_ms() + ab_backoff_ms(failures, 200, 5000);
    pthread_mutex_lock(&self->lock);
    while (!self->give_up && ab_now_ms() < until)
        wait_until(self, until);
    pthread_mutex_unlock(&self->lock);
}

static void tell_claims(status_t *self, const struct update *batch)
{
    for (const struct update *u = batch; u; u = u->next)
        if (u->claim)
            tell(self, &self->accepted, u);
}

enum outcome {
    DELIVERED,  /* or refused */
    ONE_BY_ONE, /* something in it is refused, and the centre does not say what */
    OUT_OF_TIME
};

static enum outcome deliver(status_t *self, struct update **batch)
{
    char key[AB_UUID_TEXT];
    fresh_key(key);
    for (int failures = 0; *batch;) {
        AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
        struct ab_error err = {0};
        int status = patch(self, *batch, key, &reply, &err);
        if (status >= 200 && status < 300) {
            tell_claims(self, *batch);
            return DELIVERED;
        }
        if (status == 400 || status == 409 || status == 413 || status == 422) {
            if (!drop_named(self, batch, &reply)) {
                if (!(*batch)->next)
                    refuse(self, batch, err.text);
                else
                    return ONE_BY_ONE;
            }
            fresh_key(key); /* another body is another request */
            continue;
        }
        ab_log(AB_WARN, "status.delayed", AB_KV("code", status), AB_KV("error", err.text));
        if (self->give_up)
            return OUT_OF_TIME;
        pause_before_retry(self, failures++);
    }
    return DELIVERED;
}

static size_t free_all(struct update *u)
{
    size_t n = 0;
    for (struct update *next; u; u = next, n++) {
        next = u->next;
        update_free(u);
    }
    return n;
}

/* Returns the number of updates that stay undelivered (only when time is over). */
static size_t send_batch(status_t *self, struct update *batch)
{
    size_t lost = 0;
    enum outcome all = deliver(self, &batch);
    while (all == ONE_BY_ONE && batch) {
        struct update *one = batch;
        batch = one->next;
        one->next = NULL;
        bool over = deliver(self, &one) == OUT_OF_TIME;
        size_t n = free_all(one);
        lost += over ? n : 0;
    }
    size_t left = free_all(batch);
    return lost + (all == OUT_OF_TIME ? left : 0);
}

/* ---------------------------------------------------------------- the thread */

static void *live(void *arg)
{
    status_t *self = arg;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (!self->first && !self->ending)
            pthread_cond_wait(&self->wake, &self->lock);
        if (!self->first)
            break;
        int64_t now = ab_now_ms(), due = self->newest_at + QUIET_MS;
        if (due > self->first_at + LONGEST_MS)
            due = self->first_at + LONGEST_MS;
        if (!self->ending && !self->hurry && self->n < MOST && now < due) {
            wait_until(self, due);
            continue;
        }
        size_t n = 0;
        struct update *batch = take_batch(self, &n);
        pthread_mutex_unlock(&self->lock);
        size_t lost = send_batch(self, batch);
        pthread_mutex_lock(&self->lock);
        self->lost += lost;
        if (self->give_up)
            break;
    }
    self->finished = true;
    pthread_cond_signal(&self->done);
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

status_t *status_new(const struct ab_client_file *file, struct ab_error *err)
{
    status_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    pthread_condattr_t attr;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->wake, &attr);
    pthread_cond_init(&self->done, &attr);
    pthread_condattr_destroy(&attr);
    self->last = &self->first;
    self->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->api = ab_api_new_late(file, err);
    if (self->api && pthread_create(&self->thread, NULL, live, self) == 0)
        self->running = true;
    else if (self->api)
        ab_fail(err, AB_EINTERNAL, "cannot start the status thread");
    if (!self->running)
        status_end(&self, 0);
    return self;
}

int status_fd(const status_t *self)
{
    return self->event;
}

static bool next_told(status_t *self, struct told *what, int64_t *job, int *lease)
{
    int64_t number = 0;
    pthread_mutex_lock(&self->lock);
    bool any = ids_pop(&what->job, job);
    (void)ids_pop(&what->lease, &number);
    pthread_mutex_unlock(&self->lock);
    *lease = (int)number;
    return any;
}

bool status_refused(status_t *self, int64_t *job, int *lease)
{
    return next_told(self, &self->refused, job, lease);
}

bool status_accepted(status_t *self, int64_t *job, int *lease)
{
    return next_told(self, &self->accepted, job, lease);
}

static void finish_thread(status_t *self, int64_t timeout_ms)
{
    int64_t end = ab_now_ms() + timeout_ms;
    struct timespec ts = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};
    pthread_mutex_lock(&self->lock);
    self->ending = 1;
    pthread_cond_signal(&self->wake);
    while (!self->finished && ab_now_ms() < end)
        pthread_cond_timedwait(&self->done, &self->lock, &ts);
    self->give_up = 1; /* ends a call within a second */
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
}

size_t status_end(status_t **self_p, int64_t timeout_ms)
{
    status_t *self = *self_p;
    size_t lost = 0;
    if (!self)
        return 0;
    if (self->running) {
        finish_thread(self, timeout_ms);
        lost = self->lost;
    }
    lost += free_all(self->first);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->wake);
    pthread_cond_destroy(&self->done);
    ab_api_destroy(&self->api);
    ab_close(&self->event);
    ids_free(&self->refused.job);
    ids_free(&self->refused.lease);
    ids_free(&self->accepted.job);
    ids_free(&self->accepted.lease);
    free(self);
    *self_p = NULL;
    return lost;
}
