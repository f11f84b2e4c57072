/* timer.c - what a service does by itself, at its times */
#include "timer.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    LOOK_MS = 1000, /* how often the connection is looked at */
    LEAST_MS = 10,  /* no timer spins */
    TURN_MS = 500,  /* of a timer that always has more to do, before the others get a turn */
};

struct timers {
    struct ab_worker *worker;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stops; /* under the lock */
    atomic_bool database;
    int64_t *next_ms; /* by timer */
    size_t n;
};

static bool stopping(struct timers *self)
{
    pthread_mutex_lock(&self->lock);
    bool stops = self->stops;
    pthread_mutex_unlock(&self->lock);
    return stops;
}

/* Until `ms`, or until the service stops. */
static bool sleep_until(struct timers *self, int64_t ms)
{
    int64_t left = ms - ab_now_ms();
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    left = left < 0 ? 0 : left;
    until.tv_sec += left / 1000;
    until.tv_nsec += left % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&self->lock);
    int rc = 0;
    while (!self->stops && rc == 0)
        rc = pthread_cond_timedwait(&self->wake, &self->lock, &until);
    bool stops = self->stops;
    pthread_mutex_unlock(&self->lock);
    return !stops;
}

static void send_hint(void *arg, char topic, int64_t owner, const void *body, size_t len)
{
    ab_replica_hint(arg, topic, owner, body, len);
}

/* Once; more to do? */
static bool tick(struct timers *self, const struct ab_timer *timer)
{
    struct ab_worker *worker = self->worker;
    struct ab_call call;
    struct ab_error err = {0};
    int64_t from = ab_now_us();
    int rc = worker_tick(worker, timer, &call, &err);
    if (rc >= 0)
        worker_hints(worker, &call, send_hint, worker->replica);
    else
        ab_log(AB_WARN, "timer.failed", AB_KV("timer", timer->name), AB_KV("code", err.code),
               AB_KV("text", (const char *)err.text));
    stats_timer(worker->stats, timer->name, rc >= 0, ab_now_us() - from);
    ab_buf_free(&call.reply);
    ab_arena_reset(worker->arena);
    return rc > 0;
}

static int64_t period(const struct timers *self, const struct ab_timer *timer)
{
    int64_t ms = ab_conf_ms(self->worker->conf, timer->every);
    return ms < LEAST_MS ? LEAST_MS : ms;
}

/* Again and again while it has more to do, but not longer than a turn: then it is due at once. */
static int64_t run_one(struct timers *self, const struct ab_timer *timer)
{
    int64_t until = ab_now_ms() + TURN_MS;
    bool more = true;
    while (more && ab_now_ms() < until && !stopping(self))
        more = tick(self, timer);
    return more ? ab_now_ms() : ab_now_ms() + period(self, timer);
}

/* Those that are due; when the next one is. */
static int64_t run_due(struct timers *self)
{
    int64_t next = ab_now_ms() + LOOK_MS;
    if (!atomic_load(&self->database))
        return next;
    for (size_t i = 0; i < self->n; i++) {
        const struct ab_timer *timer = &self->worker->service->timers[i];
        if (self->next_ms[i] <= ab_now_ms())
            self->next_ms[i] = run_one(self, timer);
        next = self->next_ms[i] < next ? self->next_ms[i] : next;
    }
    return next;
}

static void look_at_database(struct timers *self)
{
    struct ab_error err = {0};
    bool was = atomic_load(&self->database), is = ab_db_ensure(self->worker->db, &err) == 0;
    if (was && !is)
        ab_log(AB_WARN, "database.lost", AB_KV("text", (const char *)err.text));
    else if (is && !was)
        ab_log(AB_INFO, "database.back");
    atomic_store(&self->database, is);
}

static void *run(void *arg)
{
    struct timers *self = arg;
    int64_t next;
    do {
        look_at_database(self);
        next = run_due(self);
    } while (sleep_until(self, next));
    return NULL;
}

struct timers *timers_start(struct ab_worker *worker, struct ab_error *err)
{
    struct timers *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->worker = worker;
    atomic_init(&self->database, true);
    while (worker->service->timers && worker->service->timers[self->n].name)
        self->n++;
    self->next_ms = calloc(self->n + 1, sizeof(*self->next_ms));
    if (!self->next_ms)
        abort();
    for (size_t i = 0; worker->service->timers && i < self->n;
         i++) { /* replicas start together and should not stay so */
        int64_t ms = period(self, &worker->service->timers[i]);
        self->next_ms[i] = ab_now_ms() + (int64_t)ab_random_below((uint64_t)ms + 1);
    }
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&self->thread, NULL, run, self) != 0) {
        ab_fail_errno(err, AB_EINTERNAL, "cannot start the timers' thread");
        free(self->next_ms);
        free(self);
        return NULL;
    }
    return self;
}

void timers_stop(struct timers **self)
{
    struct timers *timers = AB_TAKE(*self);
    if (!timers)
        return;
    pthread_mutex_lock(&timers->lock);
    timers->stops = true;
    pthread_cond_signal(&timers->wake);
    pthread_mutex_unlock(&timers->lock);
    pthread_join(timers->thread, NULL);
    pthread_cond_destroy(&timers->wake);
    pthread_mutex_destroy(&timers->lock);
    free(timers->next_ms);
    free(timers);
}

bool timers_database(const struct timers *self)
{
    return atomic_load(&self->database);
}
