/* settings.c - settings.yml by a table: key, kind, default, bounds, where it goes */
#include "settings.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "yaml/yaml.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum kind {
    TEXT,
    INT,
    BOOL,
    MSEC,
    PAIRS,
    WORDS,
    QUEUES,
    URLS,
    IGNORED
};

struct row {
    const char *section, *key;
    enum kind kind;
    size_t offset;
    const char *def;           /* as the file would say it; NULL: none */
    int64_t min, max;          /* INT; MSEC in ms */
    const char *const *choice; /* TEXT: one of these, NULL-terminated */
};

#define AT(field) offsetof(struct ab_settings, field)
#define NO_MAX INT64_MAX
#define MINUTES_MAX 100000
#define PERIOD 10, INT64_C(86400000)

static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const modes[] = {"mpi", "serial", NULL};
static const char *const sorts[] = {"long_large_first", NULL};

static const struct row rows[] = {
    {"logging", "level", TEXT, AT(logging.level), "info", 0, 0, levels},
    {"logging", "format", IGNORED, 0, NULL, 0, 0, NULL}, /* of the contract: we have one format */
    {"logging", "datefmt", IGNORED, 0, NULL, 0, 0, NULL},
    {"logging", "buffer_num_records", IGNORED, 0, NULL, 0, 0, NULL},
    {"logging", "flush_period", IGNORED, 0, NULL, 0, 0, NULL},

    {"metrics", "listen", TEXT, AT(metrics.listen), NULL, 0, 0, NULL},

    {"events", "live", BOOL, AT(events.live), "true", 0, 0, NULL},

    {"launcher", "idle_ttl_sec", MSEC, AT(launcher.idle_ttl_ms), "60", 0, NO_MAX, NULL},
    {"launcher", "delay_sec", MSEC, AT(launcher.delay_ms), "1", PERIOD, NULL},
    {"launcher", "heartbeat_sec", MSEC, AT(launcher.heartbeat_ms), "0", 0, NO_MAX, NULL},
    {"launcher", "error_tail_num_lines", INT, AT(launcher.error_tail_num_lines), "10", 0, 1000,
     NULL},
    {"launcher", "max_concurrent_mpiruns", INT, AT(launcher.max_concurrent_mpiruns), "1000", 1,
     100000, NULL},
    {"launcher", "compute_node", TEXT, AT(launcher.compute_node), "local", 0, 0, NULL},
    {"launcher", "mpi_app_launcher", TEXT, AT(launcher.mpi_app_launcher), "mpich", 0, 0, NULL},
    {"launcher", "local_app_launcher", TEXT, AT(launcher.local_app_launcher), "local", 0, 0, NULL},
    {"launcher", "mpirun_allows_node_packing", BOOL, AT(launcher.mpirun_allows_node_packing),
     "false", 0, 0, NULL},
    {"launcher", "serial_mode_prefetch_per_rank", INT, AT(launcher.serial_mode_prefetch_per_rank),
     "64", 1, 100000, NULL},
    {"launcher", "sort_by", TEXT, AT(launcher.sort_by), NULL, 0, 0, sorts},
    {"launcher", "serial_mode_startup_params", PAIRS, AT(launcher.serial_mode_startup_params), NULL,
     0, 0, NULL},

    {"scheduler", "type", TEXT, AT(scheduler.type), "local", 0, 0, NULL},
    {"scheduler", "sync_period", MSEC, AT(scheduler.sync_period_ms), "10", PERIOD, NULL},
    {"scheduler", "allowed_queues", QUEUES, AT(scheduler.queues), NULL, 0, 0, NULL},
    {"scheduler", "allowed_projects", WORDS, AT(scheduler.allowed_projects), NULL, 0, 0, NULL},
    {"scheduler", "optional_batch_job_params", PAIRS, AT(scheduler.optional_batch_job_params), NULL,
     0, 0, NULL},
    {"scheduler", "job_template_path", TEXT, AT(scheduler.job_template_path), "job-template.sh", 0,
     0, NULL},

    {"processing", "num_workers", INT, AT(processing.num_workers), "5", 1, 256, NULL},
    {"processing", "prefetch_depth", INT, AT(processing.prefetch_depth), "1000", 1, 100000, NULL},
    {"processing", "poll_period", MSEC, AT(processing.poll_period_ms), "1", PERIOD, NULL},

    {"transfers", "transfer_locations", URLS, AT(transfers.locations), NULL, 0, 0, NULL},
    {"transfers", "globus_endpoint_id", TEXT, AT(transfers.globus_endpoint_id), NULL, 0, 0, NULL},
    {"transfers", "globus_endpoint_site_path", TEXT, AT(transfers.globus_endpoint_site_path), NULL,
     0, 0, NULL},
    {"transfers", "max_concurrent_transfers", INT, AT(transfers.max_concurrent), "5", 1, 1000,
     NULL},
    {"transfers", "transfer_batch_size", INT, AT(transfers.batch_size), "100", 1, 10000, NULL},
    {"transfers", "num_items_query_limit", INT, AT(transfers.query_limit), "2000", 1, 100000, NULL},
    {"transfers", "service_period", MSEC, AT(transfers.service_period_ms), "5", PERIOD, NULL},
    {"transfers", "retries", INT, AT(transfers.retries), "5", 0, 100, NULL},
    {"transfers", "ssh_config", TEXT, AT(transfers.ssh_config), NULL, 0, 0, NULL},

    {"elastic_queue", "service_period", MSEC, AT(elastic_queue.service_period_ms), "60", PERIOD,
     NULL},
    {"elastic_queue", "submit_project", TEXT, AT(elastic_queue.submit_project), "local", 0, 0,
     NULL},
    {"elastic_queue", "submit_queue", TEXT, AT(elastic_queue.submit_queue), "local", 0, 0, NULL},
    {"elastic_queue", "job_mode", TEXT, AT(elastic_queue.job_mode), "mpi", 0, 0, modes},
    {"elastic_queue", "min_wall_time_min", INT, AT(elastic_queue.min_wall_time_min), "35", 1,
     MINUTES_MAX, NULL},
    {"elastic_queue", "max_wall_time_min", INT, AT(elastic_queue.max_wall_time_min), "360", 1,
     MINUTES_MAX, NULL},
    {"elastic_queue", "wall_time_pad_min", INT, AT(elastic_queue.wall_time_pad_min), "5", 0,
     MINUTES_MAX, NULL},
    {"elastic_queue", "min_num_nodes", INT, AT(elastic_queue.min_num_nodes), "20", 0, 1000000,
     NULL},
    {"elastic_queue", "max_num_nodes", INT, AT(elastic_queue.max_num_nodes), "127", 1, 1000000,
     NULL},
    {"elastic_queue", "max_queue_wait_time_min", INT, AT(elastic_queue.max_queue_wait_time_min),
     "10", 0, MINUTES_MAX, NULL},
    {"elastic_queue", "max_queued_jobs", INT, AT(elastic_queue.max_queued_jobs), "20", 1, 100000,
     NULL},
    {"elastic_queue", "use_backfill", BOOL, AT(elastic_queue.use_backfill), "true", 0, 0, NULL},

    {"queue_maintainer", "submit_period", MSEC, AT(queue_maintainer.submit_period_ms), "60", PERIOD,
     NULL},
    {"queue_maintainer", "submit_project", TEXT, AT(queue_maintainer.submit_project), "local", 0, 0,
     NULL},
    {"queue_maintainer", "submit_queue", TEXT, AT(queue_maintainer.submit_queue), "local", 0, 0,
     NULL},
    {"queue_maintainer", "job_mode", TEXT, AT(queue_maintainer.job_mode), "mpi", 0, 0, modes},
    {"queue_maintainer", "num_queued_jobs", INT, AT(queue_maintainer.num_queued_jobs), "5", 1,
     10000, NULL},
    {"queue_maintainer", "num_nodes", INT, AT(queue_maintainer.num_nodes), "1", 1, 1000000, NULL},
    {"queue_maintainer", "wall_time_min", INT, AT(queue_maintainer.wall_time_min), "1", 1,
     MINUTES_MAX, NULL},

    {"file_cleaner", "cleanup_batch_size", INT, AT(file_cleaner.cleanup_batch_size), "180", 1,
     10000, NULL},
    {"file_cleaner", "service_period", MSEC, AT(file_cleaner.service_period_ms), "30", PERIOD,
     NULL},
};

