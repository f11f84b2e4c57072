/* id_token.h - what a provider says about a person, and whether it was the provider who said it
 *
 * RS256 and ES256 by the keys of its JWKS; issuer, audience, times and nonce as OpenID Connect Core
 * 3.1.3.7 asks for.
 */
#ifndef AB_AUTH_ID_TOKEN_H
#define AB_AUTH_ID_TOKEN_H

#include "crypt/jws.h"
#include "schema/json.h"

#define ID_TOKEN_MAX 32768
#define ID_TOKEN_LEEWAY 60 /* seconds that the provider's clock may differ */

/* The keys of a provider. Not changed once made; shared by threads. */
struct key_set {
    struct provider_key {
        char kid[256]; /* "" none */
        ab_jws_key_t *key;
    } * v;
    size_t n;
};

/* Of a JWKS document: RSA and P-256 keys for signatures; others are left out. NULL: no JWKS. */
struct key_set *key_set_read(const struct ab_value *doc, struct ab_error *err);
void key_set_free(struct key_set **self);

struct id_expect {
    const char *issuer, *client_id, *nonce;
    const char *access_token; /* compared with at_hash, if there is one; NULL none */
    int64_t now;              /* unix seconds */
};

/* Its claims, or NULL: AB_EDENIED, with kind "unknown_key" when none of the keys signed it (the
 * provider may have new ones). `err` is not NULL. */
const struct ab_value *id_token_check(ab_arena_t *arena, const char *text,
                                      const struct key_set *keys, const struct id_expect *expect,
                                      struct ab_error *err);

#endif
