/* check_shape.c - objects whose members have free names, and what JSON fields look like inside */
#include "check.h"

#include "coerce.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static int64_t take_members(AB_CHECK_ARGS, struct member **out)
{
    if (node->type != AB_N_MAP) {
        ab_check_issue(self, place, "type_error.dict", "value is not a valid dict", NULL);
        return -1;
    }
    struct ab_node key, value;
    size_t n = 0, room = 8;
    struct member *members = ab_alloc(self->arena, room, sizeof(*members));
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &value);) {
        if (!ab_check_has_room(self, place, field, node, n))
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
            ab_check_came(self, &at, AB_CO_BYTES, NULL, NULL);
            return -1;
        }
        n++;
    }
    *out = members;
    return (int64_t)drop_overridden(members, n);
}

void ab_check_tags(AB_CHECK_ARGS)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    if (n < 0)
        return;
    struct ab_inset inset;
    ab_emit_inset(&self->emit, &inset);
    size_t mark = ab_emit_open(&self->emit, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        const char *s = "";
        size_t len = 0;
        ab_emit_key(&self->emit, members[i].key, members[i].key_len);
        if (members[i].value.type == AB_N_NULL)
            ab_check_issue(self, &at, AB_NOT_NULL, NULL);
        else
            ab_check_came(self, &at, ab_to_text(&members[i].value, self->arena, &s, &len),
                          "type_error.str", "str type expected");
        ab_emit_text(&self->emit, s, len);
    }
    ab_emit_close(&self->emit, true, mark, (size_t)n);
    ab_emit_inset_end(&self->emit, &inset);
}

static void check_shape(struct ab_check *self, const struct ab_place *place,
                        const struct ab_shape *shape, const struct ab_field *field,
                        const struct ab_node *node);

static void check_shape_list(struct ab_check *self, const struct ab_place *place,
                             const struct ab_shape *shape, const struct ab_field *field,
                             const struct ab_node *node)
{
    if (!ab_check_is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = ab_emit_open(&self->emit, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        if (!ab_check_has_room(self, place, field, node, at.index))
            return;
        check_shape(self, &at, shape->of, field, &item);
    }
    ab_emit_close(&self->emit, false, mark, at.index);
}

static void check_shape_map(struct ab_check *self, const struct ab_place *place,
                            const struct ab_shape *shape, const struct ab_field *field,
                            const struct ab_node *node)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    size_t mark = ab_emit_open(&self->emit, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        struct ab_node name = {AB_N_PLAIN, members[i].key, members[i].key_len};
        struct ab_place key = {.up = place, .name = "__key__", .name_len = 7};
        static const struct ab_field any = {.kind = AB_I64};
        int64_t number = 0;
        if (shape->form != AB_FORM_INT_MAP) {
            ab_emit_key(&self->emit, members[i].key, members[i].key_len);
        } else if (ab_check_int(self, &key, &any, &name, &number) == 0) {
            char text[24];
            ab_emit_key(&self->emit, text,
                        (size_t)snprintf(text, sizeof(text), "%" PRId64, number));
        }
        check_shape(self, &at, shape->of, field, &members[i].value);
    }
    ab_emit_close(&self->emit, true, mark, n < 0 ? 0 : (size_t)n);
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
    ab_emit_before(&self->emit);
    ab_buf_add(self->emit.out, node->raw, node->raw_len);
}

static void check_shape(struct ab_check *self, const struct ab_place *place,
                        const struct ab_shape *shape, const struct ab_field *field,
                        const struct ab_node *node)
{
    static const struct ab_field text = {.kind = AB_STR, .max = 65536};
    if (node->type == AB_N_NULL) {
        ab_check_issue(self, place, AB_NOT_NULL, NULL);
        ab_emit_nil(&self->emit);
        return;
    }
    switch (shape->form) {
    case AB_FORM_TEXT:
        ab_check_text(self, place, &text, node);
        break;
    case AB_FORM_URL:
        ab_check_url(self, place, field, node);
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

void ab_check_json(AB_CHECK_ARGS)
{
    struct ab_inset inset;
    ab_emit_inset(&self->emit, &inset);
    check_shape(self, place, field->shape, field, node);
    ab_emit_inset_end(&self->emit, &inset);
}

void ab_check_obj(AB_CHECK_ARGS)
{
    ab_check_object(self, place, field->sub, AB_CREATE, node);
}

void ab_check_list(AB_CHECK_ARGS)
{
    if (!ab_check_is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = ab_emit_open(&self->emit, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        if (!ab_check_has_room(self, place, field, node, at.index))
            return;
        ab_check_object(self, &at, field->sub, AB_CREATE, &item);
    }
    ab_emit_close(&self->emit, false, mark, at.index);
}

void ab_check_map(AB_CHECK_ARGS)
{
    struct member *members;
    int64_t n = take_members(self, place, field, node, &members);
    size_t mark = ab_emit_open(&self->emit, true);
    for (int64_t i = 0; i < n; i++) {
        struct ab_place at = {.up = place, .name = members[i].key, .name_len = members[i].key_len};
        ab_emit_key(&self->emit, members[i].key, members[i].key_len);
        ab_check_length(self, &at, &field->sub->fields[0], node, members[i].key,
                        members[i].key_len);
        ab_check_from(self, &at, field->sub, 1, AB_CREATE, &members[i].value);
    }
    ab_emit_close(&self->emit, true, mark, n < 0 ? 0 : (size_t)n);
}
