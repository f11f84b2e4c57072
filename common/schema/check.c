/* check.c - one request's JSON against its descriptor: issues, or the packed request
 *
 * Every value is looked at once and written at once. All issues are collected, in the order of the
 * fields; what was written is of no use then. A JSON field with a shape is written as JSON text,
 * normalised.
 */
#include "check.h"

#include "coerce.h"
#include "number.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE_NOT_ALLOWED "type_error.none.not_allowed", "none is not an allowed value"
#define MISSING "value_error.missing", "field required"

/* ------------------------------------------------------------------ issues */

static void render_place(struct ab_buf *out, const struct ab_place *place)
{
    if (place->up) {
        render_place(out, place->up);
        ab_buf_str(out, ",");
    }
    if (place->name)
        ab_buf_json_str(out, place->name, place->name_len < 256 ? place->name_len : 256);
    else
        ab_buf_int(out, (int64_t)place->index);
}

void ab_check_issue(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *msg, const char *ctx)
{
    struct ab_buf loc = {0};
    ab_buf_char(&loc, '[');
    render_place(&loc, place);
    ab_buf_char(&loc, ']');
    ab_issue(self->issues, loc.data, type, msg, ctx);
    ab_buf_free(&loc);
}

static void limit_issue(struct ab_check *self, const struct ab_place *place, const char *type,
                        const char *that, int64_t limit, const char *unit)
{
    char msg[96], ctx[64];
    snprintf(msg, sizeof(msg), "ensure this value %s %" PRId64 "%s", that, limit, unit);
    snprintf(ctx, sizeof(ctx), "{\"limit_value\":%" PRId64 "}", limit);
    ab_check_issue(self, place, type, msg, ctx);
}

/* Issues of texts; false when there is one. */
static bool text_came(struct ab_check *self, const struct ab_place *place, enum ab_coerced rc,
                      const char *type, const char *msg)
{
    switch (rc) {
    case AB_CO_OK:
        return true;
    case AB_CO_BYTES:
        ab_check_issue(self, place, "value_error",
                       "text with NUL or half a surrogate pair cannot be stored", NULL);
        return false;
    case AB_CO_SCHEME:
        ab_check_issue(self, place, "value_error.url.scheme", "invalid or missing URL scheme",
                       NULL);
        return false;
    case AB_CO_HOST:
        ab_check_issue(self, place, "value_error.url.host", "URL host invalid", NULL);
        return false;
    case AB_CO_PORT:
        ab_check_issue(self, place, "value_error.url.port",
                       "URL port invalid, port cannot exceed 65535", NULL);
        return false;
    case AB_CO_EMPTY:
        limit_issue(self, place, "value_error.any_str.min_length", "has at least", 1,
                    " characters");
        return false;
    default:
        ab_check_issue(self, place, type, msg, NULL);
        return false;
    }
}

/* ------------------------------------------------------------------ writing */

static void before_value(struct ab_check *self)
{
    if (self->json && self->comma)
        ab_buf_char(self->out, ',');
    self->comma = true;
}

static void put_key(struct ab_check *self, const char *name, size_t len)
{
    if (!self->json) {
        ab_pack_strn(self->out, name, len);
        return;
    }
    before_value(self);
    ab_buf_json_str(self->out, name, len);
    ab_buf_char(self->out, ':');
    self->comma = false;
}

static void put_nil(struct ab_check *self)
{
    before_value(self);
    if (self->json)
        ab_buf_str(self->out, "null");
    else
        ab_pack_nil(self->out);
}

static void put_int(struct ab_check *self, int64_t v)
{
    before_value(self);
    if (self->json)
        ab_buf_int(self->out, v);
    else
        ab_pack_int(self->out, v);
}

static void put_bool(struct ab_check *self, bool v)
{
    before_value(self);
    if (self->json)
        ab_buf_str(self->out, v ? "true" : "false");
    else
        ab_pack_bool(self->out, v);
}

static void put_real(struct ab_check *self, double v)
{
    char text[AB_NUMBER_TEXT];
    before_value(self);
    if (self->json)
        ab_buf_add(self->out, text, ab_number_text(v, text));
    else
        ab_pack_real(self->out, v);
}

