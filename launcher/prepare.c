/* prepare.c - see prepare.h */
#include "prepare.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "schema/json.h"
#include "sitedir/workdir.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_MS = 2000,
    AGAIN_MS = 1000
};

struct known {
    struct known *next;
    int64_t id;
    const char *name;
};

struct prepare {
    struct prepare_options o;
    ab_api_t *api;
    ab_apps_t *apps;
    ab_arena_t *arena; /* of `known` */
    struct known *known;
    int64_t ask_ms; /* after a failure: not again before */
};

prepare_t *prepare_new(const struct prepare_options *options, struct ab_error *err)
{
    prepare_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->o = *options;
    self->arena = ab_arena_new();
    self->apps = ab_apps_new(options->site->path);
    self->api = ab_api_new_late(options->file, err);
    if (!self->api)
        prepare_destroy(&self);
    return self;
}

void prepare_destroy(prepare_t **self)
{
    if (!self || !*self)
        return;
    ab_api_destroy(&(*self)->api);
    ab_apps_destroy(&(*self)->apps);
    ab_arena_destroy(&(*self)->arena);
    free(*self);
    *self = NULL;
}

static const char *find_app(const prepare_t *self, int64_t id)
{
    for (const struct known *k = self->known; k; k = k->next)
        if (k->id == id)
            return k->name;
    return NULL;
}

static const char *keep_app(prepare_t *self, int64_t id, const char *name)
{
    struct known *k = ab_alloc(self->arena, 1, sizeof(*k));
    *k = (struct known){self->known, id, ab_strdup(self->arena, name)};
    self->known = k;
    return k->name;
}

/* Asked once an id. The launcher's loop waits for the answer, so not for long. */
static const char *app_name(prepare_t *self, int64_t id, struct ab_error *err)
{
    const char *name = find_app(self, id);
    if (name)
        return name;
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_api_options options = {.timeout_ms = CALL_MS};
    char path[64];
    if (ab_now_ms() < self->ask_ms) {
        ab_fail(err, AB_EUPSTREAM, "app %" PRId64 " cannot be asked for now", id);
        return NULL;
    }
    snprintf(path, sizeof(path), "/apps/%" PRId64, id);
    int status = ab_api_call(self->api, "GET", path, NULL, 0, &options, &reply, err);
    const struct ab_value *v =
        status == 200 ? ab_value_parse(arena, reply.data, reply.len, NULL) : NULL;
    name = ab_value_text(ab_value_get(v, "name"), NULL);
    if (name && ab_value_int(ab_value_get(v, "site_id"), 0) == self->o.site->id)
        return keep_app(self, id, name);
    if (name || status == 404) {
        ab_fail(err, AB_EINVAL, "app %" PRId64 " is not one of this site's", id);
    } else {
        err->code = AB_EUPSTREAM;
        self->ask_ms = ab_now_ms() + AGAIN_MS;
    }
    return NULL;
}

static const char **node_ids(const prepare_t *self, const struct placement *p, ab_arena_t *arena)
{
    const char **ids = ab_alloc(arena, p->n_nodes, sizeof(char *));
    for (size_t i = 0; i < p->n_nodes; i++)
        ids[i] = self->o.nodes[p->nodes[i].node].id;
    return ids;
}

static const char **command(prepare_t *self, const struct ab_app *app, const struct job *job,
                            const struct placement *p, ab_arena_t *arena, struct ab_error *err)
{
    const struct ab_value *parameters;
    if (ab_app_parameters(job, arena, &parameters, err) < 0)
        return NULL;
    const char **words = ab_app_command(app, parameters, arena, err);
    if (!words)
        return NULL;
    struct apprun_spec spec = {
        .nodes = node_ids(self, p, arena),
        .n_nodes = p->n_nodes,
        .ranks_per_node = job->ranks_per_node,
        .threads_per_rank = job->threads_per_rank,
        .cpus_per_rank = 1,
        .gpus_per_rank = (int)job->gpus_per_rank,
    };
    const char **starter = self->o.starter->words(arena, &spec, err);
    if (!starter)
        return NULL;
    size_t n = 0, m = 0;
    while (starter[n])
        n++;
    while (words[m])
        m++;
    const char **all = ab_alloc(arena, n + m + 1, sizeof(char *));
    memcpy(all, starter, n * sizeof(char *));
    memcpy(all + n, words, m * sizeof(char *));
    return ab_app_wrap(app, all, arena);
}

/* The GPUs of a one-node job: their names by comma, and the platform's variables. */
static void gpu_environment(const prepare_t *self, const struct placement *p, ab_arena_t *arena,
                            struct ab_app_env *env)
{
    if (p->n_nodes != 1 || p->nodes[0].n_gpus == 0 || !self->o.platform->gpu_environment)
        return;
    const struct place_slot *slot = &p->nodes[0];
    AB_AUTO(ab_buf_free) struct ab_buf list = {0}, vars = {0};
    for (size_t i = 0; i < slot->n_gpus; i++)
        ab_buf_printf(&list, "%s%s", i ? "," : "", slot->gpus[i]);
    env->gpus = ab_strndup(arena, list.data, list.len);
    self->o.platform->gpu_environment(&vars, slot->gpus, slot->n_gpus);
    const char *copy = ab_memdup(arena, vars.data, vars.len);
    size_t n = 0;
    for (size_t at = 0; at < vars.len; at += strlen(copy + at) + 1)
        n++;
    const char **more = ab_alloc(arena, n + 1, sizeof(char *));
    n = 0;
    for (size_t at = 0; at < vars.len; at += strlen(copy + at) + 1)
        more[n++] = copy + at;
    env->more = more;
}

int prepare_job(prepare_t *self, const struct job *job, const struct placement *p,
                ab_arena_t *arena, struct prepared *out, struct ab_error *err)
{
    const char *name = app_name(self, job->app_id, err);
    if (!name)
        return -1;
    const struct ab_app *app = ab_apps_get(self->apps, name, err);
    if (!app) {
        if (err->code != AB_EBUSY) /* no descriptors: the file may be well */
            err->code = AB_EINVAL;
        return -1;
    }
    char *path = NULL;
    AB_AUTO(ab_close) int folder = ab_workdir_open(self->o.site, job->workdir, true, &path, err);
    if (folder < 0) {
        if (err->code != AB_EBUSY && err->code != AB_EINTERNAL) /* a full disk, no data/ */
            err->code = AB_EINVAL;
        return -1;
    }
    out->cwd = ab_strdup(arena, path);
    free(path);
    out->output = ab_printf(arena, "%s/job.out", out->cwd);
    out->argv = command(self, app, job, p, arena, err);
    if (!out->argv) {
        if (err->code != AB_EBUSY)
            err->code = AB_EINVAL;
        return -1;
    }
    struct ab_app_env env = {
        .job_id = job->id,
        .workdir = out->cwd,
        .attempt = job->attempts + 1,
        .lease = AB_HAS(job, job, lease) ? job->lease : 0,
        .site_path = self->o.site->path,
        .num_nodes = job->num_nodes,
        .ranks_per_node = job->ranks_per_node,
        .threads_per_rank = job->threads_per_rank,
        .launcher_nodes = (int)self->o.n_nodes,
        .job_mode = self->o.job_mode,
    };
    gpu_environment(self, p, arena, &env);
    out->env = ab_app_environment(app, &env, arena);
    return 0;
}
