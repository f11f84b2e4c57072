/* renewal.c - see renewal.h */
#include "renewal.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/rand.h"
#include "crypt/crypt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RANDOM_BYTES = 20,
    DIGEST_BYTES = 16,
    DIGEST_TEXT = 2 * DIGEST_BYTES
};

static int path_of(const char *client_file, struct ab_buf *out, struct ab_error *err)
{
    ab_buf_printf(out, "%s.renewal", client_file);
    ab_buf_char(out, '\0');
    return out->failed ? ab_fail(err, AB_EINTERNAL, "%s: no memory for its name", client_file) : 0;
}

/* "DIGEST KEY": the key is that of one refresh token, which is not told again here. */
static bool read_key(const char *path, const char *digest, char key[RENEWAL_KEY])
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const size_t len = DIGEST_TEXT + 1 + RENEWAL_KEY - 1;

    if (ab_file_private(path, NULL) < 0 || ab_file_read(path, 256, &text, NULL) < 0
        || text.len != len + 1 || text.data[len] != '\n' || text.data[DIGEST_TEXT] != ' '
        || memcmp(text.data, digest, DIGEST_TEXT) != 0)
        return false;
    memcpy(key, text.data + DIGEST_TEXT + 1, RENEWAL_KEY - 1);
    key[RENEWAL_KEY - 1] = '\0';
    return strspn(key, "rn-0123456789abcdef") == RENEWAL_KEY - 1;
}

static int write_key(const char *path, const char *digest, const char *key, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    ab_buf_printf(&text, "%s %s\n", digest, key);
    if (text.failed)
        return ab_fail(err, AB_EINTERNAL, "%s: no memory to write it", path);
    return ab_file_write(path, text.data, text.len, 0600, err);
}

int renewal_key(const char *client_file, const char *refresh_token, char key[RENEWAL_KEY],
                struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    uint8_t bytes[DIGEST_BYTES], random[RANDOM_BYTES];
    char digest[DIGEST_TEXT + 1], text[2 * RANDOM_BYTES + 1];

    if (path_of(client_file, &path, err) < 0)
        return -1;
    ab_hash(refresh_token, strlen(refresh_token), bytes, sizeof(bytes));
    ab_hex(bytes, sizeof(bytes), digest);
    if (read_key(path.data, digest, key))
        return 0;
    ab_random(random, sizeof(random));
    ab_hex(random, sizeof(random), text);
    (void)snprintf(key, RENEWAL_KEY, "rn-%s", text);
    return write_key(path.data, digest, key, err);
}

void renewal_done(const char *client_file)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};

    if (path_of(client_file, &path, NULL) == 0)
        (void)unlink(path.data); /* one that stays belongs to a token that is used up */
}
