/* test_jws.c - signatures of a provider: the right key says yes, everything else no */
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include "crypt/jws.h"
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* RFC 7515, appendix A.3 */
#define ES_BYTES                                                                                   \
    "eyJhbGciOiJFUzI1NiJ9."                                                                        \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"
#define ES_SIGNATURE                                                                               \
    "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
#define ES_X "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
#define ES_Y "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"

static int start(void **state)
{
    (void)state;
    ab_crypt_init();
    return 0;
}

static size_t bytes_of(const char *text, uint8_t *out, size_t cap)
{
    int64_t n = ab_base64url_decode(text, strlen(text), out, cap);
    assert_true(n > 0);
    return (size_t)n;
}

static void the_example_of_the_rfc_is_signed(void **state)
{
    (void)state;
    uint8_t sig[64];
    struct ab_error err = {0};
    size_t n = bytes_of(ES_SIGNATURE, sig, sizeof(sig));
    AB_AUTO(ab_jws_key_destroy) ab_jws_key_t *key = ab_jws_key_p256(ES_X, ES_Y, &err);
    assert_non_null(key);
    assert_string_equal(ab_jws_alg(key), "ES256");
    assert_int_equal(ab_jws_check(key, "ES256", ES_BYTES, strlen(ES_BYTES), sig, n, &err), 0);
    assert_int_equal(ab_jws_check(key, "ES256", ES_BYTES, strlen(ES_BYTES) - 1, sig, n, &err), -1);
    assert_int_equal(err.code, AB_EAUTH);
}

static void every_changed_bit_of_a_signature_is_noticed(void **state)
{
    (void)state;
    uint8_t sig[64];
    size_t n = bytes_of(ES_SIGNATURE, sig, sizeof(sig));
    AB_AUTO(ab_jws_key_destroy) ab_jws_key_t *key = ab_jws_key_p256(ES_X, ES_Y, NULL);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        sig[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(ab_jws_check(key, "ES256", ES_BYTES, strlen(ES_BYTES), sig, n, NULL), -1);
        sig[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t len = 0; len < n; len++)
        assert_int_equal(ab_jws_check(key, "ES256", ES_BYTES, strlen(ES_BYTES), sig, len, NULL),
                         -1);
    memset(sig, 0, sizeof(sig)); /* r = s = 0 must not check */
    assert_int_equal(ab_jws_check(key, "ES256", ES_BYTES, strlen(ES_BYTES), sig, n, NULL), -1);
}

static void the_key_decides_the_algorithm(void **state)
{
    (void)state;
    static const char *const others[] = {"none", "None", "", "HS256", "RS256", "ES384", "es256"};
    uint8_t sig[64];
    size_t n = bytes_of(ES_SIGNATURE, sig, sizeof(sig));
    AB_AUTO(ab_jws_key_destroy) ab_jws_key_t *key = ab_jws_key_p256(ES_X, ES_Y, NULL);
    for (size_t i = 0; i < AB_COUNT(others); i++)
        assert_int_equal(ab_jws_check(key, others[i], ES_BYTES, strlen(ES_BYTES), sig, n, NULL),
                         -1);
}

/* The members of its JWK, in base64url. */
static void rsa_members(const EVP_PKEY *pkey, char n[1100], char e[16])
{
    uint8_t bytes[1024];
    BIGNUM *number = NULL;
    assert_int_equal(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_N, &number), 1);
    ab_base64url(bytes, (size_t)BN_bn2bin(number, bytes), n, 1100);
    assert_int_equal(EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_RSA_E, &number), 1);
    ab_base64url(bytes, (size_t)BN_bn2bin(number, bytes), e, 16);
    BN_free(number);
}

static size_t rsa_sign(EVP_PKEY *pkey, const char *text, uint8_t sig[512])
{
    size_t n = 512;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    assert_int_equal(EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, pkey), 1);
    assert_int_equal(EVP_DigestSign(context, sig, &n, (const uint8_t *)text, strlen(text)), 1);
    EVP_MD_CTX_free(context);
    return n;
}

