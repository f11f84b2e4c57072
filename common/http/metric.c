/* metric.c - see metric.h */
#include "metric.h"

#include "base/cleanup.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 64

static const int codes[AB_CALL_CODES] = {200, 201, 202, 204, 302, 307, 400, 401, 403, 404,
                                         409, 413, 422, 429, 500, 502, 503, 504, -1,  0};
/* Upper ends of the buckets; the last one is everything. */
static const int64_t ends_us[AB_HISTOGRAM_BUCKETS] = {500,     1000,    2500,     5000,     10000,
                                                      25000,   50000,   100000,   250000,   500000,
                                                      1000000, 2500000, 10000000, INT64_MAX};

static void add(_Atomic uint64_t *count, int64_t n)
{
    atomic_fetch_add_explicit(count, (uint64_t)(n < 0 ? 0 : n), memory_order_relaxed);
}

static uint64_t get(_Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* ---- text */

void ab_metric_type(struct ab_buf *out, const char *name, const char *type, const char *help)
{
    ab_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void ab_metric(struct ab_buf *out, const char *name, const char *labels, double value)
{
    ab_buf_str(out, name);
    if (labels && *labels)
        ab_buf_printf(out, "{%s}", labels);
    if (fabs(value) < 9e15 && value == (double)(int64_t)value)
        ab_buf_printf(out, " %" PRId64 "\n", (int64_t)value);
    else if (isfinite(value))
        ab_buf_printf(out, " %.9g\n", value);
    else
        ab_buf_str(out, isnan(value) ? " NaN\n" : value > 0 ? " +Inf\n" : " -Inf\n");
}

void ab_metric_label(struct ab_buf *labels, const char *name, const char *value)
{
    ab_buf_printf(labels, "%s%s=\"", labels->len ? "," : "", name);
    for (; *value; value++) {
        if (*value == '\n')
            ab_buf_str(labels, "\\n");
        else if (*value == '"' || *value == '\\')
            ab_buf_printf(labels, "\\%c", *value);
        else
            ab_buf_char(labels, *value);
    }
    ab_buf_char(labels, '"');
}

/* ---- times */

void ab_histogram_add(struct ab_histogram *self, int64_t us)
{
    size_t i = 0;
    while (us > ends_us[i])
        i++;
    add(&self->by_time[i], 1);
    add(&self->us, us);
}

uint64_t ab_histogram_count(struct ab_histogram *self)
{
    uint64_t n = 0;
    for (size_t i = 0; i < AB_HISTOGRAM_BUCKETS; i++)
        n += get(&self->by_time[i]);
    return n;
}

uint64_t ab_histogram_us(struct ab_histogram *self)
{
    return get(&self->us);
}

void ab_histogram_write(struct ab_buf *out, const char *name, const char *labels,
                        struct ab_histogram *self)
{
    char full[128], end[32];
    uint64_t n = 0;
    snprintf(full, sizeof(full), "%s_bucket", name);
    for (size_t i = 0; i < AB_HISTOGRAM_BUCKETS; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf all = {0};
        n += get(&self->by_time[i]);
        if (labels && *labels)
            ab_buf_str(&all, labels);
        snprintf(end, sizeof(end), "%g", (double)ends_us[i] / 1e6);
        ab_metric_label(&all, "le", ends_us[i] == INT64_MAX ? "+Inf" : end);
        ab_metric(out, full, all.data, (double)n);
    }
    snprintf(full, sizeof(full), "%s_sum", name);
    ab_metric(out, full, labels, (double)get(&self->us) / 1e6);
    snprintf(full, sizeof(full), "%s_count", name);
    ab_metric(out, full, labels, (double)n);
}

/* ---- calls */

void ab_call_add(struct ab_call_figures *self, int status, int64_t us)
{
    size_t i = 0;
    while (codes[i] && codes[i] != status)
        i++;
    add(&self->by_code[i], 1);
    ab_histogram_add(&self->time, us);
}

uint64_t ab_call_errors(struct ab_call_figures *self)
{
    uint64_t n = 0;
    for (size_t i = 0; i < AB_CALL_CODES; i++)
        n += codes[i] >= 500 ? get(&self->by_code[i]) : 0;
    return n;
}

void ab_call_codes(struct ab_buf *out, const char *name, const char *labels,
                   struct ab_call_figures *self)
{
    for (size_t i = 0; i < AB_CALL_CODES; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf all = {0};
        uint64_t n = get(&self->by_code[i]);
        char code[16];
        if (!n)
            continue;
        if (labels && *labels)
            ab_buf_str(&all, labels);
        snprintf(code, sizeof(code), "%d", codes[i]);
        ab_metric_label(&all, "code", codes[i] < 0 ? "none" : codes[i] == 0 ? "other" : code);
        ab_metric(out, name, all.data, (double)n);
    }
}

/* ---- calls by name: entries are only ever added, so who reads needs no lock */

struct entry {
    char name[NAME_MAX_BYTES];
    struct ab_call_figures figures;
};

struct ab_calls {
    pthread_mutex_t lock; /* of adding an entry */
    size_t max;
    atomic_size_t n;
    struct entry *entries; /* [max] is "other" */
};

ab_calls_t *ab_calls_new(size_t max)
{
    ab_calls_t *self = calloc(1, sizeof(*self));
    if (!self || !(self->entries = calloc(max + 1, sizeof(*self->entries))))
        abort();
    pthread_mutex_init(&self->lock, NULL);
    self->max = max;
    snprintf(self->entries[max].name, NAME_MAX_BYTES, "other");
    return self;
}

void ab_calls_destroy(ab_calls_t **self)
{
    if (!*self)
        return;
    pthread_mutex_destroy(&(*self)->lock);
    free((*self)->entries);
    free(*self);
    *self = NULL;
}

static struct entry *find(ab_calls_t *self, const char *name)
{
    size_t n = atomic_load_explicit(&self->n, memory_order_acquire);
    for (size_t i = 0; i < n; i++)
        if (strcmp(self->entries[i].name, name) == 0)
            return &self->entries[i];
    return NULL;
}

static struct entry *find_or_add(ab_calls_t *self, const char *name)
{
    struct entry *e = find(self, name);
    if (e || strlen(name) >= NAME_MAX_BYTES)
        return e ? e : &self->entries[self->max];
    pthread_mutex_lock(&self->lock);
    size_t n = atomic_load(&self->n);
    e = find(self, name);
    if (!e && n < self->max) {
        e = &self->entries[n];
        snprintf(e->name, NAME_MAX_BYTES, "%s", name);
        atomic_store_explicit(&self->n, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&self->lock);
    return e ? e : &self->entries[self->max];
}

void ab_calls_add(ab_calls_t *self, const char *name, int status, int64_t us)
{
    ab_call_add(&find_or_add(self, name)->figures, status, us);
}

static void write_entry(struct entry *e, struct ab_buf *out, const char *name, const char *labels,
                        bool codes_too)
{
    AB_AUTO(ab_buf_free) struct ab_buf all = {0};
    if (!ab_histogram_count(&e->figures.time))
        return;
    if (labels && *labels)
        ab_buf_str(&all, labels);
    ab_metric_label(&all, "verb", e->name);
    if (codes_too)
        ab_call_codes(out, name, all.data, &e->figures);
    else
        ab_histogram_write(out, name, all.data, &e->figures.time);
}

void ab_calls_write(ab_calls_t *self, struct ab_buf *out, const char *total, const char *seconds,
                    const char *what, const char *labels)
{
    size_t n = atomic_load_explicit(&self->n, memory_order_acquire);
    char help[96];
    snprintf(help, sizeof(help), "%s, by verb and status", what);
    ab_metric_type(out, total, "counter", help);
    for (size_t i = 0; i <= n; i++)
        write_entry(&self->entries[i < n ? i : self->max], out, total, labels, true);
    snprintf(help, sizeof(help), "%s, how long they took", what);
    ab_metric_type(out, seconds, "histogram", help);
    for (size_t i = 0; i <= n; i++)
        write_entry(&self->entries[i < n ? i : self->max], out, seconds, labels, false);
}
