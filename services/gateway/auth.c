/* auth.c - see auth.h */
#include "auth.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "gateway.h"
#include "schema/pack.h"
#include "schema/schema.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define KEYS_MAX 16
#define CACHE_SIZE 4096 /* a power of two */
#define FRESH_MAX 1024  /* revocations heard of by hint, until the next list has them */

struct revoked {
    char jti[40];
    int64_t at_ms; /* when the hint came */
};

/* Tokens of this user that are older than `from` are good no more; INT64_MAX: none is. */
struct ended {
    int64_t user, from;
};

struct remembered {
    char *text;
    size_t len;
    struct ab_token token;
    uint32_t generation; /* of the keys; 0: empty */
};

static struct {
    struct ab_public_key keys[KEYS_MAX];
    size_t n_keys;
    uint32_t generation;
    bool have_keys, have_revoked, have_ended;
    struct revoked *revoked; /* sorted by jti */
    size_t n_revoked;
    struct ended *ended; /* sorted by user */
    size_t n_ended;
    struct revoked fresh[FRESH_MAX];
    size_t n_fresh;
    struct remembered *cache;
    uint8_t place_key[AB_PLACE_KEY];
    bool asking_keys, asking_revoked, asking_ended;
    int64_t asked_revoked_ms;
} auth;

void auth_init(void)
{
    auth.generation = 1;
    auth.cache = calloc(CACHE_SIZE, sizeof(*auth.cache)); /* NULL: works, slower */
    ab_random(auth.place_key, sizeof(auth.place_key));
}

void auth_free(void)
{
    for (size_t i = 0; auth.cache && i < CACHE_SIZE; i++)
        free(auth.cache[i].text);
    free(auth.cache);
    free(auth.revoked);
    free(auth.ended);
    memset(&auth, 0, sizeof(auth));
}

bool auth_ready(void)
{
    return auth.have_keys && auth.have_revoked && auth.have_ended;
}

static int by_jti(const void *a, const void *b)
{
    return strcmp(((const struct revoked *)a)->jti, ((const struct revoked *)b)->jti);
}

static bool is_revoked(const char *jti)
{
    struct revoked key = {0};

    (void)snprintf(key.jti, sizeof(key.jti), "%s", jti);
    for (size_t i = 0; i < auth.n_fresh; i++)
        if (strcmp(auth.fresh[i].jti, key.jti) == 0)
            return true;
    return auth.n_revoked > 0
           && bsearch(&key, auth.revoked, auth.n_revoked, sizeof(key), by_jti) != NULL;
}

static int by_user(const void *a, const void *b)
{
    int64_t x = ((const struct ended *)a)->user, y = ((const struct ended *)b)->user;
    return (x > y) - (x < y);
}

bool auth_ended(const struct ab_token *token)
{
    struct ended key = {.user = token->user}, *found = NULL;

    if (auth.n_ended > 0)
        found = bsearch(&key, auth.ended, auth.n_ended, sizeof(key), by_user);
    return (found && token->iat < found->from) || is_revoked(token->jti);
}

/* ---- checking */

/* A signature costs more than all the rest of a request. */
static void remember(struct remembered *r, const char *text, size_t n, const struct ab_token *token)
{
    char *copy = malloc(n);

    free(r->text);
    *r = (struct remembered){.text = copy, .len = copy ? n : 0};
    if (!copy)
        return;
    memcpy(copy, text, n);
    r->token = *token;
    r->generation = auth.generation;
}

static bool is_remembered(const struct remembered *r, const char *text, size_t n)
{
    return r->generation == auth.generation && r->len == n && ab_equal(r->text, text, n);
}

enum auth auth_check_token(const char *text, size_t n, struct ab_token *out)
{
    int64_t now = time(NULL);

    if (!auth_ready())
        return AUTH_NOT_YET;
    if (n == 0 || n > AB_TOKEN_MAX)
        return AUTH_BAD;
    struct remembered *known = NULL;
    if (auth.cache)
        known = &auth.cache[ab_hash_place(auth.place_key, text, n) & (CACHE_SIZE - 1)];
    if (known && is_remembered(known, text, n)) {
        *out = known->token;
        if (out->exp <= now)
            return AUTH_BAD;
    } else {
        if (ab_token_check(text, n, auth.keys, auth.n_keys, now, out, NULL) < 0)
            return AUTH_BAD;
        if (known)
            remember(known, text, n, out);
    }
    return auth_ended(out) ? AUTH_BAD : AUTH_OK;
}

enum auth auth_check_header(const char *value, size_t n, struct ab_token *out)
{
    if (n < 7 || strncasecmp(value, "bearer", 6) != 0 || value[6] != ' ')
        return AUTH_NONE;
    value += 7;
    n -= 7;
    while (n > 0 && *value == ' ') {
        value++;
        n--;
    }
    return n == 0 ? AUTH_NONE : auth_check_token(value, n, out);
}

/* ---- what the auth service says */

static int read_text(struct ab_cursor at, char *out, size_t size)
{
    const char *p;
    size_t n;

    if (ab_cursor_str(&at, &p, &n) < 0 || n == 0 || n >= size || memchr(p, 0, n))
        return -1;
    memcpy(out, p, n);
    out[n] = '\0';
    return 0;
}

