/* test_scopes.c - the scope names inside tokens and the bits in routes agree */
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include "schema/schema.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* crypt knows no schema: the names in token.c and the bits in schema.h must agree. */
static void scope_names_mean_the_bits_of_the_schema(void **state)
{
    (void)state;
    ab_crypt_init();
    static const unsigned bits[] = {AB_SCOPE_USER, AB_SCOPE_SITE, AB_SCOPE_READ, AB_SCOPE_ADMIN};
    static const char *const names[] = {"user", "site", "read", "admin"};
    uint8_t secret[64];
    struct ab_public_key key = {.kid = "k"};
    ab_token_keypair(key.key, secret);
    for (size_t i = 0; i < AB_COUNT(bits); i++) {
        struct ab_token token = {
            .user = 1, .username = "u", .scopes = bits[i], .jti = "j", .exp = 9};
        token.site = bits[i] == AB_SCOPE_SITE ? 5 : 0;
        struct ab_token got;
        char text[AB_TOKEN_MAX], json[AB_TOKEN_MAX] = {0}, want[32];
        assert_int_equal(ab_token_sign(&token, "k", secret, text, NULL), 0);
        assert_int_equal(ab_token_check(text, strlen(text), &key, 1, 1, &got, NULL), 0);
        assert_int_equal(got.scopes, bits[i]);
        const char *body = strchr(text, '.') + 1;
        assert_true(ab_base64url_decode(body, (size_t)(strrchr(text, '.') - body), (uint8_t *)json,
                                        sizeof(json) - 1)
                    > 0);
        snprintf(want, sizeof(want), "\"scope\":\"%s\"", names[i]);
        assert_non_null(strstr(json, want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scope_names_mean_the_bits_of_the_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
