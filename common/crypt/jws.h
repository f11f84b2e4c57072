/* jws.h - signatures that others made: RS256 and ES256 of an OpenID Connect provider
 *
 * By OpenSSL's libcrypto, because libsodium has no RSA. The key decides the algorithm (RFC 8725):
 * what a token's header says is only compared with it, so neither `none` nor a public key taken for
 * an HMAC secret gets anywhere.
 */
#ifndef AB_JWS_H
#define AB_JWS_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

typedef struct ab_jws_key ab_jws_key_t;

/* From the members of a JWK, base64url text. RSA of 2048 to 8192 bits; points of P-256 only. NULL
 * AB_EINVAL: it is no such key. Checking with one key from several threads is fine. */
ab_jws_key_t *ab_jws_key_rsa(const char *n, const char *e, struct ab_error *err);
ab_jws_key_t *ab_jws_key_p256(const char *x, const char *y, struct ab_error *err);
void ab_jws_key_destroy(ab_jws_key_t **self);
const char *ab_jws_alg(const ab_jws_key_t *self); /* "RS256" or "ES256" */

/* 0: this key has signed these bytes; -1 AB_EAUTH: it has not. */
int ab_jws_check(const ab_jws_key_t *self, const char *alg, const void *bytes, size_t n,
                 const uint8_t *signature, size_t signature_len, struct ab_error *err);

void ab_sha256(const void *bytes, size_t n, uint8_t out[32]); /* PKCE, at_hash */

#endif
