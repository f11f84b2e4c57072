/* coerce.h - inside schema/ only: scalars the way the contract (1.2) takes them
 *
 * A value is JSON, or text of a query or form, which follows the rules of JSON strings.
 */
#ifndef AB_COERCE_H
#define AB_COERCE_H

#include "scan.h"
#include <stdint.h>

enum ab_coerced {
    AB_CO_OK,
    AB_CO_TYPE,  /* not of that type */
    AB_CO_ABOVE, /* a whole number above INT64_MAX */
    AB_CO_BELOW,
    AB_CO_BYTES, /* a string that cannot be stored: NUL, half a surrogate pair */
    AB_CO_SCHEME,
    AB_CO_HOST,
    AB_CO_PORT,
    AB_CO_EMPTY,
};

enum ab_coerced ab_to_int(const struct ab_node *node, ab_arena_t *arena, int64_t *v);
enum ab_coerced ab_to_real(const struct ab_node *node, ab_arena_t *arena, double *v);
enum ab_coerced ab_to_bool(const struct ab_node *node, ab_arena_t *arena, bool *v);
enum ab_coerced ab_to_time(const struct ab_node *node, ab_arena_t *arena, int64_t *utc_us);

/* The texts point into the node or into the arena. */
enum ab_coerced ab_to_text(const struct ab_node *node, ab_arena_t *arena, const char **s,
                           size_t *n);
enum ab_coerced ab_to_path(const struct ab_node *node, ab_arena_t *arena, const char **s,
                           size_t *n);
enum ab_coerced ab_to_url(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n);
enum ab_coerced ab_to_uuid(const struct ab_node *node, ab_arena_t *arena, char text[37]);

size_t ab_characters(const char *s, size_t n); /* of UTF-8 */
bool ab_is_identifier(const char *s, size_t n);

#endif
