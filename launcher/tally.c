/* tally.c - see tally.h */
#include "tally.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/api.h"
#include "http/metric.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const ends[TALLY_ENDS] = {
    [TALLY_DONE] = "done",           [TALLY_ERROR] = "error",         [TALLY_TIMEOUT] = "timeout",
    [TALLY_NODE_LOSS] = "node_loss", [TALLY_CANCELLED] = "cancelled", [TALLY_LOST] = "lost"};

void tally_open(struct tally *self, const struct ab_site *site, const char *instance,
                int64_t batch_job_id)
{
    self->figures = ab_figures_new(site, instance);
    snprintf(self->labels, sizeof(self->labels), "launcher=\"%s\",batch_job=\"%" PRId64 "\"",
             instance, batch_job_id);
}

void tally_close(struct tally *self)
{
    ab_figures_destroy(&self->figures);
}

static void one(const struct tally *self, struct ab_buf *out, const char *name, const char *type,
                const char *help, double value)
{
    ab_metric_type(out, name, type, help);
    ab_metric(out, name, self->labels, value);
}

static void write_ends(const struct tally *self, struct ab_buf *out)
{
    ab_metric_type(out, "abies_launcher_runs_ended_total", "counter", "runs that are over, by end");
    for (int i = 0; i < TALLY_ENDS; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf labels = {0};
        ab_buf_str(&labels, self->labels);
        ab_metric_label(&labels, "end", ends[i]);
        ab_metric(out, "abies_launcher_runs_ended_total", labels.data, (double)self->ended[i]);
    }
}

int64_t tally_step(struct tally *self, const struct tally_now *now)
{
    int64_t now_ms = ab_now_ms(), due = ab_figures_due(self->figures, now_ms);
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};

    if (due > 0)
        return due;
    one(self, &out, "abies_launcher_nodes", "gauge", "nodes of the allocation", (double)now->nodes);
    one(self, &out, "abies_launcher_free_nodes", "gauge", "what of them is free", now->free_nodes);
    one(self, &out, "abies_launcher_running", "gauge", "jobs that run", (double)now->running);
    one(self, &out, "abies_launcher_stash", "gauge", "leased jobs that wait for room",
        (double)now->stash);
    one(self, &out, "abies_launcher_runs_started_total", "counter", "runs that were started",
        (double)self->started);
    one(self, &out, "abies_launcher_refused_total", "counter", "jobs that cannot run here",
        (double)self->refused);
    one(self, &out, "abies_launcher_delayed_total", "counter",
        "starts that were put off: a full disk, or the centre", (double)self->delayed);
    write_ends(self, &out);
    ab_api_figures(&out, self->labels);
    ab_figures_write(self->figures, &out, now_ms);
    return AB_FIGURES_MS;
}
