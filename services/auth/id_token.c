/* id_token.c - see id_token.h */
#include "id_token.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "crypt/crypt.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 64
#define SUBJECT_MAX 255

/* ---- keys */

static const char *member(const struct ab_value *map, const char *name)
{
    return ab_value_text(ab_value_get(map, name), NULL);
}

static bool is(const char *text, const char *wanted)
{
    return text && strcmp(text, wanted) == 0;
}

/* NULL: no key that we could use, which is nobody's fault. */
static ab_jws_key_t *read_key(const struct ab_value *jwk)
{
    const char *use = member(jwk, "use"), *alg = member(jwk, "alg"), *kty = member(jwk, "kty");
    if (use && !is(use, "sig"))
        return NULL;
    if (is(kty, "RSA") && (!alg || is(alg, "RS256")))
        return ab_jws_key_rsa(member(jwk, "n"), member(jwk, "e"), NULL);
    if (is(kty, "EC") && is(member(jwk, "crv"), "P-256") && (!alg || is(alg, "ES256")))
        return ab_jws_key_p256(member(jwk, "x"), member(jwk, "y"), NULL);
    return NULL;
}

static void add_key(struct key_set *set, const struct ab_value *jwk)
{
    struct provider_key *to = &set->v[set->n];
    const char *kid = member(jwk, "kid");
    if (kid && strlen(kid) >= sizeof(to->kid))
        return;
    to->key = read_key(jwk);
    if (!to->key)
        return;
    memcpy(to->kid, kid ? kid : "", kid ? strlen(kid) + 1 : 1);
    set->n++;
}

struct key_set *key_set_read(const struct ab_value *doc, struct ab_error *err)
{
    const struct ab_value *list = ab_value_get(doc, "keys");
    if (!list || list->type != AB_V_LIST) {
        ab_fail(err, AB_EUPSTREAM, "it has no list `keys`");
        return NULL;
    }
    struct key_set *set = calloc(1, sizeof(*set));
    size_t n = list->n < KEYS_MAX ? list->n : KEYS_MAX;
    if (!set || !(set->v = calloc(n ? n : 1, sizeof(*set->v))))
        abort();
    for (size_t i = 0; i < n; i++)
        add_key(set, &list->items[i]);
    return set;
}

void key_set_free(struct key_set **self)
{
    struct key_set *set = AB_TAKE(*self);
    if (!set)
        return;
    for (size_t i = 0; i < set->n; i++)
        ab_jws_key_destroy(&set->v[i].key);
    free(set->v);
    free(set);
}

/* ---- the three parts */

struct parts {
    size_t header_len, body_len, signed_len; /* the body begins behind the header's dot */
    uint8_t signature[1024];
    size_t signature_len;
};

static int split(const char *text, struct parts *out)
{
    const char *first = strchr(text, '.'), *second = first ? strchr(first + 1, '.') : NULL;
    if (!second || second - text > ID_TOKEN_MAX)
        return -1;
    out->header_len = (size_t)(first - text);
    out->body_len = (size_t)(second - first - 1);
    out->signed_len = (size_t)(second - text);
    int64_t n =
        ab_base64url_decode(second + 1, strlen(second + 1), out->signature, sizeof(out->signature));
    out->signature_len = n > 0 ? (size_t)n : 0;
    return n > 0 ? 0 : -1;
}

static const struct ab_value *decode(ab_arena_t *arena, const char *text, size_t len)
{
    uint8_t *json = ab_alloc(arena, len + 1, 1);
    int64_t n = ab_base64url_decode(text, len, json, len);
    const struct ab_value *v =
        n > 0 ? ab_value_parse(arena, (const char *)json, (size_t)n, NULL) : NULL;
    return v && v->type == AB_V_MAP ? v : NULL;
}

/* ---- whose signature */

static int refuse(struct ab_error *err, const char *why)
{
    return ab_fail_kind(err, AB_EDENIED, "bad_id_token",
                        "the provider's id token is not to be trusted: %s", why);
}

/* By the key that it names; if it names none, by one of those that fit. */
static int check_signature(const struct ab_value *header, const char *text,
                           const struct parts *parts, const struct key_set *keys,
                           struct ab_error *err)
{
    const char *alg = member(header, "alg"), *kid = member(header, "kid");
    bool found = false;
    if (!is(alg, "RS256") && !is(alg, "ES256"))
        return refuse(err, "it is signed neither with RS256 nor with ES256");
    if (ab_value_get(header, "crit"))
        return refuse(err, "it demands extensions that we do not know");
    for (size_t i = 0; i < keys->n; i++) {
        const struct provider_key *key = &keys->v[i];
        if ((kid && !is(key->kid, kid)) || !is(alg, ab_jws_alg(key->key)))
            continue;
        found = true;
        if (ab_jws_check(key->key, alg, text, parts->signed_len, parts->signature,
                         parts->signature_len, NULL)
            == 0)
            return 0;
    }
    if (found) {
        (void)refuse(err, "its signature is wrong");
        snprintf(err->kind, sizeof(err->kind), "unknown_key"); /* its name may have a new key */
        return -1;
    }
    return ab_fail_kind(
        err, AB_EDENIED, "unknown_key",
        "the provider's id token is signed with a key that the provider does not list");
}

