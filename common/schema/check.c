/* check.c - one request's JSON against its descriptor: issues, or the packed request
 *
 * Every value is looked at once and written at once. All issues are collected, in the order of the
 * fields; what was written is of no use then. A JSON field with a shape is written as JSON text,
 * normalised.
 */
#include "check.h"

#include <string.h>

static void (*const checks[AB_KINDS])(AB_CHECK_ARGS) = {
    [AB_BOOL] = ab_check_bool, [AB_I32] = ab_check_whole,  [AB_I64] = ab_check_whole,
    [AB_F64] = ab_check_real,  [AB_STR] = ab_check_text,   [AB_PATH] = ab_check_path,
    [AB_UUID] = ab_check_uuid, [AB_URL] = ab_check_url,    [AB_TIME] = ab_check_time,
    [AB_ENUM] = ab_check_enum, [AB_JSON] = ab_check_json,  [AB_TAGS] = ab_check_tags,
    [AB_IDS] = ab_check_ids,   [AB_STRS] = ab_check_texts, [AB_ENUMS] = ab_check_enums,
    [AB_OBJ] = ab_check_obj,   [AB_LIST] = ab_check_list,  [AB_MAP] = ab_check_map,
};

/* ------------------------------------------------------------------ objects of a schema */

/* An absent field: is it missing? In JSON text the default is written, so that readers find every
 * member. */
static size_t check_absent(struct ab_check *self, const struct ab_place *at, unsigned role,
                           const struct ab_field *field)
{
    if (((role & AB_CREATE) && (field->flags & AB_REQUIRED)) || (field->flags & role & AB_KEY)) {
        ab_check_issue(self, at, AB_MISSING, NULL);
        return 0;
    }
    if (!self->emit.json)
        return 0;
    ab_emit_key(&self->emit, field->name, strlen(field->name));
    ab_emit_before(&self->emit);
    ab_buf_str(self->emit.out, field->def ? field->def : "null");
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
    size_t mark = self->emit.out->len;
    ab_emit_key(&self->emit, field->name, at->name_len);
    size_t value = self->emit.out->len;
    if (node->type == AB_N_NULL) {
        if (!(field->flags & AB_NULLABLE))
            ab_check_issue(self, at, AB_NOT_NULL, NULL);
        ab_emit_nil(&self->emit);
        return 1;
    }
    checks[field->kind](self, at, field, node);
    if ((field->flags & AB_FALSY) && is_falsy(self->emit.out, value)) {
        self->emit.out->len = mark;
        return 0;
    }
    return 1;
}

static void check_fields(struct ab_check *self, const struct ab_place *place,
                         const struct ab_schema *schema, int first, unsigned role,
                         const struct ab_node *slots)
{
    size_t n = 0, mark = ab_emit_open(&self->emit, true);
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
    ab_emit_close(&self->emit, true, mark, n);
}

void ab_check_fields(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *slots)
{
    check_fields(self, place, schema, 0, role, slots);
}

void ab_check_from(struct ab_check *self, const struct ab_place *place,
                   const struct ab_schema *schema, int first, unsigned role,
                   const struct ab_node *node)
{
    struct ab_node slots[64], key, value;
    int guess = 0;
    if (node->type != AB_N_MAP) {
        ab_check_issue(self, place, "type_error.dict", "value is not a valid dict", NULL);
        ab_emit_nil(&self->emit);
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
    ab_check_from(self, place, schema, 0, role, node);
}
