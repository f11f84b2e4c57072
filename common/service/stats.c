/* stats.c - counters of calls, and how Prometheus reads them */
#include "stats.h"

#include "base/cleanup.h"
#include "http/health.h"
#include "schema/pack.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_MAX 160

typedef _Atomic uint64_t count_t;

struct verb_stats {
    const char *name;
    struct ab_call_figures calls;
    count_t db_us;
};

struct timer_stats {
    const char *name;
    count_t runs, failures, us;
};

struct stats {
    const struct ab_service *service;
    struct verb_stats *verbs; /* the last one is "other" */
    size_t n_verbs;
    struct timer_stats *timers;
    size_t n_timers;
    count_t replays, retries;
};

struct stats *stats_new(const struct ab_service *service)
{
    struct stats *self = calloc(1, sizeof(*self));
    size_t verbs = 0, timers = 0;
    while (service->verbs && service->verbs[verbs].name)
        verbs++;
    while (service->timers && service->timers[timers].name)
        timers++;
    if (!self || !(self->verbs = calloc(verbs + 1, sizeof(*self->verbs)))
        || !(self->timers = calloc(timers + 1, sizeof(*self->timers))))
        abort();
    self->service = service;
    for (size_t i = 0; i < verbs; i++)
        self->verbs[i].name = service->verbs[i].name;
    self->verbs[verbs].name = "other";
    self->n_verbs = verbs + 1;
    for (size_t i = 0; i < timers; i++)
        self->timers[i].name = service->timers[i].name;
    self->n_timers = timers;
    return self;
}

void stats_free(struct stats **self)
{
    if (!*self)
        return;
    free((*self)->verbs);
    free((*self)->timers);
    free(*self);
    *self = NULL;
}

static void add(count_t *count, int64_t n)
{
    atomic_fetch_add_explicit(count, (uint64_t)(n < 0 ? 0 : n), memory_order_relaxed);
}

