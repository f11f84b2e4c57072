/* test_token.c - access tokens and the flat JSON inside them */
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1800000000

static struct ab_public_key keys[2];
static uint8_t secrets[2][64];
static const struct ab_token sample = {.user = 7,
                                       .username = "tenant \"\\ \xc3\xa9\xe6\xbc\xa2",
                                       .scopes = 1 | 8,
                                       .jti = "0198c0de-0000-7000-8000-000000000001",
                                       .iat = NOW - 10,
                                       .exp = NOW + 100};

static int start(void **state)
{
    (void)state;
    ab_crypt_init();
    for (int i = 0; i < 2; i++) {
        ab_token_keypair(keys[i].key, secrets[i]);
        snprintf(keys[i].kid, sizeof(keys[i].kid), "key-%d", i);
    }
    return 0;
}

static int check(const char *text, struct ab_token *out)
{
    struct ab_error err = {0};
    int rc = ab_token_check(text, strlen(text), keys, 2, NOW, out, &err);
    assert_int_equal(rc < 0 ? AB_EAUTH : 0, err.code);
    return rc;
}

/* A token with any header and body, signed as ours would be. */
static const char *forge(const char *header, const char *body, int key)
{
    static char out[AB_TOKEN_MAX * 2];
    size_t len = ab_base64url(header, strlen(header), out, sizeof(out));
    out[len++] = '.';
    len += ab_base64url(body, strlen(body), out + len, sizeof(out) - len);
    uint8_t signature[64];
    crypto_sign_detached(signature, NULL, (uint8_t *)out, len, secrets[key]);
    out[len++] = '.';
    ab_base64url(signature, 64, out + len, sizeof(out) - len);
    return out;
}

#define HEADER "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-0\"}"
#define BODY                                                                                       \
    "{\"iss\":\"abies\",\"sub\":7,\"username\":\"tenant\",\"scope\":\"user\",\"jti\":\"x\","       \
    "\"iat\":1800000000,\"exp\":1800000100}"

static void a_token_comes_back_as_it_was(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX];
    struct ab_token got;
    assert_int_equal(ab_token_sign(&sample, "key-1", secrets[1], text, NULL), 0);
    assert_int_equal(check(text, &got), 0);
    assert_int_equal(got.user, 7);
    assert_string_equal(got.username, sample.username);
    assert_string_equal(got.jti, sample.jti);
    assert_int_equal(got.scopes, 1 | 8);
    assert_int_equal(got.site, 0);
    assert_int_equal(got.exp, NOW + 100);
    assert_int_equal(check(forge(HEADER, BODY, 0), &got), 0);
}

static void the_longest_name_fits_and_a_longer_one_is_refused(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX];
    struct ab_token token = sample, got;
    token.username[0] = '\0';
    for (int i = 0; i < 100; i++)
        strcat(token.username, "\xf0\x9f\x8c\xb2");
    assert_int_equal(ab_token_sign(&token, "key-0", secrets[0], text, NULL), 0);
    assert_int_equal(check(text, &got), 0);
    assert_string_equal(got.username, token.username);
    memset(token.username, 1, 400); /* \u0001 each: 2400 bytes */
    struct ab_error err = {0};
    assert_int_equal(ab_token_sign(&token, "key-0", secrets[0], text, &err), -1);
    assert_int_equal(err.code, AB_EINVAL);
}

static void every_changed_byte_is_noticed(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX], bad[AB_TOKEN_MAX];
    struct ab_token got;
    assert_int_equal(ab_token_sign(&sample, "key-0", secrets[0], text, NULL), 0);
    for (size_t i = 0; text[i]; i++) {
        memcpy(bad, text, strlen(text) + 1);
        bad[i] = bad[i] == 'A' ? 'B' : 'A';
        assert_int_equal(check(bad, &got), -1);
        bad[i] = '\0'; /* and every prefix */
        assert_int_equal(check(bad, &got), -1);
    }
}

static void only_our_algorithm_counts(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{\"alg\":\"none\",\"typ\":\"JWT\",\"kid\":\"key-0\"}",
        "{\"alg\":\"HS256\",\"typ\":\"JWT\",\"kid\":\"key-0\"}",
        "{\"alg\":\"eddsa\",\"typ\":\"JWT\",\"kid\":\"key-0\"}",
        "{\"typ\":\"JWT\",\"kid\":\"key-0\"}",
        "{\"alg\":\"EdDSA\",\"kid\":\"key-0\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"at+jwt\",\"kid\":\"key-0\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-2\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-1\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":0}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-0\",\"crit\":[\"exp\"]}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-0\",\"crit\":\"exp\"}",
        "{\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-0\",\"crit\":1}",
        "{\"alg\":\"none\",\"alg\":\"EdDSA\",\"typ\":\"JWT\",\"kid\":\"key-0\"}",
    };
    struct ab_token got;
    for (size_t i = 0; i < AB_COUNT(headers); i++)
        assert_int_equal(check(forge(headers[i], BODY, 0), &got), -1);
}

static void there_are_exactly_three_parts(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX], bad[AB_TOKEN_MAX + 8];
    struct ab_token got;
    assert_int_equal(ab_token_sign(&sample, "key-0", secrets[0], text, NULL), 0);
    assert_int_equal(check("", &got), -1);
    assert_int_equal(check(".", &got), -1);
    assert_int_equal(check("..", &got), -1);
    snprintf(bad, sizeof(bad), "%s.", text);
    assert_int_equal(check(bad, &got), -1);
    snprintf(bad, sizeof(bad), ".%s", text);
    assert_int_equal(check(bad, &got), -1);
    snprintf(bad, sizeof(bad), "%s.A", text);
    assert_int_equal(check(bad, &got), -1);
    *strrchr(text, '.') = '\0'; /* no signature: header.body */
    assert_int_equal(check(text, &got), -1);
    strcat(text, "."); /* alg none's form */
    assert_int_equal(check(text, &got), -1);
}

