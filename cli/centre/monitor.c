/* monitor.c - texts made by the supervisor's loop, given out by the port's thread */
#include "monitor.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "http/health.h"
#include "http/process.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define STUCK_MS 30000 /* the loop turns every second */

struct monitor {
    ab_health_t *health;
    pthread_mutex_t lock; /* of all below */
    struct ab_buf figures, away;
    bool started;
    int64_t shown_ms;
};

static int on_live(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    pthread_mutex_lock(&self->lock);
    int64_t age_ms = ab_now_ms() - self->shown_ms;
    pthread_mutex_unlock(&self->lock);
    if (age_ms < STUCK_MS)
        return 0;
    ab_buf_printf(out, "the supervisor's loop has not turned for %" PRId64 " ms\n", age_ms);
    return -1;
}

static int on_ready(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    pthread_mutex_lock(&self->lock);
    bool ready = self->started && self->away.len == 0;
    if (!self->started)
        ab_buf_str(out, "the centre is being started or stopped\n");
    ab_buf_add(out, self->away.data, self->away.len);
    pthread_mutex_unlock(&self->lock);
    return ready ? 0 : -1;
}

static void on_metrics(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    pthread_mutex_lock(&self->lock);
    ab_buf_add(out, self->figures.data, self->figures.len);
    pthread_mutex_unlock(&self->lock);
}

monitor_t *monitor_new(struct ab_error *err)
{
    AB_AUTO(monitor_destroy) monitor_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    pthread_mutex_init(&self->lock, NULL);
    self->shown_ms = ab_now_ms();
    struct ab_health_options options = {.listen = "127.0.0.1:0",
                                        .live = on_live,
                                        .ready = on_ready,
                                        .metrics = on_metrics,
                                        .arg = self};
    if (!(self->health = ab_health_new(&options, err)))
        return NULL;
    return AB_TAKE(self);
}

void monitor_destroy(monitor_t **self)
{
    if (!*self)
        return;
    ab_health_destroy(&(*self)->health);
    pthread_mutex_destroy(&(*self)->lock);
    ab_buf_free(&(*self)->figures);
    ab_buf_free(&(*self)->away);
    free(*self);
    *self = NULL;
}

const char *monitor_address(const monitor_t *self)
{
    return self ? ab_health_address(self->health) : NULL;
}

static void name_away(struct ab_buf *out, const ab_supervise_t *wards)
{
    struct ab_ward_status st;
    for (size_t i = 0; ab_supervise_status(wards, i, &st); i++)
        if (!st.pid)
            ab_buf_printf(out, "%s does not run; its last exit was %d, restarts: %d\n", st.name,
                          st.last_exit, st.restarts);
}

void monitor_show(monitor_t *self, const ab_supervise_t *wards, bool started)
{
    struct ab_buf figures = {0}, away = {0};
    if (!self)
        return;
    ab_process_self(&figures, "supervisor", NULL, started);
    ab_process_wards(&figures, "abies_centre_process", NULL, "process", wards);
    name_away(&away, wards);
    pthread_mutex_lock(&self->lock);
    struct ab_buf old[] = {self->figures, self->away};
    self->figures = figures;
    self->away = away;
    self->started = started;
    self->shown_ms = ab_now_ms();
    pthread_mutex_unlock(&self->lock);
    ab_buf_free(&old[0]);
    ab_buf_free(&old[1]);
}