static void put_text(struct ab_check *self, const char *s, size_t n)
{
    before_value(self);
    if (self->json)
        ab_buf_json_str(self->out, s, n);
    else
        ab_pack_strn(self->out, s, n);
}

/* A list or map whose number of members is not known yet: in msgpack it gets a wide header, filled
 * in at the end. The mark is the place of the header. */
static size_t put_open(struct ab_check *self, bool map)
{
    before_value(self);
    size_t mark = self->out->len;
    if (self->json)
        ab_buf_char(self->out, map ? '{' : '[');
    else
        ab_buf_add(self->out, map ? "\xdf\0\0\0\0" : "\xdd\0\0\0\0", 5);
    self->comma = false;
    return mark;
}

static void put_close(struct ab_check *self, bool map, size_t mark, size_t n)
{
    if (self->json) {
        ab_buf_char(self->out, map ? '}' : ']');
    } else if (!self->out->failed) {
        for (int i = 0; i < 4; i++)
            self->out->data[mark + 1 + (size_t)i] = (char)(n >> (24 - 8 * i));
    }
    self->comma = true;
}

/* ------------------------------------------------------------------ scalars */

int ab_check_int(struct ab_check *self, const struct ab_place *place, const struct ab_field *field,
                 const struct ab_node *node, int64_t *v)
{
    int64_t min, max;
    ab_bounds(field, &min, &max);
    enum ab_coerced rc = ab_to_int(node, self->arena, v);
    if (rc == AB_CO_TYPE) {
        ab_check_issue(self, place, "type_error.integer", "value is not a valid integer", NULL);
        return -1;
    }
    if (rc == AB_CO_ABOVE || (rc == AB_CO_OK && *v > max)) {
        limit_issue(self, place, "value_error.number.not_le", "is less than or equal to", max, "");
        return -1;
    }
    if (rc == AB_CO_BELOW || *v < min) {
        limit_issue(self, place, "value_error.number.not_ge", "is greater than or equal to", min,
                    "");
        return -1;
    }
    return 0;
}

#define ARGS                                                                                       \
    struct ab_check *self, const struct ab_place *place, const struct ab_field *field,             \
        const struct ab_node *node

static void check_int(ARGS)
{
    int64_t v = 0;
    if (ab_check_int(self, place, field, node, &v) == 0)
        put_int(self, v);
}

