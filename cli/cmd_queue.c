/* cmd_queue.c - queue submit, ls, rm: batch jobs, which bring nodes to run jobs on */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli.h"
#include "listing.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct column columns[] = {
    {"ID", "id", true, false},
    {"SITE", "site_id", true, false},
    {"SCHEDULER ID", "scheduler_id", true, false},
    {"STATE", "state", false, false},
    {"TAGS", "filter_tags", false, false},
    {"PROJECT", "project", false, false},
    {"QUEUE", "queue", false, false},
    {"NODES", "num_nodes", true, false},
    {"MINUTES", "wall_time_min", true, false},
    {"MODE", "job_mode", false, false},
    {0},
};

static const struct column more_columns[] = {
    {"ID", "id", true, false},
    {"SITE", "site_id", true, false},
    {"SCHEDULER ID", "scheduler_id", true, false},
    {"STATE", "state", false, false},
    {"TAGS", "filter_tags", false, false},
    {"PROJECT", "project", false, false},
    {"QUEUE", "queue", false, false},
    {"NODES", "num_nodes", true, false},
    {"MINUTES", "wall_time_min", true, false},
    {"MODE", "job_mode", false, false},
    {"STARTED", "start_time", false, true},
    {"ENDED", "end_time", false, true},
    {"STATUS", "status_info", false, false},
    {0},
};

/* ---- submit */

struct submission {
    int64_t nodes, minutes;
    const char *queue, *project, *mode, *site;
    struct ab_opt_list tags, parts, extra;
    bool json;
};

/* What a site allows, as far as it has said so. */
static int check_limits(const struct submission *o, const struct ab_value *site,
                        struct ab_error *err)
{
    const struct ab_value *queues = ab_value_get(site, "allowed_queues"),
                          *projects = ab_value_get(site, "allowed_projects");
    const struct ab_value *queue = ab_value_get(queues, o->queue);
    if (!queues || queues->type != AB_V_MAP || queues->n == 0)
        return 0; /* its agent has not been up yet; it checks again itself */
    if (!queue) {
        const char *near = ab_str_nearest(o->queue, queues->keys, queues->n);
        return ab_fail(err, AB_EINVAL, "the site has no queue `%.60s`; it has `%.60s`%s", o->queue,
                       near ? near : queues->keys[0], queues->n > 1 ? " and others" : "");
    }
    int64_t nodes = ab_value_int(ab_value_get(queue, "max_nodes"), INT64_MAX);
    int64_t minutes = ab_value_int(ab_value_get(queue, "max_walltime"), INT64_MAX);
    if (o->nodes < 1 || o->nodes > nodes)
        return ab_fail(err, AB_EINVAL, "queue %s gives from 1 to %" PRId64 " nodes, not %" PRId64,
                       o->queue, nodes, o->nodes);
    if (o->minutes < 1 || o->minutes > minutes)
        return ab_fail(err, AB_EINVAL, "queue %s gives from 1 to %" PRId64 " minutes, not %" PRId64,
                       o->queue, minutes, o->minutes);
    for (size_t i = 0; projects && projects->type == AB_V_LIST && i < projects->n; i++)
        if (strcmp(ab_value_text(&projects->items[i], ""), o->project) == 0)
            return 0;
    if (projects && projects->type == AB_V_LIST && projects->n > 0)
        return ab_fail(err, AB_EINVAL, "the site does not charge project `%.60s`; it has `%.60s`%s",
                       o->project, ab_value_text(&projects->items[0], ""),
                       projects->n > 1 ? " and others" : "");
    return 0;
}

static int check_extra(const struct submission *o, const struct ab_value *site,
                       struct ab_error *err)
{
    const struct ab_value *known = ab_value_get(site, "optional_batch_job_params");
    if (pairs_check(&o->extra, "extra-param", err) < 0)
        return -1;
    for (size_t i = 0; i < o->extra.n; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(o->extra.v[i], "="), o->extra.v[i]);
        if (!ab_value_get(known, name))
            return ab_fail(err, AB_EINVAL, "the site's job template takes no parameter `%s`", name);
    }
    return 0;
}

/* MODE:N[:K=V]* */
static int part_json(struct remote *r, const char *text, int64_t *nodes, struct ab_buf *out,
                     struct ab_error *err)
{
    char *rest = ab_strdup(r->arena, text), *mode = strsep(&rest, ":"),
         *count = rest ? strsep(&rest, ":") : NULL, *pair;
    const char *name;
    struct ab_opt_list tags = {ab_alloc(r->arena, strlen(text), sizeof(char *)), 0};
    int64_t n;
    if (!count || ab_parse_i64(count, strlen(count), 1, INT32_MAX, &n) < 0)
        return ab_fail(err, AB_EINVAL, "--part takes MODE:NODES[:KEY=VALUE]..., not `%.100s`",
                       text);
    if (parse_name(&ab_enum_batch_mode, "part", mode, &name, err) < 0)
        return -1;
    while (rest && (pair = strsep(&rest, ":")))
        tags.v[tags.n++] = pair;
    if (pairs_check(&tags, "part", err) < 0)
        return -1;
    *nodes += n;
    ab_buf_printf(out, "{\"job_mode\":\"%s\",\"num_nodes\":%" PRId64 ",\"filter_tags\":", name, n);
    pairs_json(&tags, out);
    ab_buf_char(out, '}');
    return 0;
}

