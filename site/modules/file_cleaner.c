/* file_cleaner.c - removes files that finished jobs need no more, by their app's cleanup_files
 *
 * A job is done with even if its app cannot be loaded or a file cannot be removed: it is never
 * asked for again, and the log says what stayed.
 */
#include "app/app.h"
#include "appnames.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "client/api.h"
#include "schema/json.h"
#include "site/module.h"
#include "sitedir/workdir.h"
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define DRAIN_MS 10000

struct cleaner {
    ab_apps_t *apps;
    appnames_t *names;
    uint64_t jobs, files;
};

static int open_cleaner(struct module *m, void *self, struct ab_error *err)
{
    struct cleaner *c = self;

    (void)err;
    c->apps = ab_apps_new(module_view(m).site->path);
    c->names = appnames_new();
    return 0;
}

static int fetch(struct module *m, ab_arena_t *arena, struct ab_list *jobs, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};
    int64_t count;

    ab_buf_str(&path, "/jobs/");
    ab_api_query_int(&path, "site_id", module_view(m).site->id);
    ab_api_query(&path, "state", "JOB_FINISHED");
    ab_api_query(&path, "pending_file_cleanup", "true");
    ab_api_query_int(&path, "limit", module_view(m).settings->file_cleaner.cleanup_batch_size);
    int status = module_call(m, "GET", path.data, NULL, MODULE_CALL_MS, &reply, err);
    if (status < 200 || status >= 300)
        return -1;
    return ab_json_read(&ab_schema_job, reply.data, reply.len, arena, jobs, &count, err);
}

/* False: the centre cannot say what app it is; the job stays for later. */
static bool clean_job(struct module *m, struct cleaner *c, const struct job *job)
{
    struct ab_error err = {0};
    const char *name = appnames_get(c->names, m, job->app_id, &err);
    if (!name && err.code != AB_ENOENT)
        return false;
    const struct ab_app *app = name ? ab_apps_get(c->apps, name, &err) : NULL;
    c->jobs++;
    if (app && !app->n_cleanup_files)
        return true;
    AB_AUTO(ab_close)
    int folder = app ? ab_workdir_open(module_view(m).site, job->workdir, false, NULL, &err) : -1;
    if (folder < 0) {
        ab_log(AB_WARN, "job.uncleaned", AB_KV("job", job->id), AB_KV("why", err.text));
        return true;
    }
    c->files += sweep_folder(folder, app->cleanup_files, app->n_cleanup_files);
    return true;
}

static void clean_all(struct module *m, struct cleaner *c, const struct ab_list *jobs)
{
    struct ab_buf *updates = calloc(jobs->n ? jobs->n : 1, sizeof(*updates));
    struct ab_error err = {0};
    size_t n = 0;

    for (size_t i = 0; i < jobs->n && !module_stopping(m); i++) {
        const struct job *job = (const struct job *)jobs->v + i;
        if (clean_job(m, c, job))
            ab_buf_printf(&updates[n++], "{\"id\":%" PRId64 ",\"pending_file_cleanup\":false}",
                          job->id);
    }
    if (module_put(m, "/jobs/", updates, n, &err) < 0)
        ab_log(AB_WARN, "updates.lost", AB_KV("updates", n), AB_KV("why", err.text));
    for (size_t i = 0; i < n; i++)
        ab_buf_free(&updates[i]);
    free(updates);
}

static int64_t cycle(struct module *m, void *self)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct cleaner *c = self;
    struct ab_list jobs = {0};
    struct ab_error err = {0};
    char json[100];

    if (module_drain(m, "/jobs/", DRAIN_MS, &err) < 0 || fetch(m, arena, &jobs, &err) < 0) {
        module_complain(m, "jobs.unknown", err.text);
        return settings->file_cleaner.service_period_ms;
    }
    if (jobs.n)
        clean_all(m, c, &jobs);
    snprintf(json, sizeof(json), "{\"jobs\":%" PRIu64 ",\"files\":%" PRIu64 "}", c->jobs, c->files);
    module_health(m, json);
    bool more = jobs.n == (size_t)settings->file_cleaner.cleanup_batch_size;
    return more ? 100 : settings->file_cleaner.service_period_ms;
}

static void close_cleaner(struct module *m, void *self, bool broker_gone)
{
    struct cleaner *c = self;

    (void)m, (void)broker_gone;
    ab_apps_destroy(&c->apps);
    appnames_destroy(&c->names);
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "file_cleaner",
        .size = sizeof(struct cleaner),
        .open = open_cleaner,
        .cycle = cycle,
        .close = close_cleaner,
    };
    return module_main(&def, argc, argv);
}
