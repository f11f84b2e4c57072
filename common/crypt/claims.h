/* claims.h - the one JSON shape that tokens have: a flat object of strings and integers
 *
 * Smaller and stricter than a JSON library: no nesting, no doubles, no key twice, nothing behind
 * the brace. Tokens are made by us, so whatever else stands in one was not.
 */
#ifndef AB_CRYPT_CLAIMS_H
#define AB_CRYPT_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLAIMS_MAX 16

struct claim {
    char name[16];
    bool is_int;
    int64_t i;
    char text[401];
};
struct claims {
    struct claim v[CLAIMS_MAX];
    size_t n;
};

/* 0, or -1: not of this shape. */
int claims_parse(const char *json, size_t len, struct claims *out);
const char *claims_text(const struct claims *self, const char *name);      /* NULL */
int claims_int(const struct claims *self, const char *name, int64_t *out); /* -1 */

#endif
