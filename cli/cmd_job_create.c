/* cmd_job_create.c - job create: one job from options, or many from a file of JSON */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX ((size_t)512 << 20)
#define BULK_JOBS 5000
#define BULK_BYTES ((size_t)32 << 20)
#define APPS_CACHED 64

struct creation {
    const char *workdir, *app, *site, *from;
    struct ab_opt_list tags, params, launch_params, parents, stage;
    int64_t num_nodes, ranks, threads_per_rank, threads_per_core, packing, minutes, priority;
    const char *gpus;
    bool yes, json;
};

/* ---- creating: in bulk, ids as they come */

struct bulk {
    struct remote *remote;
    struct ab_buf body;
    size_t waiting, done, total;
    bool json;
};

static int bulk_send(struct bulk *self, struct ab_error *err)
{
    const struct ab_value *reply;
    if (self->waiting == 0)
        return 0;
    ab_buf_char(&self->body, ']');
    if (remote_call(self->remote, "POST", "/jobs/", &self->body, &reply, err) < 0)
        return self->done ? ab_fail_within(err, "after %zu jobs were created", self->done) : -1;
    for (size_t i = 0; reply && i < reply->n; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf line = {0};
        if (self->json) {
            ab_buf_str(&line, self->done + i ? ",\n" : "[");
            ab_value_write(&line, &reply->items[i]);
        } else {
            ab_buf_printf(&line, "%" PRId64 "\n",
                          ab_value_int(ab_value_get(&reply->items[i], "id"), 0));
        }
        fwrite(line.data, 1, line.len, stdout);
    }
    self->done += self->waiting;
    self->waiting = 0;
    ab_buf_clear(&self->body);
    if (self->total > BULK_JOBS)
        progress("%zu of %zu jobs created", self->done, self->total);
    return 0;
}

static int bulk_add(struct bulk *self, const struct ab_buf *job, struct ab_error *err)
{
    if ((self->waiting == BULK_JOBS || self->body.len + job->len > BULK_BYTES)
        && bulk_send(self, err) < 0)
        return -1;
    ab_buf_char(&self->body, self->waiting ? ',' : '[');
    ab_buf_add(&self->body, job->data, job->len);
    self->waiting++;
    return 0;
}

static int bulk_end(struct bulk *self, struct ab_error *err)
{
    int rc = bulk_send(self, err);
    if (self->json && (self->done || rc == 0))
        printf(self->done ? "]\n" : "[]\n");
    progress_end();
    return rc;
}

/* ---- from a file */

struct app_cache {
    const char *name[APPS_CACHED];
    int64_t id[APPS_CACHED];
    size_t n;
};

static int app_id(struct remote *r, struct app_cache *cache, const char *name, int64_t site,
                  int64_t *id, struct ab_error *err)
{
    const struct ab_value *app;
    for (size_t i = 0; i < cache->n; i++)
        if (strcmp(cache->name[i], name) == 0) {
            *id = cache->id[i];
            return 0;
        }
    if (remote_app(r, name, site, &app, err) < 0)
        return -1;
    *id = ab_value_int(ab_value_get(app, "id"), 0);
    if (cache->n < APPS_CACHED) {
        cache->name[cache->n] = name;
        cache->id[cache->n++] = *id;
    }
    return 0;
}

/* A job of the file as the API takes it: "app" becomes app_id. */
static int job_text(struct remote *r, struct app_cache *cache, const struct ab_value *job,
                    int64_t site, struct ab_buf *out, struct ab_error *err)
{
    const struct ab_value *app = ab_value_get(job, "app");
    if (job->type != AB_V_MAP)
        return ab_fail(err, AB_EINVAL, "a job must be a JSON object");
    ab_buf_char(out, '{');
    bool first = true;
    if (app) {
        int64_t id = ab_value_int(app, 0);
        if (app->type == AB_V_TEXT && app_id(r, cache, app->s, site, &id, err) < 0)
            return -1;
        ab_buf_printf(out, "\"app_id\":%" PRId64, id);
        first = false;
    }
    for (size_t i = 0; i < job->n; i++) {
        if (strcmp(job->keys[i], "app") == 0)
            continue;
        if (!first)
            ab_buf_char(out, ',');
        first = false;
        ab_buf_json_str(out, job->keys[i], strlen(job->keys[i]));
        ab_buf_char(out, ':');
        ab_value_write(out, &job->items[i]);
    }
    ab_buf_char(out, '}');
    return 0;
}

