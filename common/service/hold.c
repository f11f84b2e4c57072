/* hold.c - replies that leave later */
#include "hold.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct held {
    ab_task_t *task;
    int status;
    void *body;
    size_t len;
    int64_t due_ms;
    struct held *next;
};

struct hold {
    ab_replica_t *replica;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool runs, stops;
    struct held *first; /* by due_ms */
    int n;
};

struct hold *hold_new(ab_replica_t *replica)
{
    struct hold *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->replica = replica;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->changed, &attr);
    pthread_condattr_destroy(&attr);
    return self;
}

static void send(struct hold *self, struct held *one)
{
    ab_replica_reply(self->replica, &one->task, one->status, one->body, one->len, true);
    free(one);
}

static void wait_until(struct hold *self, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t left = ms - ab_now_ms();
    until.tv_sec += left / 1000;
    until.tv_nsec += left % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&self->changed, &self->lock, &until);
}

static void *run(void *arg)
{
    struct hold *self = arg;
    pthread_mutex_lock(&self->lock);
    while (self->first || !self->stops) {
        struct held *one = self->first;
        if (!one) {
            pthread_cond_wait(&self->changed, &self->lock);
        } else if (!self->stops && one->due_ms > ab_now_ms()) {
            wait_until(self, one->due_ms);
        } else {
            self->first = one->next;
            self->n--;
            pthread_mutex_unlock(&self->lock);
            send(self, one);
            pthread_mutex_lock(&self->lock);
        }
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Under the lock. */
static bool insert(struct hold *self, struct held *one)
{
    if (self->n >= HOLD_MAX || self->stops)
        return false;
    if (!self->runs && pthread_create(&self->thread, NULL, run, self) != 0)
        return false;
    self->runs = true;
    struct held **at = &self->first;
    while (*at && (*at)->due_ms <= one->due_ms)
        at = &(*at)->next;
    one->next = *at;
    *at = one;
    self->n++;
    pthread_cond_signal(&self->changed);
    return true;
}

void hold_reply(struct hold *self, ab_task_t **task, int status, void *body, size_t len, int64_t ms)
{
    struct held *one = malloc(sizeof(*one));
    if (!one)
        abort();
    *one = (struct held){AB_TAKE(*task), status, body, len, ab_now_ms() + ms, NULL};
    pthread_mutex_lock(&self->lock);
    bool held = insert(self, one);
    pthread_mutex_unlock(&self->lock);
    if (!held)
        send(self, one);
}

void hold_free(struct hold **self)
{
    struct hold *hold = AB_TAKE(*self);
    if (!hold)
        return;
    pthread_mutex_lock(&hold->lock);
    hold->stops = true;
    pthread_cond_signal(&hold->changed);
    pthread_mutex_unlock(&hold->lock);
    if (hold->runs)
        pthread_join(hold->thread, NULL);
    pthread_cond_destroy(&hold->changed);
    pthread_mutex_destroy(&hold->lock);
    free(hold);
}
