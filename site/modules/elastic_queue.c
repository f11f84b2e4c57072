/* elastic_queue.c - asks for allocations when there is more to run than nodes (the paper's
 * autoscaling)
 *
 * At most one batch job a cycle: runnable footprint against nodes that are queued or running,
 * within the bounds of settings.yml and, with use_backfill, within the largest idle window. Batch
 * jobs that have waited too long are taken back.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/api.h"
#include "schema/json.h"
#include "site/module.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct footprint {
    double runnable, running; /* nodes */
    int64_t smallest;         /* num_nodes of the smallest runnable job; 0: there is none */
};

struct allocations {
    int64_t count,
        nodes; /* pending, queued, running, and those being deleted, whose nodes are not free yet */
};

struct gap {
    int64_t nodes, minutes;
};

struct elastic {
    uint64_t submitted, withdrawn;
};

static int get(struct module *m, const char *path, ab_arena_t *arena, const struct ab_value **out,
               struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    int status = module_call(m, "GET", path, NULL, MODULE_CALL_MS, &reply, err);
    if (status < 200 || status >= 300)
        return -1;
    *out = ab_value_parse(arena, reply.data, reply.len, err);
    return *out ? 0 : -1;
}

static void add_tags(struct ab_buf *path, const char *parameter, const struct ab_pairs *tags,
                     ab_arena_t *arena)
{
    for (size_t i = 0; i < tags->n; i++)
        ab_api_query(path, parameter, ab_printf(arena, "%s:%s", tags->v[i].key, tags->v[i].value));
}

/* ---------------------------------------------------------------- what there is */

static void add_job(struct footprint *f, const struct ab_value *job)
{
    int64_t nodes = ab_value_int(ab_value_get(job, "num_nodes"), 1);
    int64_t packing = ab_value_int(ab_value_get(job, "node_packing_count"), 1);
    double share = (double)nodes / (double)(packing > 0 ? packing : 1);
    if (strcmp(ab_value_text(ab_value_get(job, "state"), ""), "RUNNING") == 0) {
        f->running += share;
        return;
    }
    f->runnable += share;
    if (!f->smallest || nodes < f->smallest)
        f->smallest = nodes;
}

/* With filter tags the jobs have to be looked at; enough of them to fill the largest allocation
 * will do. */
static int footprint_by_tags(struct module *m, ab_arena_t *arena, struct footprint *f,
                             struct ab_error *err)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *page = NULL;
    ab_buf_printf(&path,
                  "/jobs/?site_id=%" PRId64
                  "&state=PREPROCESSED&state=RESTART_READY&state=RUNNING&limit=20000",
                  module_view(m).site->id);
    add_tags(&path, "tags", &settings->filter_tags, arena);
    if (get(m, path.data, arena, &page, err) < 0)
        return -1;
    const struct ab_value *jobs = ab_value_get(page, "results");
    for (size_t i = 0; jobs && jobs->type == AB_V_LIST && i < jobs->n; i++)
        add_job(f, &jobs->items[i]);
    return 0;
}

static int smallest_runnable(struct module *m, ab_arena_t *arena, struct footprint *f,
                             struct ab_error *err)
{
    char path[160];
    const struct ab_value *page = NULL;
    snprintf(path, sizeof(path),
             "/jobs/?site_id=%" PRId64 "&state=PREPROCESSED&state=RESTART_READY&limit=1000",
             module_view(m).site->id);
    if (get(m, path, arena, &page, err) < 0)
        return -1;
    const struct ab_value *jobs = ab_value_get(page, "results");
    for (size_t i = 0; jobs && jobs->type == AB_V_LIST && i < jobs->n; i++) {
        int64_t nodes = ab_value_int(ab_value_get(&jobs->items[i], "num_nodes"), 1);
        if (!f->smallest || nodes < f->smallest)
            f->smallest = nodes;
    }
    return 0;
}

