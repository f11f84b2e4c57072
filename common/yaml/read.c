/* read.c - typed readers, and settings files */
#include "yaml.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ab_yaml *ab_yaml_get(const struct ab_yaml *map, const char *key)
{
    for (size_t i = 0; map && map->type == AB_Y_MAP && i < map->n; i++)
        if (strcmp(map->keys[i], key) == 0)
            return &map->items[i];
    return NULL;
}

static const char *type_name(const struct ab_yaml *v)
{
    switch (v->type) {
    case AB_Y_LIST:
        return "a list";
    case AB_Y_MAP:
        return "a map";
    case AB_Y_NULL:
        return "nothing";
    default:
        return v->quoted ? "a quoted text" : "a text";
    }
}

static int wrong(const char *file, const struct ab_yaml *v, const char *wanted,
                 struct ab_error *err)
{
    if (v->type == AB_Y_TEXT && !v->quoted)
        return ab_fail(err, AB_EINVAL, "%s:%d:%d: %s is wanted here, not `%.80s`", file, v->line,
                       v->column, wanted, v->text);
    return ab_fail(err, AB_EINVAL, "%s:%d:%d: %s is wanted here, not %s", file, v->line, v->column,
                   wanted, type_name(v));
}

/* `key:` with nothing behind it is as good as no key. */
static bool absent(const struct ab_yaml *v)
{
    return !v || v->type == AB_Y_NULL;
}

static bool plain(const struct ab_yaml *v)
{
    return v->type == AB_Y_TEXT && !v->quoted;
}

int ab_yaml_only(const char *file, const struct ab_yaml *map, const char *const *names, size_t n,
                 struct ab_error *err)
{
    if (absent(map))
        return 0;
    if (map->type != AB_Y_MAP)
        return wrong(file, map, "a map (key: value)", err);
    for (size_t i = 0; i < map->n; i++) {
        bool known = false;
        for (size_t k = 0; k < n && !known; k++)
            known = strcmp(map->keys[i], names[k]) == 0;
        if (known)
            continue;
        const char *near = ab_str_nearest(map->keys[i], names, n);
        return ab_fail(err, AB_EINVAL, "%s:%d: unknown key `%.80s`%s%s%s", file, map->key_lines[i],
                       map->keys[i], near ? "; did you mean `" : "", near ? near : "",
                       near ? "`?" : "");
    }
    return 0;
}

int ab_yaml_text(const char *file, const struct ab_yaml *v, const char *otherwise, const char **out,
                 struct ab_error *err)
{
    *out = otherwise;
    if (absent(v))
        return 0;
    if (v->type != AB_Y_TEXT)
        return wrong(file, v, "a text", err);
    *out = v->text;
    return 0;
}

int ab_yaml_int(const char *file, const struct ab_yaml *v, int64_t min, int64_t max,
                int64_t otherwise, int64_t *out, struct ab_error *err)
{
    char wanted[96];
    *out = otherwise;
    if (absent(v))
        return 0;
    if (plain(v) && ab_parse_i64(v->text, strlen(v->text), min, max, out) == 0)
        return 0;
    if (min == INT64_MIN && max == INT64_MAX)
        return wrong(file, v, "a whole number", err);
    snprintf(wanted, sizeof(wanted), "a whole number from %" PRId64 " to %" PRId64, min, max);
    return wrong(file, v, wanted, err);
}

static int parse_real(const char *text, double *out)
{
    char *end;
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return -1;
    *out = strtod(text, &end);
    return *end || isinf(*out) ? -1 : 0;
}

int ab_yaml_real(const char *file, const struct ab_yaml *v, double otherwise, double *out,
                 struct ab_error *err)
{
    *out = otherwise;
    if (absent(v) || (plain(v) && parse_real(v->text, out) == 0))
        return 0;
    return wrong(file, v, "a number", err);
}

int ab_yaml_bool(const char *file, const struct ab_yaml *v, bool otherwise, bool *out,
                 struct ab_error *err)
{
    *out = otherwise;
    if (absent(v))
        return 0;
    *out = plain(v) && strcmp(v->text, "true") == 0;
    if (*out || (plain(v) && strcmp(v->text, "false") == 0))
        return 0;
    return wrong(file, v, "true or false", err);
}

int ab_yaml_duration(const char *file, const struct ab_yaml *v, int64_t unit_ms,
                     int64_t otherwise_ms, int64_t *out_ms, struct ab_error *err)
{
    double number;
    *out_ms = otherwise_ms;
    if (absent(v))
        return 0;
    if (plain(v) && ab_parse_duration(v->text, out_ms) == 0)
        return 0;
    if (plain(v) && parse_real(v->text, &number) == 0 && number >= 0
        && number * (double)unit_ms < 1e15) {
        *out_ms = (int64_t)llround(number * (double)unit_ms);
        return 0;
    }
    return wrong(file, v, "a duration such as 250ms, 30s, 5m, 48h or a number", err);
}

int ab_yaml_strings(const char *file, const struct ab_yaml *v, ab_arena_t *arena, const char ***out,
                    size_t *n, struct ab_error *err)
{
    *out = NULL;
    *n = 0;
    if (absent(v))
        return 0;
    if (v->type != AB_Y_LIST)
        return wrong(file, v, "a list of texts ([a, b])", err);
    const char **texts = ab_alloc(arena, v->n + 1, sizeof(*texts));
    for (size_t i = 0; i < v->n; i++) {
        if (v->items[i].type != AB_Y_TEXT)
            return wrong(file, &v->items[i], "a text", err);
        texts[i] = v->items[i].text;
    }
    *out = texts;
    *n = v->n;
    return 0;
}

/* A list is written as the list settings want it: by comma. */
static int conf_value(const char *file, const struct ab_yaml *v, struct ab_buf *out,
                      struct ab_error *err)
{
    if (v->type == AB_Y_TEXT)
        ab_buf_str(out, v->text);
    else if (v->type != AB_Y_LIST)
        return wrong(file, v, "a single value", err);
    for (size_t i = 0; v->type == AB_Y_LIST && i < v->n; i++) {
        if (v->items[i].type != AB_Y_TEXT)
            return wrong(file, &v->items[i], "a text", err);
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_str(out, v->items[i].text);
    }
    ab_buf_str(out, "");
    return out->failed ? ab_fail(err, AB_EINTERNAL, "%s: no memory to read it", file) : 0;
}

int ab_yaml_conf(ab_conf_t *conf, const char *path, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *base = strrchr(path, '/'), *file = base ? base + 1 : path;
    const struct ab_yaml *map = ab_yaml_load(arena, path, err);
    if (!map)
        return -1;
    if (map->type != AB_Y_MAP)
        return wrong(file, map, "a map (setting: value)", err);
    for (size_t i = 0; i < map->n; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf value = {0};
        if (map->items[i].type == AB_Y_NULL)
            continue;
        const char *origin = ab_printf(arena, "%s:%d", file, map->key_lines[i]);
        if (conf_value(file, &map->items[i], &value, err) < 0
            || ab_conf_set(conf, AB_CONF_FILE, origin, map->keys[i], value.data, err) < 0)
            return -1;
    }
    return 0;
}
