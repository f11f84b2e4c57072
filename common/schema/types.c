/* types.c - one row of operations for each kind of field */
#include "types.h"

#include "base/clock.h"
#include "base/str.h"
#include "coerce.h"
#include "number.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ARGS_PACK struct ab_buf *out, const struct ab_field *field, const void *value
#define ARGS_UNPACK                                                                                \
    struct ab_cursor *at, const struct ab_field *field, void *value, ab_arena_t *arena,            \
        struct ab_error *err
#define ARGS_READ                                                                                  \
    const struct ab_node *node, const struct ab_field *field, void *value, ab_arena_t *arena

static int wrong(struct ab_error *err, const char *what)
{
    return ab_fail(err, AB_ESCHEMA, "not %s", what);
}

void ab_bounds(const struct ab_field *field, int64_t *min, int64_t *max)
{
    *min = field->kind == AB_I32 ? INT32_MIN : INT64_MIN;
    *max = field->kind == AB_I32 ? INT32_MAX : INT64_MAX;
    if (ab_is_bounded(field)) {
        *min = field->min;
        *max = field->max;
    }
}

/* ------------------------------------------------------------------ BOOL */

static void pack_bool(ARGS_PACK)
{
    (void)field;
    ab_pack_bool(out, *(const bool *)value);
}

static int unpack_bool(ARGS_UNPACK)
{
    (void)field, (void)arena;
    return ab_cursor_bool(at, value) < 0 ? wrong(err, "a boolean") : 0;
}

static void write_bool(ARGS_PACK)
{
    (void)field;
    ab_buf_str(out, *(const bool *)value ? "true" : "false");
}

static int read_bool(ARGS_READ)
{
    (void)field;
    return ab_to_bool(node, arena, value) == AB_CO_OK ? 0 : -1;
}

/* ------------------------------------------------------------------ I32, I64 */

static int64_t get_int(const struct ab_field *field, const void *value)
{
    return field->kind == AB_I32 ? *(const int32_t *)value : *(const int64_t *)value;
}

static void set_int(const struct ab_field *field, void *value, int64_t v)
{
    if (field->kind == AB_I32)
        *(int32_t *)value = (int32_t)v;
    else
        *(int64_t *)value = v;
}

static void pack_int(ARGS_PACK)
{
    ab_pack_int(out, get_int(field, value));
}

static int unpack_int(ARGS_UNPACK)
{
    (void)arena;
    int64_t v, min, max;
    if (ab_cursor_int(at, &v) < 0)
        return wrong(err, "an integer");
    ab_bounds(field, &min, &max);
    if (v < min || v > max)
        return ab_fail(err, AB_ESCHEMA, "%" PRId64 " is not between %" PRId64 " and %" PRId64, v,
                       min, max);
    set_int(field, value, v);
    return 0;
}

static void write_int(ARGS_PACK)
{
    ab_buf_int(out, get_int(field, value));
}

static int read_int(ARGS_READ)
{
    int64_t v;
    if (ab_to_int(node, arena, &v) != AB_CO_OK
        || (field->kind == AB_I32 && (v < INT32_MIN || v > INT32_MAX)))
        return -1;
    set_int(field, value, v);
    return 0;
}

/* ------------------------------------------------------------------ F64 */

static void pack_real(ARGS_PACK)
{
    (void)field;
    ab_pack_real(out, *(const double *)value);
}

static int unpack_real(ARGS_UNPACK)
{
    (void)arena;
    double v;
    if (ab_cursor_real(at, &v) < 0 || !isfinite(v))
        return wrong(err, "a finite number");
    if (ab_is_bounded(field) && (v < (double)field->min || v > (double)field->max))
        return ab_fail(err, AB_ESCHEMA, "%g is not between %" PRId64 " and %" PRId64, v, field->min,
                       field->max);
    *(double *)value = v;
    return 0;
}

static void write_real(ARGS_PACK)
{
    (void)field;
    char text[AB_NUMBER_TEXT];
    double v = *(const double *)value;
    ab_number_text(v, text);
    ab_buf_str(out, isfinite(v) ? text : "null");
}

static int read_real(ARGS_READ)
{
    (void)field;
    return ab_to_real(node, arena, value) == AB_CO_OK ? 0 : -1;
}

/* ------------------------------------------------------------------ STR, PATH, UUID, URL */

static void pack_str(ARGS_PACK)
{
    (void)field;
    ab_pack_str(out, *(const char *const *)value);
}

static int unpack_str(ARGS_UNPACK)
{
    const char *s;
    size_t n;
    if (ab_cursor_str(at, &s, &n) < 0 || memchr(s, '\0', n) || !ab_utf8_ok(s, n))
        return wrong(err, "a text");
    size_t characters = field->max > 0 && n > (size_t)field->max ? ab_characters(s, n) : 0;
    if (characters > (size_t)field->max)
        return ab_fail(err, AB_ESCHEMA, "longer than %" PRId64 " characters", field->max);
    *(const char **)value = ab_strndup(arena, s, n);
    return 0;
}