static int create_from(struct remote *r, const struct creation *o, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct bulk bulk = {.remote = r, .json = o->json};
    struct app_cache cache = {.n = 0};
    bool is_stdin = strcmp(o->from, "-") == 0;
    int64_t site = 0;
    if (ab_file_read(is_stdin ? "/dev/stdin" : o->from, FILE_MAX, &text, err) < 0)
        return -1;
    const struct ab_value *jobs =
        ab_value_parse(r->arena, text.data ? text.data : "", text.len, err);
    if (!jobs)
        return ab_fail_within(err, "%s", o->from);
    if (jobs->type != AB_V_LIST)
        return ab_fail(err, AB_EINVAL, "%s: a JSON list of jobs is wanted", o->from);
    if ((o->site || r->here.path) && remote_one_site(r, o->site, &site, err) < 0)
        return -1;
    bulk.total = jobs->n;
    int rc = 0;
    for (size_t i = 0; i < jobs->n && rc == 0; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf job = {0};
        rc = job_text(r, &cache, &jobs->items[i], site, &job, err);
        if (rc < 0)
            (void)ab_fail_within(err, "%s: job %zu", o->from, i + 1);
        else
            rc = bulk_add(&bulk, &job, err);
    }
    if (rc == 0)
        rc = bulk_end(&bulk, err);
    ab_buf_free(&bulk.body);
    return rc;
}

/* ---- one job from options */

static const char *given(const struct ab_opt_list *pairs, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < pairs->n; i++)
        if (strncmp(pairs->v[i], name, len) == 0 && pairs->v[i][len] == '=')
            return pairs->v[i] + len + 1;
    return NULL;
}

/* All given ones are known, all required ones are given. `what` is parameter or transfer slot. */
static int check_names(const struct ab_value *known, const struct ab_opt_list *pairs,
                       const char *what, const char *option, struct ab_error *err)
{
    for (size_t i = 0; i < pairs->n; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(pairs->v[i], "="), pairs->v[i]);
        if (ab_value_get(known, name))
            continue;
        const char *near =
            known && known->type == AB_V_MAP ? ab_str_nearest(name, known->keys, known->n) : NULL;
        return ab_fail(err, AB_EINVAL, "the app has no %s `%s`%s%s%s", what, name,
                       near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
    }
    for (size_t i = 0; known && known->type == AB_V_MAP && i < known->n; i++)
        if (ab_value_bool(ab_value_get(&known->items[i], "required"), false)
            && !given(pairs, known->keys[i]))
            return ab_fail(err, AB_EINVAL, "the app needs %s `%.80s`: give --%s %.80s=...", what,
                           known->keys[i], option, known->keys[i]);
    return 0;
}

/* SLOT=ALIAS:/path */
static int stage_json(const struct ab_opt_list *stage, struct ab_buf *out, struct ab_error *err)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < stage->n; i++) {
        const char *slot = stage->v[i], *equals = strchr(slot, '='),
                   *colon = equals ? strchr(equals, ':') : NULL;
        if (!colon || equals == slot || colon == equals + 1 || colon[1] != '/')
            return ab_fail(err, AB_EINVAL, "--stage-data takes SLOT=LOCATION:/PATH, not `%.100s`",
                           slot);
        if (i)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, slot, (size_t)(equals - slot));
        ab_buf_str(out, ":{\"location_alias\":");
        ab_buf_json_str(out, equals + 1, (size_t)(colon - equals - 1));
        ab_buf_str(out, ",\"path\":");
        ab_buf_json_str(out, colon + 1, strlen(colon + 1));
        ab_buf_char(out, '}');
    }
    ab_buf_char(out, '}');
    return 0;
}

