/* crypt.h - libsodium, behind the few things Abies needs
 *
 * ab_crypt_init() first in every program that uses it.
 */
#ifndef AB_CRYPT_H
#define AB_CRYPT_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void ab_crypt_init(void); /* aborts if libsodium cannot start */

/* ---- tokens: JWT with EdDSA only (RFC 8725: the key decides the algorithm, never the header) */
#define AB_TOKEN_MAX 2048
#define AB_TOKEN_USERNAME 401 /* 100 characters, 4 bytes each at most */
struct ab_token {
    int64_t user;
    char username[AB_TOKEN_USERNAME];
    unsigned scopes; /* AB_SCOPE_* bits */
    int64_t site;    /* site tokens, else 0 */
    char jti[40];
    int64_t iat, exp; /* unix seconds */
};
struct ab_public_key {
    char kid[24];
    uint8_t key[32];
};
/* Writes the compact form into out[AB_TOKEN_MAX]. secret is libsodium's 64-byte Ed25519 secret key.
 */
int ab_token_sign(const struct ab_token *token, const char *kid, const uint8_t secret[64],
                  char *out, struct ab_error *err);
/* 0 and *out; -1 AB_EAUTH. `now` unix seconds; no leeway for exp, 60 s for iat. */
int ab_token_check(const char *text, size_t len, const struct ab_public_key *keys, size_t n,
                   int64_t now, struct ab_token *out, struct ab_error *err);
void ab_token_keypair(uint8_t public_key[32], uint8_t secret_key[64]);

/* ---- passwords: Argon2id, interactive limits (64 MiB, about 0.25 s)
 * At most AB_PASSWORD_AT_ONCE hashes run in a process, so that twenty log-ins at once do not take
 * 1.3 GB; the others wait, and after AB_PASSWORD_WAIT_MS get AB_EBUSY. */
#define AB_PASSWORD_HASH_MAX 128
#define AB_PASSWORD_AT_ONCE 4
#define AB_PASSWORD_WAIT_MS 10000
#define AB_PASSWORD_MAX 4096 /* bytes; longer ones are AB_EINVAL / wrong */
int ab_password_hash(const char *password, size_t len, char out[AB_PASSWORD_HASH_MAX],
                     struct ab_error *err); /* AB_EBUSY: no memory */
/* 1 right, 0 wrong, -1 no memory (AB_EBUSY). hash NULL: hashes a dummy, same time, 0. */
int ab_password_check(const char *hash, const char *password, size_t len, struct ab_error *err);
bool ab_password_outdated(const char *hash);

/* ---- digests and secrets */
void ab_hash(const void *bytes, size_t n, uint8_t *out,
             size_t out_len); /* BLAKE2b, 16 to 64 bytes */
/* The same under a 32-byte key: only who has the key can make the digest. */
void ab_hash_keyed(const uint8_t key[32], const void *bytes, size_t n, uint8_t *out,
                   size_t out_len);
/* SipHash-2-4: where in a table to look, and nobody without the key can make two things meet there. */
#define AB_PLACE_KEY 16
uint64_t ab_hash_place(const uint8_t key[AB_PLACE_KEY], const void *bytes, size_t n);
bool ab_equal(const void *a, const void *b, size_t n); /* constant time */
void ab_wipe(void *p, size_t n);
#define AB_SECRET_TEXT_MAX 64
void ab_secret_text(
    char out[AB_SECRET_TEXT_MAX]); /* 32 random bytes, base64url: refresh tokens, codes */
size_t ab_base64url(const void *bytes, size_t n, char *out, size_t cap); /* no padding; length */
int64_t ab_base64url_decode(const char *text, size_t len, uint8_t *out,
                            size_t cap); /* strict; -1 */
/* The usual alphabet, padded; line ends and blanks are skipped, as Python's encoders add some. */
int64_t ab_base64_decode(const char *text, size_t len, uint8_t *out, size_t cap);

/* ---- sealing: secrets at rest (secretbox under a 32-byte key, base64url in a file of mode 0600)
 */
int ab_seal_key_load(const char *path, uint8_t key[32], struct ab_error *err);
int ab_seal_key_make(const char *path, struct ab_error *err); /* left alone if it exists */
#define AB_SEAL_EXTRA 40
void ab_seal(const uint8_t key[32], const void *plain, size_t n,
             uint8_t *out); /* n + AB_SEAL_EXTRA bytes */
/* Writes n - AB_SEAL_EXTRA bytes. */
int ab_unseal(const uint8_t key[32], const void *sealed, size_t n, uint8_t *out,
              struct ab_error *err);

#endif
