/* types.c - one row of operations for each kind of field */
#include "kinds.h"

#include "base/clock.h"
#include "base/str.h"
#include "coerce.h"
#include "number.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

int ab_wrong(struct ab_error *err, const char *what)
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

static void pack_bool(AB_PACK_ARGS)
{
    (void)field;
    ab_pack_bool(out, *(const bool *)value);
}

static int unpack_bool(AB_UNPACK_ARGS)
{
    (void)field, (void)arena;
    return ab_cursor_bool(at, value) < 0 ? ab_wrong(err, "a boolean") : 0;
}

static void write_bool(AB_PACK_ARGS)
{
    (void)field;
    ab_buf_str(out, *(const bool *)value ? "true" : "false");
}

static int read_bool(AB_READ_ARGS)
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

static void pack_int(AB_PACK_ARGS)
{
    ab_pack_int(out, get_int(field, value));
}

static int unpack_int(AB_UNPACK_ARGS)
{
    (void)arena;
    int64_t v, min, max;
    if (ab_cursor_int(at, &v) < 0)
        return ab_wrong(err, "an integer");
    ab_bounds(field, &min, &max);
    if (v < min || v > max)
        return ab_fail(err, AB_ESCHEMA, "%" PRId64 " is not between %" PRId64 " and %" PRId64, v,
                       min, max);
    set_int(field, value, v);
    return 0;
}

static void write_int(AB_PACK_ARGS)
{
    ab_buf_int(out, get_int(field, value));
}

static int read_int(AB_READ_ARGS)
{
    int64_t v;
    if (ab_to_int(node, arena, &v) != AB_CO_OK
        || (field->kind == AB_I32 && (v < INT32_MIN || v > INT32_MAX)))
        return -1;
    set_int(field, value, v);
    return 0;
}

/* ------------------------------------------------------------------ F64 */

static void pack_real(AB_PACK_ARGS)
{
    (void)field;
    ab_pack_real(out, *(const double *)value);
}

static int unpack_real(AB_UNPACK_ARGS)
{
    (void)arena;
    double v;
    if (ab_cursor_real(at, &v) < 0 || !isfinite(v))
        return ab_wrong(err, "a finite number");
    if (ab_is_bounded(field) && (v < (double)field->min || v > (double)field->max))
        return ab_fail(err, AB_ESCHEMA, "%g is not between %" PRId64 " and %" PRId64, v, field->min,
                       field->max);
    *(double *)value = v;
    return 0;
}

static void write_real(AB_PACK_ARGS)
{
    (void)field;
    char text[AB_NUMBER_TEXT];
    double v = *(const double *)value;
    ab_number_text(v, text);
    ab_buf_str(out, isfinite(v) ? text : "null");
}

static int read_real(AB_READ_ARGS)
{
    (void)field;
    return ab_to_real(node, arena, value) == AB_CO_OK ? 0 : -1;
}

/* ------------------------------------------------------------------ STR, PATH, UUID, URL */

static void pack_str(AB_PACK_ARGS)
{
    (void)field;
    ab_pack_str(out, *(const char *const *)value);
}

int ab_unpack_str(AB_UNPACK_ARGS)
{
    const char *s;
    size_t n;
    if (ab_cursor_str(at, &s, &n) < 0 || memchr(s, '\0', n) || !ab_utf8_ok(s, n))
        return ab_wrong(err, "a text");
    size_t characters = field->max > 0 && n > (size_t)field->max ? ab_characters(s, n) : 0;
    if (characters > (size_t)field->max)
        return ab_fail(err, AB_ESCHEMA, "longer than %" PRId64 " characters", field->max);
    *(const char **)value = ab_strndup(arena, s, n);
    return 0;
}

static void write_str(AB_PACK_ARGS)
{
    (void)field;
    const char *s = *(const char *const *)value;
    if (s)
        ab_buf_json_str(out, s, strlen(s));
    else
        ab_buf_str(out, "null");
}

int ab_read_str(AB_READ_ARGS)
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

static void pack_time(AB_PACK_ARGS)
{
    ab_pack_time(out, *(const int64_t *)value, field->flags & AB_AWARE);
}

static int unpack_time(AB_UNPACK_ARGS)
{
    (void)field, (void)arena;
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0 || (type != 2 && type != 3) || n != 8)
        return ab_wrong(err, "a time");
    uint64_t us = 0;
    for (size_t i = 0; i < 8; i++)
        us = us << 8 | ((const uint8_t *)p)[i];
    *(int64_t *)value = (int64_t)us;
    return 0;
}