static int parts_json(struct remote *r, const struct submission *o, struct ab_buf *out,
                      struct ab_error *err)
{
    int64_t nodes = 0;
    if (o->parts.n == 0) {
        ab_buf_str(out, "null");
        return 0;
    }
    ab_buf_char(out, '[');
    for (size_t i = 0; i < o->parts.n; i++) {
        if (i)
            ab_buf_char(out, ',');
        if (part_json(r, o->parts.v[i], &nodes, out, err) < 0)
            return -1;
    }
    ab_buf_char(out, ']');
    if (nodes != o->nodes)
        return ab_fail(err, AB_EINVAL,
                       "the parts have %" PRId64 " nodes together, but --num-nodes is %" PRId64,
                       nodes, o->nodes);
    return 0;
}

static int submit(struct remote *r, const struct submission *o, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    const struct ab_value *site, *made;
    const char *mode;
    int64_t id;
    if (parse_name(&ab_enum_batch_mode, "job-mode", o->mode, &mode, err) < 0
        || pairs_check(&o->tags, "tag", err) < 0 || remote_one_site(r, o->site, &id, err) < 0
        || remote_get(r, ab_printf(r->arena, "/sites/%" PRId64, id), &site, err) < 0
        || check_limits(o, site, err) < 0 || check_extra(o, site, err) < 0)
        return -1;
    ab_buf_printf(&body,
                  "{\"site_id\":%" PRId64 ",\"num_nodes\":%" PRId64 ",\"wall_time_min\":%" PRId64
                  ",\"job_mode\":\"%s\",\"queue\":",
                  id, o->nodes, o->minutes, mode);
    ab_buf_json_str(&body, o->queue, strlen(o->queue));
    ab_buf_str(&body, ",\"project\":");
    ab_buf_json_str(&body, o->project, strlen(o->project));
    ab_buf_str(&body, ",\"filter_tags\":");
    pairs_json(&o->tags, &body);
    ab_buf_str(&body, ",\"optional_params\":");
    pairs_json(&o->extra, &body);
    ab_buf_str(&body, ",\"partitions\":");
    if (parts_json(r, o, &body, err) < 0)
        return -1;
    ab_buf_char(&body, '}');
    if (remote_call(r, "POST", "/batch-jobs/", &body, &made, err) < 0)
        return -1;
    if (o->json)
        print_value(made);
    else
        printf("batch job %" PRId64 ": %" PRId64 " %s for %" PRId64 " min in queue %s, mode %s\n",
               ab_value_int(ab_value_get(made, "id"), 0), o->nodes,
               o->nodes == 1 ? "node" : "nodes", o->minutes, o->queue, mode);
    return 0;
}

