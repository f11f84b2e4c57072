/* provider.c - codes become people */
#include "provider.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "client/api.h"
#include "crypt/crypt.h"
#include "discovery.h"
#include "key.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

#define NAME_MAX_CHARACTERS 100

static struct {
    pthread_mutex_t lock;
    int inside;
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

int provider_check(const ab_conf_t *conf, struct ab_error *err)
{
    static const char *const needed[] = {"oauth_issuer", "oauth_client_id", "oauth_client_secret"};
    static const char *const ways[] = {"auto", "post", "basic"};
    const char *way = ab_conf_text(conf, "oauth_client_auth");
    const char *issuer = ab_conf_text(conf, "oauth_issuer");
    for (size_t i = 0; i < AB_COUNT(needed); i++)
        if (!ab_conf_text(conf, needed[i]) || !*ab_conf_text(conf, needed[i]))
            return ab_fail(
                err, AB_EINVAL, "login_methods has an oauth method, but %s is not set%s", needed[i],
                i == 2 ? ": ABIES_OAUTH_CLIENT_SECRET_FILE names a file that holds it" : "");
    if (!strstr(issuer, "://"))
        return ab_fail(err, AB_EINVAL, "oauth_issuer `%.200s` is no URL", issuer);
    for (size_t i = 0; i < AB_COUNT(ways); i++)
        if (strcmp(way, ways[i]) == 0)
            return 0;
    return ab_fail(err, AB_EINVAL, "oauth_client_auth `%.40s` is none of auto, post, basic", way);
}

int provider_enter(struct ab_call *call, struct ab_error *err)
{
    int64_t most = ab_conf_int(call->conf, "workers") / 2;
    pthread_mutex_lock(&door.lock);
    bool free_place = door.inside < (most > 1 ? most : 1);
    door.inside += free_place;
    pthread_mutex_unlock(&door.lock);
    if (free_place)
        return 0;
    return ab_fail(err, AB_EBUSY,
                   "others are just signing in, and the provider is slow: reload in a moment");
}

void provider_leave(void)
{
    pthread_mutex_lock(&door.lock);
    door.inside--;
    pthread_mutex_unlock(&door.lock);
}

void provider_forget(void)
{
    discovery_forget();
}

/* ---- the way there. Nonce and verifier follow from the state: nothing of them is stored, and
 * nobody else can make them. */

static void nonce_of(ab_arena_t *arena, const char *state, char out[AB_SECRET_TEXT_MAX])
{
    key_derive(ab_printf(arena, "nonce %s", state), out);
}

static void verifier_of(ab_arena_t *arena, const char *state, char out[AB_SECRET_TEXT_MAX])
{
    key_derive(ab_printf(arena, "pkce %s", state), out);
}

static int find_info(struct ab_call *call, struct provider_info *out, struct ab_error *err)
{
    struct talk talk;
    int rc = discovery_find(call, NULL, out, err);
    if (rc <= 0)
        return rc;
    if (provider_enter(call, err) < 0)
        return -1;
    rc = talk_begin(&talk, call, err);
    if (rc == 0) {
        rc = discovery_find(call, &talk, out, err);
        talk_end(&talk);
    }
    provider_leave();
    return rc;
}

int provider_address(struct ab_call *call, const char *state, const char *redirect_uri,
                     const char **out, struct ab_error *err)
{
    struct provider_info info;
    AB_AUTO(ab_buf_free) struct ab_buf url = {0};
    char nonce[AB_SECRET_TEXT_MAX], verifier[AB_SECRET_TEXT_MAX], challenge[64];
    uint8_t digest[32];
    if (find_info(call, &info, err) < 0)
        return -1;
    nonce_of(call->arena, state, nonce);
    verifier_of(call->arena, state, verifier);
    ab_sha256(verifier, strlen(verifier), digest);
    ab_base64url(digest, sizeof(digest), challenge, sizeof(challenge));
    ab_buf_str(&url, info.authorization);
    ab_api_query(&url, "response_type", "code");
    ab_api_query(&url, "client_id", ab_conf_text(call->conf, "oauth_client_id"));
    ab_api_query(&url, "redirect_uri", redirect_uri);
    ab_api_query(&url, "scope", ab_conf_text(call->conf, "oauth_scope"));
    ab_api_query(&url, "state", state);
    ab_api_query(&url, "nonce", nonce);
    ab_api_query(&url, "code_challenge", challenge);
    ab_api_query(&url, "code_challenge_method", "S256");
    if (url.failed)
        return ab_fail(err, AB_EINTERNAL, "no memory for an address");
    *out = ab_strndup(call->arena, url.data, url.len);
    return 0;
}

/* ---- the way back: a code for tokens */

static bool by_basic(const struct ab_call *call, const struct provider_info *info)
{
    const char *way = ab_conf_text(call->conf, "oauth_client_auth");
    if (strcmp(way, "auto") == 0)
        return info->takes_basic && !info->takes_post;
    return strcmp(way, "basic") == 0;
}

/* base64("id:secret"), both encoded as in a form (RFC 6749, 2.3.1). */
static const char *basic_header(struct ab_call *call)
{
    struct ab_buf id = {0}, secret = {0};
    ab_api_query(&id, "", ab_conf_text(call->conf, "oauth_client_id")); /* "?=" and the text */
    ab_api_query(&secret, "", ab_conf_text(call->conf, "oauth_client_secret"));
    char *both = ab_printf(call->arena, "%s:%s", id.data + 2, secret.data + 2);
    explicit_bzero(secret.data, secret.len);
    ab_buf_free(&id);
    ab_buf_free(&secret);
    size_t n = strlen(both), cap = n * 2 + 8;
    char *text = ab_alloc(call->arena, cap, 1);
    size_t len = ab_base64url(both, n, text, cap);
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
    while (len % 4)
        text[len++] = '=';
    return ab_printf(call->arena, "authorization: Basic %.*s", (int)len, text);
}

struct answer {
    const char *id_token, *access_token;
};

/* What the provider says about a code that it does not take. */
static int refused(int status, const struct ab_value *doc, struct ab_error *err)
{
    const char *why = ab_value_text(ab_value_get(doc, "error"), "no reason");
    ab_log(AB_WARN, "provider.refused", AB_KV("status", status), AB_KV("error", why));
    if (status == 400 && strcmp(why, "invalid_grant") == 0)
        return ab_fail_kind(err, AB_EINVAL, "invalid_grant",
                            "the provider does not know this code (any more): sign in again");
    return ab_fail(err, AB_EUPSTREAM,
                   "the sign-in provider does not take our request; the operator finds the reason "
                   "in the log of `auth`");
}

static int exchange(struct talk *talk, const struct provider_info *info, const char *code,
                    const char *verifier, const char *redirect_uri, struct answer *out,
                    struct ab_error *err)
{
    struct ab_call *call = talk->call;
    AB_AUTO(ab_buf_free) struct ab_buf form = {0};
    const char *headers[4] = {"content-type: application/x-www-form-urlencoded",
                              "cache-control: no-cache"};
    const struct ab_value *doc;
    ab_api_query(&form, "grant_type", "authorization_code");
    ab_api_query(&form, "code", code);
    ab_api_query(&form, "redirect_uri", redirect_uri);
    ab_api_query(&form, "code_verifier", verifier);
    if (by_basic(call, info)) {
        headers[2] = basic_header(call);
    } else {
        ab_api_query(&form, "client_id", ab_conf_text(call->conf, "oauth_client_id"));
        ab_api_query(&form, "client_secret", ab_conf_text(call->conf, "oauth_client_secret"));
    }
    if (form.failed)
        return ab_fail(err, AB_EINTERNAL, "no memory for a form");
    int status = talk_json(talk, "POST", info->token, headers, form.data + 1, &doc, err);
    explicit_bzero(form.data, form.len);
    if (status < 0)
        return -1;
    if (status != 200)
        return refused(status, doc, err);
    *out = (struct answer){.id_token = ab_value_text(ab_value_get(doc, "id_token"), NULL),
                           .access_token = ab_value_text(ab_value_get(doc, "access_token"), NULL)};
    if (!out->id_token)
        return ab_fail_kind(err, AB_EDENIED, "bad_id_token",
                            "the provider sent no id token: does oauth_scope have `openid`?");
    return 0;
}

/* With keys that are kept; if none of them is the one, once more with fresh ones. */
static const struct ab_value *check_token(struct talk *talk, const struct provider_info *info,
                                          const struct answer *answer, const char *nonce,
                                          struct ab_error *err)
{
    const ab_conf_t *conf = talk->call->conf;
    struct id_expect expect = {.issuer = ab_conf_text(conf, "oauth_issuer"),
                               .client_id = ab_conf_text(conf, "oauth_client_id"),
                               .nonce = nonce,
                               .access_token = answer->access_token,
                               .now = time(NULL)};
    for (int fresh = 0;; fresh++) {
        struct shared_keys *keys = discovery_keys(talk, info, fresh, err);
        if (!keys)
            return NULL;
        *err = (struct ab_error){0};
        const struct ab_value *claims =
            id_token_check(talk->call->arena, answer->id_token, discovery_set(keys), &expect, err);
        discovery_release(&keys);
        if (claims || fresh || strcmp(err->kind, "unknown_key") != 0)
            return claims;
    }
}

/* ---- the name */

static bool is_name(const char *text)
{
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
        n += ((unsigned char)*c & 0xC0) != 0x80;
    }
    return n > 0 && n <= NAME_MAX_CHARACTERS;
}

