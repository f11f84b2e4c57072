/* app.c - read apps/NAME.yml */
#include "app.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "inner.h"
#include "yaml/yaml.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)256 * 1024)
#define HOOK_TIMEOUT_MS 300000
#define HOOK_TIMEOUT_MAX_MS INT64_C(604800000)

const char *const ab_app_hook_names[AB_HOOKS] = {
    [AB_HOOK_PREPROCESS] = "preprocess",
    [AB_HOOK_POSTPROCESS] = "postprocess",
    [AB_HOOK_HANDLE_ERROR] = "handle_error",
    [AB_HOOK_HANDLE_TIMEOUT] = "handle_timeout",
};

static const char *const type_names[] = {"string", "int", "float", "bool", "enum", "path"};

struct reader {
    struct ab_app *app;
    const struct ab_yaml *root;
    struct ab_error *err;
};

static int wrong(struct reader *r, const struct ab_yaml *v, const char *text)
{
    return ab_fail(r->err, AB_EINVAL, "%s:%d:%d: %s", r->app->path, v->line, v->column, text);
}

/* A failure of words.c, with the place put in front. */
static int wrong_within(struct reader *r, const struct ab_yaml *v)
{
    return ab_fail_within(r->err, "%s:%d:%d", r->app->path, v->line, v->column);
}

static bool is_identifier(const char *text)
{
    if (!isalpha((unsigned char)*text) && *text != '_')
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    return true;
}

static int text_of(struct reader *r, const struct ab_yaml *map, const char *key,
                   const char *otherwise, const char **out)
{
    const char *text;
    if (ab_yaml_text(r->app->path, ab_yaml_get(map, key), otherwise, &text, r->err) < 0)
        return -1;
    *out = text ? ab_strdup(r->app->arena, text) : NULL;
    return 0;
}

static const struct ab_yaml *some(const struct ab_yaml *map, const char *key)
{
    const struct ab_yaml *v = ab_yaml_get(map, key);
    return v && v->type != AB_Y_NULL ? v : NULL;
}

/* ------------------------------------------------------------------ parameters */

static int read_type(struct reader *r, const struct ab_yaml *v, struct ab_app_param *param)
{
    const struct ab_yaml *values = some(v, "values");
    const char *word;

    if (ab_yaml_text(r->app->path, ab_yaml_get(v, "type"), values ? "enum" : "string", &word,
                     r->err)
        < 0)
        return -1;
    for (size_t i = 0; i < AB_COUNT(type_names); i++) {
        if (strcmp(word, type_names[i]) != 0)
            continue;
        param->type = (enum ab_param_type)i;
        if ((param->type == AB_PARAM_ENUM) != (values != NULL))
            return wrong(r, v, "`values: [...]` belongs to `type: enum`, and an enum needs it");
        if (!values)
            return 0;
        return ab_yaml_strings(r->app->path, values, r->app->arena, &param->values,
                               &param->n_values, r->err);
    }
    return wrong(r, v, "type is one of string, int, float, bool, enum, path");
}

static int read_bound(struct reader *r, const struct ab_yaml *v, const char *key,
                      const struct ab_app_param *param, bool *has, double *out)
{
    const struct ab_yaml *bound = some(v, key);

    if (!bound)
        return 0;
    if (param->type != AB_PARAM_INT && param->type != AB_PARAM_FLOAT)
        return wrong(r, bound, "min and max belong to int and float parameters");
    *has = true;
    return ab_yaml_real(r->app->path, bound, 0, out, r->err);
}

static int read_param(struct reader *r, const char *name, const struct ab_yaml *v,
                      struct ab_app_param *param)
{
    static const char *const keys[] = {"type", "help", "min", "max", "values", "default", "dash"};

    if (!is_identifier(name))
        return wrong(r, v, "a parameter's name is an identifier");
    param->name = ab_strdup(r->app->arena, name);
    param->help = "";
    if (v->type == AB_Y_NULL) /* `title:` alone: a required text */
        return 0;
    if (v->type != AB_Y_MAP)
        return wrong(r, v, "a parameter looks like `n: {type: int, help: order of the matrix}`");
    if (ab_yaml_only(r->app->path, v, keys, AB_COUNT(keys), r->err) < 0
        || read_type(r, v, param) < 0 || text_of(r, v, "help", "", &param->help) < 0
        || text_of(r, v, "default", NULL, &param->def) < 0
        || ab_yaml_bool(r->app->path, ab_yaml_get(v, "dash"), false, &param->dash, r->err) < 0
        || read_bound(r, v, "min", param, &param->has_min, &param->min) < 0
        || read_bound(r, v, "max", param, &param->has_max, &param->max) < 0)
        return -1;
    if (param->def && value_check(param, param->def, strlen(param->def), r->err) < 0)
        return wrong_within(r, v);
    return 0;
}

