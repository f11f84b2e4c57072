/* check.h - inside schema/ only: one request's JSON against its descriptor */
#ifndef AB_CHECK_H
#define AB_CHECK_H

#include "types.h"

/* Where a value stands: ["body", 0, "tags", "a"] from the inside out. */
struct ab_place {
    const struct ab_place *up;
    const char *name; /* NULL: an index */
    size_t name_len;
    size_t index;
};

struct ab_check {
    ab_arena_t *arena;
    struct ab_issues *issues;
    struct ab_buf *out;
    bool json;  /* `out` gets JSON text, not msgpack */
    bool comma; /* in JSON: a comma is due before the next value */
};

/* An issue at a place. ctx: JSON text or NULL. */
void ab_check_issue(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *msg, const char *ctx);

/* Check the object's fields of `role` and write it to out. */
void ab_check_object(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *node);

/* The same with the fields already found: slots[i] belongs to schema->fields[i]. Fields of a query
 * that are falsy by AB_FALSY are left out. */
void ab_check_fields(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *slots);

/* An integer in [min, max] of the field, or an issue and -1. */
int ab_check_int(struct ab_check *self, const struct ab_place *place, const struct ab_field *field,
                 const struct ab_node *node, int64_t *v);

#endif
