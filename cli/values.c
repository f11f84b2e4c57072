/* values.c - arguments to JSON and filters, JSON to cells of a table (declared in remote.h) */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int pairs_check(const struct ab_opt_list *pairs, const char *option, struct ab_error *err)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (!strchr(pairs->v[i], '=') || pairs->v[i][0] == '=')
            return ab_fail(err, AB_EINVAL, "--%s takes KEY=VALUE, not `%.100s`", option,
                           pairs->v[i]);
    return 0;
}

void pairs_json(const struct ab_opt_list *pairs, struct ab_buf *out)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < pairs->n; i++) {
        const char *equals = strchr(pairs->v[i], '=');
        if (i)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, pairs->v[i], (size_t)(equals - pairs->v[i]));
        ab_buf_char(out, ':');
        ab_buf_json_str(out, equals + 1, strlen(equals + 1));
    }
    ab_buf_char(out, '}');
}

int pairs_query(const struct ab_opt_list *pairs, const char *option, const char *name,
                struct ab_buf *path, struct ab_error *err)
{
    if (pairs_check(pairs, option, err) < 0)
        return -1;
    for (size_t i = 0; i < pairs->n; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf pair = {0};
        ab_buf_str(&pair, pairs->v[i]);
        *strchr(pair.data, '=') = ':'; /* the API's form */
        ab_api_query(path, name, pair.data);
    }
    return 0;
}

int no_arguments(int argc, char **argv, struct ab_error *err)
{
    return argc > 0 ? ab_fail(err, AB_EINVAL, "unexpected argument `%.100s`; see --help", argv[0])
                    : 0;
}

int parse_id(const char *text, int64_t *id, struct ab_error *err)
{
    if (ab_parse_i64(text, strlen(text), 1, INT64_MAX, id) < 0)
        return ab_fail(err, AB_EINVAL, "`%.100s` is no id: a number from 1 on is wanted", text);
    return 0;
}

int show_ids(struct remote *r, int argc, char **argv, bool json, show_f *show, struct ab_error *err)
{
    if (json)
        putchar('[');
    for (int i = 0; i < argc; i++) {
        int64_t id;
        if (parse_id(argv[i], &id, err) < 0 || show(r, id, json, i == 0, err) < 0)
            return -1;
    }
    if (json)
        printf("]\n");
    return 0;
}

int parse_name(const struct ab_enum *names, const char *option, const char *text, const char **out,
               struct ab_error *err)
{
    for (int i = 0; i < names->n; i++) {
        if (strcasecmp(names->names[i], text) == 0) {
            *out = names->names[i];
            return 0;
        }
    }
    AB_AUTO(ab_buf_free) struct ab_buf list = {0};
    const char *near = ab_str_nearest(text, names->names, (size_t)names->n);
    for (int i = 0; i < names->n; i++)
        ab_buf_printf(&list, "%s%s", i ? ", " : "", names->names[i]);
    if (near)
        return ab_fail(err, AB_EINVAL, "--%s: there is no `%.60s`; did you mean %s?", option, text,
                       near);
    return ab_fail(err, AB_EINVAL, "--%s: there is no `%.60s`; there are %s", option, text,
                   list.data);
}

void print_value(const struct ab_value *v)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_value_write(&out, v);
    ab_buf_char(&out, '\n');
    fwrite(out.data, 1, out.len, stdout);
}

static const char *map_cell(ab_arena_t *arena, const struct ab_value *v)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    for (size_t i = 0; i < v->n && out.len < 500; i++)
        ab_buf_printf(&out, "%s%s=%s", i ? "," : "", v->keys[i], value_cell(arena, &v->items[i]));
    return ab_strndup(arena, out.data, out.len);
}

const char *value_cell(ab_arena_t *arena, const struct ab_value *v)
{
    if (!v)
        return "";
    switch (v->type) {
    case AB_V_NULL:
        return "";
    case AB_V_BOOL:
        return v->b ? "yes" : "no";
    case AB_V_INT:
        return ab_printf(arena, "%" PRId64, v->i);
    case AB_V_REAL:
        return ab_printf(arena, "%g", v->f);
    case AB_V_TEXT:
        return v->s;
    case AB_V_MAP:
        return map_cell(arena, v);
    case AB_V_LIST: {
        const char *text = "";
        for (size_t i = 0; i < v->n && i < 20; i++)
            text = ab_printf(arena, "%s%s%s", text, i ? "," : "", value_cell(arena, &v->items[i]));
        return v->n > 20 ? ab_printf(arena, "%s,... (%zu)", text, v->n) : text;
    }
    }
    return "";
}