static void write_str(ARGS_PACK)
{
    (void)field;
    const char *s = *(const char *const *)value;
    if (s)
        ab_buf_json_str(out, s, strlen(s));
    else
        ab_buf_str(out, "null");
}

static int read_str(ARGS_READ)
{
    (void)field;
    const char *s;
    size_t n;
    if (ab_to_text(node, arena, &s, &n) != AB_CO_OK)
        return -1;
    *(const char **)value = ab_strndup(arena, s, n);
    return 0;
}

/* ------------------------------------------------------------------ TIME */

static void pack_time(ARGS_PACK)
{
    ab_pack_time(out, *(const int64_t *)value, field->flags & AB_AWARE);
}

static int unpack_time(ARGS_UNPACK)
{
    (void)field, (void)arena;
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0 || (type != 2 && type != 3) || n != 8)
        return wrong(err, "a time");
    uint64_t us = 0;
    for (size_t i = 0; i < 8; i++)
        us = us << 8 | ((const uint8_t *)p)[i];
    *(int64_t *)value = (int64_t)us;
    return 0;
}

static void write_time(ARGS_PACK)
{
    (void)field;
    char text[AB_TIME_TEXT];
    ab_buf_json_str(out, text, ab_time_format(*(const int64_t *)value, true, text));
}

static int read_time(ARGS_READ)
{
    (void)field;
    return ab_to_time(node, arena, value) == AB_CO_OK ? 0 : -1;
}

/* ------------------------------------------------------------------ ENUM */

static const char *enum_name(const struct ab_field *field, int v)
{
    assert(v >= 0 && v < field->enumeration->n);
    return field->enumeration->names[v];
}

static void pack_enum(ARGS_PACK)
{
    ab_pack_str(out, enum_name(field, *(const int *)value));
}

static int take_enum(struct ab_cursor *at, const struct ab_field *field, int *v,
                     struct ab_error *err)
{
    const char *s;
    size_t n;
    if (ab_cursor_str(at, &s, &n) < 0)
        return wrong(err, "a name");
    *v = ab_enum_find(field->enumeration, s, n);
    if (*v < 0)
        return ab_fail(err, AB_ESCHEMA, "'%.*s' is no %s", (int)(n < 64 ? n : 64), s,
                       field->enumeration->name);
    return 0;
}

static int unpack_enum(ARGS_UNPACK)
{
    (void)arena;
    return take_enum(at, field, value, err);
}

static void write_enum(ARGS_PACK)
{
    const char *name = enum_name(field, *(const int *)value);
    ab_buf_json_str(out, name, strlen(name));
}

static int read_enum(ARGS_READ)
{
    const char *s;
    size_t n;
    if (node->type != AB_N_TEXT || ab_scan_string(node, arena, &s, &n) < 0)
        return -1;
    int v = ab_enum_find(field->enumeration, s, n);
    if (v < 0)
        return -1;
    *(int *)value = v;
    return 0;
}

/* ------------------------------------------------------------------ JSON, TAGS */

static void pack_json(ARGS_PACK)
{
    (void)field;
    const struct ab_bytes *v = value;
    if (v->n > 0)
        ab_pack_json(out, v->p, v->n);
    else
        ab_pack_nil(out);
}

static int unpack_json(ARGS_UNPACK)
{
    (void)field, (void)arena;
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0 || type != 1 || n == 0)
        return wrong(err, "free JSON");
    *(struct ab_bytes *)value = (struct ab_bytes){p, n};
    return 0;
}

static void write_json(ARGS_PACK)
{
    (void)field;
    const struct ab_bytes *v = value;
    if (v->n > 0)
        ab_buf_add(out, v->p, v->n);
    else
        ab_buf_str(out, "null");
}

static int read_json(ARGS_READ)
{
    (void)field;
    if (node->type != AB_N_MAP && node->type != AB_N_LIST)
        return -1;
    *(struct ab_bytes *)value =
        (struct ab_bytes){ab_strndup(arena, node->raw, node->raw_len), node->raw_len};
    return 0;
}

/* ------------------------------------------------------------------ lists of scalars */

static int take_list(struct ab_cursor *at, const struct ab_field *field, uint32_t *n,
                     struct ab_error *err)
{
    if (ab_cursor_array(at, n) < 0)
        return wrong(err, "a list");
    if (field->max > 0 && *n > field->max)
        return ab_fail(err, AB_ESCHEMA, "more than %" PRId64 " members", field->max);
    return 0;
}