static void check_bool(ARGS)
{
    (void)field;
    bool v = false;
    if (ab_to_bool(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.bool", "value could not be parsed to a boolean",
                       NULL);
    put_bool(self, v);
}

static void check_real(ARGS)
{
    double v = 0;
    if (ab_to_real(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.float", "value is not a valid float", NULL);
    else if (ab_is_bounded(field) && v < (double)field->min)
        limit_issue(self, place, "value_error.number.not_ge", "is greater than or equal to",
                    field->min, "");
    else if (ab_is_bounded(field) && v > (double)field->max)
        limit_issue(self, place, "value_error.number.not_le", "is less than or equal to",
                    field->max, "");
    put_real(self, v);
}

static bool length_ok(ARGS, const char *s, size_t n)
{
    (void)node;
    if (field->max > 0 && n > (size_t)field->max && ab_characters(s, n) > (size_t)field->max) {
        if (field->shape && field->shape->form == AB_FORM_ASSERTED)
            ab_check_issue(self, place, "assertion_error", "text is too long", NULL);
        else
            limit_issue(self, place, "value_error.any_str.max_length", "has at most", field->max,
                        " characters");
        return false;
    }
    if (field->min > 0 && ab_characters(s, n) < (size_t)field->min) {
        limit_issue(self, place, "value_error.any_str.min_length", "has at least", field->min,
                    " characters");
        return false;
    }
    return true;
}

/* What the shape of a STR field asks for. */
static void check_form(ARGS, const char *s, size_t n)
{
    (void)node;
    enum ab_form form = field->shape ? field->shape->form : AB_FORM_ANY;
    if (form == AB_FORM_IDENTIFIER && !ab_is_identifier(s, n)) {
        ab_check_issue(self, place, "value_error",
                       "must be an identifier: letters, digits and _, no digit in front", NULL);
    } else if (form == AB_FORM_PREFIX) {
        size_t len = strlen(field->shape->text);
        char msg[96], ctx[96];
        if (n >= len && memcmp(s, field->shape->text, len) == 0)
            return;
        snprintf(msg, sizeof(msg), "string does not match regex \"%s\"", field->shape->text);
        snprintf(ctx, sizeof(ctx), "{\"pattern\":\"%s\"}", field->shape->text);
        ab_check_issue(self, place, "value_error.str.regex", msg, ctx);
    }
}

static void check_text(ARGS)
{
    const char *s = "";
    size_t n = 0;
    if (text_came(self, place, ab_to_text(node, self->arena, &s, &n), "type_error.str",
                  "str type expected")
        && length_ok(self, place, field, node, s, n))
        check_form(self, place, field, node, s, n);
    put_text(self, s, n);
}

static void check_path(ARGS)
{
    const char *s = "";
    size_t n = 0;
    if (text_came(self, place, ab_to_path(node, self->arena, &s, &n), "type_error.path",
                  "value is not a valid path")
        && length_ok(self, place, field, node, s, n)) {
        if ((field->flags & AB_ABSOLUTE) && *s != '/')
            ab_check_issue(self, place, "value_error", "path must be absolute", NULL);
        if ((field->flags & AB_RELATIVE) && *s == '/')
            ab_check_issue(self, place, "value_error", "path must be relative", NULL);
    }
    put_text(self, s, n);
}

static void check_uuid(ARGS)
{
    (void)field;
    char text[37] = "";
    if (ab_to_uuid(node, self->arena, text) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.uuid", "value is not a valid uuid", NULL);
    put_text(self, text, strlen(text));
}

static void check_url(ARGS)
{
    (void)field;
    const char *s = "";
    size_t n = 0;
    if (text_came(self, place, ab_to_url(node, self->arena, &s, &n), "type_error.str",
                  "str type expected")
        && n > 65536)
        limit_issue(self, place, "value_error.any_str.max_length", "has at most", 65536,
                    " characters");
    put_text(self, s, n);
}

static void check_time(ARGS)
{
    (void)field;
    int64_t v = 0;
    if (ab_to_time(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "value_error.datetime", "invalid datetime format", NULL);
    before_value(self);
    ab_pack_time(self->out, v, true);
}

static void enum_issue(struct ab_check *self, const struct ab_place *place,
                       const struct ab_enum *enumeration)
{
    struct ab_buf msg = {0}, ctx = {0};
    ab_buf_str(&msg, "value is not a valid enumeration member; permitted: ");
    ab_buf_str(&ctx, "{\"enum_values\":[");
    for (int i = 0; i < enumeration->n; i++) {
        ab_buf_printf(&msg, "%s'%s'", i > 0 ? ", " : "", enumeration->names[i]);
        ab_buf_printf(&ctx, "%s\"%s\"", i > 0 ? "," : "", enumeration->names[i]);
    }
    ab_buf_str(&ctx, "]}");
    ab_check_issue(self, place, "type_error.enum", msg.data, ctx.data);
    ab_buf_free(&msg);
    ab_buf_free(&ctx);
}

static int enum_value(ARGS)
{
    const char *s;
    size_t n;
    int v = -1;
    if ((node->type == AB_N_TEXT || node->type == AB_N_PLAIN)
        && ab_scan_string(node, self->arena, &s, &n) == 0)
        v = ab_enum_find(field->enumeration, s, n);
    if (v < 0)
        enum_issue(self, place, field->enumeration);
    return v;
}

static void check_enum(ARGS)
{
    int v = enum_value(self, place, field, node);
    if (v >= 0)
        put_text(self, field->enumeration->names[v], strlen(field->enumeration->names[v]));
}

/* ------------------------------------------------------------------ lists of scalars */

static bool is_list(ARGS)
{
    if (node->type == AB_N_LIST)
        return true;
    if (field->flags & AB_UNIQUE)
        ab_check_issue(self, place, "type_error.set", "value is not a valid set", NULL);
    else
        ab_check_issue(self, place, "type_error.list", "value is not a valid list", NULL);
    return false;
}

static bool has_room(ARGS, size_t n)
{
    (void)node;
    if (field->max == 0 || n < (size_t)field->max)
        return true;
    limit_issue(self, place, "value_error.list.max_items", "has at most", field->max, " items");
    return false;
}

struct id {
    int64_t v;
    uint32_t place;
};

static int by_value(const void *a, const void *b)
{
    const struct id *x = a, *y = b;
    if (x->v != y->v)
        return x->v < y->v ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const struct id *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Only the first of equal ones, in the order they came. */
static size_t drop_repeated(struct id *ids, size_t n)
{
    size_t kept = 0;
    qsort(ids, n, sizeof(*ids), by_value);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || ids[i].v != ids[kept - 1].v)
            ids[kept++] = ids[i];
    qsort(ids, kept, sizeof(*ids), by_place);
    return kept;
}

static void check_ids(ARGS)
{
    if (!is_list(self, place, field, node))
        return;
    static const struct ab_field any = {.kind = AB_I64};
    struct ab_place at = {.up = place};
    struct ab_node item;
    struct ab_scan scan = ab_scan(node);
    size_t n = 0, room = 16;
    struct id few[16], *ids = few;
    for (; ab_scan_item(&scan, &item); at.index++) {
        if (!has_room(self, place, field, node, n))
            return;
        if (n == room) {
            struct id *more = ab_alloc(self->arena, room *= 2, sizeof(*more));
            memcpy(more, ids, n * sizeof(*ids));
            ids = more;
        }
        if (ab_check_int(self, &at, &any, &item, &ids[n].v) == 0) {
            ids[n].place = (uint32_t)n;
            n++;
        }
    }
    if (field->flags & AB_UNIQUE)
        n = drop_repeated(ids, n);
    size_t mark = put_open(self, false);
    for (size_t i = 0; i < n; i++)
        put_int(self, ids[i].v);
    put_close(self, false, mark, n);
}

static void check_texts(ARGS)
{
    if (!is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = put_open(self, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        const char *s = "";
        size_t n = 0;
        if (!has_room(self, place, field, node, at.index))
            return;
        text_came(self, &at, ab_to_text(&item, self->arena, &s, &n), "type_error.str",
                  "str type expected");
        put_text(self, s, n);
    }
    put_close(self, false, mark, at.index);
}

static void check_enums(ARGS)
{
    if (!is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    uint64_t seen = 0;
    size_t n = 0, mark = put_open(self, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        int v = enum_value(self, &at, field, &item);
        if (!has_room(self, place, field, node, n))
            return;
        if (v < 0 || ((field->flags & AB_UNIQUE) && (seen >> v & 1)))
            continue;
        seen |= UINT64_C(1) << v;
        put_text(self, field->enumeration->names[v], strlen(field->enumeration->names[v]));
        n++;
    }
    put_close(self, false, mark, n);
}

/* ------------------------------------------------------------------ objects by member name
 * Of members with the same name the last one counts. */

struct member {
    const char *key;
    size_t key_len;
    uint32_t place;
    struct ab_node value;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->key_len != y->key_len)
        return x->key_len < y->key_len ? -1 : 1;
    int rc = memcmp(x->key, y->key, x->key_len);
    return rc ? rc : x->place < y->place ? -1 : 1;
}

static int by_member_place(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->place < y->place ? -1 : x->place > y->place;
}

static size_t drop_overridden(struct member *members, size_t n)
{
    size_t kept = 0;
    qsort(members, n, sizeof(*members), by_key);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && members[i].key_len == members[i + 1].key_len
            && memcmp(members[i].key, members[i + 1].key, members[i].key_len) == 0)
            continue;
        members[kept++] = members[i];
    }
    qsort(members, kept, sizeof(*members), by_member_place);
    return kept;
}

/* All members, or -1 and an issue. */
static int64_t take_members(ARGS, struct member **out)
{
    if (node->type != AB_N_MAP) {
        ab_check_issue(self, place, "type_error.dict", "value is not a valid dict", NULL);
        return -1;
    }
    struct ab_node key, value;
    size_t n = 0, room = 8;
    struct member *members = ab_alloc(self->arena, room, sizeof(*members));
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &value);) {
        if (!has_room(self, place, field, node, n))
            return -1;
        if (n == room) {
            struct member *more = ab_alloc(self->arena, room *= 2, sizeof(*more));
            memcpy(more, members, n * sizeof(*members));
            members = more;
        }
        struct member *m = &members[n];
        *m = (struct member){.place = (uint32_t)n, .value = value};
        if (ab_scan_string(&key, self->arena, &m->key, &m->key_len) < 0) {
            struct ab_place at = {.up = place, .name = "__key__", .name_len = 7};
            text_came(self, &at, AB_CO_BYTES, NULL, NULL);
            return -1;
        }
        n++;
    }
    *out = members;
    return (int64_t)drop_overridden(members, n);
}

/* Begin JSON text inside a msgpack message; the end wraps it up as ext 1. */
struct inset {
    struct ab_buf *outer, text;
};

static void inset_begin(struct ab_check *self, struct inset *inset)
{
    *inset = (struct inset){.outer = self->json ? NULL : self->out};
    if (self->json)
        return;
    self->out = &inset->text;
    self->json = true;
    self->comma = false;
}

static void inset_end(struct ab_check *self, struct inset *inset)
{
    if (!inset->outer)
        return;
    self->out = inset->outer;
    self->json = false;
    ab_pack_json(self->out, inset->text.data, inset->text.len);
    self->out->failed |= inset->text.failed;
    ab_buf_free(&inset->text);
}

static void check_tags(ARGS)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    if (n < 0)
        return;
    struct inset inset;
    inset_begin(self, &inset);
    size_t mark = put_open(self, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        const char *s = "";
        size_t len = 0;
        put_key(self, members[i].key, members[i].key_len);
        if (members[i].value.type == AB_N_NULL)
            ab_check_issue(self, &at, NONE_NOT_ALLOWED, NULL);
        else
            text_came(self, &at, ab_to_text(&members[i].value, self->arena, &s, &len),
                      "type_error.str", "str type expected");
        put_text(self, s, len);
    }
    put_close(self, true, mark, (size_t)n);
    inset_end(self, &inset);
}

static void check_shape(struct ab_check *self, const struct ab_place *place,
                        const struct ab_shape *shape, const struct ab_field *field,
                        const struct ab_node *node);

static void check_shape_list(struct ab_check *self, const struct ab_place *place,
                             const struct ab_shape *shape, const struct ab_field *field,
                             const struct ab_node *node)
{
    if (!is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = put_open(self, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        if (!has_room(self, place, field, node, at.index))
            return;
        check_shape(self, &at, shape->of, field, &item);
    }
    put_close(self, false, mark, at.index);
}

static void check_shape_map(struct ab_check *self, const struct ab_place *place,
                            const struct ab_shape *shape, const struct ab_field *field,
                            const struct ab_node *node)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    size_t mark = put_open(self, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        struct ab_node name = {AB_N_PLAIN, members[i].key, members[i].key_len};
        struct ab_place key = {.up = place, .name = "__key__", .name_len = 7};
        static const struct ab_field any = {.kind = AB_I64};
        int64_t number = 0;
        if (shape->form != AB_FORM_INT_MAP) {
            put_key(self, members[i].key, members[i].key_len);
        } else if (ab_check_int(self, &key, &any, &name, &number) == 0) {
            char text[24];
            put_key(self, text, (size_t)snprintf(text, sizeof(text), "%" PRId64, number));
        }
        check_shape(self, &at, shape->of, field, &members[i].value);
    }
    put_close(self, true, mark, n < 0 ? 0 : (size_t)n);
}

/* Contract 3.2: a parameter is required or has a default. */
static void check_parameter(struct ab_check *self, const struct ab_place *place,
                            const struct ab_node *node)
{
    struct ab_node key, value, required = {0}, preset = {0};
    const char *s = "";
    size_t n = 0;
    bool must = false;
    if (node->type != AB_N_MAP)
        return;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &value);) {
        if (key.raw_len == 8 && memcmp(key.raw, "required", 8) == 0)
            required = value;
        if (key.raw_len == 7 && memcmp(key.raw, "default", 7) == 0)
            preset = value;
    }
    if (ab_to_bool(&required, self->arena, &must) != AB_CO_OK)
        return;
    if (ab_to_text(&preset, self->arena, &s, &n) != AB_CO_OK)
        n = 0;
    if (preset.type > AB_N_TEXT && preset.type != AB_N_PLAIN)
        return; /* no text at all: said already */
    struct ab_place at = {.up = place, .name = "default", .name_len = 7};
    if (must && n > 0)
        ab_check_issue(self, &at, "value_error", "a required parameter has no default", NULL);
    if (!must && n == 0)
        ab_check_issue(self, &at, "value_error", "a parameter that is not required needs a default",
                       NULL);
}

