/* token.c - access tokens: JWT with EdDSA and nothing else (RFC 8725)
 *
 * The key decides the algorithm; what the header says is only compared with it. `kid` is looked up
 * in a list and used for nothing else. Sizes are checked before anything is decoded, the signature
 * before the claims are read.
 */
#include "crypt.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "claims.h"
#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#define SIGNATURE_TEXT 86 /* 64 bytes in base64url */
#define CLOCKS_DIFFER 60  /* seconds that another host's clock may be ahead */

/* The bits are AB_SCOPE_* of schema.h; a unit test compares them. */
static const struct {
    unsigned bit;
    const char *name;
} scope_names[] = {{1, "user"}, {2, "site"}, {4, "read"}, {8, "admin"}};
#define SITE_SCOPE 2

void ab_token_keypair(uint8_t public_key[32], uint8_t secret_key[64])
{
    crypto_sign_keypair(public_key, secret_key);
}

/* ---- making one */

static void write_text(struct ab_buf *out, const char *name, const char *text)
{
    ab_buf_printf(out, ",\"%s\":", name);
    ab_buf_json_str(out, text, strlen(text));
}

static void write_scopes(struct ab_buf *out, unsigned scopes)
{
    const char *between = "";
    ab_buf_str(out, ",\"scope\":\"");
    for (size_t i = 0; i < AB_COUNT(scope_names); i++) {
        if (!(scopes & scope_names[i].bit))
            continue;
        ab_buf_printf(out, "%s%s", between, scope_names[i].name);
        between = " ";
    }
    ab_buf_char(out, '"');
}

/* Appends base64url(json) at out[*len]; -1 when it does not fit. */
static int append_part(char *out, size_t *len, const struct ab_buf *json)
{
    size_t need = sodium_base64_ENCODED_LEN(json->len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    if (json->failed || *len + need + 1 + SIGNATURE_TEXT + 1 > AB_TOKEN_MAX)
        return -1;
    *len += ab_base64url(json->data, json->len, out + *len, AB_TOKEN_MAX - *len);
    return 0;
}

int ab_token_sign(const struct ab_token *token, const char *kid, const uint8_t secret[64],
                  char *out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf header = {0}, body = {0};
    ab_buf_str(&header, "{\"alg\":\"EdDSA\",\"typ\":\"JWT\"");
    write_text(&header, "kid", kid);
    ab_buf_char(&header, '}');

    ab_buf_printf(&body, "{\"iss\":\"abies\",\"sub\":%" PRId64, token->user);
    write_text(&body, "username", token->username);
    write_scopes(&body, token->scopes);
    if (token->site)
        ab_buf_printf(&body, ",\"site\":%" PRId64, token->site);
    write_text(&body, "jti", token->jti);
    ab_buf_printf(&body, ",\"iat\":%" PRId64 ",\"exp\":%" PRId64 "}", token->iat, token->exp);

    size_t len = 0;
    if (append_part(out, &len, &header) < 0)
        return ab_fail(err, AB_EINTERNAL, "the token's key id is too long");
    out[len++] = '.';
    if (append_part(out, &len, &body) < 0)
        return ab_fail(err, AB_EINVAL, "the user name is too long for a token");
    uint8_t signature[64];
    crypto_sign_detached(signature, NULL, (const uint8_t *)out, len, secret);
    out[len++] = '.';
    ab_base64url(signature, sizeof(signature), out + len, AB_TOKEN_MAX - len);
    return 0;
}

/* ---- checking one */

struct parts {
    const char *header, *body, *signature;
    size_t header_len, body_len, signature_len;
};

static int split(const char *text, size_t len, struct parts *out)
{
    const char *first = memchr(text, '.', len);
    if (!first)
        return -1;
    const char *second = memchr(first + 1, '.', len - (size_t)(first + 1 - text));
    if (!second)
        return -1;
    const char *end = text + len;
    *out = (struct parts){text,
                          first + 1,
                          second + 1,
                          (size_t)(first - text),
                          (size_t)(second - first - 1),
                          (size_t)(end - second - 1)};
    /* a third dot would not be base64url, but say it plainly */
    return memchr(out->signature, '.', out->signature_len) ? -1 : 0;
}

static int decode(const char *part, size_t len, struct claims *out)
{
    char json[AB_TOKEN_MAX];
    int64_t n = ab_base64url_decode(part, len, (uint8_t *)json, sizeof(json));
    return n < 0 ? -1 : claims_parse(json, (size_t)n, out);
}

/* The key that the header names, or NULL. "crit" is always unknown to us, so it always refuses. */
static const struct ab_public_key *key_of(const struct claims *header,
                                          const struct ab_public_key *keys, size_t n)
{
    const char *alg = claims_text(header, "alg"), *typ = claims_text(header, "typ"),
               *kid = claims_text(header, "kid");
    int64_t ignored;
    if (!alg || strcmp(alg, "EdDSA") != 0 || !typ || strcmp(typ, "JWT") != 0 || !kid
        || claims_text(header, "crit") || claims_int(header, "crit", &ignored) == 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i].kid, kid) == 0)
            return &keys[i];
    return NULL;
}