static void pack_ids(ARGS_PACK)
{
    (void)field;
    const struct ab_ids *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_int(out, v->v[i]);
}

static int unpack_ids(ARGS_UNPACK)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_ids *v = value;
    *v = (struct ab_ids){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++)
        if (ab_cursor_int(at, &v->v[i]) < 0)
            return wrong(err, "a list of integers");
    return 0;
}

static void write_ids(ARGS_PACK)
{
    (void)field;
    const struct ab_ids *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_int(out, v->v[i]);
    }
    ab_buf_char(out, ']');
}

static size_t count_items(const struct ab_node *list)
{
    size_t n = 0;
    struct ab_node item;
    for (struct ab_scan scan = ab_scan(list); ab_scan_item(&scan, &item);)
        n++;
    return n;
}

static int read_ids(ARGS_READ)
{
    (void)field;
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_ids *v = value;
    struct ab_node item;
    *v = (struct ab_ids){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        if (ab_to_int(&item, arena, &v->v[v->n++]) != AB_CO_OK)
            return -1;
    return 0;
}

static void pack_strs(ARGS_PACK)
{
    (void)field;
    const struct ab_strs *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_str(out, v->v[i]);
}

static int unpack_strs(ARGS_UNPACK)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_strs *v = value;
    *v = (struct ab_strs){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++) {
        const char *s;
        size_t len;
        if (ab_cursor_str(at, &s, &len) < 0 || memchr(s, '\0', len) || !ab_utf8_ok(s, len))
            return wrong(err, "a list of texts");
        v->v[i] = ab_strndup(arena, s, len);
    }
    return 0;
}

static void write_strs(ARGS_PACK)
{
    (void)field;
    const struct ab_strs *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, v->v[i], strlen(v->v[i]));
    }
    ab_buf_char(out, ']');
}

static int read_strs(ARGS_READ)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_strs *v = value;
    struct ab_node item;
    *v = (struct ab_strs){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); v->n++)
        if (read_str(&item, field, &v->v[v->n], arena) < 0)
            return -1;
    return 0;
}

static void pack_enums(ARGS_PACK)
{
    const struct ab_enums *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_str(out, enum_name(field, v->v[i]));
}

static int unpack_enums(ARGS_UNPACK)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_enums *v = value;
    *v = (struct ab_enums){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++)
        if (take_enum(at, field, &v->v[i], err) < 0)
            return -1;
    return 0;
}

static void write_enums(ARGS_PACK)
{
    const struct ab_enums *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        write_enum(out, field, &v->v[i]);
    }
    ab_buf_char(out, ']');
}

static int read_enums(ARGS_READ)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_enums *v = value;
    struct ab_node item;
    *v = (struct ab_enums){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); v->n++)
        if (read_enum(&item, field, &v->v[v->n], arena) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ OBJ, LIST, MAP */

static void pack_obj(ARGS_PACK)
{
    const void *item = *(const void *const *)value;
    if (item)
        ab_pack_item(out, field->sub, ~0U, item);
    else
        ab_pack_nil(out);
}

static int unpack_obj(ARGS_UNPACK)
{
    void *item = ab_alloc(arena, 1, field->sub->size);
    *(void **)value = item;
    return ab_unpack_item(at, field->sub, AB_CREATE, arena, item, err);
}

static void write_obj(ARGS_PACK)
{
    const void *item = *(const void *const *)value;
    if (item)
        ab_json_write(out, field->sub, ~0U, item);
    else
        ab_buf_str(out, "null");
}

static int read_obj(ARGS_READ)
{
    if (node->type != AB_N_MAP)
        return -1;
    void *item = ab_alloc(arena, 1, field->sub->size);
    *(void **)value = item;
    ab_read_item(node, field->sub, ~0U, arena, item);
    return 0;
}

static const char *item_at(const struct ab_list *list, const struct ab_schema *schema, size_t i)
{
    return (const char *)list->v + i * schema->size;
}

static void pack_list(ARGS_PACK)
{
    const struct ab_list *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_item(out, field->sub, ~0U, item_at(v, field->sub, i));
}

static int unpack_list(ARGS_UNPACK)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_list *v = value;
    *v = (struct ab_list){ab_alloc(arena, n ? n : 1, field->sub->size), n};
    for (uint32_t i = 0; i < n; i++)
        if (ab_unpack_item(at, field->sub, AB_CREATE, arena, (void *)item_at(v, field->sub, i), err)
            < 0)
            return -1;
    return 0;
}

static void write_list(ARGS_PACK)
{
    const struct ab_list *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_json_write(out, field->sub, ~0U, item_at(v, field->sub, i));
    }
    ab_buf_char(out, ']');
}