/* Free JSON: passed on byte by byte. */
static void check_free(struct ab_check *self, const struct ab_place *place,
                       const struct ab_node *node)
{
    if (node->type != AB_N_MAP)
        ab_check_issue(self, place, "type_error.dict", "value is not a valid dict", NULL);
    else if (!ab_scan_storable(node))
        ab_check_issue(self, place, "value_error",
                       "holds NUL, half a surrogate pair or a number without end", NULL);
    before_value(self);
    ab_buf_add(self->out, node->raw, node->raw_len);
}

static void check_shape(struct ab_check *self, const struct ab_place *place,
                        const struct ab_shape *shape, const struct ab_field *field,
                        const struct ab_node *node)
{
    static const struct ab_field text = {.kind = AB_STR, .max = 65536};
    if (node->type == AB_N_NULL) {
        ab_check_issue(self, place, NONE_NOT_ALLOWED, NULL);
        put_nil(self);
        return;
    }
    switch (shape->form) {
    case AB_FORM_TEXT:
        check_text(self, place, &text, node);
        break;
    case AB_FORM_URL:
        check_url(self, place, field, node);
        break;
    case AB_FORM_ITEM:
        ab_check_object(self, place, shape->schema, AB_CREATE, node);
        if (shape->schema == &ab_schema_app_parameter)
            check_parameter(self, place, node);
        break;
    case AB_FORM_LIST:
        check_shape_list(self, place, shape, field, node);
        break;
    case AB_FORM_MAP:
    case AB_FORM_INT_MAP:
        check_shape_map(self, place, shape, field, node);
        break;
    default:
        check_free(self, place, node);
    }
}

