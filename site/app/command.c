/* command.c - parameters of one job into argument vectors */
#include "app.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "inner.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX ((size_t)128 * 1024) /* the kernel's limit for one argument */

static int refuse(const struct ab_app_param *param, const char *why, struct ab_error *err)
{
    return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "parameter %s %s", param->name, why);
}

/* ------------------------------------------------------------------ one value */

/* Any scalar as text; 17 digits bring a double back as it was. */
static int text_of(const struct ab_app_param *param, const struct ab_value *v, ab_arena_t *arena,
                   const char **out, size_t *len, struct ab_error *err)
{
    switch (v->type) {
    case AB_V_TEXT:
        *out = v->s;
        *len = v->len;
        return 0;
    case AB_V_INT:
        *out = ab_printf(arena, "%" PRId64, v->i);
        break;
    case AB_V_REAL: {
        char text[40];
        snprintf(text, sizeof(text), "%.15g", v->f);
        if (strtod(text, NULL) != v->f)
            snprintf(text, sizeof(text), "%.17g", v->f);
        *out = ab_strdup(arena, text);
        break;
    }
    case AB_V_BOOL:
        *out = v->b ? "true" : "false";
        break;
    default:
        return refuse(param, "must be a text, a number or true/false", err);
    }
    *len = strlen(*out);
    return 0;
}

static int check_text(const struct ab_app_param *param, const char *text, size_t len,
                      struct ab_error *err)
{
    if (len > VALUE_MAX)
        return refuse(param, "is longer than 128 KiB; put it into a file and transfer that", err);
    if (!ab_utf8_ok(text, len))
        return refuse(param, "is not UTF-8", err);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7f)
            return refuse(param, "has a control character", err);
    }
    return 0;
}

static bool parse_real(const char *text, double *out)
{
    char *end;

    if (!isdigit((unsigned char)*text) && !strchr("+-.", *text))
        return false; /* no blanks, no inf, no nan */
    errno = 0;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out) && !strpbrk(text, "xX");
}

static int check_bounds(const struct ab_app_param *param, double v, struct ab_error *err)
{
    if (param->has_min && v < param->min)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "parameter %s must be at least %g",
                            param->name, param->min);
    if (param->has_max && v > param->max)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "parameter %s must be at most %g",
                            param->name, param->max);
    return 0;
}

static int check_type(const struct ab_app_param *param, const char *text, size_t len,
                      struct ab_error *err)
{
    int64_t number;
    double real;

    switch (param->type) {
    case AB_PARAM_INT:
        if (ab_parse_i64(text, len, INT64_MIN, INT64_MAX, &number) < 0)
            return refuse(param, "is not a whole number", err);
        return check_bounds(param, (double)number, err);
    case AB_PARAM_FLOAT:
        if (!*text || !parse_real(text, &real))
            return refuse(param, "is not a number", err);
        return check_bounds(param, real, err);
    case AB_PARAM_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return refuse(param, "is neither true nor false", err);
        return 0;
    case AB_PARAM_ENUM:
        for (size_t i = 0; i < param->n_values; i++)
            if (strcmp(param->values[i], text) == 0)
                return 0;
        return refuse(param, "is none of the values that the app allows", err);
    case AB_PARAM_PATH:
        if (!ab_path_stays_below(text))
            return refuse(param, "is not a path below the work directory (relative, without `..`)",
                          err);
        return 0;
    case AB_PARAM_STRING:
        break;
    }
    return 0;
}

int value_check(const struct ab_app_param *param, const char *text, size_t len,
                struct ab_error *err)
{
    return check_text(param, text, len, err) < 0 ? -1 : check_type(param, text, len, err);
}

/* ------------------------------------------------------------------ all values of a job */

/* texts[i] belongs to app->params[i]. */
static int read_values(const struct ab_app *app, const struct ab_value *given, ab_arena_t *arena,
                       const char ***out, struct ab_error *err)
{
    const char **texts = ab_alloc(arena, app->n_params + 1, sizeof(*texts));

    if (given && given->type == AB_V_NULL)
        given = NULL;
    if (given && given->type != AB_V_MAP)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "the job's parameters are not an object");
    for (size_t i = 0; given && i < given->n; i++)
        if (!app_param(app, given->keys[i], strlen(given->keys[i])))
            return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                                "the app %s has no parameter %.100s", app->name, given->keys[i]);
    for (size_t i = 0; i < app->n_params; i++) {
        const struct ab_app_param *param = &app->params[i];
        const struct ab_value *v = ab_value_get(given, param->name);
        size_t len = 0;

        if (v && v->type != AB_V_NULL) {
            if (text_of(param, v, arena, &texts[i], &len, err) < 0)
                return -1;
        } else if (param->def) {
            texts[i] = param->def;
            len = strlen(param->def);
        } else {
            return refuse(param, "is required", err);
        }
        if (value_check(param, texts[i], len, err) < 0)
            return -1;
    }
    *out = texts;
    return 0;
}

/* ------------------------------------------------------------------ words */