static int parents_json(struct remote *r, const struct ab_opt_list *parents, struct ab_buf *out,
                        struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    int64_t id, found = 0, n = 0;
    ab_buf_str(&path, "/jobs/");
    ab_buf_char(out, '[');
    for (size_t i = 0; i < parents->n; i++) {
        char *rest = ab_strdup(r->arena, parents->v[i]), *word;
        while ((word = strsep(&rest, ","))) {
            if (parse_id(word, &id, err) < 0)
                return -1;
            ab_buf_printf(out, "%s%" PRId64, n++ ? "," : "", id);
            ab_api_query_int(&path, "id", id);
        }
    }
    ab_buf_char(out, ']');
    if (n > 0 && remote_count(r, &path, &found, err) < 0)
        return -1;
    return found == n ? 0
                      : ab_fail(err, AB_ENOENT, "only %" PRId64 " of the %" PRId64 " parents exist",
                                found, n);
}

static int one_json(struct remote *r, const struct creation *o, int64_t app, struct ab_buf *out,
                    struct ab_error *err)
{
    ab_buf_printf(out, "{\"app_id\":%" PRId64 ",\"workdir\":", app);
    ab_buf_json_str(out, o->workdir, strlen(o->workdir));
    ab_buf_str(out, ",\"tags\":");
    pairs_json(&o->tags, out);
    ab_buf_str(out, ",\"parameters\":");
    pairs_json(&o->params, out);
    ab_buf_str(out, ",\"launch_params\":");
    pairs_json(&o->launch_params, out);
    ab_buf_printf(out,
                  ",\"num_nodes\":%" PRId64 ",\"ranks_per_node\":%" PRId64
                  ",\"threads_per_rank\":%" PRId64 ",\"threads_per_core\":%" PRId64
                  ",\"node_packing_count\":%" PRId64 ",\"wall_time_min\":%" PRId64
                  ",\"priority\":%" PRId64 ",\"gpus_per_rank\":",
                  o->num_nodes, o->ranks, o->threads_per_rank, o->threads_per_core, o->packing,
                  o->minutes, o->priority);
    ab_buf_json_str(out, o->gpus,
                    strlen(o->gpus)); /* the API takes numbers as text, and checks them */
    ab_buf_str(out, ",\"transfers\":");
    if (stage_json(&o->stage, out, err) < 0)
        return -1;
    ab_buf_str(out, ",\"parent_ids\":");
    if (parents_json(r, &o->parents, out, err) < 0)
        return -1;
    ab_buf_char(out, '}');
    return 0;
}

static int create_one(struct remote *r, const struct creation *o, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf job = {0};
    const struct ab_value *app;
    int64_t site = 0;
    if (!o->workdir || !o->app)
        return ab_fail(
            err, AB_EINVAL,
            "a job needs --app NAME and --workdir FOLDER (or --from FILE for many); see --help");
    if (pairs_check(&o->tags, "tag", err) < 0 || pairs_check(&o->params, "param", err) < 0
        || pairs_check(&o->launch_params, "launch-param", err) < 0
        || pairs_check(&o->stage, "stage-data", err) < 0)
        return -1;
    if ((o->site || r->here.path) && remote_one_site(r, o->site, &site, err) < 0)
        return -1;
    if (remote_app(r, o->app, site, &app, err) < 0
        || check_names(ab_value_get(app, "parameters"), &o->params, "parameter", "param", err) < 0
        || check_names(ab_value_get(app, "transfers"), &o->stage, "transfer slot", "stage-data",
                       err)
               < 0
        || one_json(r, o, ab_value_int(ab_value_get(app, "id"), 0), &job, err) < 0)
        return -1;
    if (!o->yes) {
        fprintf(stderr, "%s\n", job.data);
        if (ask_yes(err, "Create this job of app %s?", o->app) < 0)
            return -1;
    }
    struct bulk bulk = {.remote = r, .json = o->json, .total = 1};
    int rc = bulk_add(&bulk, &job, err) < 0 ? -1 : bulk_end(&bulk, err);
    ab_buf_free(&bulk.body);
    return rc;
}