static void check_json(ARGS)
{
    struct inset inset;
    inset_begin(self, &inset);
    check_shape(self, place, field->shape, field, node);
    inset_end(self, &inset);
}

static void check_obj(ARGS)
{
    ab_check_object(self, place, field->sub, AB_CREATE, node);
}

static void check_list(ARGS)
{
    if (!is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = put_open(self, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        if (!has_room(self, place, field, node, at.index))
            return;
        ab_check_object(self, &at, field->sub, AB_CREATE, &item);
    }
    put_close(self, false, mark, at.index);
}

/* Fields from number `first` on. */
static void check_from(struct ab_check *self, const struct ab_place *place,
                       const struct ab_schema *schema, int first, unsigned role,
                       const struct ab_node *node);

static void check_map(ARGS)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    size_t mark = put_open(self, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        put_key(self, members[i].key, members[i].key_len);
        length_ok(self, &at, &field->sub->fields[0], node, members[i].key, members[i].key_len);
        check_from(self, &at, field->sub, 1, AB_CREATE, &members[i].value);
    }
    put_close(self, true, mark, n < 0 ? 0 : (size_t)n);
}

static void (*const checks[AB_KINDS])(ARGS) = {
    [AB_BOOL] = check_bool, [AB_I32] = check_int,    [AB_I64] = check_int,
    [AB_F64] = check_real,  [AB_STR] = check_text,   [AB_PATH] = check_path,
    [AB_UUID] = check_uuid, [AB_URL] = check_url,    [AB_TIME] = check_time,
    [AB_ENUM] = check_enum, [AB_JSON] = check_json,  [AB_TAGS] = check_tags,
    [AB_IDS] = check_ids,   [AB_STRS] = check_texts, [AB_ENUMS] = check_enums,
    [AB_OBJ] = check_obj,   [AB_LIST] = check_list,  [AB_MAP] = check_map,
};

