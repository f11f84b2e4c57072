/* discovery.c - see discovery.h */
#include "discovery.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEEP_MS = 3600 * 1000,
    ANSWER_MAX = 256 * 1024,
    CONNECT_MS = 3000,
};

struct shared_keys {
    struct key_set *set;
    int holders;
};

static struct {
    pthread_mutex_t lock;
    char *authorization, *token, *userinfo, *jwks;
    bool takes_post, takes_basic;
    int64_t fetched_ms; /* 0: never */
    struct shared_keys *keys;
    int64_t keys_ms;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- calls */

int talk_begin(struct talk *self, struct ab_call *call, struct ab_error *err)
{
    struct ab_http_options options = {.ca_file = ab_conf_text(call->conf, "oauth_ca_file"),
                                      .connect_timeout_ms = CONNECT_MS};
    int64_t until = ab_now_ms() + ab_conf_ms(call->conf, "oauth_timeout"),
            last = call->deadline_ms - 500; /* for what comes behind it */
    *self = (struct talk){.call = call, .deadline_ms = until < last ? until : last};
    self->http = ab_http_new(&options, err);
    return self->http ? 0 : -1;
}

void talk_end(struct talk *self)
{
    ab_http_destroy(&self->http);
}

static int no_answer(const char *url, const char *why, int code, struct ab_error *err)
{
    ab_log(AB_WARN, "provider.failed", AB_KV("url", url), AB_KV("text", why));
    if (code == AB_ETIMEOUT)
        return ab_fail(err, AB_ETIMEOUT, "the sign-in provider did not answer in time: try again");
    return ab_fail(err, AB_EUPSTREAM,
                   "the sign-in provider gave no answer that could be used: try again in a moment");
}

int talk_json(struct talk *self, const char *method, const char *url, const char *const *headers,
              const char *body, const struct ab_value **out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {.limit = ANSWER_MAX};
    struct ab_http_request request = {.method = method,
                                      .url = url,
                                      .headers = headers,
                                      .body = body,
                                      .len = body ? strlen(body) : 0,
                                      .timeout_ms = self->deadline_ms - ab_now_ms()};
    struct ab_http_reply reply = {.body = &text};
    struct ab_error why = {0};
    if (request.timeout_ms <= 0)
        return no_answer(url, "no time left for it", AB_ETIMEOUT, err);
    if (ab_http_call(self->http, &request, &reply, &why) < 0)
        return no_answer(url, why.text, why.code, err);
    *out = ab_value_parse(self->call->arena, text.data ? text.data : "", text.len, &why);
    if (text.data)
        explicit_bzero(text.data, text.len); /* tokens */
    if (!*out || (*out)->type != AB_V_MAP)
        return no_answer(url,
                         ab_printf(self->call->arena, "status %d, %s", reply.status,
                                   *out ? "no JSON object" : why.text),
                         AB_EUPSTREAM, err);
    return reply.status;
}

/* ---- the document */

/* Codes and tokens travel to them: TLS, or not beyond this machine. */
static bool is_safe(const char *url)
{
    static const char *const loopback[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    if (!url)
        return false;
    for (const char *c = url; *c; c++)
        if (*c <= ' ' || *c >= 0x7f)
            return false;
    if (ab_str_starts(url, "https://") && url[8])
        return true;
    for (size_t i = 0; i < AB_COUNT(loopback); i++) {
        size_t n = strlen(loopback[i]);
        if (ab_str_starts(url, loopback[i]) && strchr(":/", url[n]))
            return true;
    }
    return false;
}

static bool lists(const struct ab_value *list, const char *name)
{
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++)
        if (strcmp(ab_value_text(&list->items[i], ""), name) == 0)
            return true;
    return false;
}

static int read_document(const struct ab_value *doc, const char *issuer, const char *url,
                         struct provider_info *out, struct ab_error *err)
{
    const struct ab_value *ways = ab_value_get(doc, "token_endpoint_auth_methods_supported");
    *out = (struct provider_info){
        .authorization = ab_value_text(ab_value_get(doc, "authorization_endpoint"), NULL),
        .token = ab_value_text(ab_value_get(doc, "token_endpoint"), NULL),
        .userinfo = ab_value_text(ab_value_get(doc, "userinfo_endpoint"), NULL),
        .jwks = ab_value_text(ab_value_get(doc, "jwks_uri"), NULL),
        .takes_post = lists(ways, "client_secret_post"),
        .takes_basic = !ways || lists(ways, "client_secret_basic"), /* the standard's default */
    };
    if (strcmp(ab_value_text(ab_value_get(doc, "issuer"), ""), issuer) != 0)
        return no_answer(url, "its `issuer` is not the setting oauth_issuer, letter by letter",
                         AB_EUPSTREAM, err);
    if (!is_safe(out->authorization) || !is_safe(out->token) || !is_safe(out->jwks)
        || (out->userinfo && !is_safe(out->userinfo)))
        return no_answer(url, "an endpoint is missing or not https", AB_EUPSTREAM, err);
    return 0;
}

static void replace(char **text, const char *with)
{
    free(*text);
    *text = with ? strdup(with) : NULL;
}

static void keep(const struct provider_info *info)
{
    pthread_mutex_lock(&kept.lock);
    replace(&kept.authorization, info->authorization);
    replace(&kept.token, info->token);
    replace(&kept.userinfo, info->userinfo);
    replace(&kept.jwks, info->jwks);
    kept.takes_post = info->takes_post;
    kept.takes_basic = info->takes_basic;
    kept.fetched_ms = ab_now_ms();
    pthread_mutex_unlock(&kept.lock);
}

/* How old it is, in ms; -1: there is none. */
static int64_t copy_kept(ab_arena_t *arena, struct provider_info *out)
{
    int64_t age = -1;
    pthread_mutex_lock(&kept.lock);
    if (kept.fetched_ms) {
        age = ab_now_ms() - kept.fetched_ms;
        *out = (struct provider_info){
            .authorization = ab_strdup(arena, kept.authorization),
            .token = ab_strdup(arena, kept.token),
            .userinfo = kept.userinfo ? ab_strdup(arena, kept.userinfo) : NULL,
            .jwks = ab_strdup(arena, kept.jwks),
            .takes_post = kept.takes_post,
            .takes_basic = kept.takes_basic,
        };
    }
    pthread_mutex_unlock(&kept.lock);
    return age;
}

static int fetch_document(struct talk *talk, struct provider_info *out, struct ab_error *err)
{
    const char *issuer = ab_conf_text(talk->call->conf, "oauth_issuer");
    size_t n = strlen(issuer);
    const struct ab_value *doc;
    const char *url = ab_printf(talk->call->arena, "%.*s/.well-known/openid-configuration",
                                (int)(n - (issuer[n - 1] == '/')), issuer);
    int status = talk_json(talk, "GET", url, NULL, NULL, &doc, err);
    if (status < 0)
        return -1;
    if (status != 200)
        return no_answer(url, "the status is not 200", AB_EUPSTREAM, err);
    if (read_document(doc, issuer, url, out, err) < 0)
        return -1;
    keep(out);
    return 0;
}

int discovery_find(struct ab_call *call, struct talk *talk, struct provider_info *out,
                   struct ab_error *err)
{
    int64_t age = copy_kept(call->arena, out);
    if (age >= 0 && age < KEEP_MS)
        return 0;
    if (!talk)
        return 1;
    struct provider_info fresh;
    if (fetch_document(talk, &fresh, age < 0 ? err : NULL) == 0)
        *out = fresh;
    else if (age < 0)
        return -1; /* else what is old is better than nothing */
    return 0;
}

/* ---- its keys */

static void release(struct shared_keys *keys) /* under the lock */
{
    if (!keys || --keys->holders > 0)
        return;
    key_set_free(&keys->set);
    free(keys);
}

void discovery_release(struct shared_keys **self)
{
    pthread_mutex_lock(&kept.lock);
    release(AB_TAKE(*self));
    pthread_mutex_unlock(&kept.lock);
}

const struct key_set *discovery_set(const struct shared_keys *self)
{
    return self->set;
}

static struct shared_keys *hold_kept(void)
{
    struct shared_keys *keys = NULL;
    pthread_mutex_lock(&kept.lock);
    if (kept.keys && ab_now_ms() - kept.keys_ms < KEEP_MS) {
        keys = kept.keys;
        keys->holders++;
    }
    pthread_mutex_unlock(&kept.lock);
    return keys;
}

static struct shared_keys *keep_keys(struct key_set *set)
{
    struct shared_keys *keys = calloc(1, sizeof(*keys));
    if (!keys)
        abort();
    *keys = (struct shared_keys){.set = set, .holders = 2}; /* the cache and the caller */
    pthread_mutex_lock(&kept.lock);
    release(kept.keys);
    kept.keys = keys;
    kept.keys_ms = ab_now_ms();
    pthread_mutex_unlock(&kept.lock);
    return keys;
}

static struct key_set *fetch_keys(struct talk *talk, const char *url, struct ab_error *err)
{
    const struct ab_value *doc;
    struct ab_error why = {0};
    int status = talk_json(talk, "GET", url, NULL, NULL, &doc, err);
    if (status < 0)
        return NULL;
    if (status != 200) {
        no_answer(url, "the status is not 200", AB_EUPSTREAM, err);
        return NULL;
    }
    struct key_set *set = key_set_read(doc, &why);
    if (!set)
        no_answer(url, why.text, AB_EUPSTREAM, err);
    return set;
}

struct shared_keys *discovery_keys(struct talk *talk, const struct provider_info *info, bool fresh,
                                   struct ab_error *err)
{
    struct shared_keys *keys = fresh ? NULL : hold_kept();
    if (keys)
        return keys;
    struct key_set *set = fetch_keys(talk, info->jwks, err);
    return set ? keep_keys(set) : NULL;
}

void discovery_forget(void)
{
    pthread_mutex_lock(&kept.lock);
    release(kept.keys);
    kept.keys = NULL;
    replace(&kept.authorization, NULL);
    replace(&kept.token, NULL);
    replace(&kept.userinfo, NULL);
    replace(&kept.jwks, NULL);
    kept.fetched_ms = 0;
    pthread_mutex_unlock(&kept.lock);
}
