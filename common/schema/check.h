/* check.h - inside schema/ only: one request's JSON against its descriptor */
#ifndef AB_CHECK_H
#define AB_CHECK_H

#include "coerce.h"
#include "emit.h"
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
    struct ab_emit emit;
};

#define AB_ISSUES_SHOWN 100
#define AB_ITEMS_NAMED                                                                             \
    5000 /* bad items of a list that are named at least once; as many as a call takes */
#define AB_MISSING "value_error.missing", "field required"
#define AB_NOT_NULL "type_error.none.not_allowed", "none is not an allowed value"

/* An issue at a place. ctx: JSON text or NULL. */
void ab_check_issue(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *msg, const char *ctx);

/* "ensure this value <that> <limit><unit>" */
void ab_check_limit(struct ab_check *self, const struct ab_place *place, const char *type,
                    const char *that, int64_t limit, const char *unit);

/* Did a text come? If not, an issue: that of `rc`, or type and msg when it is no text at all. */
bool ab_check_came(struct ab_check *self, const struct ab_place *place, enum ab_coerced rc,
                   const char *type, const char *msg);

/* Check the object's fields of `role` and write it to out. */
void ab_check_object(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *node);

/* The same with the fields already found: slots[i] belongs to schema->fields[i]. Fields of a query
 * that are falsy by AB_FALSY are left out. */
void ab_check_fields(struct ab_check *self, const struct ab_place *place,
                     const struct ab_schema *schema, unsigned role, const struct ab_node *slots);

/* The same from field number `first` on. */
void ab_check_from(struct ab_check *self, const struct ab_place *place,
                   const struct ab_schema *schema, int first, unsigned role,
                   const struct ab_node *node);

/* An integer in [min, max] of the field, or an issue and -1. */
int ab_check_int(struct ab_check *self, const struct ab_place *place, const struct ab_field *field,
                 const struct ab_node *node, int64_t *v);

/* ---- one for each kind: check and write the value, or say what is wrong with it */
#define AB_CHECK_ARGS                                                                              \
    struct ab_check *self, const struct ab_place *place, const struct ab_field *field,             \
        const struct ab_node *node

void ab_check_whole(AB_CHECK_ARGS); /* I32, I64 */
void ab_check_bool(AB_CHECK_ARGS);
void ab_check_real(AB_CHECK_ARGS);
void ab_check_text(AB_CHECK_ARGS);
void ab_check_path(AB_CHECK_ARGS);
void ab_check_uuid(AB_CHECK_ARGS);
void ab_check_url(AB_CHECK_ARGS);
void ab_check_time(AB_CHECK_ARGS);
void ab_check_enum(AB_CHECK_ARGS);
void ab_check_ids(AB_CHECK_ARGS);
void ab_check_texts(AB_CHECK_ARGS);
void ab_check_enums(AB_CHECK_ARGS);
void ab_check_tags(AB_CHECK_ARGS);
void ab_check_json(AB_CHECK_ARGS);
void ab_check_obj(AB_CHECK_ARGS);
void ab_check_list(AB_CHECK_ARGS);
void ab_check_map(AB_CHECK_ARGS);

/* Parts of them: is it a list, is there room for one more, is the text of a fitting length? */
bool ab_check_is_list(AB_CHECK_ARGS);
bool ab_check_has_room(AB_CHECK_ARGS, size_t n);
bool ab_check_length(AB_CHECK_ARGS, const char *s, size_t n);

#endif
