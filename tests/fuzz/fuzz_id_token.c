/* fuzz_id_token.c - JWKS documents and id tokens from a provider: nothing crashes, nobody gets in
 *
 * First line: the JWKS; the rest: the token. Those of the corpus are signed, but for another
 * log-in.
 */
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include "fuzz.h"
#include "svc_auth/id_token.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(key_set_free) struct key_set *keys = NULL;
    struct ab_error err = {0};
    const uint8_t *line = memchr(data, '\n', size);
    size_t n = line ? (size_t)(line - data) : size;
    const struct ab_value *doc = ab_value_parse(arena, (const char *)data, n, &err);
    if (doc)
        keys = key_set_read(doc, &err);
    if (!keys || !line)
        return 0;
    const char *text = ab_strndup(arena, line + 1, size - n - 1);
    struct id_expect expect = {.issuer = "https://login.example.org",
                               .client_id = "abies",
                               .nonce = "nonce",
                               .access_token = "access",
                               .now = 1800000000};
    if (id_token_check(arena, text, keys, &expect, &err))
        abort();
    return 0;
}