static void write_time(AB_PACK_ARGS)
{
    (void)field;
    char text[AB_TIME_TEXT];
    ab_buf_json_str(out, text, ab_time_format(*(const int64_t *)value, true, text));
}

static int read_time(AB_READ_ARGS)
{
    (void)field;
    return ab_to_time(node, arena, value) == AB_CO_OK ? 0 : -1;
}

/* ------------------------------------------------------------------ ENUM */

const char *ab_enum_name(const struct ab_field *field, int v)
{
    assert(v >= 0 && v < field->enumeration->n);
    return field->enumeration->names[v];
}

static void pack_enum(AB_PACK_ARGS)
{
    ab_pack_str(out, ab_enum_name(field, *(const int *)value));
}

int ab_take_enum(struct ab_cursor *at, const struct ab_field *field, int *v, struct ab_error *err)
{
    const char *s;
    size_t n;
    if (ab_cursor_str(at, &s, &n) < 0)
        return ab_wrong(err, "a name");
    *v = ab_enum_find(field->enumeration, s, n);
    if (*v < 0)
        return ab_fail(err, AB_ESCHEMA, "'%.*s' is no %s", (int)(n < 64 ? n : 64), s,
                       field->enumeration->name);
    return 0;
}

static int unpack_enum(AB_UNPACK_ARGS)
{
    (void)arena;
    return ab_take_enum(at, field, value, err);
}

void ab_write_enum(AB_PACK_ARGS)
{
    const char *name = ab_enum_name(field, *(const int *)value);
    ab_buf_json_str(out, name, strlen(name));
}

int ab_read_enum(AB_READ_ARGS)
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

static void pack_json(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_bytes *v = value;
    if (v->n > 0)
        ab_pack_json(out, v->p, v->n);
    else
        ab_pack_nil(out);
}

static int unpack_json(AB_UNPACK_ARGS)
{
    (void)field, (void)arena;
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0 || type != 1 || n == 0)
        return ab_wrong(err, "free JSON");
    *(struct ab_bytes *)value = (struct ab_bytes){p, n};
    return 0;
}

static void write_json(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_bytes *v = value;
    if (v->n > 0)
        ab_buf_add(out, v->p, v->n);
    else
        ab_buf_str(out, "null");
}

static int read_json(AB_READ_ARGS)
{
    (void)field;
    if (node->type != AB_N_MAP && node->type != AB_N_LIST)
        return -1;
    *(struct ab_bytes *)value =
        (struct ab_bytes){ab_strndup(arena, node->raw, node->raw_len), node->raw_len};
    return 0;
}

const struct ab_kind_ops ab_kinds[AB_KINDS] = {
    [AB_BOOL] = {"boolean", pack_bool, unpack_bool, write_bool, read_bool},
    [AB_I32] = {"integer", pack_int, unpack_int, write_int, read_int},
    [AB_I64] = {"integer", pack_int, unpack_int, write_int, read_int},
    [AB_F64] = {"number", pack_real, unpack_real, write_real, read_real},
    [AB_STR] = {"text", pack_str, ab_unpack_str, write_str, ab_read_str},
    [AB_PATH] = {"path", pack_str, ab_unpack_str, write_str, ab_read_str},
    [AB_UUID] = {"uuid", pack_str, ab_unpack_str, write_str, ab_read_str},
    [AB_URL] = {"url", pack_str, ab_unpack_str, write_str, ab_read_str},
    [AB_TIME] = {"time", pack_time, unpack_time, write_time, read_time},
    [AB_ENUM] = {"name", pack_enum, unpack_enum, ab_write_enum, ab_read_enum},
    [AB_JSON] = {"object", pack_json, unpack_json, write_json, read_json},
    [AB_TAGS] = {"tags", pack_json, unpack_json, write_json, read_json},
    [AB_IDS] = {"integers", ab_pack_ids, ab_unpack_ids, ab_write_ids, ab_read_ids},
    [AB_STRS] = {"texts", ab_pack_strs, ab_unpack_strs, ab_write_strs, ab_read_strs},
    [AB_ENUMS] = {"names", ab_pack_enums, ab_unpack_enums, ab_write_enums, ab_read_enums},
    [AB_OBJ] = {"object", ab_pack_obj, ab_unpack_obj, ab_write_obj, ab_read_obj},
    [AB_LIST] = {"list", ab_pack_list, ab_unpack_list, ab_write_list, ab_read_list},
    [AB_MAP] = {"map", ab_pack_mapping, ab_unpack_mapping, ab_write_mapping, ab_read_mapping},
};
