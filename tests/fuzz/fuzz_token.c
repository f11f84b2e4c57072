/* fuzz_token.c - access tokens: no bytes but ours get in, and what our claims reader takes is JSON
 *
 * The first byte picks: the text of a token, or the JSON inside one.
 */
#include "fuzz.h"

#include "crypt/claims.h"
#include "crypt/crypt.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* Signed by a key that nobody has: whatever comes is refused, and reads no byte too many. */
static void check_token(const char *text, size_t len)
{
    static const struct ab_public_key keys[] = {
        {"k", {0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe,
               0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6,
               0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a}}};
    struct ab_token token;
    struct ab_error err;
    FUZZ_CHECK(ab_token_check(text, len, keys, 1, 1800000000, &token, &err) < 0);
    FUZZ_CHECK(err.code == AB_EAUTH);
}

static void write_claims(struct ab_buf *out, const struct claims *claims)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < claims->n; i++) {
        const struct claim *claim = &claims->v[i];
        if (i)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, claim->name, strlen(claim->name));
        ab_buf_char(out, ':');
        if (claim->is_int)
            ab_buf_int(out, claim->i);
        else
            ab_buf_json_str(out, claim->text, strlen(claim->text));
    }
    ab_buf_char(out, '}');
}

static void check_claims(const char *text, size_t len)
{
    static struct claims first, second;
    AB_AUTO(ab_buf_free) struct ab_buf once = {0}, twice = {0};
    if (claims_parse(text, len, &first) < 0)
        return;
    /* another parser agrees that it is JSON, with the same members */
    json_t *theirs = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    FUZZ_CHECK(theirs && json_object_size(theirs) == first.n);
    for (size_t i = 0; i < first.n; i++) {
        json_t *v = json_object_get(theirs, first.v[i].name);
        FUZZ_CHECK(v);
        if (first.v[i].is_int)
            FUZZ_CHECK(json_is_integer(v) && json_integer_value(v) == first.v[i].i);
        else
            FUZZ_CHECK(json_is_string(v) && strcmp(json_string_value(v), first.v[i].text) == 0);
    }
    json_decref(theirs);
    write_claims(&once, &first);
    FUZZ_CHECK(claims_parse(once.data, once.len, &second) == 0);
    write_claims(&twice, &second);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int started;
    if (!started++)
        ab_crypt_init();
    if (size == 0)
        return 0;
    if (data[0] == 't')
        check_token((const char *)data + 1, size - 1);
    else
        check_claims((const char *)data + 1, size - 1);
    return 0;
}