/* Sections, and the flag that says whether the module runs. */
static const struct {
    const char *name;
    size_t on; /* of the module's flag; 0: no module of its own */
    bool on_when_absent;
} sections[] = {
    {"logging", 0, true},
    {"metrics", 0, true},
    {"events", 0, true},
    {"launcher", 0, true},
    {"scheduler", AT(scheduler.on), true},
    {"processing", AT(processing.on), true},
    {"transfers", AT(transfers.on), true},
    {"elastic_queue", AT(elastic_queue.on), false},
    {"queue_maintainer", AT(queue_maintainer.on), false},
    {"file_cleaner", AT(file_cleaner.on), false},
};

struct reader {
    struct ab_settings *out;
    const char *file; /* as errors call it */
    struct ab_error *err;
};

static int fail_at(struct reader *r, const struct ab_yaml *v, const char *text)
{
    return ab_fail(r->err, AB_EINVAL, "%s:%d:%d: %s", r->file, v->line, v->column, text);
}

/* ------------------------------------------------------------------ kinds that are not scalars */

static int read_pairs(struct reader *r, const struct ab_yaml *v, struct ab_pairs *out)
{
    if (v->type != AB_Y_MAP)
        return fail_at(r, v, "expected `name: value` lines, or {}");
    out->v = ab_alloc(r->out->arena, v->n, sizeof(*out->v));
    for (size_t i = 0; i < v->n; i++) {
        const char *text;
        if (ab_yaml_text(r->file, &v->items[i], "", &text, r->err) < 0)
            return -1;
        out->v[out->n++] = (struct ab_pair){ab_strdup(r->out->arena, v->keys[i]),
                                            ab_strdup(r->out->arena, text ? text : "")};
    }
    return 0;
}