/* Fit for a header. */
static bool is_visible(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text >= 0x7f)
            return false;
    return true;
}

/* A claim that the id token does not have: asked for with the access token. Its subject must be the
 * same, or somebody else's access token was slipped in (OpenID Connect Core 5.3.2). */
static int ask_userinfo(struct talk *talk, const struct provider_info *info,
                        const struct answer *answer, const char *subject, const char *claim,
                        const char **out, struct ab_error *err)
{
    const struct ab_value *doc;
    if (!info->userinfo || !answer->access_token || !is_visible(answer->access_token))
        return 0;
    const char *headers[] = {
        ab_printf(talk->call->arena, "authorization: Bearer %s", answer->access_token), NULL};
    int status = talk_json(talk, "GET", info->userinfo, headers, NULL, &doc, err);
    if (status < 0)
        return -1;
    if (status != 200)
        return refused(status, doc, err);
    if (strcmp(ab_value_text(ab_value_get(doc, "sub"), ""), subject) != 0)
        return ab_fail_kind(err, AB_EDENIED, "bad_id_token",
                            "the provider tells of somebody else than who signed in");
    *out = ab_value_text(ab_value_get(doc, claim), NULL);
    return 0;
}

static int find_name(struct talk *talk, const struct provider_info *info,
                     const struct answer *answer, const struct ab_value *claims,
                     struct provider_person *out, struct ab_error *err)
{
    const char *claim = ab_conf_text(talk->call->conf, "oauth_username_claim");
    out->username = ab_value_text(ab_value_get(claims, claim), NULL);
    if (!out->username
        && ask_userinfo(talk, info, answer, out->subject, claim, &out->username, err) < 0)
        return -1;
    if (out->username && is_name(out->username))
        return 0;
    return ab_fail_kind(err, AB_EDENIED, "no_name",
                        "the provider gives no user name that could be used (claim `%s`)", claim);
}