static void an_rsa_signature_checks_with_its_own_key_only(void **state)
{
    (void)state;
    char n[1100], e[16];
    uint8_t sig[512];
    struct ab_error err = {0};
    EVP_PKEY *pkey = EVP_RSA_gen(2048), *other = EVP_RSA_gen(2048);
    rsa_members(pkey, n, e);
    AB_AUTO(ab_jws_key_destroy) ab_jws_key_t *key = ab_jws_key_rsa(n, e, &err);
    assert_non_null(key);
    assert_string_equal(ab_jws_alg(key), "RS256");
    size_t len = rsa_sign(pkey, "hello", sig);
    assert_int_equal(ab_jws_check(key, "RS256", "hello", 5, sig, len, &err), 0);
    assert_int_equal(ab_jws_check(key, "RS256", "hellO", 5, sig, len, &err), -1);
    assert_int_equal(ab_jws_check(key, "RS256", "hello", 5, sig, len - 1, &err), -1);
    assert_int_equal(ab_jws_check(key, "RS256", "hello", 5, sig, 0, &err), -1);
    assert_int_equal(ab_jws_check(key, "HS256", "hello", 5, sig, len, &err), -1);
    len = rsa_sign(other, "hello", sig);
    assert_int_equal(ab_jws_check(key, "RS256", "hello", 5, sig, len, &err), -1);
    EVP_PKEY_free(pkey);
    EVP_PKEY_free(other);
}

static void weak_and_broken_keys_are_refused(void **state)
{
    (void)state;
    char n[1100], e[16], big[3000];
    EVP_PKEY *pkey = EVP_RSA_gen(1024);
    rsa_members(pkey, n, e);
    assert_null(ab_jws_key_rsa(n, e, NULL)); /* too short */
    EVP_PKEY_free(pkey);
    pkey = EVP_RSA_gen(2048);
    rsa_members(pkey, n, e);
    EVP_PKEY_free(pkey);
    assert_null(ab_jws_key_rsa(n, "AQ", NULL));   /* exponent 1: anybody signs */
    assert_null(ab_jws_key_rsa(n, "AA", NULL));   /* 0 */
    assert_null(ab_jws_key_rsa(n, "AQAA", NULL)); /* even */
    assert_null(ab_jws_key_rsa(n, n, NULL));      /* as long as the modulus: slow */
    assert_null(ab_jws_key_rsa(n, NULL, NULL));
    assert_null(ab_jws_key_rsa(NULL, e, NULL));
    assert_null(ab_jws_key_rsa("", e, NULL));
    assert_null(ab_jws_key_rsa("!!", e, NULL));
    memset(big, 'A', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_null(ab_jws_key_rsa(big, e, NULL));
    assert_null(ab_jws_key_p256(ES_Y, ES_X, NULL)); /* not on the curve */
    assert_null(ab_jws_key_p256(ES_X, NULL, NULL));
    assert_null(ab_jws_key_p256(ES_X, "AAAA", NULL));
    assert_null(ab_jws_key_p256("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", NULL));
}

static void a_digest_is_that_of_the_standard(void **state)
{
    (void)state;
    /* RFC 7636, appendix B */
    static const char verifier[] = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    uint8_t digest[32];
    char challenge[64];
    ab_sha256(verifier, strlen(verifier), digest);
    ab_base64url(digest, sizeof(digest), challenge, sizeof(challenge));
    assert_string_equal(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_rfc_is_signed),
        cmocka_unit_test(every_changed_bit_of_a_signature_is_noticed),
        cmocka_unit_test(the_key_decides_the_algorithm),
        cmocka_unit_test(an_rsa_signature_checks_with_its_own_key_only),
        cmocka_unit_test(weak_and_broken_keys_are_refused),
        cmocka_unit_test(a_digest_is_that_of_the_standard),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
