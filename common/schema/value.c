/* value.c - free JSON as a small tree in an arena */
#include "json.h"

#include "coerce.h"
#include "number.h"
#include <math.h>
#include <string.h>

static bool build(ab_arena_t *arena, const struct ab_node *node, struct ab_value *v);

static bool build_list(ab_arena_t *arena, const struct ab_node *node, struct ab_value *v)
{
    struct ab_node item;
    size_t n = 0;
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        n++;
    v->type = AB_V_LIST;
    v->items = ab_alloc(arena, n + 1, sizeof(*v->items));
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        if (!build(arena, &item, &v->items[v->n++]))
            return false;
    return true;
}

static bool build_map(ab_arena_t *arena, const struct ab_node *node, struct ab_value *v)
{
    struct ab_node key, item;
    size_t n = 0;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &item);)
        n++;
    v->type = AB_V_MAP;
    v->items = ab_alloc(arena, n + 1, sizeof(*v->items));
    v->keys = ab_alloc(arena, n + 1, sizeof(*v->keys));
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &item);) {
        const char *s;
        size_t len;
        if (ab_scan_string(&key, arena, &s, &len) < 0)
            return false;
        v->keys[v->n] = ab_strndup(arena, s, len);
        if (!build(arena, &item, &v->items[v->n++]))
            return false;
    }
    return true;
}

static bool build_text(ab_arena_t *arena, const struct ab_node *node, struct ab_value *v)
{
    const char *s;
    v->type = AB_V_TEXT;
    if (ab_scan_string(node, arena, &s, &v->len) < 0)
        return false;
    v->s = ab_strndup(arena, s, v->len);
    return true;
}

static bool build(ab_arena_t *arena, const struct ab_node *node, struct ab_value *v)
{
    switch (node->type) {
    case AB_N_TRUE:
    case AB_N_FALSE:
        v->type = AB_V_BOOL;
        v->b = node->type == AB_N_TRUE;
        return true;
    case AB_N_INT:
        v->type = AB_V_INT;
        if (ab_to_int(node, arena, &v->i) == AB_CO_OK)
            return true;
        /* too large for an integer */
        /* fall through */
    case AB_N_REAL:
        v->type = AB_V_REAL;
        return ab_to_real(node, arena, &v->f) == AB_CO_OK;
    case AB_N_TEXT:
        return build_text(arena, node, v);
    case AB_N_LIST:
        return build_list(arena, node, v);
    case AB_N_MAP:
        return build_map(arena, node, v);
    default:
        v->type = AB_V_NULL;
        return true;
    }
}

const struct ab_value *ab_value_parse(ab_arena_t *arena, const char *text, size_t len,
                                      struct ab_error *err)
{
    struct ab_node root;
    struct ab_scan_fault fault;
    if (ab_scan_text(text, len, &root, &fault) < 0) {
        ab_fail(err, AB_EINVAL, "not JSON: %s (line %zu, column %zu)",
                fault.msg ? fault.msg : "nested too deeply", fault.line, fault.column);
        return NULL;
    }
    struct ab_value *v = ab_alloc(arena, 1, sizeof(*v));
    if (!build(arena, &root, v)) {
        ab_fail(err, AB_EINVAL, "JSON with NUL, half a surrogate pair or a number without end");
        return NULL;
    }
    return v;
}

const struct ab_value *ab_value_get(const struct ab_value *v, const char *key)
{
    if (!v || v->type != AB_V_MAP)
        return NULL;
    for (size_t i = v->n; i > 0; i--) /* of equal keys the last one counts */
        if (strcmp(v->keys[i - 1], key) == 0)
            return &v->items[i - 1];
    return NULL;
}

const char *ab_value_text(const struct ab_value *v, const char *otherwise)
{
    return v && v->type == AB_V_TEXT ? v->s : otherwise;
}

int64_t ab_value_int(const struct ab_value *v, int64_t otherwise)
{
    if (v && v->type == AB_V_INT)
        return v->i;
    if (v && v->type == AB_V_REAL && fabs(v->f) < 0x1p62)
        return (int64_t)v->f;
    return otherwise;
}

double ab_value_real(const struct ab_value *v, double otherwise)
{
    if (v && v->type == AB_V_REAL)
        return v->f;
    return v && v->type == AB_V_INT ? (double)v->i : otherwise;
}

bool ab_value_bool(const struct ab_value *v, bool otherwise)
{
    return v && v->type == AB_V_BOOL ? v->b : otherwise;
}

void ab_value_write(struct ab_buf *out, const struct ab_value *v)
{
    char text[AB_NUMBER_TEXT];
    switch (v ? v->type : AB_V_NULL) {
    case AB_V_NULL:
        ab_buf_str(out, "null");
        break;
    case AB_V_BOOL:
        ab_buf_str(out, v->b ? "true" : "false");
        break;
    case AB_V_INT:
        ab_buf_int(out, v->i);
        break;
    case AB_V_REAL:
        ab_number_text(v->f, text);
        ab_buf_str(out, isfinite(v->f) ? text : "null");
        break;
    case AB_V_TEXT:
        ab_buf_json_str(out, v->s, v->len);
        break;
    case AB_V_LIST:
    case AB_V_MAP:
        ab_buf_char(out, v->type == AB_V_MAP ? '{' : '[');
        for (size_t i = 0; i < v->n; i++) {
            if (i > 0)
                ab_buf_char(out, ',');
            if (v->type == AB_V_MAP) {
                ab_buf_json_str(out, v->keys[i], strlen(v->keys[i]));
                ab_buf_char(out, ':');
            }
            ab_value_write(out, &v->items[i]);
        }
        ab_buf_char(out, v->type == AB_V_MAP ? '}' : ']');
        break;
    }
}