static int footprint(struct module *m, ab_arena_t *arena, struct footprint *f, struct ab_error *err)
{
    char path[64];
    const struct ab_value *backlog = NULL;
    *f = (struct footprint){0};
    if (module_view(m).settings->filter_tags.n > 0)
        return footprint_by_tags(m, arena, f, err);
    snprintf(path, sizeof(path), "/sites/%" PRId64 "/backlog", module_view(m).site->id);
    if (get(m, path, arena, &backlog, err) < 0)
        return -1;
    f->runnable = ab_value_real(ab_value_get(ab_value_get(backlog, "runnable"), "nodes"), 0);
    f->running = ab_value_real(ab_value_get(ab_value_get(backlog, "running"), "nodes"), 0);
    if (f->runnable <= 0)
        return 0;
    f->smallest = 1;
    if (!module_view(m).settings->elastic_queue.use_backfill)
        return 0; /* only a window can be too small */
    f->smallest = 0;
    return smallest_runnable(m, arena, f, err);
}

static bool holds_nodes(const char *state)
{
    return strcmp(state, "finished") != 0 && strcmp(state, "submit_failed") != 0;
}

/* ---------------------------------------------------------------- deciding */

/* The largest window that some job fits into; false: none. */
static bool choose_window(const struct ab_settings *settings, const struct ab_value *site,
                          const struct footprint *f, struct gap *out)
{
    if (!settings->elastic_queue.use_backfill) {
        *out = (struct gap){settings->elastic_queue.max_num_nodes,
                            settings->elastic_queue.max_wall_time_min};
        return true;
    }
    const struct ab_value *list =
        ab_value_get(ab_value_get(site, "backfill_windows"), settings->elastic_queue.submit_queue);
    *out = (struct gap){0};
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        struct gap w = {ab_value_int(ab_value_get(&list->items[i], "num_nodes"), 0),
                        ab_value_int(ab_value_get(&list->items[i], "wall_time_min"), 0)};
        if (w.minutes >= settings->elastic_queue.min_wall_time_min && w.nodes >= f->smallest
            && w.nodes > 0 && w.nodes * w.minutes > out->nodes * out->minutes)
            *out = w;
    }
    return out->nodes > 0;
}

/* Nodes and minutes to ask for; false: nothing. */
static bool decide(const struct ab_settings *settings, const struct ab_value *site,
                   const struct footprint *f, const struct allocations *have, struct gap *ask)
{
    struct gap w;
    if (have->count >= settings->elastic_queue.max_queued_jobs || f->smallest == 0
        || !choose_window(settings, site, f, &w))
        return false;
    double idle = (double)have->nodes - f->running;
    if (f->runnable <= idle + 1e-9)
        return false;
    int64_t nodes = (int64_t)ceil(f->runnable - idle - 1e-9);
    if (nodes < settings->elastic_queue.min_num_nodes)
        nodes = settings->elastic_queue.min_num_nodes;
    if (nodes < f->smallest)
        nodes = f->smallest;
    if (nodes > w.nodes)
        nodes = w.nodes;
    if (nodes > settings->elastic_queue.max_num_nodes)
        nodes = settings->elastic_queue.max_num_nodes;
    int64_t minutes = w.minutes - settings->elastic_queue.wall_time_pad_min;
    if (minutes > settings->elastic_queue.max_wall_time_min)
        minutes = settings->elastic_queue.max_wall_time_min;
    *ask = (struct gap){nodes, minutes};
    return nodes > 0 && minutes > 0;
}

/* ---------------------------------------------------------------- doing */

