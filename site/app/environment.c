/* environment.c - what jobs and hooks see */
#include "app.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define OWN_MAX 24

struct list {
    const char **v;
    size_t n;
};

/* A later setting of a name wins, and no name stands there twice. */
static void set(struct list *list, const char *pair)
{
    size_t name = strcspn(pair, "=") + 1;

    for (size_t i = 0; i < list->n; i++) {
        if (strncmp(list->v[i], pair, name) == 0) {
            list->v[i] = pair;
            return;
        }
    }
    list->v[list->n++] = pair;
}

static void set_text(struct list *list, ab_arena_t *arena, const char *name, const char *value)
{
    if (value)
        set(list, ab_printf(arena, "%s=%s", name, value));
}

static void set_int(struct list *list, ab_arena_t *arena, const char *name, int64_t value)
{
    set(list, ab_printf(arena, "%s=%" PRId64, name, value));
}

/* Nothing of ours leaks into jobs: no token path, no centre, no broker. */
static bool is_ours(const char *pair)
{
    return ab_str_starts(pair, "ABIES_") || ab_str_starts(pair, "BALSAM_");
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

const char **ab_app_environment(const struct ab_app *self, const struct ab_app_env *env,
                                ab_arena_t *arena)
{
    const char *const *ours = (const char *const *)environ;
    size_t room = count(ours) + self->n_environment + count(env->more) + OWN_MAX;
    struct list list = {.v = ab_alloc(arena, room + 1, sizeof(char *))};

    for (size_t i = 0; ours && ours[i]; i++)
        if (!is_ours(ours[i]))
            list.v[list.n++] = ours[i];
    set_int(&list, arena, "OMP_NUM_THREADS", env->threads_per_rank > 0 ? env->threads_per_rank : 1);
    for (size_t i = 0; i < self->n_environment; i++)
        set(&list, self->environment[i]);
    for (size_t i = 0; env->more && env->more[i]; i++)
        set(&list, env->more[i]);
    set_int(&list, arena, "ABIES_JOB_ID", env->job_id);
    set_int(&list, arena, "BALSAM_JOB_ID", env->job_id);
    set_text(&list, arena, "ABIES_JOB_WORKDIR", env->workdir);
    set_text(&list, arena, "ABIES_APP", self->name);
    set_int(&list, arena, "ABIES_ATTEMPT", env->attempt);
    if (env->lease > 0)
        set_int(&list, arena, "ABIES_LEASE", env->lease);
    set_text(&list, arena, "ABIES_SITE_PATH", env->site_path);
    set_int(&list, arena, "ABIES_NUM_NODES", env->num_nodes);
    set_int(&list, arena, "ABIES_RANKS_PER_NODE", env->ranks_per_node);
    set_int(&list, arena, "ABIES_THREADS_PER_RANK", env->threads_per_rank);
    set_text(&list, arena, "ABIES_GPUS", env->gpus);
    if (env->launcher_nodes > 0)
        set_int(&list, arena, "ABIES_LAUNCHER_NODES", env->launcher_nodes);
    set_text(&list, arena, "ABIES_JOB_MODE", env->job_mode);
    set_text(&list, arena, "ABIES_HOOK", env->hook);
    set_text(&list, arena, "ABIES_JOB_FILE", env->job_file);
    set_text(&list, arena, "ABIES_RESULT_FILE", env->result_file);
    return list.v;
}
