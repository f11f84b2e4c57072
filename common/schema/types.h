/* types.h - inside schema/ only: what kinds and shapes are made of */
#ifndef AB_TYPES_H
#define AB_TYPES_H

#include "json.h"
#include "pack.h"
#include "scan.h"
#include "schema.h"

/* What a JSON field must look like inside, and what a text must be beyond its length. */
enum ab_form {
    AB_FORM_ANY,        /* JSON: an object; STR: any text */
    AB_FORM_TEXT,       /* a string */
    AB_FORM_URL,        /* a string with scheme and host */
    AB_FORM_ITEM,       /* an object of a schema */
    AB_FORM_LIST,       /* a list of `of` */
    AB_FORM_MAP,        /* an object whose values are `of` */
    AB_FORM_INT_MAP,    /* the same, and its keys are whole numbers */
    AB_FORM_IDENTIFIER, /* STR: a Python identifier */
    AB_FORM_PREFIX,     /* STR: must begin with `text` */
    AB_FORM_ASSERTED,   /* STR: its length is checked by an assertion (contract 3.2) */
};

struct ab_shape {
    enum ab_form form;
    const struct ab_shape *of;
    const struct ab_schema *schema;
    const char *text;
};

/* One row of operations per kind; `value` is the field's place in a struct. */
struct ab_kind_ops {
    const char *name;
    void (*pack)(struct ab_buf *out, const struct ab_field *field, const void *value);
    int (*unpack)(struct ab_cursor *at, const struct ab_field *field, void *value,
                  ab_arena_t *arena, struct ab_error *err);
    void (*write)(struct ab_buf *out, const struct ab_field *field, const void *value);
    /* From JSON that is known to be good (defaults, replies): -1 when it is of no use. */
    int (*read)(const struct ab_node *node, const struct ab_field *field, void *value,
                ab_arena_t *arena);
};
extern const struct ab_kind_ops ab_kinds[AB_KINDS];

static inline bool ab_is_bounded(const struct ab_field *field)
{
    return field->min != 0 || field->max != 0;
}

/* Of a number; what no row bounds is bounded by its type. */
void ab_bounds(const struct ab_field *field, int64_t *min, int64_t *max);

/* One object of JSON into a zeroed struct: tolerant, fields of `role` only. */
void ab_read_item(const struct ab_node *node, const struct ab_schema *schema, unsigned role,
                  ab_arena_t *arena, void *item);

/* A struct from field number `first` on. */
void ab_pack_from(struct ab_buf *out, const struct ab_schema *schema, int first, unsigned role,
                  const void *item);
void ab_write_from(struct ab_buf *out, const struct ab_schema *schema, int first, unsigned role,
                   const void *item);

/* The most items of a list as a body. */
#define AB_BODY_ITEMS 100000

static inline struct ab_head *ab_head_of(void *item)
{
    return item;
}

#define AB_SHAPE(name, ...) extern const struct ab_shape ab_shape_##name;
#include "shapes.def"
#undef AB_SHAPE

#endif