/* ------------------------------------------------------------------ objects of a schema */

/* An absent field: is it missing? In JSON text the default is written, so that readers find every
 * member. */
static size_t check_absent(struct ab_check *self, const struct ab_place *at, unsigned role,
                           const struct ab_field *field)
{
    if (((role & AB_CREATE) && (field->flags & AB_REQUIRED)) || (field->flags & role & AB_KEY)) {
        ab_check_issue(self, at, MISSING, NULL);
        return 0;
    }
    if (!self->json)
        return 0;
    put_key(self, field->name, strlen(field->name));
    before_value(self);
    ab_buf_str(self->out, field->def ? field->def : "null");
    return 1;
}

/* A filter of a query that filters nothing (contract 1.4), just written at `mark`. */
static bool is_falsy(const struct ab_buf *out, size_t mark)
{
    struct ab_cursor at = ab_cursor(out->data + mark, out->len - mark);
    int64_t i = 1;
    bool b = true;
    double f = 1;
    const char *s;
    const void *p;
    size_t n = 1;
    uint32_t items = 1;
    int8_t type = 0;
    switch (ab_cursor_peek(&at)) {
    case AB_TK_INT:
        return ab_cursor_int(&at, &i) == 0 && i == 0;
    case AB_TK_BOOL:
        return ab_cursor_bool(&at, &b) == 0 && !b;
    case AB_TK_REAL:
        return ab_cursor_real(&at, &f) == 0 && f == 0;
    case AB_TK_STR:
        return ab_cursor_str(&at, &s, &n) == 0 && n == 0;
    case AB_TK_ARRAY:
        return ab_cursor_array(&at, &items) == 0 && items == 0;
    case AB_TK_EXT: /* {} */
        return ab_cursor_ext(&at, &type, &p, &n) == 0 && type == 1 && n == 2;
    default:
        return false;
    }
}

