/* app.h - what a site's user lets jobs run: one file apps/NAME.yml
 *
 * A job brings values of declared parameters and nothing else. Each value replaces `{{parameter}}`
 * inside its word: it is never split, expanded or looked at by a shell. Whatever could become
 * syntax all the same is refused, when the file is loaded (a placeholder inside quotes of a shell
 * command) or when the job's command is made (control characters, a leading dash, an undeclared
 * parameter).
 *
 * A program or hook with a '/' in its name that does not start with one is taken from the folder of
 * the app file: never from the job's work directory, where files come from elsewhere.
 */
#ifndef AB_APP_H
#define AB_APP_H

#include "base/arena.h"
#include "base/error.h"
#include "schema/json.h"
#include "schema/schema.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ab_param_type {
    AB_PARAM_STRING,
    AB_PARAM_INT,
    AB_PARAM_FLOAT,
    AB_PARAM_BOOL,
    AB_PARAM_ENUM,
    AB_PARAM_PATH, /* relative, stays below the work directory */
};

struct ab_app_param {
    const char *name, *help;
    enum ab_param_type type;
    const char *def; /* NULL: required */
    bool dash;       /* may start with '-' though it is a word of its own */
    bool has_min, has_max;
    double min, max;     /* of an int or float */
    const char **values; /* of an enum */
    size_t n_values;
};

struct ab_app_slot {
    const char *name, *local_path, *description;
    bool out; /* direction */
    bool required, recursive;
};

/* A word with placeholders: text, parameter, text, parameter, ... */
struct ab_app_word {
    const char **text;                 /* n + 1 pieces */
    const struct ab_app_param **param; /* n */
    size_t n;
};

struct ab_app_vector {
    struct ab_app_word *words;
    size_t n;
};

enum ab_app_hook {
    AB_HOOK_PREPROCESS,
    AB_HOOK_POSTPROCESS,
    AB_HOOK_HANDLE_ERROR,
    AB_HOOK_HANDLE_TIMEOUT,
    AB_HOOKS,
};
extern const char *const ab_app_hook_names[AB_HOOKS];

struct ab_app {
    ab_arena_t *arena;         /* owns all below */
    const char *path, *folder; /* the file, and the folder it lies in (absolute) */
    const char *source;        /* its text */
    const char *name, *description;
    bool shell; /* command is a script: command.words[0] is all of it */
    struct ab_app_vector command;
    struct ab_app_vector hooks[AB_HOOKS]; /* n == 0: none */
    int64_t hook_timeout_ms;
    struct ab_app_param *params;
    size_t n_params;
    struct ab_app_slot *slots;
    size_t n_slots;
    const char **environment; /* "K=V" */
    size_t n_environment;
    const char *preamble; /* "a && b"; NULL none */
    const char **cleanup_files;
    size_t n_cleanup_files;
};

/* Strict: unknown keys and wrong forms are errors with file:line:column. */
struct ab_app *ab_app_load(const char *path, struct ab_error *err);
void ab_app_destroy(struct ab_app **self);

/* What the job brings: its `parameters`, or, when there are none, the dict that a Python client has
 * pickled into `serialized_parameters`; NULL for neither. AB_EINVAL as below. */
int ab_app_parameters(const struct job *job, ab_arena_t *arena, const struct ab_value **out,
                      struct ab_error *err);

/* The words of one job's program, NULL-terminated, without the preamble. `parameters` is the job's
 * object, NULL or null for none. AB_EINVAL says which parameter and why: the job FAILED with that
 * text. */
const char **ab_app_command(const struct ab_app *self, const struct ab_value *parameters,
                            ab_arena_t *arena, struct ab_error *err);
const char **ab_app_hook_command(const struct ab_app *self, enum ab_app_hook hook,
                                 const struct ab_value *parameters, ab_arena_t *arena,
                                 struct ab_error *err);

/* The app's preamble in front of any argument vector: bash -c 'PRE && exec "$@"' abies ARGV...;
 * argv itself if there is none. For `mpiexec -n 4 program`, wrap the whole. */
const char **ab_app_wrap(const struct ab_app *self, const char *const *argv, ab_arena_t *arena);

/* What a job (or hook) sees: our environment without any ABIES_* and BALSAM_*, then the app's, then
 * the variables of the job. Texts that are NULL are left out. NULL-terminated "K=V". */
struct ab_app_env {
    int64_t job_id;
    const char *workdir; /* absolute */
    int64_t attempt;
    int64_t lease; /* the number of the lease it runs under; 0: left out */
    const char *site_path;
    int num_nodes, ranks_per_node, threads_per_rank;
    const char *gpus;     /* "0,1" */
    int launcher_nodes;   /* 0: left out */
    const char *job_mode; /* "mpi", "serial" */
    const char *hook, *job_file, *result_file;
    const char *const
        *more; /* "K=V" of the launcher's own (e.g. CUDA_VISIBLE_DEVICES); NULL none */
};
const char **ab_app_environment(const struct ab_app *self, const struct ab_app_env *env,
                                ab_arena_t *arena);

/* The AppCreate/AppUpdate body that `abies app sync` sends. */
void ab_app_json(const struct ab_app *self, int64_t site_id, struct ab_buf *out);

/* ---- all apps of a site, by name; a file is read again when it has changed */
typedef struct ab_apps ab_apps_t;
ab_apps_t *ab_apps_new(const char *site_path);
void ab_apps_destroy(ab_apps_t **self);

/* Owned by self, valid until the next call with that name. NULL: no such file, or it is wrong. */
const struct ab_app *ab_apps_get(ab_apps_t *self, const char *name, struct ab_error *err);

/* Every file of apps/ by name: for each one the app, or NULL with the error that it has. */
void ab_apps_each(ab_apps_t *self,
                  void (*fn)(void *arg, const char *name, const struct ab_app *app,
                             const struct ab_error *err),
                  void *arg);

#endif