static int read_list(ARGS_READ)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_list *v = value;
    struct ab_node item;
    *v = (struct ab_list){ab_alloc(arena, count_items(node) + 1, field->sub->size), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        if (item.type == AB_N_MAP)
            ab_read_item(&item, field->sub, ~0U, arena, (void *)item_at(v, field->sub, v->n++));
    return 0;
}

/* The first field of a MAP's item is its key: bit 0 of `has`. It stands in front of the item, not
 * inside. */
static const char *key_of(const struct ab_schema *schema, const void *item)
{
    const char *key = *(const char *const *)((const char *)item + schema->fields[0].offset);
    return key ? key : "";
}

static void pack_map(ARGS_PACK)
{
    const struct ab_list *v = value;
    ab_pack_map(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++) {
        const char *item = item_at(v, field->sub, i);
        ab_pack_str(out, key_of(field->sub, item));
        ab_pack_from(out, field->sub, 1, ~0U, item);
    }
}

static int unpack_map(ARGS_UNPACK)
{
    uint32_t n;
    if (ab_cursor_map(at, &n) < 0)
        return wrong(err, "an object");
    if (field->max > 0 && n > field->max)
        return ab_fail(err, AB_ESCHEMA, "more than %" PRId64 " members", field->max);
    struct ab_list *v = value;
    *v = (struct ab_list){ab_alloc(arena, n ? n : 1, field->sub->size), n};
    for (uint32_t i = 0; i < n; i++) {
        char *item = (char *)v->v + i * field->sub->size;
        const struct ab_field *key = &field->sub->fields[0];
        const char *name = NULL;
        if (unpack_str(at, key, &name, arena, err) < 0)
            return -1;
        if (ab_unpack_item(at, field->sub, AB_CREATE, arena, item, err) < 0)
            return ab_fail_within(err, "%s", name);
        *(const char **)(item + key->offset) = name;
        ab_head_of(item)->has |= 1;
    }
    return 0;
}

static void write_map(ARGS_PACK)
{
    const struct ab_list *v = value;
    ab_buf_char(out, '{');
    for (size_t i = 0; i < v->n; i++) {
        const char *item = item_at(v, field->sub, i), *key = key_of(field->sub, item);
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, key, strlen(key));
        ab_buf_char(out, ':');
        ab_write_from(out, field->sub, 1, ~0U, item);
    }
    ab_buf_char(out, '}');
}

static int read_map(ARGS_READ)
{
    if (node->type != AB_N_MAP)
        return -1;
    struct ab_list *v = value;
    struct ab_node name, item;
    size_t n = 0;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &name, &item);)
        n++;
    *v = (struct ab_list){ab_alloc(arena, n + 1, field->sub->size), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &name, &item);) {
        char *to = (char *)v->v + v->n * field->sub->size;
        const struct ab_field *key = &field->sub->fields[0];
        if (item.type != AB_N_MAP || read_str(&name, key, to + key->offset, arena) < 0)
            continue;
        ab_read_item(&item, field->sub, ~0U, arena, to);
        ab_head_of(to)->has |= 1;
        v->n++;
    }
    return 0;
}

const struct ab_kind_ops ab_kinds[AB_KINDS] = {
    [AB_BOOL] = {"boolean", pack_bool, unpack_bool, write_bool, read_bool},
    [AB_I32] = {"integer", pack_int, unpack_int, write_int, read_int},
    [AB_I64] = {"integer", pack_int, unpack_int, write_int, read_int},
    [AB_F64] = {"number", pack_real, unpack_real, write_real, read_real},
    [AB_STR] = {"text", pack_str, unpack_str, write_str, read_str},
    [AB_PATH] = {"path", pack_str, unpack_str, write_str, read_str},
    [AB_UUID] = {"uuid", pack_str, unpack_str, write_str, read_str},
    [AB_URL] = {"url", pack_str, unpack_str, write_str, read_str},
    [AB_TIME] = {"time", pack_time, unpack_time, write_time, read_time},
    [AB_ENUM] = {"name", pack_enum, unpack_enum, write_enum, read_enum},
    [AB_JSON] = {"object", pack_json, unpack_json, write_json, read_json},
    [AB_TAGS] = {"tags", pack_json, unpack_json, write_json, read_json},
    [AB_IDS] = {"integers", pack_ids, unpack_ids, write_ids, read_ids},
    [AB_STRS] = {"texts", pack_strs, unpack_strs, write_strs, read_strs},
    [AB_ENUMS] = {"names", pack_enums, unpack_enums, write_enums, read_enums},
    [AB_OBJ] = {"object", pack_obj, unpack_obj, write_obj, read_obj},
    [AB_LIST] = {"list", pack_list, unpack_list, write_list, read_list},
    [AB_MAP] = {"map", pack_map, unpack_map, write_map, read_map},
};