/* One field that is there: 1 when it was written. */
static size_t check_present(struct ab_check *self, const struct ab_place *at,
                            const struct ab_field *field, const struct ab_node *node)
{
    size_t mark = self->out->len;
    put_key(self, field->name, at->name_len);
    size_t value = self->out->len;
    if (node->type == AB_N_NULL) {
        if (!(field->flags & AB_NULLABLE))
            ab_check_issue(self, at, NONE_NOT_ALLOWED, NULL);
        put_nil(self);
        return 1;
    }
    checks[field->kind](self, at, field, node);
    if ((field->flags & AB_FALSY) && is_falsy(self->out, value)) {
        self->out->len = mark;
        return 0;
    }
    return 1;
}

static void check_fields(struct ab_check *self, const struct ab_place *place,
                         const struct ab_schema *schema, int first, unsigned role,
                         const struct ab_node *slots)
{
    size_t n = 0, mark = put_open(self, true);
    for (int i = first; i < schema->n_fields; i++) {
        const struct ab_field *field = &schema->fields[i];
        struct ab_place at = {.up = place, .name = field->name, .name_len = strlen(field->name)};
        if (!(field->flags & role))
            continue;
        if (slots[i].type == AB_N_ABSENT
            || (slots[i].type == AB_N_NULL && (field->flags & AB_NOT_CLEARED)))
            n += check_absent(self, &at, role, field);
        else
            n += check_present(self, &at, field, &slots[i]);
    }
    put_close(self, true, mark, n);
}

void ab_check_fields(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *slots)
{
    check_fields(self, place, schema, 0, role, slots);
}

static void check_from(struct ab_check *self, const struct ab_place *place,
                       const struct ab_schema *schema, int first, unsigned role,
                       const struct ab_node *node)
{
    struct ab_node slots[64], key, value;
    int guess = 0;
    if (node->type != AB_N_MAP) {
        ab_check_issue(self, place, "type_error.dict", "value is not a valid dict", NULL);
        put_nil(self);
        return;
    }
    for (int i = 0; i < schema->n_fields; i++)
        slots[i].type = AB_N_ABSENT;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &value);) {
        const char *name;
        size_t len;
        if (ab_scan_string(&key, self->arena, &name, &len) < 0)
            continue; /* an unknown key */
        int i = ab_field_find(schema, name, len, guess);
        if (i >= 0) {
            slots[i] = value; /* of members with the same name the last one counts */
            guess = i + 1;
        }
    }
    check_fields(self, place, schema, first, role, slots);
}

void ab_check_object(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *node)
{
    check_from(self, place, schema, 0, role, node);
}