int cmd_job_create(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    struct creation o = {.num_nodes = 1,
                         .ranks = 1,
                         .threads_per_rank = 1,
                         .threads_per_core = 1,
                         .packing = 1,
                         .minutes = 1,
                         .gpus = "0"};
    const struct ab_opt options[] = {
        AB_OPT_TEXT('w', "workdir", &o.workdir, "FOLDER",
                    "its folder, below the site's data folder"),
        AB_OPT_TEXT('a', "app", &o.app, "APP", "name or id of the app"),
        {0, "tag", "tag", AB_OPT_KIND_LIST, &o.tags, "KEY=VALUE", "a tag to find it by (repeat)"},
        AB_OPT_LIST('p', "param", &o.params, "KEY=VALUE", "a parameter of the app (repeat)"),
        AB_OPT_INT('n', "num-nodes", &o.num_nodes, "N", "nodes [1]"),
        {0, "ranks-per-node", "rpn", AB_OPT_KIND_INT, &o.ranks, "N", "MPI ranks on each node [1]"},
        {0, "threads-per-rank", "tpr", AB_OPT_KIND_INT, &o.threads_per_rank, "N",
         "threads of each rank [1]"},
        {0, "threads-per-core", "tpc", AB_OPT_KIND_INT, &o.threads_per_core, "N",
         "hardware threads used of each core [1]"},
        AB_OPT_TEXT('g', "gpus-per-rank", &o.gpus, "N", "GPUs of each rank [0]"),
        {0, "node-packing-count", "npc", AB_OPT_KIND_INT, &o.packing, "N",
         "such jobs on a node at a time [1]"},
        {0, "launch-param", "lp", AB_OPT_KIND_LIST, &o.launch_params, "KEY=VALUE",
         "an option of the MPI starter (repeat)"},
        AB_OPT_INT('t', "wall-time-min", &o.minutes, "MIN", "minutes it may take [1]; 0 no limit"),
        AB_OPT_INT(0, "priority", &o.priority, "N",
                   "from -1000 to 1000: higher ones run first [0]"),
        {0, "parent-id", "pid", AB_OPT_KIND_LIST, &o.parents, "ID",
         "a job that must finish before it (repeat, or by comma)"},
        AB_OPT_LIST('s', "stage-data", &o.stage, "SLOT=LOCATION:/PATH",
                    "a file of a transfer slot (repeat)"),
        AB_OPT_TEXT(0, "from", &o.from, "FILE",
                    "create the jobs of this JSON list; - is standard input"),
        AB_OPT_TEXT(0, "site", &o.site, "SITE", "where an app given by name is [this]"),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print the jobs as JSON, not their ids"),
        {0},
    };
    int rc = ab_opt_parse("abies job create", "--app APP --workdir FOLDER [OPTIONS] | --from FILE",
                          "Create jobs. Prints their ids, one a line.\n\nA file holds a JSON list "
                          "of jobs as POST /jobs/ takes them; \"app\" may be a name "
                          "instead of\n\"app_id\". They are sent 5000 at a time.\n\n"
                          "  abies job create -y --app eigen --workdir run/1 --param n=200 "
                          "--stage-data matrix=beamline:/m1.bin\n"
                          "  generate-jobs | abies job create --from -",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (remote_open(&r, err) < 0)
        return -1;
    return o.from ? create_from(&r, &o, err) : create_one(&r, &o, err);
}
