/* seal.c - secrets at rest: secretbox under a key that stands in a file of its own */
#include "crypt.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(AB_SEAL_EXTRA == crypto_secretbox_NONCEBYTES + crypto_secretbox_MACBYTES,
               "AB_SEAL_EXTRA is nonce and tag");

int ab_seal_key_load(const char *path, uint8_t key[32], struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (ab_file_private(path, err) < 0 || ab_file_read(path, 256, &text, err) < 0)
        return ab_fail_within(err, "seal key");
    size_t len = text.len;
    while (len > 0 && (text.data[len - 1] == '\n' || text.data[len - 1] == '\r'))
        len--;
    uint8_t bytes[33];
    int64_t n = ab_base64url_decode(text.data, len, bytes, sizeof(bytes));
    sodium_memzero(text.data, text.len);
    if (n != 32)
        return ab_fail(
            err, AB_EINVAL,
            "seal key %s is damaged: it must hold 43 characters of base64url; take it from "
            "your backup (a new one cannot open what the old one sealed)",
            path);
    memcpy(key, bytes, 32);
    sodium_memzero(bytes, sizeof(bytes));
    return 0;
}

int ab_seal_key_make(const char *path, struct ab_error *err)
{
    if (access(path, F_OK) == 0)
        return 0;
    char text[AB_SECRET_TEXT_MAX + 1];
    ab_secret_text(text);
    size_t len = strlen(text);
    text[len++] = '\n';

    /* Beside it, then link(): of two that make it at once one wins, and nobody reads half a key. */
    char beside[4096];
    int n = snprintf(beside, sizeof(beside), "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(beside))
        return ab_fail(err, AB_EINVAL, "seal key %s: the path is too long", path);
    int rc = ab_file_write(beside, text, len, 0600, err);
    sodium_memzero(text, sizeof(text));
    if (rc < 0)
        return ab_fail_within(err, "seal key");
    if (link(beside, path) < 0 && errno != EEXIST)
        rc = ab_fail_errno(err, AB_EINTERNAL, "cannot make seal key %s", path);
    unlink(beside);
    return rc;
}

void ab_seal(const uint8_t key[32], const void *plain, size_t n, uint8_t *out)
{
    randombytes_buf(out, crypto_secretbox_NONCEBYTES);
    (void)crypto_secretbox_easy(out + crypto_secretbox_NONCEBYTES, plain, n, out, key);
}

int ab_unseal(const uint8_t key[32], const void *sealed, size_t n, uint8_t *out,
              struct ab_error *err)
{
    const uint8_t *bytes = sealed;
    if (n < AB_SEAL_EXTRA
        || crypto_secretbox_open_easy(out, bytes + crypto_secretbox_NONCEBYTES,
                                      n - crypto_secretbox_NONCEBYTES, bytes, key)
               != 0)
        return ab_fail(
            err, AB_EINTERNAL,
            "a sealed secret does not open: it was sealed with another seal.key, or damaged");
    return 0;
}
