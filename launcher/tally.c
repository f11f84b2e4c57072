/* tally.c - see tally.h */
#include "tally.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "client/api.h"
#include "http/metric.h"
#include "http/process.h"

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

/* ---- of each node */

struct node_figures {
    struct ab_buf labels;
    struct place_use use;
    struct order_figures worker;
    bool here;
};

static const struct {
    const char *name, *type, *help;
    int figure;
} of_workers[] = {
    {"abies_worker_running", "gauge", "jobs that run on its node", FIGURE_RUNNING},
    {"abies_worker_waiting", "gauge", "jobs that cannot be started now: files, processes, disk",
     FIGURE_WAITING},
    {"abies_worker_room", "gauge", "jobs that its open files allow", FIGURE_ROOM},
    {"abies_worker_started_total", "counter", "programs that it has started", FIGURE_STARTED},
    {"abies_worker_not_started_total", "counter", "starts that failed", FIGURE_NOT_STARTED},
    {"abies_worker_messages_total", "counter", "messages to the head", FIGURE_SENT},
    {"abies_worker_unheard_total", "counter", "those that could not be sent", FIGURE_UNHEARD},
};

static void write_workers(struct ab_buf *out, const struct node_figures *nodes, size_t n)
{
    for (size_t k = 0; k < AB_COUNT(of_workers); k++) {
        ab_metric_type(out, of_workers[k].name, of_workers[k].type, of_workers[k].help);
        for (size_t i = 0; i < n; i++)
            if (nodes[i].here)
                ab_metric(out, of_workers[k].name, nodes[i].labels.data,
                          (double)nodes[i].worker.v[of_workers[k].figure]);
    }
}

static void write_cores(struct ab_buf *out, const struct tally_now *now,
                        const struct node_figures *nodes, size_t n)
{
    static const char *const names[] = {"abies_node_cores", "abies_node_cores_used",
                                        "abies_node_gpus", "abies_node_gpus_used"};
    static const char *const texts[] = {"cores of a node", "those that jobs have", "its GPUs",
                                        "those that jobs have"};
    for (size_t k = 0; k < AB_COUNT(names); k++) {
        ab_metric_type(out, names[k], "gauge", texts[k]);
        for (size_t i = 0; i < n; i++) {
            size_t all[] = {now->nodes[i].n_cpus, nodes[i].use.cpus, now->nodes[i].n_gpus,
                            nodes[i].use.gpus};
            ab_metric(out, names[k], nodes[i].labels.data, (double)all[k]);
        }
    }
}

static struct ab_usage usage_of(const struct order_figures *f)
{
    return (struct ab_usage){
        .pid = f->v[FIGURE_PID],
        .started_utc_us = f->v[FIGURE_BEGAN_US],
        .resident_bytes = f->v[FIGURE_RESIDENT],
        .cpu_us = f->v[FIGURE_CPU_US],
        .files = f->v[FIGURE_FILES],
        .files_max = f->v[FIGURE_FILES_MAX],
    };
}

/* The head first: a family's samples stand together. */
static void write_processes(struct ab_buf *out, const char *own, const struct node_figures *nodes,
                            size_t n)
{
    struct ab_process all[1 + TALLY_NODES] = {{.labels = own}};
    size_t k = 1;
    ab_usage(&all[0].usage);
    for (size_t i = 0; i < n; i++)
        if (nodes[i].here)
            all[k++] = (struct ab_process){nodes[i].labels.data, usage_of(&nodes[i].worker)};
    ab_process_write(out, all, k);
}

static void write_nodes(const struct tally *self, struct ab_buf *out, const struct tally_now *now)
{
    struct node_figures nodes[TALLY_NODES] = {0};
    size_t n = now->n_nodes < TALLY_NODES ? now->n_nodes : TALLY_NODES;
    for (size_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof(name), "worker-%zu", i);
        ab_buf_str(&nodes[i].labels, self->labels);
        ab_metric_label(&nodes[i].labels, "worker", name);
        ab_metric_label(&nodes[i].labels, "host", now->nodes[i].host);
        nodes[i].use = place_use(now->place, i);
        nodes[i].here = now->crew && crew_figures(now->crew, i, &nodes[i].worker);
    }
    write_processes(out, self->labels, nodes, n);
    write_cores(out, now, nodes, n);
    if (now->crew) {
        write_workers(out, nodes, n);
        ab_process_wards(out, "abies_worker", self->labels, "worker", crew_wards(now->crew));
    }
    for (size_t i = 0; i < n; i++)
        ab_buf_free(&nodes[i].labels);
}

static void write_up(const struct tally *self, struct ab_buf *out)
{
    AB_AUTO(ab_buf_free) struct ab_buf labels = {0};
    ab_metric_label(&labels, "service", "launcher");
    ab_buf_printf(&labels, ",%s", self->labels);
    ab_metric_label(&labels, "version", AB_VERSION);
    ab_metric_type(out, "abies_up", "gauge", "1: serving");
    ab_metric(out, "abies_up", labels.data, 1);
}

int64_t tally_step(struct tally *self, const struct tally_now *now)
{
    int64_t now_ms = ab_now_ms(), due = ab_figures_due(self->figures, now_ms);
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};

    if (due > 0)
        return due;
    write_up(self, &out);
    one(self, &out, "abies_launcher_nodes", "gauge", "nodes of the allocation",
        (double)now->n_nodes);
    one(self, &out, "abies_launcher_free_nodes", "gauge",
        "what of them is free, and its worker there", place_free(now->place));
    one(self, &out, "abies_launcher_running", "gauge", "jobs that run", (double)now->running);
    one(self, &out, "abies_launcher_stash", "gauge", "leased jobs that wait for room",
        (double)now->stash);
    one(self, &out, "abies_launcher_runs_started_total", "counter", "runs that were started",
        (double)self->started);
    one(self, &out, "abies_launcher_refused_total", "counter", "jobs that cannot run here",
        (double)self->refused);
    one(self, &out, "abies_launcher_delayed_total", "counter",
        "starts that were put off: a full disk, no files, or the centre", (double)self->delayed);
    write_ends(self, &out);
    ab_metric_type(&out, "abies_launcher_spawn_seconds", "histogram",
                   "from the order to a program's own first step");
    ab_histogram_write(&out, "abies_launcher_spawn_seconds", self->labels,
                       now->crew ? crew_spawns(now->crew) : &runs_figures(now->runs)->spawn);
    write_nodes(self, &out, now);
    ab_api_figures(&out, self->labels);
    ab_figures_write(self->figures, &out, now_ms);
    return AB_FIGURES_MS;
}
