/* known.c - which program knows which setting */
#include "known.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/spawn.h"
#include "base/str.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_LIMIT_MS 30000
#define NAMES_MAX 256

const char *known_role(int program)
{
    return program == 0 ? "gateway" : centre_roles[program - 1];
}

/* "session_ttl=3s" -> "ABIES_SESSION_TTL=3s" */
static const char *variable(const struct centre *self, const struct centre_setting *s)
{
    char *text = ab_printf(self->arena, "ABIES_%s=%s", s->name, s->value);
    for (char *p = text; *p != '='; p++)
        *p = (char)toupper((unsigned char)*p);
    return text;
}

/* The words of its log line (text="..."), or the line. */
static const char *complaint(char *line)
{
    char *text = strstr(line, " text=\""), *end;
    line[strcspn(line, "\n")] = '\0';
    if (!text)
        return line;
    text += strlen(" text=\"");
    end = strrchr(text, '"');
    if (end)
        *end = '\0';
    return text;
}

/* `program --print-config` with the settings that it knows (none: which are there?). */
static int ask(const struct centre *self, const char *program, const bool *with,
               struct ab_buf *output, struct ab_error *err)
{
    const char **env = ab_alloc(self->arena, self->n_settings + 8, sizeof(*env));
    size_t n = 0;
    int status = 0;
    env[n++] = ab_printf(self->arena, "PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    env[n++] = "LSAN_OPTIONS=detect_leaks=0"; /* a program that is only asked may leave at once */
    for (size_t i = 0; with && i < self->n_settings; i++)
        if (with[i])
            env[n++] = variable(self, &self->settings[i]);
    const char *argv[] = {program, "--print-config", NULL};
    struct ab_spawn what = {.argv = argv, .env = env, .in = -1, .out = -1, .err = -1};
    if (ab_run_command(&what, ASK_LIMIT_MS, output, &status, err) < 0)
        return -1;
    ab_buf_str(output, "");
    if (ab_exit_code(status) == 0)
        return 0;
    return ab_fail(err, AB_EINVAL, "%s", complaint(output->data));
}

static int names_of(const struct centre *self, const char *program, const char **names, size_t *n,
                    struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 65536};
    if (ask(self, program, NULL, &output, err) < 0)
        return ab_fail_within(err, "%s --print-config", program);
    char *rest = output.data, *line;
    while ((line = strsep(&rest, "\n")) && *n < NAMES_MAX) {
        size_t len = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (len > 0 && line[len] == ':') /* of a secret it is the name of its file */
            names[(*n)++] = ab_printf(self->arena, "%.*s%s", (int)len, line,
                                      ab_str_ends(line, ", a secret") ? "_file" : "");
    }
    return 0;
}

static bool contains(const char *const *names, size_t from, size_t to, const char *name)
{
    for (size_t i = from; i < to; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The names of all programs, one after the other; program p's end at ends[p]. */
static int ask_all(const struct centre *self, struct known *out, const char **names, size_t *ends,
                   struct ab_error *err)
{
    size_t n = 0;
    for (int p = 0; p < PROGRAMS; p++) {
        size_t first = n;
        if (names_of(self, out->path[p], names, &n, err) < 0)
            return -1;
        ends[p] = n;
        out->of[p] = ab_alloc(self->arena, self->n_settings, sizeof(bool));
        for (size_t i = 0; i < self->n_settings; i++)
            out->of[p][i] = contains(names, first, n, self->settings[i].name);
    }
    return 0;
}

int known_find(const struct centre *self, struct known *out, struct ab_error *err)
{
    const char *names[NAMES_MAX];
    size_t ends[PROGRAMS];
    *out = (struct known){0};
    for (int p = 0; p < PROGRAMS; p++) {
        const char *name = ab_printf(self->arena, "abies-%s", known_role(p));
        out->path[p] = ab_find_program(name);
        if (!out->path[p])
            return ab_fail(err, AB_ENOENT, "program %s is not installed beside this one (in %s)",
                           name, ab_self_dir());
    }
    if (self->n_settings == 0)
        return 0;
    if (ask_all(self, out, names, ends, err) < 0)
        return -1;
    for (size_t i = 0; i < self->n_settings; i++) {
        if (contains(names, 0, ends[PROGRAMS - 1], self->settings[i].name))
            continue;
        const char *near = ab_str_nearest(self->settings[i].name, names, ends[PROGRAMS - 1]);
        return ab_fail(err, AB_EINVAL, "no program of the centre has a setting `%.80s`%s%s%s",
                       self->settings[i].name,
                       near ? "; did you mean `"
                            : "; `abies-gateway --help` and the like list them",
                       near ? near : "", near ? "`?" : "");
    }
    for (int p = 0; p < PROGRAMS; p++) {
        AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 65536};
        if (ask(self, out->path[p], out->of[p], &output, err) < 0)
            return -1;
    }
    return 0;
}
