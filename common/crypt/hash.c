/* hash.c - digests, random secrets as text, base64 */
#include "crypt.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ab_crypt_init(void)
{
    if (sodium_init() < 0) {
        fputs("abies: libsodium cannot start (no source of random numbers?)\n", stderr);
        abort();
    }
}

void ab_hash(const void *bytes, size_t n, uint8_t *out, size_t out_len)
{
    assert(out_len >= crypto_generichash_BYTES_MIN && out_len <= crypto_generichash_BYTES_MAX);
    (void)crypto_generichash(out, out_len, bytes, n, NULL, 0);
}

void ab_hash_keyed(const uint8_t key[32], const void *bytes, size_t n, uint8_t *out, size_t out_len)
{
    assert(out_len >= crypto_generichash_BYTES_MIN && out_len <= crypto_generichash_BYTES_MAX);
    (void)crypto_generichash(out, out_len, bytes, n, key, 32);
}

uint64_t ab_hash_place(const uint8_t key[AB_PLACE_KEY], const void *bytes, size_t n)
{
    uint64_t place;
    static_assert(AB_PLACE_KEY == crypto_shorthash_KEYBYTES, "");
    (void)crypto_shorthash((uint8_t *)&place, bytes, n, key);
    return place;
}

bool ab_equal(const void *a, const void *b, size_t n)
{
    return sodium_memcmp(a, b, n) == 0;
}

void ab_wipe(void *p, size_t n)
{
    sodium_memzero(p, n);
}

void ab_secret_text(char out[AB_SECRET_TEXT_MAX])
{
    uint8_t bytes[32];
    randombytes_buf(bytes, sizeof(bytes));
    ab_base64url(bytes, sizeof(bytes), out, AB_SECRET_TEXT_MAX);
    sodium_memzero(bytes, sizeof(bytes));
}

size_t ab_base64url(const void *bytes, size_t n, char *out, size_t cap)
{
    size_t need = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    assert(cap >= need); /* sizes are the caller's constants */
    (void)need;
    sodium_bin2base64(out, cap, bytes, n, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return strlen(out);
}

int64_t ab_base64url_decode(const char *text, size_t len, uint8_t *out, size_t cap)
{
    size_t n;
    /* End pointer NULL: with one given, junk behind the text would be accepted. */
    if (sodium_base642bin(out, cap, text, len, NULL, &n, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING)
        != 0)
        return -1;
    return (int64_t)n;
}

int64_t ab_base64_decode(const char *text, size_t len, uint8_t *out, size_t cap)
{
    size_t n;
    if (sodium_base642bin(out, cap, text, len, "\r\n ", &n, NULL, sodium_base64_VARIANT_ORIGINAL)
        != 0)
        return -1;
    return (int64_t)n;
}