static int read_words(struct reader *r, const struct ab_yaml *v, struct ab_words *out)
{
    return ab_yaml_strings(r->file, v, r->out->arena, &out->v, &out->n, r->err);
}

static int read_urls(struct reader *r, const struct ab_yaml *v, struct ab_pairs *out)
{
    if (read_pairs(r, v, out) < 0)
        return -1;
    for (size_t i = 0; i < out->n; i++) {
        const char *sep = strstr(out->v[i].value, "://");
        if (!sep || sep == out->v[i].value || !sep[3] || sep[3] == '/')
            return fail_at(r, &v->items[i],
                           "a location is a URL with scheme and host, e.g. local://localhost/data "
                           "or rsync://user@host/data");
        if (strpbrk(out->v[i].value, " \t\"<>\\^`{|}"))
            return fail_at(r, &v->items[i], "a URL has no such character: a space is written %%20");
    }
    return 0;
}

static int read_queues(struct reader *r, const struct ab_yaml *v)
{
    static const char *const keys[] = {"max_nodes", "max_walltime", "max_queued_jobs"};
    struct ab_settings *out = r->out;

    if (v->type != AB_Y_MAP)
        return fail_at(r, v, "expected `queue: {max_nodes, max_walltime, max_queued_jobs}` lines");
    out->scheduler.queues = ab_alloc(out->arena, v->n, sizeof(*out->scheduler.queues));
    for (size_t i = 0; i < v->n; i++) {
        const struct ab_yaml *one = &v->items[i];
        struct ab_queue *queue = &out->scheduler.queues[out->scheduler.n_queues++];
        int64_t *numbers[] = {&queue->max_nodes, &queue->max_walltime, &queue->max_queued_jobs};

        if (one->type != AB_Y_MAP)
            return fail_at(r, one,
                           "a queue has max_nodes, max_walltime (minutes), max_queued_jobs");
        if (ab_yaml_only(r->file, one, keys, AB_COUNT(keys), r->err) < 0)
            return -1;
        queue->name = ab_strdup(out->arena, v->keys[i]);
        for (size_t k = 0; k < AB_COUNT(keys); k++) {
            const struct ab_yaml *number = ab_yaml_get(one, keys[k]);
            if (!number)
                return fail_at(r, one,
                               "a queue has max_nodes, max_walltime (minutes), max_queued_jobs");
            if (ab_yaml_int(r->file, number, 0, INT32_MAX, 0, numbers[k], r->err) < 0)
                return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ one row */

static int read_text(struct reader *r, const struct row *row, const struct ab_yaml *v)
{
    const char **out = (const char **)((char *)r->out + row->offset);
    const char *text;

    if (ab_yaml_text(r->file, v, row->def, &text, r->err) < 0)
        return -1;
    for (size_t i = 0; text && row->choice; i++) {
        if (!row->choice[i])
            return ab_fail(r->err, AB_EINVAL, "%s:%d:%d: `%s` is not a value of %s (try `%s`)",
                           r->file, v->line, v->column, text, row->key, row->choice[0]);
        if (strcasecmp(row->choice[i], text) == 0)
            break;
    }
    *out = text ? ab_strdup(r->out->arena, text) : NULL;
    return 0;
}

static int read_row(struct reader *r, const struct row *row, const struct ab_yaml *v)
{
    void *at = (char *)r->out + row->offset;
    struct ab_yaml absent = {.type = AB_Y_TEXT, .text = row->def, .line = 1, .column = 1};

    if (!v || v->type == AB_Y_NULL) {
        if (!row->def)
            return 0;
        v = &absent; /* the default goes the way of a value: the table cannot be wrong unseen */
    }
    switch (row->kind) {
    case TEXT:
        return read_text(r, row, v);
    case INT:
        return ab_yaml_int(r->file, v, row->min, row->max, 0, at, r->err);
    case BOOL:
        return ab_yaml_bool(r->file, v, false, at, r->err);
    case MSEC:
        if (ab_yaml_duration(r->file, v, 1000, 0, at, r->err) < 0)
            return -1;
        if (*(int64_t *)at < row->min || *(int64_t *)at > row->max)
            return ab_fail(r->err, AB_EINVAL, "%s:%d:%d: %s is out of range", r->file, v->line,
                           v->column, row->key);
        return 0;
    case PAIRS:
        return read_pairs(r, v, at);
    case WORDS:
        return read_words(r, v, at);
    case QUEUES:
        return read_queues(r, v);
    case URLS:
        return read_urls(r, v, at);
    case IGNORED:
        break;
    }
    return 0;
}

static int read_section(struct reader *r, const char *section, const struct ab_yaml *map)
{
    const char *names[AB_COUNT(rows)];
    size_t n = 0;

    for (size_t i = 0; i < AB_COUNT(rows); i++)
        if (strcmp(rows[i].section, section) == 0)
            names[n++] = rows[i].key;
    if (map && map->type != AB_Y_NULL) {
        if (map->type != AB_Y_MAP)
            return ab_fail(r->err, AB_EINVAL, "%s:%d:%d: %s holds `key: value` lines", r->file,
                           map->line, map->column, section);
        if (ab_yaml_only(r->file, map, names, n, r->err) < 0)
            return -1;
    }
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        if (strcmp(rows[i].section, section) != 0)
            continue;
        const struct ab_yaml *v =
            map && map->type == AB_Y_MAP ? ab_yaml_get(map, rows[i].key) : NULL;
        if (read_row(r, &rows[i], v) < 0)
            return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ the file */

static int check_elastic(struct reader *r)
{
    if (!r->out->elastic_queue.on)
        return 0;
    if (r->out->elastic_queue.wall_time_pad_min >= r->out->elastic_queue.min_wall_time_min)
        return ab_fail(r->err, AB_EINVAL,
                       "%s: elastic_queue.wall_time_pad_min (%" PRId64
                       ") must be below min_wall_time_min (%" PRId64 ")",
                       r->file, r->out->elastic_queue.wall_time_pad_min,
                       r->out->elastic_queue.min_wall_time_min);
    return 0;
}

/* Default queue and project of a machine of one's own, so that an empty file works. */
static void add_local(struct ab_settings *out)
{
    static const struct ab_queue queue = {"local", 1, 1440, 1000};

    if (strcmp(out->scheduler.type, "local") != 0)
        return;
    if (!out->scheduler.n_queues) {
        out->scheduler.queues = ab_memdup(out->arena, &queue, sizeof(queue));
        out->scheduler.n_queues = 1;
    }
    if (!out->scheduler.allowed_projects.n) {
        out->scheduler.allowed_projects.v = ab_alloc(out->arena, 1, sizeof(char *));
        out->scheduler.allowed_projects.v[0] = "local";
        out->scheduler.allowed_projects.n = 1;
    }
}

static int read_file(struct reader *r, const struct ab_yaml *root)
{
    const char *names[AB_COUNT(sections) + 1];

    for (size_t i = 0; i < AB_COUNT(sections); i++)
        names[i] = sections[i].name;
    names[AB_COUNT(sections)] = "filter_tags";
    if (root->type != AB_Y_MAP)
        return fail_at(r, root, "expected `key: value` lines");
    if (ab_yaml_only(r->file, root, names, AB_COUNT(names), r->err) < 0)
        return -1;
    const struct ab_yaml *tags = ab_yaml_get(root, "filter_tags");
    if (tags && tags->type != AB_Y_NULL && read_pairs(r, tags, &r->out->filter_tags) < 0)
        return -1;
    for (size_t i = 0; i < AB_COUNT(sections); i++) {
        const struct ab_yaml *map = ab_yaml_get(root, sections[i].name);
        if (sections[i].on)
            *(bool *)((char *)r->out + sections[i].on) =
                map ? map->type != AB_Y_NULL : sections[i].on_when_absent;
        if (read_section(r, sections[i].name, map) < 0)
            return -1;
    }
    add_local(r->out);
    return check_elastic(r);
}

struct ab_settings *ab_settings_load(const char *path, struct ab_error *err)
{
    ab_arena_t *arena = ab_arena_new();
    struct ab_settings *out = ab_alloc(arena, 1, sizeof(*out));
    const struct ab_yaml *root = ab_yaml_load(arena, path, err);

    out->arena = arena;
    out->path = ab_strdup(arena, path);
    struct reader reader = {out, out->path, err};
    if (!root || read_file(&reader, root) < 0)
        ab_settings_destroy(&out);
    return out;
}

void ab_settings_destroy(struct ab_settings **self)
{
    if (!*self)
        return;
    ab_arena_t *arena = (*self)->arena; /* holds *self as well */
    ab_arena_destroy(&arena);
    *self = NULL;
}

/* ------------------------------------------------------------------ reading it */

const struct ab_queue *ab_settings_queue(const struct ab_settings *self, const char *name)
{
    for (size_t i = 0; i < self->scheduler.n_queues; i++)
        if (strcmp(self->scheduler.queues[i].name, name) == 0)
            return &self->scheduler.queues[i];
    return NULL;
}

const char *ab_settings_location(const struct ab_settings *self, const char *alias)
{
    for (size_t i = 0; i < self->transfers.locations.n; i++)
        if (strcmp(self->transfers.locations.v[i].key, alias) == 0)
            return self->transfers.locations.v[i].value;
    return NULL;
}

static void json_text(struct ab_buf *out, const char *text)
{
    ab_buf_json_str(out, text, strlen(text));
}

void ab_pairs_json(const struct ab_pairs *pairs, struct ab_buf *out)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < pairs->n; i++) {
        ab_buf_str(out, i ? "," : "");
        json_text(out, pairs->v[i].key);
        ab_buf_char(out, ':');
        json_text(out, pairs->v[i].value);
    }
    ab_buf_char(out, '}');
}

static void scheduler_json(const struct ab_settings *self, struct ab_buf *out)
{
    ab_buf_str(out, "\"allowed_projects\":[");
    for (size_t i = 0; i < self->scheduler.allowed_projects.n; i++) {
        ab_buf_str(out, i ? "," : "");
        json_text(out, self->scheduler.allowed_projects.v[i]);
    }
    ab_buf_str(out, "],\"allowed_queues\":{");
    for (size_t i = 0; i < self->scheduler.n_queues; i++) {
        const struct ab_queue *queue = &self->scheduler.queues[i];
        ab_buf_str(out, i ? "," : "");
        json_text(out, queue->name);
        ab_buf_printf(out,
                      ":{\"max_nodes\":%" PRId64 ",\"max_walltime\":%" PRId64
                      ",\"max_queued_jobs\":%" PRId64 "}",
                      queue->max_nodes, queue->max_walltime, queue->max_queued_jobs);
    }
    ab_buf_str(out, "},\"optional_batch_job_params\":");
    ab_pairs_json(&self->scheduler.optional_batch_job_params, out);
}

void ab_settings_site_json(const struct ab_settings *self, struct ab_buf *out)
{
    ab_buf_char(out, '{');
    if (self->scheduler.on)
        scheduler_json(self, out);
    if (self->transfers.on) {
        ab_buf_str(out, self->scheduler.on ? "," : "");
        ab_buf_str(out, "\"transfer_locations\":");
        ab_pairs_json(&self->transfers.locations, out);
        ab_buf_str(out, ",\"globus_endpoint_id\":");
        if (self->transfers.globus_endpoint_id)
            json_text(out, self->transfers.globus_endpoint_id);
        else
            ab_buf_str(out, "null");
    }
    ab_buf_char(out, '}');
}