int cmd_queue_submit(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    struct submission o = {0};
    const struct ab_opt options[] = {
        AB_OPT_INT('n', "num-nodes", &o.nodes, "N", "nodes"),
        AB_OPT_INT('t', "wall-time-min", &o.minutes, "MIN", "minutes"),
        AB_OPT_TEXT('q', "queue", &o.queue, "QUEUE", "queue of the batch system"),
        AB_OPT_TEXT('A', "project", &o.project, "PROJECT", "project to charge"),
        AB_OPT_TEXT('j', "job-mode", &o.mode, "MODE",
                    "mpi: one job or more over the nodes; serial: many small ones on each node"),
        {0, "tag", "tag", AB_OPT_KIND_LIST, &o.tags, "KEY=VALUE",
         "run only jobs with this tag (repeat)"},
        AB_OPT_LIST('p', "part", &o.parts, "MODE:N[:KEY=VALUE]",
                    "a part of the nodes with a mode and tags of its own (repeat)"),
        AB_OPT_LIST('x', "extra-param", &o.extra, "KEY=VALUE",
                    "a parameter of the site's job template (repeat)"),
        AB_OPT_TEXT(0, "site", &o.site, "SITE", "one site, by id, name or part of its path [this]"),
        AB_OPT_FLAG(0, "json", &o.json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies queue submit", "-n N -t MIN -q QUEUE -A PROJECT -j MODE [OPTIONS]",
                          "Ask for nodes: submit a batch job, in which a launcher runs jobs.\n\n  "
                          "abies queue submit -n 1 -t 30 -q local -A local -j serial",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (o.nodes < 1 || o.minutes < 1 || !o.queue || !o.project || !o.mode)
        return ab_fail(err, AB_EINVAL,
                       "needed: -n NODES -t MINUTES -q QUEUE -A PROJECT -j mpi|serial; see --help");
    return remote_open(&r, err) < 0 ? -1 : submit(&r, &o, err);
}

/* ---- ls */

int cmd_queue_ls(int argc, char **argv, struct ab_error *err)
{
    static const char *const active[] = {"pending_submission", "queued", "running",
                                         "pending_deletion"};
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const char *site = NULL;
    int64_t limit = 0, scheduler_id = 0, total;
    bool history = false, json = false, more = false;
    const struct ab_value *list;
    struct sites sites;
    const struct ab_opt options[] = {
        AB_OPT_INT('n', "num", &limit, "N", "at most the last N [all]"),
        AB_OPT_FLAG('h', "history", &history, "also those that have ended"),
        AB_OPT_FLAG('v', "verbose", &more, "more columns"),
        AB_OPT_TEXT(0, "site", &site, "SITE",
                    "all, active, this, or ids and parts of paths by comma [this, else active]"),
        AB_OPT_INT(0, "scheduler-id", &scheduler_id, "N",
                   "the one with this number in the batch system"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies queue ls", "[OPTIONS]",
                          "List batch jobs: those that wait or run, with --history all.", options,
                          &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (remote_open(&r, err) < 0 || remote_sites(&r, site, &sites, err) < 0)
        return -1;
    ab_buf_str(&path, "/batch-jobs/");
    if (!sites_query(&sites, &path))
        return ab_fail(
            err, AB_ENOENT,
            "none of your sites was active in the last two minutes: use --site all, or see "
            "`abies site ls`");
    if (scheduler_id)
        ab_api_query_int(&path, "scheduler_id", scheduler_id);
    for (size_t i = 0; !history && !scheduler_id && i < AB_COUNT(active); i++)
        ab_api_query(&path, "state", active[i]);
    if (limit > 0) {
        if (remote_count(&r, &path, &total, err) < 0)
            return -1;
        ab_api_query_int(&path, "limit", limit);
        ab_api_query_int(&path, "offset", total > limit ? total - limit : 0);
    }
    if (remote_list(&r, path.data, &list, NULL, err) < 0)
        return -1;
    listing_print(r.arena, list, more ? more_columns : columns, json);
    return 0;
}

/* ---- rm, term */

/* The batch job, and that it can still be taken back. */
static int find_one(struct remote *r, const char *filter, const char *text,
                    const struct ab_value **out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *list;
    int64_t id;
    if (parse_id(text, &id, err) < 0)
        return -1;
    ab_buf_str(&path, "/batch-jobs/");
    ab_api_query_int(&path, filter, id);
    if (remote_list(r, path.data, &list, NULL, err) < 0)
        return -1;
    /* numbers of a batch system come again: the last one is meant */
    if (list->n == 0)
        return ab_fail(err, AB_ENOENT,
                       "there is no batch job with %s %" PRId64 "; `abies queue ls` shows them",
                       filter, id);
    *out = &list->items[list->n - 1];
    const char *state = ab_value_text(ab_value_get(*out, "state"), "");
    if (strcmp(state, "finished") == 0 || strcmp(state, "submit_failed") == 0)
        return ab_fail(err, AB_ECONFLICT, "batch job %" PRId64 " is over already (%s)",
                       ab_value_int(ab_value_get(*out, "id"), 0), state);
    return 0;
}

static int take_out(const char *program, bool by_scheduler_id, int argc, char **argv,
                    struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    bool json = false;
    const struct ab_opt options[] = {
        AB_OPT_FLAG('s', "scheduler-id", &by_scheduler_id,
                    "the numbers are those of the batch system"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse(program, "ID... [OPTIONS]",
                          "Take batch jobs out of the queue, or end them.\n\nThe site's agent does "
                          "it; their launchers give back what they hold.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc == 0)
        return ab_fail(err, AB_EINVAL, "which batch job? Give its id; `abies queue ls` shows them");
    if (remote_open(&r, err) < 0)
        return -1;
    ab_buf_str(&body, "{\"state\":\"pending_deletion\"}");
    if (json)
        putchar('[');
    for (int i = 0; i < argc; i++) {
        const struct ab_value *job;
        if (find_one(&r, by_scheduler_id ? "scheduler_id" : "id", argv[i], &job, err) < 0)
            return -1;
        int64_t id = ab_value_int(ab_value_get(job, "id"), 0);
        if (remote_call(&r, "PUT", ab_printf(r.arena, "/batch-jobs/%" PRId64, id), &body, NULL, err)
            < 0)
            return -1;
        if (json)
            printf("%s%" PRId64, i ? "," : "", id);
        else
            printf("batch job %" PRId64 " will be taken out\n", id);
    }
    if (json)
        printf("]\n");
    return 0;
}

int cmd_queue_rm(int argc, char **argv, struct ab_error *err)
{
    return take_out("abies queue rm", false, argc, argv, err);
}

int cmd_queue_term(int argc, char **argv, struct ab_error *err)
{
    return take_out("abies queue term", true, argc, argv, err);
}