static int read_params(struct reader *r)
{
    const struct ab_yaml *map = some(r->root, "parameters");

    if (!map)
        return 0;
    if (map->type != AB_Y_MAP)
        return wrong(r, map, "parameters are `name: {type: ..., help: ...}` lines");
    r->app->params = ab_alloc(r->app->arena, map->n, sizeof(*r->app->params));
    for (size_t i = 0; i < map->n; i++)
        if (read_param(r, map->keys[i], &map->items[i], &r->app->params[r->app->n_params++]) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ transfers */

static int read_slot(struct reader *r, const char *name, const struct ab_yaml *v,
                     struct ab_app_slot *slot)
{
    static const char *const keys[] = {"direction", "local_path", "required", "recursive",
                                       "description"};
    const char *direction;

    slot->name = ab_strdup(r->app->arena, name);
    if (v->type != AB_Y_MAP)
        return wrong(r, v,
                     "a transfer looks like `matrix: {direction: in, local_path: matrix.bin}`");
    if (ab_yaml_only(r->app->path, v, keys, AB_COUNT(keys), r->err) < 0
        || text_of(r, v, "direction", NULL, &direction) < 0
        || text_of(r, v, "local_path", NULL, &slot->local_path) < 0
        || text_of(r, v, "description", "", &slot->description) < 0
        || ab_yaml_bool(r->app->path, ab_yaml_get(v, "required"), true, &slot->required, r->err) < 0
        || ab_yaml_bool(r->app->path, ab_yaml_get(v, "recursive"), false, &slot->recursive, r->err)
               < 0)
        return -1;
    if (!direction || (strcmp(direction, "in") != 0 && strcmp(direction, "out") != 0))
        return wrong(r, v, "direction is `in` or `out`");
    slot->out = strcmp(direction, "out") == 0;
    if (!slot->local_path || !ab_path_stays_below(slot->local_path))
        return wrong(r, v, "local_path is a name below the work directory, without `..`");
    return 0;
}

static int read_slots(struct reader *r)
{
    const struct ab_yaml *map = some(r->root, "transfers");

    if (!map)
        return 0;
    if (map->type != AB_Y_MAP)
        return wrong(r, map, "transfers are `name: {direction: ..., local_path: ...}` lines");
    r->app->slots = ab_alloc(r->app->arena, map->n, sizeof(*r->app->slots));
    for (size_t i = 0; i < map->n; i++)
        if (read_slot(r, map->keys[i], &map->items[i], &r->app->slots[r->app->n_slots++]) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ commands */

/* A list of words, each of them a template. */
static int read_vector(struct reader *r, const struct ab_yaml *v, struct ab_app_vector *out)
{
    out->words = ab_alloc(r->app->arena, v->n, sizeof(*out->words));
    for (size_t i = 0; i < v->n; i++) {
        const char *word;
        if (ab_yaml_text(r->app->path, &v->items[i], "", &word, r->err) < 0)
            return -1;
        if (words_parse(r->app, word, strlen(word), false, &out->words[out->n++], r->err) < 0)
            return wrong_within(r, &v->items[i]);
    }
    return 0;
}

static int read_command(struct reader *r)
{
    const struct ab_yaml *v = some(r->root, "command");
    struct ab_app *app = r->app;

    if (!v)
        return wrong(r, r->root, "command is missing: what does this app run?");
    if (ab_yaml_bool(app->path, ab_yaml_get(r->root, "shell"), false, &app->shell, r->err) < 0)
        return -1;
    if (v->type == AB_Y_LIST && v->n && !app->shell)
        return read_vector(r, v, &app->command);
    if (v->type != AB_Y_TEXT || !*v->text)
        return wrong(r, v,
                     app->shell ? "with `shell: true` the command is one text"
                                : "command is a text or a list of words");
    if (!app->shell)
        return words_split(app, v->text, &app->command, r->err) < 0 ? wrong_within(r, v) : 0;
    app->command.words = ab_alloc(app->arena, 1, sizeof(*app->command.words));
    app->command.n = 1;
    return words_parse(app, v->text, strlen(v->text), true, app->command.words, r->err) < 0
               ? wrong_within(r, v)
               : 0;
}

static int read_hooks(struct reader *r)
{
    const struct ab_yaml *map = some(r->root, "hooks");

    if (ab_yaml_duration(r->app->path, ab_yaml_get(r->root, "hook_timeout_sec"), 1000,
                         HOOK_TIMEOUT_MS, &r->app->hook_timeout_ms, r->err)
        < 0)
        return -1;
    if (r->app->hook_timeout_ms < 1 || r->app->hook_timeout_ms > HOOK_TIMEOUT_MAX_MS)
        return wrong(r, r->root, "hook_timeout_sec is between a moment and a week");
    if (!map)
        return 0;
    if (map->type != AB_Y_MAP)
        return wrong(r, map, "hooks are `preprocess: [program, argument]` lines");
    if (ab_yaml_only(r->app->path, map, ab_app_hook_names, AB_HOOKS, r->err) < 0)
        return -1;
    for (int i = 0; i < AB_HOOKS; i++) {
        const struct ab_yaml *v = some(map, ab_app_hook_names[i]);
        if (!v)
            continue;
        if (v->type != AB_Y_LIST)
            return wrong(r, v, "a hook is a list of words: [./check, --fast]");
        if (read_vector(r, v, &r->app->hooks[i]) < 0)
            return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ the rest */

static int read_environment(struct reader *r)
{
    const struct ab_yaml *map = some(r->root, "environment");

    if (!map)
        return 0;
    if (map->type != AB_Y_MAP)
        return wrong(r, map, "environment is `NAME: value` lines");
    r->app->environment = ab_alloc(r->app->arena, map->n, sizeof(char *));
    for (size_t i = 0; i < map->n; i++) {
        const char *text;
        if (!is_identifier(map->keys[i]))
            return wrong(r, &map->items[i], "the name of a variable is an identifier");
        if (ab_str_starts(map->keys[i], "ABIES_"))
            return wrong(r, &map->items[i], "variables named ABIES_* are set by Abies");
        if (ab_yaml_text(r->app->path, &map->items[i], "", &text, r->err) < 0)
            return -1;
        r->app->environment[r->app->n_environment++] =
            ab_printf(r->app->arena, "%s=%s", map->keys[i], text ? text : "");
    }
    return 0;
}

static int read_preamble(struct reader *r)
{
    const struct ab_yaml *v = some(r->root, "preamble");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char **lines;
    size_t n;

    if (!v)
        return 0;
    if (ab_yaml_strings(r->app->path, v, r->app->arena, &lines, &n, r->err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (strstr(lines[i], "{{"))
            return wrong(r, v, "a preamble takes no {{parameters}}: it is read by bash");
        ab_buf_printf(&text, "%s%s", i ? " && " : "", lines[i]);
    }
    if (text.len)
        r->app->preamble = ab_strndup(r->app->arena, text.data, text.len);
    return 0;
}

static int read_cleanup(struct reader *r)
{
    const struct ab_yaml *v = some(r->root, "cleanup_files");

    if (!v)
        return 0;
    if (ab_yaml_strings(r->app->path, v, r->app->arena, &r->app->cleanup_files,
                        &r->app->n_cleanup_files, r->err)
        < 0)
        return -1;
    for (size_t i = 0; i < r->app->n_cleanup_files; i++)
        if (!ab_path_stays_below(r->app->cleanup_files[i]))
            return wrong(r, v, "cleanup_files are patterns below the work directory, without `..`");
    return 0;
}

/* The file's name is the app's. */
static int read_name(struct reader *r)
{
    const char *file = strrchr(r->app->path, '/') + 1;
    size_t len = strlen(file);

    if (text_of(r, r->root, "name", NULL, &r->app->name) < 0
        || text_of(r, r->root, "description", "", &r->app->description) < 0)
        return -1;
    if (!r->app->name || !is_identifier(r->app->name) || strlen(r->app->name) > 200)
        return wrong(r, r->root, "name is an identifier, the same as the file's name without .yml");
    if (len != strlen(r->app->name) + 4 || strncmp(file, r->app->name, len - 4) != 0)
        return ab_fail(r->err, AB_EINVAL, "%s: the app %s must lie in a file %s.yml", r->app->path,
                       r->app->name, r->app->name);
    return 0;
}

static int read_app(struct reader *r)
{
    static const char *const keys[] = {
        "name",       "description",      "command",       "shell",
        "parameters", "transfers",        "environment",   "preamble",
        "hooks",      "hook_timeout_sec", "cleanup_files",
    };

    if (r->root->type != AB_Y_MAP)
        return wrong(r, r->root, "an app is `key: value` lines");
    if (ab_yaml_only(r->app->path, r->root, keys, AB_COUNT(keys), r->err) < 0)
        return -1;
    int (*const steps[])(struct reader *) = {read_name,     read_params, read_slots,
                                             read_command,  read_hooks,  read_environment,
                                             read_preamble, read_cleanup};
    for (size_t i = 0; i < AB_COUNT(steps); i++)
        if (steps[i](r) < 0)
            return -1;
    return 0;
}

struct ab_app *ab_app_load(const char *path, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(ab_free) char *real = realpath(path, NULL);

    if (!real || ab_file_read(real, FILE_MAX, &text, err) < 0) {
        if (!real)
            ab_fail_errno(err, AB_ENOENT, "app file %s", path);
        return NULL;
    }
    ab_arena_t *arena = ab_arena_new();
    struct ab_app *app = ab_alloc(arena, 1, sizeof(*app));
    app->arena = arena;
    /* the name by which we came counts, not what a link to it is called */
    const char *slash = strrchr(path, '/');
    char *folder = ab_strdup(arena, real);
    *strrchr(folder, '/') = '\0';
    app->folder = folder;
    app->path = ab_printf(arena, "%s/%s", folder, slash ? slash + 1 : path);
    app->source = ab_strndup(arena, text.data ? text.data : "", text.len);
    struct reader r = {.app = app, .err = err};
    r.root = ab_yaml_parse(arena, app->path, app->source, text.len, err);
    if (!r.root || read_app(&r) < 0)
        ab_app_destroy(&app);
    return app;
}

void ab_app_destroy(struct ab_app **self)
{
    if (!*self)
        return;
    ab_arena_t *arena = (*self)->arena;
    ab_arena_destroy(&arena);
    *self = NULL;
}