/* Unknown names give no rights, and a token needs some. */
static unsigned read_scopes(const char *text)
{
    unsigned scopes = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        for (size_t i = 0; i < AB_COUNT(scope_names); i++)
            if (strlen(scope_names[i].name) == n && memcmp(scope_names[i].name, text, n) == 0)
                scopes |= scope_names[i].bit;
        text += n;
        text += strspn(text, " ");
    }
    return scopes;
}

static int read_claims(const struct claims *claims, struct ab_token *out)
{
    const char *iss = claims_text(claims, "iss"), *username = claims_text(claims, "username"),
               *scope = claims_text(claims, "scope"), *jti = claims_text(claims, "jti");
    *out = (struct ab_token){0};
    if (!iss || strcmp(iss, "abies") != 0 || !username || !scope || !jti)
        return -1;
    if (strlen(username) >= sizeof(out->username) || strlen(jti) >= sizeof(out->jti) || !*jti)
        return -1;
    if (claims_int(claims, "sub", &out->user) < 0 || out->user < 1
        || claims_int(claims, "iat", &out->iat) < 0 || claims_int(claims, "exp", &out->exp) < 0)
        return -1;
    if (claims_int(claims, "site", &out->site) < 0)
        out->site = 0;
    memcpy(out->username, username, strlen(username) + 1);
    memcpy(out->jti, jti, strlen(jti) + 1);
    out->scopes = read_scopes(scope);
    /* a site token without its site would speak for all of the user's */
    return out->scopes && out->site >= 0 && (out->site > 0 || !(out->scopes & SITE_SCOPE)) ? 0 : -1;
}

static int in_time(const struct claims *claims, const struct ab_token *token, int64_t now,
                   struct ab_error *err)
{
    int64_t not_before;
    if (now >= token->exp)
        return ab_fail_kind(err, AB_EAUTH, "token_expired",
                            "the token has expired: log in again, or renew it");
    if (token->iat > now + CLOCKS_DIFFER
        || (claims_int(claims, "nbf", &not_before) == 0 && not_before > now + CLOCKS_DIFFER))
        return ab_fail(err, AB_EAUTH, "the token is not valid yet: do the clocks differ?");
    return 0;
}

static int refuse(struct ab_error *err, const char *why)
{
    return ab_fail(err, AB_EAUTH, "the token %s", why);
}

int ab_token_check(const char *text, size_t len, const struct ab_public_key *keys, size_t n,
                   int64_t now, struct ab_token *out, struct ab_error *err)
{
    struct parts parts;
    struct claims claims;
    uint8_t signature[64];
    if (len >= AB_TOKEN_MAX)
        return refuse(err, "is too long");
    if (split(text, len, &parts) < 0)
        return refuse(err, "does not have three parts");
    if (parts.signature_len != SIGNATURE_TEXT
        || ab_base64url_decode(parts.signature, parts.signature_len, signature, sizeof(signature))
               != sizeof(signature))
        return refuse(err, "has no signature of ours");
    if (decode(parts.header, parts.header_len, &claims) < 0)
        return refuse(err, "has no header of ours");
    const struct ab_public_key *key = key_of(&claims, keys, n);
    if (!key)
        return refuse(err, "names no key of ours");
    if (crypto_sign_verify_detached(signature, (const uint8_t *)text,
                                    parts.header_len + 1 + parts.body_len, key->key)
        != 0)
        return refuse(err, "has a wrong signature");
    if (decode(parts.body, parts.body_len, &claims) < 0 || read_claims(&claims, out) < 0)
        return refuse(err, "lacks a claim");
    return in_time(&claims, out, now, err);
}