static void base64_is_strict(void **state)
{
    (void)state;
    uint8_t out[8];
    assert_int_equal(ab_base64url_decode("AQID", 4, out, 8), 3);
    assert_int_equal(ab_base64url_decode("AQI", 3, out, 8), 2);
    assert_int_equal(ab_base64url_decode("", 0, out, 8), 0);
    assert_int_equal(ab_base64url_decode("AQI=", 4, out, 8), -1); /* padding */
    assert_int_equal(ab_base64url_decode("AQJ", 3, out, 8), -1);  /* bits left over */
    assert_int_equal(ab_base64url_decode("A", 1, out, 8), -1);
    assert_int_equal(ab_base64url_decode("AQ+D", 4, out, 8), -1); /* the other alphabet */
    assert_int_equal(ab_base64url_decode("AQ D", 4, out, 8), -1);
    assert_int_equal(ab_base64url_decode("AQID\n", 5, out, 8), -1);
    assert_int_equal(ab_base64url_decode("AQID", 4, out, 2), -1); /* no room */
    assert_int_equal(ab_base64_decode("AQ+/\nAQI=\r\n", 11, out, 8), 5);
    assert_int_equal(out[1] << 8 | out[2], 0x0fbf);
    assert_int_equal(ab_base64_decode("AQI", 3, out, 8), -1);   /* no padding */
    assert_int_equal(ab_base64_decode("AQI=A", 5, out, 8), -1); /* something behind it */
    assert_int_equal(ab_base64_decode("AQ-D", 4, out, 8), -1);
    assert_int_equal(ab_base64_decode("AQIDBA==", 8, out, 3), -1);
    char text[16];
    assert_int_equal(ab_base64url("\xfb\xff", 2, text, sizeof(text)), 3);
    assert_string_equal(text, "-_8");

    struct ab_token got;
    char padded[AB_TOKEN_MAX];
    assert_int_equal(ab_token_sign(&sample, "key-0", secrets[0], padded, NULL), 0);
    strcat(padded, "=");
    assert_int_equal(check(padded, &got), -1);
}

static void times_are_kept(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX];
    struct ab_token token = sample, got;
    struct ab_error err = {0};
    token.exp = NOW; /* ends now: no leeway */
    assert_int_equal(ab_token_sign(&token, "key-0", secrets[0], text, NULL), 0);
    assert_int_equal(ab_token_check(text, strlen(text), keys, 2, NOW, &got, &err), -1);
    assert_string_equal(err.kind, "token_expired");
    assert_int_equal(ab_token_check(text, strlen(text), keys, 2, NOW - 1, &got, NULL), 0);
    token.exp = NOW + 1000;
    token.iat = NOW + 60; /* made by a host whose clock is ahead */
    assert_int_equal(ab_token_sign(&token, "key-0", secrets[0], text, NULL), 0);
    assert_int_equal(check(text, &got), 0);
    token.iat = NOW + 61;
    assert_int_equal(ab_token_sign(&token, "key-0", secrets[0], text, NULL), 0);
    assert_int_equal(check(text, &got), -1);
}

static void every_claim_is_needed(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{}",
        "[]",
        "",
        "{\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":1,\"exp\":"
        "1800000100}",
        "{\"iss\":\"other\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":1,\"exp\":"
        "1800000100}",
        "{\"iss\":\"abies\",\"sub\":\"7\",\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\","
        "\"iat\":"
        "1,\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"sub\":0,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"scope\":\"user\",\"jti\":\"x\",\"iat\":1,\"exp\":"
        "1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"root\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"\",\"iat\":1,"
        "\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"exp\":"
        "1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1.8e9}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":99999999999999999999}",
        /* a site token that names no site would speak for all of them */
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"site\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100,\"nbf\":1800000061}",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"user\",\"jti\":\"x\",\"iat\":"
        "1,"
        "\"exp\":1800000100}x",
        "{\"iss\":\"abies\",\"sub\":7,\"username\":\"\\u0000a\",\"scope\":\"user\",\"jti\":\"x\","
        "\"iat\":1,\"exp\":1800000100}",
    };
    struct ab_token got;
    for (size_t i = 0; i < AB_COUNT(bodies); i++)
        assert_int_equal(check(forge(HEADER, bodies[i], 0), &got), -1);
    assert_int_equal(
        check(forge(HEADER,
                    "{\"iss\":\"abies\",\"sub\":7,\"username\":\"a\",\"scope\":\"site\","
                    "\"site\":3,\"jti\":\"x\",\"iat\":1,\"exp\":1800000100}",
                    0),
              &got),
        0);
    assert_int_equal(got.site, 3);
}

static void a_long_token_is_not_even_decoded(void **state)
{
    (void)state;
    char text[AB_TOKEN_MAX + 1];
    struct ab_token got;
    struct ab_error err = {0};
    memset(text, '.', AB_TOKEN_MAX);
    text[AB_TOKEN_MAX] = '\0';
    assert_int_equal(ab_token_check(text, AB_TOKEN_MAX, keys, 2, NOW, &got, &err), -1);
    assert_string_equal(err.text, "the token is too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_comes_back_as_it_was),
        cmocka_unit_test(the_longest_name_fits_and_a_longer_one_is_refused),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(only_our_algorithm_counts),
        cmocka_unit_test(there_are_exactly_three_parts),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(times_are_kept),
        cmocka_unit_test(every_claim_is_needed),
        cmocka_unit_test(a_long_token_is_not_even_decoded),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
