/* jws.c - RS256 and ES256, checked by OpenSSL */
#include "jws.h"

#include "base/cleanup.h"
#include "crypt.h"
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#define RSA_BITS_MIN 2048
#define RSA_BITS_MAX 8192 /* a larger one would be a way to keep us busy */
#define EXPONENT_BITS_MAX 33
#define P256_BYTES 32

struct ab_jws_key {
    EVP_PKEY *pkey;
    bool rsa;
};

/* Each takes what it is given and leaves NULL, as AB_AUTO wants it. */
static void bn_free(BIGNUM **bn)
{
    BN_free(*bn);
    *bn = NULL;
}

static void build_free(OSSL_PARAM_BLD **build)
{
    OSSL_PARAM_BLD_free(*build);
    *build = NULL;
}

static void params_free(OSSL_PARAM **params)
{
    OSSL_PARAM_free(*params);
    *params = NULL;
}

static void key_context_free(EVP_PKEY_CTX **context)
{
    EVP_PKEY_CTX_free(*context);
    *context = NULL;
}

static void digest_context_free(EVP_MD_CTX **context)
{
    EVP_MD_CTX_free(*context);
    *context = NULL;
}

static void ecdsa_free(ECDSA_SIG **sig)
{
    ECDSA_SIG_free(*sig);
    *sig = NULL;
}

/* ---- keys */

static EVP_PKEY *pkey_from(const char *type, OSSL_PARAM_BLD *build)
{
    EVP_PKEY *pkey = NULL;
    AB_AUTO(params_free) OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    AB_AUTO(key_context_free) EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!params || !context || EVP_PKEY_fromdata_init(context) <= 0
        || EVP_PKEY_fromdata(context, &pkey, EVP_PKEY_PUBLIC_KEY, params) <= 0)
        return NULL;
    return pkey;
}

static ab_jws_key_t *key_new(EVP_PKEY *pkey, bool rsa)
{
    ab_jws_key_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    *self = (ab_jws_key_t){.pkey = pkey, .rsa = rsa};
    return self;
}

static BIGNUM *number_of(const char *text)
{
    uint8_t bytes[RSA_BITS_MAX / 8 + 1];
    int64_t n = text ? ab_base64url_decode(text, strlen(text), bytes, sizeof(bytes)) : -1;
    return n > 0 ? BN_bin2bn(bytes, (int)n, NULL) : NULL;
}

ab_jws_key_t *ab_jws_key_rsa(const char *n, const char *e, struct ab_error *err)
{
    AB_AUTO(bn_free) BIGNUM *modulus = number_of(n);
    AB_AUTO(bn_free) BIGNUM *exponent = number_of(e);
    AB_AUTO(build_free) OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (!modulus || !exponent || BN_num_bits(modulus) < RSA_BITS_MIN
        || BN_num_bits(modulus) > RSA_BITS_MAX || BN_num_bits(exponent) > EXPONENT_BITS_MAX
        || !BN_is_odd(modulus) || !BN_is_odd(exponent) || BN_is_one(exponent)) {
        ab_fail(err, AB_EINVAL, "not an RSA key of %d to %d bits", RSA_BITS_MIN, RSA_BITS_MAX);
        return NULL;
    }
    if (build && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus)
        && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exponent))
        pkey = pkey_from("RSA", build);
    if (!pkey) {
        ab_fail(err, AB_EINVAL, "OpenSSL takes this RSA key for none");
        return NULL;
    }
    return key_new(pkey, true);
}

static bool coordinate(const char *text, uint8_t out[P256_BYTES])
{
    return text && ab_base64url_decode(text, strlen(text), out, P256_BYTES) == P256_BYTES;
}

ab_jws_key_t *ab_jws_key_p256(const char *x, const char *y, struct ab_error *err)
{
    uint8_t point[1 + 2 * P256_BYTES] = {4}; /* uncompressed */
    AB_AUTO(build_free) OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY *pkey = NULL;
    if (coordinate(x, point + 1) && coordinate(y, point + 1 + P256_BYTES) && build
        && OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0)
        && OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point)))
        pkey = pkey_from("EC", build); /* refuses what is not on the curve */
    if (!pkey) {
        ab_fail(err, AB_EINVAL, "not a point of P-256");
        return NULL;
    }
    return key_new(pkey, false);
}

void ab_jws_key_destroy(ab_jws_key_t **self)
{
    if (!*self)
        return;
    EVP_PKEY_free((*self)->pkey);
    free(*self);
    *self = NULL;
}

const char *ab_jws_alg(const ab_jws_key_t *self)
{
    return self->rsa ? "RS256" : "ES256";
}

/* ---- signatures */

/* JWS has r and s one behind the other, OpenSSL wants them in DER. Length, 0: no signature. */
static size_t to_der(const uint8_t *signature, size_t n, uint8_t out[80])
{
    AB_AUTO(ecdsa_free) ECDSA_SIG *sig = ECDSA_SIG_new();
    if (n != 2 * (size_t)P256_BYTES || !sig)
        return 0;
    BIGNUM *r = BN_bin2bn(signature, P256_BYTES, NULL);
    BIGNUM *s = BN_bin2bn(signature + P256_BYTES, P256_BYTES, NULL);
    if (!r || !s || !ECDSA_SIG_set0(sig, r, s)) {
        BN_free(r);
        BN_free(s);
        return 0;
    }
    int len = i2d_ECDSA_SIG(sig, NULL);
    if (len <= 0 || len > 80)
        return 0;
    return (size_t)i2d_ECDSA_SIG(sig, &out);
}

static bool signed_by(const ab_jws_key_t *self, const void *bytes, size_t n, const uint8_t *sig,
                      size_t sig_len)
{
    uint8_t der[80];
    AB_AUTO(digest_context_free) EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!self->rsa) {
        sig_len = to_der(sig, sig_len, der);
        sig = der;
    }
    return context && sig_len > 0
           && EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, self->pkey) == 1
           && EVP_DigestVerify(context, sig, sig_len, bytes, n) == 1;
}

int ab_jws_check(const ab_jws_key_t *self, const char *alg, const void *bytes, size_t n,
                 const uint8_t *signature, size_t signature_len, struct ab_error *err)
{
    if (strcmp(alg, ab_jws_alg(self)) != 0)
        return ab_fail(err, AB_EAUTH, "signed with `%.16s`, but the key is for %s", alg,
                       ab_jws_alg(self));
    if (!signed_by(self, bytes, n, signature, signature_len))
        return ab_fail(err, AB_EAUTH, "the signature is wrong");
    return 0;
}

void ab_sha256(const void *bytes, size_t n, uint8_t out[32])
{
    SHA256(bytes, n, out);
}