static int find_person(struct talk *talk, const char *code, const char *state,
                       const char *redirect_uri, struct provider_person *out, struct ab_error *err)
{
    struct ab_call *call = talk->call;
    struct provider_info info;
    struct answer answer = {0};
    char nonce[AB_SECRET_TEXT_MAX], verifier[AB_SECRET_TEXT_MAX];
    nonce_of(call->arena, state, nonce);
    verifier_of(call->arena, state, verifier);
    if (discovery_find(call, talk, &info, err) < 0
        || exchange(talk, &info, code, verifier, redirect_uri, &answer, err) < 0)
        return -1;
    const struct ab_value *claims = check_token(talk, &info, &answer, nonce, err);
    if (!claims)
        return -1;
    *out = (struct provider_person){
        .issuer = ab_conf_text(call->conf, "oauth_issuer"),
        .subject = ab_value_text(ab_value_get(claims, "sub"), NULL),
    };
    return find_name(talk, &info, &answer, claims, out, err);
}

int provider_exchange(struct ab_call *call, const char *code, const char *state,
                      const char *redirect_uri, struct provider_person *out, struct ab_error *err)
{
    struct talk talk;
    if (talk_begin(&talk, call, err) < 0)
        return -1;
    int rc = find_person(&talk, code, state, redirect_uri, out, err);
    talk_end(&talk);
    return rc;
}
