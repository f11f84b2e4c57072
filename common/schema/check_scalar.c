/* check_scalar.c - single values and lists of them against their fields */
#include "check.h"

#include "coerce.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        ab_check_limit(self, place, "value_error.number.not_le", "is less than or equal to", max,
                       "");
        return -1;
    }
    if (rc == AB_CO_BELOW || *v < min) {
        ab_check_limit(self, place, "value_error.number.not_ge", "is greater than or equal to", min,
                       "");
        return -1;
    }
    return 0;
}

void ab_check_whole(AB_CHECK_ARGS)
{
    int64_t v = 0;
    if (ab_check_int(self, place, field, node, &v) == 0)
        ab_emit_int(&self->emit, v);
}

void ab_check_bool(AB_CHECK_ARGS)
{
    (void)field;
    bool v = false;
    if (ab_to_bool(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.bool", "value could not be parsed to a boolean",
                       NULL);
    ab_emit_bool(&self->emit, v);
}

void ab_check_real(AB_CHECK_ARGS)
{
    double v = 0;
    if (ab_to_real(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.float", "value is not a valid float", NULL);
    else if (ab_is_bounded(field) && v < (double)field->min)
        ab_check_limit(self, place, "value_error.number.not_ge", "is greater than or equal to",
                       field->min, "");
    else if (ab_is_bounded(field) && v > (double)field->max)
        ab_check_limit(self, place, "value_error.number.not_le", "is less than or equal to",
                       field->max, "");
    ab_emit_real(&self->emit, v);
}

bool ab_check_length(AB_CHECK_ARGS, const char *s, size_t n)
{
    (void)node;
    if (field->max > 0 && n > (size_t)field->max && ab_characters(s, n) > (size_t)field->max) {
        if (field->shape && field->shape->form == AB_FORM_ASSERTED)
            ab_check_issue(self, place, "assertion_error", "text is too long", NULL);
        else
            ab_check_limit(self, place, "value_error.any_str.max_length", "has at most", field->max,
                           " characters");
        return false;
    }
    if (field->min > 0 && ab_characters(s, n) < (size_t)field->min) {
        ab_check_limit(self, place, "value_error.any_str.min_length", "has at least", field->min,
                       " characters");
        return false;
    }
    return true;
}

/* What the shape of a STR field asks for. */
static void check_form(AB_CHECK_ARGS, const char *s, size_t n)
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

void ab_check_text(AB_CHECK_ARGS)
{
    const char *s = "";
    size_t n = 0;
    if (ab_check_came(self, place, ab_to_text(node, self->arena, &s, &n), "type_error.str",
                      "str type expected")
        && ab_check_length(self, place, field, node, s, n))
        check_form(self, place, field, node, s, n);
    ab_emit_text(&self->emit, s, n);
}

void ab_check_path(AB_CHECK_ARGS)
{
    const char *s = "";
    size_t n = 0;
    if (ab_check_came(self, place, ab_to_path(node, self->arena, &s, &n), "type_error.path",
                      "value is not a valid path")
        && ab_check_length(self, place, field, node, s, n)) {
        if ((field->flags & AB_ABSOLUTE) && *s != '/')
            ab_check_issue(self, place, "value_error", "path must be absolute", NULL);
        if ((field->flags & AB_RELATIVE) && *s == '/')
            ab_check_issue(self, place, "value_error", "path must be relative", NULL);
    }
    ab_emit_text(&self->emit, s, n);
}

void ab_check_uuid(AB_CHECK_ARGS)
{
    (void)field;
    char text[37] = "";
    if (ab_to_uuid(node, self->arena, text) != AB_CO_OK)
        ab_check_issue(self, place, "type_error.uuid", "value is not a valid uuid", NULL);
    ab_emit_text(&self->emit, text, strlen(text));
}

void ab_check_url(AB_CHECK_ARGS)
{
    (void)field;
    const char *s = "";
    size_t n = 0;
    if (ab_check_came(self, place, ab_to_url(node, self->arena, &s, &n), "type_error.str",
                      "str type expected")
        && n > 65536)
        ab_check_limit(self, place, "value_error.any_str.max_length", "has at most", 65536,
                       " characters");
    ab_emit_text(&self->emit, s, n);
}

void ab_check_time(AB_CHECK_ARGS)
{
    (void)field;
    int64_t v = 0;
    if (ab_to_time(node, self->arena, &v) != AB_CO_OK)
        ab_check_issue(self, place, "value_error.datetime", "invalid datetime format", NULL);
    ab_emit_before(&self->emit);
    ab_pack_time(self->emit.out, v, true);
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

static int enum_value(AB_CHECK_ARGS)
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

void ab_check_enum(AB_CHECK_ARGS)
{
    int v = enum_value(self, place, field, node);
    if (v >= 0)
        ab_emit_text(&self->emit, field->enumeration->names[v],
                     strlen(field->enumeration->names[v]));
}

/* ------------------------------------------------------------------ lists of scalars */

bool ab_check_is_list(AB_CHECK_ARGS)
{
    if (node->type == AB_N_LIST)
        return true;
    if (field->flags & AB_UNIQUE)
        ab_check_issue(self, place, "type_error.set", "value is not a valid set", NULL);
    else
        ab_check_issue(self, place, "type_error.list", "value is not a valid list", NULL);
    return false;
}

bool ab_check_has_room(AB_CHECK_ARGS, size_t n)
{
    (void)node;
    if (field->max == 0 || n < (size_t)field->max)
        return true;
    ab_check_limit(self, place, "value_error.list.max_items", "has at most", field->max, " items");
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

void ab_check_ids(AB_CHECK_ARGS)
{
    if (!ab_check_is_list(self, place, field, node))
        return;
    static const struct ab_field any = {.kind = AB_I64};
    struct ab_place at = {.up = place};
    struct ab_node item;
    struct ab_scan scan = ab_scan(node);
    size_t n = 0, room = 16;
    struct id few[16], *ids = few;
    for (; ab_scan_item(&scan, &item); at.index++) {
        if (!ab_check_has_room(self, place, field, node, n))
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
    size_t mark = ab_emit_open(&self->emit, false);
    for (size_t i = 0; i < n; i++)
        ab_emit_int(&self->emit, ids[i].v);
    ab_emit_close(&self->emit, false, mark, n);
}

void ab_check_texts(AB_CHECK_ARGS)
{
    if (!ab_check_is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = ab_emit_open(&self->emit, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        const char *s = "";
        size_t n = 0;
        if (!ab_check_has_room(self, place, field, node, at.index))
            return;
        ab_check_came(self, &at, ab_to_text(&item, self->arena, &s, &n), "type_error.str",
                      "str type expected");
        ab_emit_text(&self->emit, s, n);
    }
    ab_emit_close(&self->emit, false, mark, at.index);
}

void ab_check_enums(AB_CHECK_ARGS)
{
    if (!ab_check_is_list(self, place, field, node))
        return;
    struct ab_place at = {.up = place};
    struct ab_node item;
    uint64_t seen = 0;
    size_t n = 0, mark = ab_emit_open(&self->emit, false);
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); at.index++) {
        int v = enum_value(self, &at, field, &item);
        if (!ab_check_has_room(self, place, field, node, n))
            return;
        if (v < 0 || ((field->flags & AB_UNIQUE) && (seen >> v & 1)))
            continue;
        seen |= UINT64_C(1) << v;
        ab_emit_text(&self->emit, field->enumeration->names[v],
                     strlen(field->enumeration->names[v]));
        n++;
    }
    ab_emit_close(&self->emit, false, mark, n);
}
