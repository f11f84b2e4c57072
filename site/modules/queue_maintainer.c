/* queue_maintainer.c - keeps a number of batch jobs of one size in a queue, whatever there is to
 * run */
#include "base/cleanup.h"
#include "base/log.h"
#include "client/api.h"
#include "schema/json.h"
#include "site/module.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct maintainer {
    uint64_t submitted;
};

static int64_t count_waiting(struct module *m, struct ab_error *err)
{
    static const char *const states[] = {"pending_submission", "queued", "running",
                                         "pending_deletion"};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};

    ab_buf_str(&path, "/batch-jobs/");
    ab_api_query_int(&path, "site_id", module_view(m).site->id);
    ab_api_query(&path, "queue", module_view(m).settings->queue_maintainer.submit_queue);
    for (size_t i = 0; i < AB_COUNT(states); i++)
        ab_api_query(&path, "state", states[i]);
    ab_api_query_int(&path, "limit", 0);
    int status = module_call(m, "GET", path.data, NULL, MODULE_CALL_MS, &reply, err);
    if (status < 200 || status >= 300)
        return -1;
    return ab_value_int(ab_value_get(ab_value_parse(arena, reply.data, reply.len, err), "count"),
                        -1);
}

static void text(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, ",\"%s\":", key);
    ab_buf_json_str(out, value, strlen(value));
}

static int submit(struct module *m, struct ab_error *err)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};

    ab_buf_printf(&body,
                  "{\"site_id\":%" PRId64 ",\"num_nodes\":%" PRId64 ",\"wall_time_min\":%" PRId64,
                  module_view(m).site->id, settings->queue_maintainer.num_nodes,
                  settings->queue_maintainer.wall_time_min);
    text(&body, "project", settings->queue_maintainer.submit_project);
    text(&body, "queue", settings->queue_maintainer.submit_queue);
    text(&body, "job_mode", settings->queue_maintainer.job_mode);
    ab_buf_str(&body, ",\"filter_tags\":");
    ab_pairs_json(&settings->filter_tags, &body);
    ab_buf_char(&body, '}');
    int status = module_call(m, "POST", "/batch-jobs/", &body, MODULE_CALL_MS, NULL, err);
    return status >= 200 && status < 300 ? 0 : -1;
}

static int64_t cycle(struct module *m, void *self)
{
    const struct ab_settings *settings = module_view(m).settings;
    struct maintainer *maintainer = self;
    struct ab_error err = {0};
    char json[64];

    int64_t waiting = count_waiting(m, &err);
    bool failed = waiting < 0;
    if (!failed && waiting < settings->queue_maintainer.num_queued_jobs) {
        failed = submit(m, &err) < 0;
        maintainer->submitted += !failed;
    }
    if (failed)
        module_complain(m, "queue.unmaintained", err.text);
    snprintf(json, sizeof(json), "{\"submitted\":%" PRIu64 "}", maintainer->submitted);
    module_health(m, json);
    return settings->queue_maintainer.submit_period_ms;
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "queue_maintainer",
        .size = sizeof(struct maintainer),
        .cycle = cycle,
    };
    return module_main(&def, argc, argv);
}