static uint64_t get(count_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void stats_call(struct stats *self, const char *verb, int status, int64_t us, int64_t db_us)
{
    size_t v = 0;
    while (v < self->n_verbs - 1 && (!verb || strcmp(self->verbs[v].name, verb) != 0))
        v++;
    ab_call_add(&self->verbs[v].calls, status, us);
    add(&self->verbs[v].db_us, db_us);
}

void stats_replay(struct stats *self)
{
    add(&self->replays, 1);
}

void stats_retry(struct stats *self)
{
    add(&self->retries, 1);
}

void stats_timer(struct stats *self, const char *timer, bool ok, int64_t us)
{
    for (size_t i = 0; i < self->n_timers; i++) {
        if (strcmp(self->timers[i].name, timer) != 0)
            continue;
        add(&self->timers[i].runs, 1);
        add(&self->timers[i].failures, !ok);
        add(&self->timers[i].us, us);
    }
}

/* ---- Prometheus */

static void __attribute__((format(printf, 4, 5)))
sample(struct ab_buf *out, const char *name, double value, const char *format, ...)
{
    char labels[LABELS_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(labels, sizeof(labels), format, args);
    va_end(args);
    ab_metric(out, name, labels, value);
}

static uint64_t calls_of(struct verb_stats *verb)
{
    return ab_histogram_count(&verb->calls.time);
}

static const char *labels_of(const struct stats *self, const struct verb_stats *verb,
                             char labels[LABELS_MAX])
{
    snprintf(labels, LABELS_MAX, "service=\"%s\",verb=\"%s\"", self->service->name, verb->name);
    return labels;
}

static void write_requests(struct stats *self, struct ab_buf *out)
{
    char labels[LABELS_MAX];
    ab_metric_type(out, "abies_requests_total", "counter", "calls by verb and status");
    for (size_t v = 0; v < self->n_verbs; v++)
        ab_call_codes(out, "abies_requests_total", labels_of(self, &self->verbs[v], labels),
                      &self->verbs[v].calls);
}

static void write_latency(struct stats *self, struct ab_buf *out)
{
    char labels[LABELS_MAX];
    ab_metric_type(out, "abies_request_seconds", "histogram", "from a worker's hands to its reply");
    for (size_t v = 0; v < self->n_verbs; v++)
        if (calls_of(&self->verbs[v]))
            ab_histogram_write(out, "abies_request_seconds",
                               labels_of(self, &self->verbs[v], labels),
                               &self->verbs[v].calls.time);
    ab_metric_type(out, "abies_database_seconds_total", "counter",
                   "time that calls waited for the database");
    for (size_t v = 0; v < self->n_verbs; v++)
        if (calls_of(&self->verbs[v]))
            ab_metric(out, "abies_database_seconds_total", labels_of(self, &self->verbs[v], labels),
                      (double)get(&self->verbs[v].db_us) / 1e6);
}

static void write_timers(struct stats *self, struct ab_buf *out)
{
    static const char *const names[] = {"abies_timer_runs_total", "abies_timer_failures_total",
                                        "abies_timer_seconds_total"};
    static const char *const texts[] = {"runs of a timer", "runs that failed", "time in a timer"};
    for (size_t k = 0; k < AB_COUNT(names) && self->n_timers; k++) {
        ab_metric_type(out, names[k], "counter", texts[k]);
        for (size_t i = 0; i < self->n_timers; i++) {
            struct timer_stats *timer = &self->timers[i];
            double v = k == 0   ? (double)get(&timer->runs)
                       : k == 1 ? (double)get(&timer->failures)
                                : (double)get(&timer->us) / 1e6;
            sample(out, names[k], v, "service=\"%s\",timer=\"%s\"", self->service->name,
                   timer->name);
        }
    }
}

static void one(struct ab_buf *out, const struct stats *self, const char *name, const char *type,
                const char *text, double v)
{
    ab_metric_type(out, name, type, text);
    sample(out, name, v, "service=\"%s\"", self->service->name);
}

static void write_replica(struct stats *self, ab_replica_t *replica, struct ab_buf *out)
{
    struct ab_replica_stats bus;
    ab_replica_stats(replica, &bus);
    one(out, self, "abies_gateways", "gauge", "gateways this replica is linked to", bus.gateways);
    one(out, self, "abies_queue", "gauge", "requests that wait for a worker", bus.queued);
    one(out, self, "abies_running", "gauge", "requests in hand", bus.running);
    one(out, self, "abies_lost_replies_total", "counter", "replies whose gateway had gone",
        (double)bus.lost_replies);
    one(out, self, "abies_hints_total", "counter", "hints sent", (double)bus.hints);
    one(out, self, "abies_lost_hints_total", "counter", "hints that found no room",
        (double)bus.lost_hints);
}

void stats_text(struct stats *self, ab_replica_t *replica, struct ab_buf *out)
{
    write_requests(self, out);
    write_latency(self, out);
    write_timers(self, out);
    one(out, self, "abies_replays_total", "counter", "requests answered from their record",
        (double)get(&self->replays));
    one(out, self, "abies_retries_total", "counter", "transactions run again after a conflict",
        (double)get(&self->retries));
    if (replica)
        write_replica(self, replica, out);
}

void stats_pack(struct stats *self, struct ab_buf *out)
{
    uint32_t n = 0;
    for (size_t v = 0; v < self->n_verbs; v++)
        n += calls_of(&self->verbs[v]) > 0;
    ab_pack_map(out, n);
    for (size_t v = 0; v < self->n_verbs && n; v++) {
        struct verb_stats *verb = &self->verbs[v];
        uint64_t count = calls_of(verb);
        if (!count)
            continue;
        n--; /* a verb whose first call comes just now is left for the next time */
        ab_pack_str(out, verb->name);
        ab_pack_map(out, 3);
        ab_pack_str(out, "count");
        ab_pack_int(out, (int64_t)count);
        ab_pack_str(out, "errors");
        ab_pack_int(out, (int64_t)ab_call_errors(&verb->calls));
        ab_pack_str(out, "us");
        ab_pack_int(out, (int64_t)ab_histogram_us(&verb->calls.time));
    }
}