/* ---- its claims */

static int check_audience(const struct ab_value *claims, const char *client_id,
                          struct ab_error *err)
{
    const struct ab_value *aud = ab_value_get(claims, "aud"), *azp = ab_value_get(claims, "azp");
    bool ours = is(ab_value_text(aud, NULL), client_id), others = false;
    if (aud && aud->type == AB_V_LIST)
        for (size_t i = 0; i < aud->n; i++) {
            bool one = is(ab_value_text(&aud->items[i], NULL), client_id);
            ours |= one;
            others |= !one;
        }
    if (!ours)
        return refuse(err, "it was made for somebody else");
    if (azp ? !is(ab_value_text(azp, NULL), client_id) : others)
        return refuse(err, "it was given to somebody else");
    return 0;
}

/* Numbers only: a text that looks like one is none. */
static bool time_of(const struct ab_value *claims, const char *name, int64_t *out)
{
    const struct ab_value *v = ab_value_get(claims, name);
    if (!v || (v->type != AB_V_INT && v->type != AB_V_REAL))
        return false;
    *out = ab_value_int(v, -1);
    return *out >= 0;
}

static int check_times(const struct ab_value *claims, int64_t now, struct ab_error *err)
{
    int64_t exp, iat, nbf;
    if (!time_of(claims, "exp", &exp) || !time_of(claims, "iat", &iat))
        return refuse(err, "it does not say when it was made and when it ends");
    if (exp <= now - ID_TOKEN_LEEWAY)
        return refuse(err, "it has expired");
    if (iat > now + ID_TOKEN_LEEWAY
        || (ab_value_get(claims, "nbf")
            && (!time_of(claims, "nbf", &nbf) || nbf > now + ID_TOKEN_LEEWAY)))
        return refuse(err, "it comes from the future: do the clocks agree?");
    return 0;
}

static int check_nonce(const struct ab_value *claims, const char *nonce, struct ab_error *err)
{
    const char *text = member(claims, "nonce");
    if (!text || strlen(text) != strlen(nonce) || !ab_equal(text, nonce, strlen(nonce)))
        return refuse(err, "it does not belong to this log-in (nonce)");
    return 0;
}

/* The first half of the access token's digest. */
static int check_at_hash(const struct ab_value *claims, const char *access_token,
                         struct ab_error *err)
{
    const struct ab_value *at_hash = ab_value_get(claims, "at_hash");
    uint8_t digest[32];
    char text[32];
    if (!at_hash || !access_token)
        return 0;
    ab_sha256(access_token, strlen(access_token), digest);
    ab_base64url(digest, sizeof(digest) / 2, text, sizeof(text));
    return is(ab_value_text(at_hash, NULL), text) ? 0
                                                  : refuse(err, "the access token is another one");
}

static int check_claims(const struct ab_value *claims, const struct id_expect *expect,
                        struct ab_error *err)
{
    const char *subject = member(claims, "sub");
    if (!is(member(claims, "iss"), expect->issuer))
        return refuse(err, "another issuer made it");
    if (!subject || !*subject || strlen(subject) > SUBJECT_MAX)
        return refuse(err, "it names nobody");
    if (check_audience(claims, expect->client_id, err) < 0
        || check_times(claims, expect->now, err) < 0 || check_nonce(claims, expect->nonce, err) < 0)
        return -1;
    return check_at_hash(claims, expect->access_token, err);
}

const struct ab_value *id_token_check(ab_arena_t *arena, const char *text,
                                      const struct key_set *keys, const struct id_expect *expect,
                                      struct ab_error *err)
{
    struct parts parts = {0};
    const struct ab_value *header =
        split(text, &parts) == 0 ? decode(arena, text, parts.header_len) : NULL;
    if (!header) {
        refuse(err, "it is no JWT");
        return NULL;
    }
    if (check_signature(header, text, &parts, keys, err) < 0)
        return NULL;
    const struct ab_value *claims = decode(arena, text + parts.header_len + 1, parts.body_len);
    if (!claims) {
        refuse(err, "its claims are no JSON object");
        return NULL;
    }
    return check_claims(claims, expect, err) < 0 ? NULL : claims;
}
