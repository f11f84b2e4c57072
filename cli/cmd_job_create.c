/* cmd_job_create.c - job create: one job from options, or many from a file of JSON */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli.h"
#include "job_spec.h"
#include "listing.h"
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
    struct job_spec spec;
    const char *workdir, *from;
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
    if ((o->spec.site || r->here.path) && remote_one_site(r, o->spec.site, &site, err) < 0)
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

static int create_one(struct remote *r, const struct creation *o, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf job = {0};
    if (!o->workdir || !o->spec.app)
        return ab_fail(
            err, AB_EINVAL,
            "a job needs --app NAME and --workdir FOLDER (or --from FILE for many); see --help");
    ab_buf_str(&job, "{\"workdir\":");
    ab_buf_json_str(&job, o->workdir, strlen(o->workdir));
    ab_buf_char(&job, ',');
    if (job_spec_json(r, &o->spec, NULL, &job, err) < 0)
        return -1;
    ab_buf_char(&job, '}');
    if (!o->yes) {
        const struct ab_value *shown = ab_value_parse(r->arena, job.data, job.len, err);
        if (!shown)
            return -1;
        listing_fields(stderr, r->arena, shown, job_fields);
        if (ask_yes(err, "Create this job of app %s?", o->spec.app) < 0)
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
    struct creation o = {.spec = JOB_SPEC};
    const struct ab_opt options[] = {
        AB_OPT_TEXT('w', "workdir", &o.workdir, "FOLDER",
                    "its folder, below the site's data folder"),
        JOB_SPEC_OPTIONS(o.spec),
        AB_OPT_TEXT(0, "from", &o.from, "FILE",
                    "create the jobs of this JSON list; - is standard input"),
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