int auth_take_keys(const void *body, size_t len)
{
    struct ab_cursor at = ab_cursor(body, len), field;
    struct ab_public_key keys[KEYS_MAX] = {0};
    uint32_t n;

    if (ab_cursor_array(&at, &n) < 0 || n > KEYS_MAX)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        const void *key;
        size_t key_len;
        if (ab_cursor_find(at, "kid", &field) < 0
            || read_text(field, keys[i].kid, sizeof(keys[i].kid)) < 0
            || ab_cursor_find(at, "key", &field) < 0 || ab_cursor_bin(&field, &key, &key_len) < 0
            || key_len != sizeof(keys[i].key))
            return -1;
        memcpy(keys[i].key, key, key_len);
        if (ab_cursor_skip(&at) < 0)
            return -1;
    }
    if (n != auth.n_keys || memcmp(keys, auth.keys, sizeof(keys)) != 0) {
        memcpy(auth.keys, keys, sizeof(keys));
        auth.n_keys = n;
        auth.generation++; /* forgets every remembered token */
        ab_log(AB_INFO, "auth.keys", AB_KV("keys", (int)n));
    }
    auth.have_keys = n > 0;
    return 0;
}

int auth_take_revoked(const void *body, size_t len)
{
    struct ab_cursor at = ab_cursor(body, len), field;
    uint32_t n;

    if (ab_cursor_array(&at, &n) < 0 || n > len)
        return -1;
    struct revoked *list = calloc(n ? n : 1, sizeof(*list));
    if (!list)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (ab_cursor_find(at, "jti", &field) < 0
            || read_text(field, list[i].jti, sizeof(list[i].jti)) < 0 || ab_cursor_skip(&at) < 0) {
            free(list);
            return -1;
        }
    qsort(list, n, sizeof(*list), by_jti);
    free(auth.revoked);
    auth.revoked = list;
    auth.n_revoked = n;
    auth.have_revoked = true;
    /* What came by hint before this list was asked for is in it. */
    size_t kept = 0;
    for (size_t i = 0; i < auth.n_fresh; i++)
        if (auth.fresh[i].at_ms >= auth.asked_revoked_ms)
            auth.fresh[kept++] = auth.fresh[i];
    auth.n_fresh = kept;
    return 0;
}

static int read_int(struct ab_cursor map, const char *name, int64_t *out)
{
    struct ab_cursor at;
    return ab_cursor_find(map, name, &at) < 0 ? -1 : ab_cursor_int(&at, out);
}

int auth_take_ended(const void *body, size_t len)
{
    struct ab_cursor at = ab_cursor(body, len);
    uint32_t n;

    if (ab_cursor_array(&at, &n) < 0 || n > len)
        return -1;
    struct ended *list = calloc(n ? n : 1, sizeof(*list));
    if (!list)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        if (read_int(at, "user", &list[i].user) < 0 || read_int(at, "from", &list[i].from) < 0
            || ab_cursor_skip(&at) < 0) {
            free(list);
            return -1;
        }
    qsort(list, n, sizeof(*list), by_user);
    free(auth.ended);
    auth.ended = list;
    auth.n_ended = n;
    auth.have_ended = true;
    return 0;
}

static void on_keys(void *arg, int status, const void *body, size_t len)
{
    (void)arg;
    auth.asking_keys = false;
    if (status == 200 && auth_take_keys(body, len) < 0)
        ab_log(AB_WARN, "auth.bad_answer", AB_KV("verb", "key.list"));
}

static void on_revoked(void *arg, int status, const void *body, size_t len)
{
    (void)arg;
    auth.asking_revoked = false;
    if (status == 200 && auth_take_revoked(body, len) < 0)
        ab_log(AB_WARN, "auth.bad_answer", AB_KV("verb", "token.revoked"));
}

static void on_ended(void *arg, int status, const void *body, size_t len)
{
    (void)arg;
    auth.asking_ended = false;
    if (status == 200 && auth_take_ended(body, len) < 0)
        ab_log(AB_WARN, "auth.bad_answer", AB_KV("verb", "user.ended"));
}

static void ask(const char *verb, void (*done)(void *, int, const void *, size_t))
{
    struct ab_buf body = {0};
    struct ab_bus_request request = {
        .service = "auth",
        .verb = verb,
        .scopes = AB_SCOPE_PUBLIC,
        .deadline_ms = ab_now_ms() + AUTH_PERIOD_MS,
        .done = done,
    };
    ab_pack_map(&body, 0);
    ab_uuid7(request.uuid);
    request.body_len = body.len;
    request.body = ab_buf_take(&body);
    ab_bus_submit(gw.bus, &request);
}

void auth_fetch(void)
{
    if (!auth.asking_keys) {
        auth.asking_keys = true;
        ask("key.list", on_keys);
    }
    if (!auth.asking_revoked) {
        auth.asking_revoked = true;
        auth.asked_revoked_ms = ab_now_ms();
        ask("token.revoked", on_revoked);
    }
    if (!auth.asking_ended) {
        auth.asking_ended = true;
        ask("user.ended", on_ended);
    }
}

void auth_hint(char topic, const void *body, size_t len)
{
    if (topic == 'r' && auth.n_fresh < FRESH_MAX) {
        struct revoked *r = &auth.fresh[auth.n_fresh];
        struct ab_cursor jti;
        if (ab_cursor_find(ab_cursor(body, len), "jti", &jti) == 0
            && read_text(jti, r->jti, sizeof(r->jti)) == 0) {
            r->at_ms = ab_now_ms();
            auth.n_fresh++;
        }
    }
    auth_fetch();
}