static void submit(struct module *m, struct elastic *e, const struct gap *ask)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, reply = {0}, tags = {0};
    struct ab_error err = {0};
    ab_pairs_json(&settings->filter_tags, &tags);
    ab_buf_printf(&body,
                  "{\"site_id\":%" PRId64 ",\"num_nodes\":%" PRId64 ",\"wall_time_min\":%" PRId64
                  ",\"job_mode\":\"%s\",\"filter_tags\":%s,\"project\":",
                  module_view(m).site->id, ask->nodes, ask->minutes,
                  settings->elastic_queue.job_mode, tags.data);
    ab_buf_json_str(&body, settings->elastic_queue.submit_project,
                    strlen(settings->elastic_queue.submit_project));
    ab_buf_str(&body, ",\"queue\":");
    ab_buf_json_str(&body, settings->elastic_queue.submit_queue,
                    strlen(settings->elastic_queue.submit_queue));
    ab_buf_char(&body, '}');
    int status = module_call(m, "POST", "/batch-jobs/", &body, MODULE_CALL_MS, &reply, &err);
    if (status != 201) {
        ab_log(AB_WARN, "elastic.refused", AB_KV("code", status), AB_KV("error", err.text));
        return;
    }
    e->submitted++;
    ab_log(AB_INFO, "elastic.submitted", AB_KV("nodes", ask->nodes),
           AB_KV("minutes", ask->minutes));
}

/* A queued batch job whose time in the queue is over is taken back. */
static void withdraw(struct module *m, struct elastic *e, const struct ab_value *batch,
                     const struct ab_value *site, ab_arena_t *arena)
{
    int64_t limit = module_view(m).settings->elastic_queue.max_queue_wait_time_min;
    int64_t id = ab_value_int(ab_value_get(batch, "id"), 0),
            scheduler_id = ab_value_int(ab_value_get(batch, "scheduler_id"), 0);
    const struct ab_value *seen =
        ab_value_get(ab_value_get(site, "queued_jobs"), ab_printf(arena, "%" PRId64, scheduler_id));
    if (strcmp(ab_value_text(ab_value_get(batch, "state"), ""), "queued") != 0 || !seen
        || ab_value_int(ab_value_get(seen, "queued_time_min"), 0) <= limit)
        return;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, reply = {0};
    struct ab_error err = {0};
    ab_buf_str(&body, "{\"state\":\"pending_deletion\"}");
    int status = module_call(m, "PUT", ab_printf(arena, "/batch-jobs/%" PRId64, id), &body,
                             MODULE_CALL_MS, &reply, &err);
    if (status == 200) {
        e->withdrawn++;
        ab_log(AB_INFO, "elastic.withdrawn", AB_KV("batch_job", id));
    }
}

static int64_t cycle(struct module *m, void *self)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct elastic *e = self;
    const struct ab_settings *settings = module_view(m).settings;
    const struct ab_value *site = NULL, *page = NULL;
    struct footprint f;
    struct allocations have = {0};
    struct gap ask;
    struct ab_error err = {0};
    int64_t period = settings->elastic_queue.service_period_ms;
    ab_buf_printf(&path,
                  "/batch-jobs/?site_id=%" PRId64
                  "&state=pending_submission&state=queued&state=running&state=pending_deletion",
                  module_view(m).site->id);
    ab_api_query(&path, "queue", settings->elastic_queue.submit_queue);
    add_tags(&path, "filter_tags", &settings->filter_tags, arena);
    if (get(m, path.data, arena, &page, &err) < 0
        || get(m, ab_printf(arena, "/sites/%" PRId64, module_view(m).site->id), arena, &site, &err)
               < 0
        || footprint(m, arena, &f, &err) < 0) {
        ab_log(AB_WARN, "cycle.skipped", AB_KV("error", err.text));
        return period;
    }
    const struct ab_value *list = ab_value_get(page, "results");
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        if (!holds_nodes(ab_value_text(ab_value_get(&list->items[i], "state"), "")))
            continue;
        have.count++;
        have.nodes += ab_value_int(ab_value_get(&list->items[i], "num_nodes"), 0);
    }
    if (decide(settings, site, &f, &have, &ask))
        submit(m, e, &ask);
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++)
        withdraw(m, e, &list->items[i], site, arena);
    char json[128];
    snprintf(json, sizeof(json),
             "{\"runnable_nodes\":%.3f,\"allocated_nodes\":%" PRId64 ",\"submitted\":%" PRIu64 "}",
             f.runnable, have.nodes, e->submitted);
    module_health(m, json);
    return period;
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "elastic_queue", .size = sizeof(struct elastic), .cycle = cycle};
    return module_main(&def, argc, argv);
}
