/* monitor.c - see monitor.h */
#include "monitor.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "client/api.h"
#include "http/health.h"
#include "http/process.h"
#include "sitedir/figures.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define STUCK_MS 30000 /* the loop turns every 10 s at least */

struct monitor {
    const struct ab_site *site;
    ab_figures_t *figures;
    ab_health_t *health;
    char labels[64];
    atomic_bool reached, known;
    _Atomic int64_t turned_ms;
};

/* ---- the port: on its own thread */

static int on_live(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    int64_t age_ms = ab_now_ms() - self->turned_ms;

    if (age_ms < STUCK_MS)
        return 0;
    ab_buf_printf(out, "the broker's loop has not turned for %" PRId64 " ms\n", age_ms);
    return -1;
}

static int on_ready(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    bool reached = self->reached, known = self->known;

    ab_buf_printf(out, "centre: %s\nsettings: %s\n", reached ? "reached" : "not reached",
                  known ? "known to the centre" : "not known to the centre");
    return reached && known ? 0 : -1;
}

static void on_metrics(void *arg, struct ab_buf *out)
{
    monitor_t *self = arg;
    ab_figures_gather(self->site, out);
}

monitor_t *monitor_new(const struct ab_site *site, const char *listen, struct ab_error *err)
{
    AB_AUTO(monitor_destroy) monitor_t *self = calloc(1, sizeof(*self));

    if (!self)
        abort();
    self->site = site;
    self->turned_ms = ab_now_ms();
    snprintf(self->labels, sizeof(self->labels), "site=\"%" PRId64 "\"", site->id);
    self->figures = ab_figures_new(site, "site");
    struct ab_health_options options = {
        .listen = listen, .live = on_live, .ready = on_ready, .metrics = on_metrics, .arg = self};
    if (listen && *listen && !(self->health = ab_health_new(&options, err))) {
        (void)ab_fail_within(err, "settings.yml, metrics.listen");
        return NULL;
    }
    return AB_TAKE(self);
}

void monitor_destroy(monitor_t **self)
{
    if (!*self)
        return;
    ab_health_destroy(&(*self)->health);
    ab_figures_destroy(&(*self)->figures);
    free(*self);
    *self = NULL;
}

const char *monitor_address(const monitor_t *self)
{
    return self->health ? ab_health_address(self->health) : NULL;
}

/* ---- the file */

static void one(const monitor_t *self, struct ab_buf *out, const char *name, const char *type,
                const char *help, double value)
{
    ab_metric_type(out, name, type, help);
    ab_metric(out, name, self->labels, value);
}

static void write_outbox(const monitor_t *self, struct ab_buf *out, outbox_t *outbox, post_t *post)
{
    struct outbox_figures waits;
    struct post_state sent;

    outbox_figures(outbox, &waits);
    post_state(post, &sent);
    double age = waits.oldest_utc_us ? (double)(ab_utc_us() - waits.oldest_utc_us) / 1e6 : 0;
    one(self, out, "abies_site_outbox_updates", "gauge",
        "updates that the centre has not confirmed", (double)waits.updates);
    one(self, out, "abies_site_outbox_bytes", "gauge", "their size", (double)waits.bytes);
    one(self, out, "abies_site_outbox_oldest_seconds", "gauge", "age of the oldest of them",
        age > 0 ? age : 0);
    one(self, out, "abies_site_updates_sent_total", "counter", "updates that the centre has taken",
        (double)sent.sent);
    one(self, out, "abies_site_updates_dropped_total", "counter",
        "updates that the centre has refused for good", (double)sent.dropped);
}

int64_t monitor_step(monitor_t *self, const ab_supervise_t *modules, outbox_t *outbox, post_t *post,
                     uplink_t *uplink, bool settings_known)
{
    int64_t now = ab_now_ms(), due = ab_figures_due(self->figures, now);
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct uplink_state up;

    self->turned_ms = now;
    uplink_state(uplink, &up);
    self->reached = up.reached;
    self->known = settings_known;
    if (due > 0)
        return due;
    ab_process_self(&out, "site", self->labels, true);
    one(self, &out, "abies_site_uplink_reached", "gauge",
        "1: the last call to the centre got an answer", up.reached);
    one(self, &out, "abies_site_uplink_waiting", "gauge", "calls of modules that wait for a lane",
        (double)up.waiting);
    write_outbox(self, &out, outbox, post);
    ab_process_wards(&out, "abies_site_module", self->labels, "module", modules);
    ab_api_figures(&out, self->labels);
    ab_figures_write(self->figures, &out, now);
    return AB_FIGURES_MS;
}