struct filling {
    const struct ab_app *app;
    const char **texts;
    ab_arena_t *arena;
};

static const char *value_of(const struct filling *job, const struct ab_app_param *param)
{
    return job->texts[param - job->app->params];
}

/* `--verbose` as the value of a word of its own would be an option nobody offered. */
static int check_dash(const struct ab_app_word *word, const char *text, struct ab_error *err)
{
    double number;

    if (!word->n || *word->text[0] || *text != '-' || word->param[0]->dash
        || parse_real(text, &number))
        return 0;
    return refuse(word->param[0],
                  "starts with `-`, which the program would take for an option; the app may allow "
                  "that with `dash: true`",
                  err);
}

static const char *fill(const struct filling *job, const struct ab_app_word *word,
                        struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {.limit = 2 * VALUE_MAX};

    ab_buf_str(&text, word->text[0]);
    for (size_t i = 0; i < word->n; i++) {
        ab_buf_str(&text, value_of(job, word->param[i]));
        ab_buf_str(&text, word->text[i + 1]);
    }
    if (text.failed) {
        ab_fail(err, AB_EINVAL, "a word of the command becomes too long");
        return NULL;
    }
    const char *out = ab_strndup(job->arena, text.data ? text.data : "", text.len);
    return check_dash(word, out, err) < 0 ? NULL : out;
}

static void add_quoted(struct ab_buf *out, const char *value)
{
    ab_buf_char(out, '\'');
    for (; *value; value++) {
        if (*value == '\'')
            ab_buf_str(out, "'\\''");
        else
            ab_buf_char(out, *value);
    }
    ab_buf_char(out, '\'');
}

static const char *fill_script(const struct filling *job, const struct ab_app_word *word,
                               struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {.limit = 4 * VALUE_MAX};

    ab_buf_str(&text, word->text[0]);
    for (size_t i = 0; i < word->n; i++) {
        const char *value = value_of(job, word->param[i]);
        struct ab_app_word alone = {
            .text = (const char *[]){"", ""}, .param = &word->param[i], .n = 1};
        const char *before = word->text[i];
        bool starts_word = !*before || strchr(" \t\n;|&()", before[strlen(before) - 1]);
        if (starts_word && check_dash(&alone, value, err) < 0)
            return NULL;
        add_quoted(&text, value);
        ab_buf_str(&text, word->text[i + 1]);
    }
    if (text.failed) {
        ab_fail(err, AB_EINVAL, "the script of the command becomes too long");
        return NULL;
    }
    return ab_strndup(job->arena, text.data ? text.data : "", text.len);
}

/* A program beside the app file; a bare name is left to PATH. */
static const char *program(const struct ab_app *app, const char *word, ab_arena_t *arena)
{
    if (*word == '/' || !strchr(word, '/'))
        return word;
    return ab_printf(arena, "%s/%s", app->folder, ab_str_starts(word, "./") ? word + 2 : word);
}

static const char **vector(const struct filling *job, const struct ab_app_vector *from,
                           struct ab_error *err)
{
    const char **argv = ab_alloc(job->arena, from->n + 1, sizeof(*argv));

    for (size_t i = 0; i < from->n; i++) {
        argv[i] = fill(job, &from->words[i], err);
        if (!argv[i])
            return NULL;
    }
    if (!*argv[0]) {
        ab_fail(err, AB_EINVAL, "the name of the program is empty");
        return NULL;
    }
    argv[0] = program(job->app, argv[0], job->arena);
    return argv;
}

const char **ab_app_command(const struct ab_app *self, const struct ab_value *parameters,
                            ab_arena_t *arena, struct ab_error *err)
{
    struct filling job = {.app = self, .arena = arena};

    if (read_values(self, parameters, arena, &job.texts, err) < 0)
        return NULL;
    if (!self->shell)
        return vector(&job, &self->command, err);
    const char *script = fill_script(&job, &self->command.words[0], err);
    if (!script)
        return NULL;
    const char **argv = ab_alloc(arena, 4, sizeof(*argv));
    argv[0] = "bash";
    argv[1] = "-c";
    argv[2] = script;
    return argv;
}

const char **ab_app_hook_command(const struct ab_app *self, enum ab_app_hook hook,
                                 const struct ab_value *parameters, ab_arena_t *arena,
                                 struct ab_error *err)
{
    struct filling job = {.app = self, .arena = arena};

    if (read_values(self, parameters, arena, &job.texts, err) < 0)
        return NULL;
    return vector(&job, &self->hooks[hook], err);
}

const char **ab_app_wrap(const struct ab_app *self, const char *const *argv, ab_arena_t *arena)
{
    size_t n = 0;

    while (argv[n])
        n++;
    const char **out = ab_alloc(arena, n + 5, sizeof(*out));
    size_t at = 0;
    if (self->preamble) {
        out[at++] = "bash";
        out[at++] = "-c";
        out[at++] = ab_printf(arena, "%s && exec \"$@\"", self->preamble);
        out[at++] = "abies";
    }
    memcpy(out + at, argv, n * sizeof(*out));
    return out;
}
