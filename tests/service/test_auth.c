/* test_auth.c - registering, logging in, tokens that renew themselves, keys */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/rand.h"
#include "bus/server.h"
#include "crypt/crypt.h"
#include "fake.h"
#include "pg.h"
#include "schema/pack.h"
#include "svc_auth/auth.h"
#include "svc_auth/key.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static ab_db_t *db, *owner; /* as abies_auth; as the owner of the tables */
static ab_conf_t *conf;
static char dir[] = "/tmp/abies-test-XXXXXX", seal[64];

/* The last answer. */
static ab_arena_t *arena;
static struct ab_buf reply;
static const struct ab_value *tree;
static struct ab_error error;

/* ---- asking */

static const char *text(const char *key)
{
    const char *v = ab_value_text(ab_value_get(tree, key), NULL);
    if (!v)
        fail_msg("no %s in %s", key, fake_json(&reply));
    return v;
}

static int64_t number(const char *key)
{
    return ab_value_int(ab_value_get(tree, key), -1);
}

static int ask_as(const struct ab_caller *caller, const char *verb, int64_t id, const char *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    const struct ab_route *route = ab_route_of_verb(verb);
    char id_text[24];
    snprintf(id_text, sizeof(id_text), "%" PRId64, id);
    struct ab_http_parts parts = {
        .path_id = id_text,
        .path_id_len = strlen(id_text),
        .query = "",
        .body = body,
        .body_len = strlen(body),
        .has_body = *body != '\0',
        .content_json = route->body_form != AB_BODY_FORM,
        .content_form = route->body_form == AB_BODY_FORM,
    };
    if (ab_json_request(route, &parts, &packed, &issues) < 0)
        return 422;
    int status =
        ab_service_call_as(&auth_service, db, conf, caller, verb, packed.data, packed.len, &reply);
    ab_arena_reset(arena);
    tree = NULL;
    error = (struct ab_error){0};
    if (status >= 400)
        ab_bus_error_unpack(reply.data, reply.len, status, arena, &error);
    else if (reply.len && strcmp(verb, "key.list") != 0) /* its keys are bytes: no JSON */
        tree = fake_tree(arena, &reply);
    return status;
}

/* Clients of the contract repeat refused log-ins, registrations and renewals at once, without end.
 */
static bool was_held_back(void)
{
    return ab_service_hold() == 1000;
}

static int ask(int64_t user, const char *verb, int64_t id, const char *body)
{
    return ask_as(&(struct ab_caller){.owner_id = user, .username = "tenant"}, verb, id, body);
}

static int login(const char *form)
{
    return ask_as(&(struct ab_caller){.peer = "192.0.2.1"}, "user.login", 0, form);
}

static int refresh(const char *token)
{
    char body[200];
    snprintf(body, sizeof(body), "{\"refresh_token\": \"%s\"}", token);
    return ask(0, "token.refresh", 0, body);
}

static void set(const char *name, const char *value)
{
    struct ab_error err = {0};
    ab_conf_destroy(&conf);
    conf = ab_service_conf(&auth_service);
    if (ab_conf_set(conf, AB_CONF_FLAG, "test", "seal_key", seal, &err) < 0
        || ab_conf_set(conf, AB_CONF_FLAG, "test", name, value, &err) < 0)
        fail_msg("%s", err.text);
}

/* Its claims, checked with the keys that gateways get. */
static struct ab_token claims_of(const char *access)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *mine = ab_arena_new();
    struct ab_error err = {0};
    struct ab_public_key keys[16];
    struct ab_token token;
    PGresult *r =
        ab_db_query(owner, "SELECT kid, public_key FROM signing_keys", NULL, NULL, 0, mine, &err);
    assert_non_null(r);
    for (int i = 0; i < PQntuples(r); i++) {
        size_t n;
        const char *kid = ab_col_text(r, i, 0, &n);
        snprintf(keys[i].kid, sizeof(keys[i].kid), "%.*s", (int)n, kid);
        memcpy(keys[i].key, ab_col_bytes(r, i, 1, &n), 32);
    }
    if (ab_token_check(access, strlen(access), keys, (size_t)PQntuples(r), time(NULL), &token, &err)
        < 0)
        fail_msg("%s", err.text);
    return token;
}

static int64_t registered(const char *name, const char *password)
{
    char body[200];
    snprintf(body, sizeof(body), "{\"username\": \"%s\", \"password\": \"%s\"}", name, password);
    assert_int_equal(ask(0, "user.register", 0, body), 201);
    return number("id");
}

static int open_all(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_crypt_init();
    owner = pg_open();
    db = pg_open_as("abies_auth");
    arena = ab_arena_new();
    assert_non_null(mkdtemp(dir));
    snprintf(seal, sizeof(seal), "%s/seal.key", dir);
    assert_int_equal(ab_seal_key_make(seal, &err), 0);
    set("login_hold", "1s");
    if (ab_db_prepare(db, auth_service.sql, &err) < 0 || auth_service.start(conf, db, &err) < 0)
        fail_msg("%s", err.text);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    unlink(seal);
    rmdir(dir);
    ab_buf_free(&reply);
    ab_arena_destroy(&arena);
    ab_conf_destroy(&conf);
    ab_db_close(&db);
    ab_db_close(&owner);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    set("login_hold", "1s");
    pg_exec(owner, "TRUNCATE users, tokens, revoked_tokens, login_attempts, requests CASCADE");
    return 0;
}

/* ---- register, log in, me */

static void a_registered_user_logs_in_and_is_known(void **state)
{
    (void)state;
    int64_t id = registered("tenant", "secret");
    assert_string_equal(text("username"), "tenant");
    assert_int_equal(login("username=tenant&password=secret&grant_type=password"), 200);
    assert_string_equal(text("token_type"), "bearer");
    assert_int_equal(tree->n, 3); /* old clients take these three keys and no other */
    struct ab_token token = claims_of(text("access_token"));
    assert_int_equal(token.user, id);
    assert_string_equal(token.username, "tenant");
    assert_int_equal(token.scopes, AB_SCOPE_USER);
    assert_int_equal(token.exp - token.iat, 48 * 3600);
    int64_t expires_us;
    assert_int_equal(ab_time_parse(text("expiration"), strlen(text("expiration")), &expires_us), 0);
    assert_int_equal(expires_us / 1000000, token.exp);
    assert_null(strchr(text("expiration"), '+'));

    struct ab_caller caller = {.owner_id = id, .username = "tenant"};
    assert_int_equal(ask_as(&caller, "user.me", 0, ""), 200);
    assert_int_equal(number("id"), id);
    assert_string_equal(text("username"), "tenant");
}

static void auth_how_names_the_methods_the_old_way(void **state)
{
    (void)state;
    assert_int_equal(ask(0, "auth.how", 0, ""), 200);
    assert_string_equal(fake_json(&reply), "[\"LoginMethod.password\"]");
}

static void a_method_that_is_off_has_no_routes(void **state)
{
    (void)state;
    set("login_methods", "");
    assert_int_equal(login("username=tenant&password=x"), 404);
    assert_string_equal(error.kind, "no_route");
    assert_int_equal(ask(0, "user.register", 0, "{\"username\":\"a\",\"password\":\"b\"}"), 404);
    struct ab_error err = {0};
    set("login_methods", "passwort");
    assert_int_equal(auth_service.start(conf, db, &err), -1);
}

static void a_taken_name_is_400_and_its_password_stays(void **state)
{
    (void)state;
    registered("tenant", "secret");
    assert_int_equal(ask(0, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"other\"}"),
                     400);
    assert_true(was_held_back());
    assert_int_equal(login("username=tenant&password=secret"), 200);
    assert_int_equal(login("username=tenant&password=other"), 401);
}

static void a_repeated_registration_is_one_user(void **state)
{
    (void)state;
    struct ab_caller caller = {.key = "k1"};
    const char *body = "{\"username\":\"tenant\",\"password\":\"secret\"}";
    assert_int_equal(ask_as(&caller, "user.register", 0, body), 201);
    int64_t id = number("id");
    assert_int_equal(ask_as(&caller, "user.register", 0, body), 201);
    assert_int_equal(number("id"), id);
    assert_null(
        pg_text(owner, "SELECT 'leaked' FROM requests WHERE reply::text LIKE '%%secret%%'"));
}

static void no_digest_of_a_password_is_kept(void **state)
{
    (void)state;
    struct ab_caller caller = {.key = "k1"};
    assert_int_equal(
        ask_as(&caller, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"a\"}"), 201);
    /* what is compared with a repetition is the name alone */
    assert_int_equal(
        ask_as(&caller, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"b\"}"), 201);
    assert_int_equal(
        ask_as(&caller, "user.register", 0, "{\"username\":\"stranger\",\"password\":\"a\"}"), 422);
    assert_int_equal(login("username=tenant&password=a"), 200);
    assert_int_equal(login("username=tenant&password=b"), 401);
}

static void registration_can_be_closed(void **state)
{
    (void)state;
    set("open_registration", "false");
    assert_int_equal(ask(0, "user.register", 0, "{\"username\":\"a\",\"password\":\"b\"}"), 403);
}

static void wrong_unknown_and_without_password_look_the_same(void **state)
{
    (void)state;
    registered("tenant", "secret");
    pg_exec(owner, "INSERT INTO users (username) VALUES ('intruder')");
    static const char *const forms[] = {
        "username=tenant&password=wrong", "username=stranger&password=secret",
        "username=intruder&password=", "username=TENANT&password=secret",
        "username=tenant&password=secret%20"};
    for (size_t i = 0; i < AB_COUNT(forms); i++) {
        assert_int_equal(login(forms[i]), 401);
        assert_string_equal(error.text, "Unauthorized");
        assert_true(was_held_back());
    }
    assert_int_equal(login("username=tenant&password=secret"), 200);
    assert_false(was_held_back());
}

static void odd_names_and_passwords_work(void **state)
{
    (void)state;
    registered("\xc3\xa9\xe6\xbc\xa2 \xf0\x9f\x8c\xb2", "\xf0\x9f\x8c\xb2:&=%");
    assert_int_equal(
        login("username=%C3%A9%E6%BC%A2+%F0%9F%8C%B2&password=%F0%9F%8C%B2%3A%26%3D%25"), 200);
    registered("x", ""); /* there is no password policy */
    assert_int_equal(login("username=x&password="), 200);
    assert_int_equal(login("username=x"), 422);
    assert_int_equal(ask(0, "user.register", 0, "{\"username\":\"\\u0000\",\"password\":\"b\"}"),
                     422);
}

/* ---- guessing */

static void guesses_are_counted_by_user_and_address(void **state)
{
    (void)state;
    registered("tenant", "secret");
    set("login_limit", "5");
    for (int i = 0; i < 5; i++)
        assert_int_equal(login("username=tenant&password=wrong"), 401);
    assert_int_equal(login("username=tenant&password=secret"), 429); /* even the right one */
    assert_true(was_held_back());
    assert_in_range(error.retry_sec, 1, 60);
    /* another address is not held responsible, nor is another user */
    struct ab_caller elsewhere = {.peer = "192.0.2.2"};
    assert_int_equal(ask_as(&elsewhere, "user.login", 0, "username=tenant&password=secret"), 200);
    assert_int_equal(login("username=stranger&password=wrong"), 401);
    /* the window passes */
    pg_exec(owner, "UPDATE login_attempts SET since = since - interval '61 s'");
    assert_int_equal(login("username=tenant&password=secret"), 200);
}

static void old_attempts_are_forgotten(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(login("username=stranger&password=wrong"), 401);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_attempts"), 2);
    pg_exec(owner, "UPDATE login_attempts SET since = since - interval '3 minutes'");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_attempts", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_attempts"), 0);
}

/* ---- renewal */

static void a_login_that_asks_for_it_can_be_renewed(void **state)
{
    (void)state;
    int64_t id = registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    struct ab_token token = claims_of(text("access_token"));
    assert_int_equal(token.exp - token.iat, 3600);
    char first[64], second[64];
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh(first), 200);
    assert_int_equal(claims_of(text("access_token")).user, id);
    assert_string_not_equal(claims_of(text("access_token")).jti, token.jti);
    snprintf(second, sizeof(second), "%s", text("refresh_token"));
    assert_string_not_equal(first, second);
    assert_int_equal(refresh(second), 200);
    /* only digests are kept */
    assert_int_equal(pg_int(owner,
                            "SELECT count(*) FROM refresh_tokens WHERE position(convert_to('%s', "
                            "'UTF8') IN hash) > 0",
                            second),
                     0);
}

static void a_lost_reply_may_be_asked_for_again(void **state)
{
    (void)state;
    char first[64], second[64], access[AB_TOKEN_MAX];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh(first), 200);
    snprintf(second, sizeof(second), "%s", text("refresh_token"));
    snprintf(access, sizeof(access), "%s", text("access_token"));
    assert_int_equal(refresh(first), 200);
    assert_string_equal(text("refresh_token"), second);
    assert_string_equal(claims_of(text("access_token")).jti, claims_of(access).jti);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM refresh_tokens"), 2);
}

static void a_stolen_refresh_token_ends_the_whole_family(void **state)
{
    (void)state;
    char first[64], second[64], third[64];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh(first), 200);
    snprintf(second, sizeof(second), "%s", text("refresh_token"));
    assert_int_equal(refresh(second), 200);
    snprintf(third, sizeof(third), "%s", text("refresh_token"));
    struct ab_token token = claims_of(text("access_token"));

    assert_int_equal(refresh(first), 401); /* its successor has been used: two parties have it */
    assert_true(strncmp(ab_service_hints(), "r", 1) == 0);
    assert_int_equal(refresh(third), 401);
    assert_int_equal(refresh(second), 401);
    /* and the access tokens that are out */
    assert_int_equal(ask(0, "token.revoked", 0, ""), 200);
    assert_int_equal(tree->n, 3);
    assert_non_null(strstr(fake_json(&reply), token.jti));
}

static void a_used_refresh_token_past_its_grace_ends_the_family(void **state)
{
    (void)state;
    char first[64], second[64];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh(first), 200);
    snprintf(second, sizeof(second), "%s", text("refresh_token"));
    pg_exec(owner,
            "UPDATE refresh_tokens SET used = used - interval '31 s' WHERE used IS NOT NULL");
    assert_int_equal(refresh(first), 401);
    assert_int_equal(refresh(second), 401);
}

static void expired_and_unknown_refresh_tokens_are_refused(void **state)
{
    (void)state;
    char first[64];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh("nonsense"), 401);
    assert_true(was_held_back());
    pg_exec(owner, "UPDATE refresh_tokens SET expires = now() - interval '1 s'");
    assert_int_equal(refresh(first), 401);
    struct ab_error err = {0};
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_tokens", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 0);
}

static void a_deleted_user_cannot_renew(void **state)
{
    (void)state;
    char first[64];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    pg_exec(owner, "DELETE FROM users");
    assert_int_equal(refresh(first), 401);
}

struct racer {
    const char *token;
    int status;
    char next[64];
};

static void *race(void *arg)
{
    struct racer *self = arg;
    AB_AUTO(ab_db_close) ab_db_t *mine = pg_open_as("abies_auth");
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, out = {0};
    struct token_refresh in = {.refresh_token = self->token};
    AB_SET(token_refresh, &in, refresh_token);
    ab_pack_request(&body, ab_route_of_verb("token.refresh"), 0, NULL, &in, 1);
    self->status = ab_service_call(&auth_service, mine, conf, "token.refresh", 0, NULL, body.data,
                                   body.len, &out);
    struct ab_cursor at;
    const char *p;
    size_t n;
    if (self->status == 200
        && ab_cursor_find(ab_cursor(out.data, out.len), "refresh_token", &at) == 0
        && ab_cursor_str(&at, &p, &n) == 0)
        snprintf(self->next, sizeof(self->next), "%.*s", (int)n, p);
    return NULL;
}

static void programs_that_share_a_token_file_renew_at_once_and_agree(void **state)
{
    (void)state;
    char first[64];
    registered("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    struct racer racers[4] = {
        {.token = first}, {.token = first}, {.token = first}, {.token = first}};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(racers[i].status, 200);
        assert_string_equal(racers[i].next, racers[0].next);
    }
}

/* ---- further tokens */

static int64_t add_site(int64_t user)
{
    pg_exec(owner, "INSERT INTO sites (owner_id, name, path) VALUES (%" PRId64 ", 's', '/s')",
            user);
    return pg_int(owner, "SELECT max(id) FROM sites");
}

static void a_site_token_is_for_a_site_of_ones_own(void **state)
{
    (void)state;
    int64_t tenant = registered("tenant", "x"), stranger = registered("stranger", "x"),
            site = add_site(tenant);
    char body[200], first[64];
    snprintf(body, sizeof(body), "{\"name\":\"theta\",\"scope\":\"site\",\"site_id\":%" PRId64 "}",
             site);
    assert_int_equal(ask(stranger, "token.create", 0, body), 404);
    assert_int_equal(ask(tenant, "token.create", 0, body), 201);
    struct ab_token token = claims_of(text("access_token"));
    assert_int_equal(token.scopes, AB_SCOPE_SITE);
    assert_int_equal(token.site, site);
    assert_int_equal(number("site_id"), site);
    assert_string_equal(text("scope"), "site");
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(refresh(first), 200);
    token = claims_of(text("access_token"));
    assert_int_equal(token.scopes, AB_SCOPE_SITE);
    assert_int_equal(token.site, site);
    assert_int_equal(ask(tenant, "token.create", 0, "{\"name\":\"x\",\"scope\":\"site\"}"), 400);
    snprintf(body, sizeof(body), "{\"name\":\"x\",\"scope\":\"read\",\"site_id\":%" PRId64 "}",
             site);
    assert_int_equal(ask(tenant, "token.create", 0, body), 400);
    assert_int_equal(ask(tenant, "token.create", 0, "{\"name\":\"x\",\"scope\":\"admin\"}"), 422);
}

static void only_a_user_token_makes_tokens(void **state)
{
    (void)state;
    int64_t tenant = registered("tenant", "x");
    struct ab_caller reader = {.owner_id = tenant, .scopes = AB_SCOPE_READ},
                     site = {.owner_id = tenant, .scopes = AB_SCOPE_SITE, .token_site = 1};
    assert_int_equal(ask_as(&reader, "token.create", 0, "{\"name\":\"x\"}"), 403);
    assert_int_equal(ask_as(&site, "token.create", 0, "{\"name\":\"x\"}"), 403);
    assert_int_equal(ask_as(&site, "token.list", 0, ""), 403);
}

static void a_list_of_tokens_shows_no_secret(void **state)
{
    (void)state;
    int64_t tenant = registered("tenant", "x"), stranger = registered("stranger", "x");
    assert_int_equal(ask(tenant, "token.create", 0, "{\"name\":\"script\",\"scope\":\"read\"}"),
                     201);
    assert_int_equal(ask(tenant, "token.list", 0, ""), 200);
    assert_int_equal(tree->n, 1);
    assert_string_equal(ab_value_text(ab_value_get(&tree->items[0], "name"), ""), "script");
    assert_int_equal(ab_value_get(&tree->items[0], "access_token")->type, AB_V_NULL);
    assert_int_equal(ab_value_get(&tree->items[0], "refresh_token")->type, AB_V_NULL);
    assert_int_equal(ask(stranger, "token.list", 0, ""), 200);
    assert_int_equal(tree->n, 0);
}

static void a_deleted_token_ends_at_once_and_is_told(void **state)
{
    (void)state;
    char first[64], want[16];
    int64_t tenant = registered("tenant", "x"), stranger = registered("stranger", "x");
    assert_int_equal(ask(tenant, "token.create", 0, "{\"name\":\"script\"}"), 201);
    int64_t id = number("id");
    struct ab_token token = claims_of(text("access_token"));
    snprintf(first, sizeof(first), "%s", text("refresh_token"));
    assert_int_equal(ask(stranger, "token.delete", id, ""), 404);
    assert_string_equal(error.kind, "not_found");
    assert_int_equal(ask(tenant, "token.delete", id, ""), 204);
    snprintf(want, sizeof(want), "r%" PRId64, tenant);
    assert_string_equal(ab_service_hints(), want);
    assert_int_equal(refresh(first), 401);
    assert_int_equal(ask(0, "token.revoked", 0, ""), 200);
    assert_int_equal(tree->n, 1);
    assert_string_equal(ab_value_text(ab_value_get(&tree->items[0], "jti"), ""), token.jti);
    assert_int_equal(ab_value_int(ab_value_get(&tree->items[0], "expires"), 0), token.exp);
    assert_int_equal(ask(tenant, "token.delete", id, ""), 404);
}

/* ---- keys */

static void gateways_get_the_public_keys_and_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(ask(0, "key.list", 0, ""), 200);
    struct ab_cursor at = ab_cursor(reply.data, reply.len), key;
    uint32_t n, members;
    const void *bytes;
    size_t len;
    assert_int_equal(ab_cursor_array(&at, &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ab_cursor_find(at, "key", &key), 0);
    assert_int_equal(ab_cursor_bin(&key, &bytes, &len), 0);
    assert_int_equal(len, 32);
    assert_int_equal(ab_cursor_map(&at, &members), 0);
    assert_int_equal(members, 2);
}

static void a_second_replica_takes_the_key_of_the_first(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(key_start(conf, db, &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM signing_keys"), 1);
    assert_int_equal(pg_int(owner, "SELECT length(secret_key) FROM signing_keys"),
                     64 + AB_SEAL_EXTRA);
}

static void another_seal_key_is_noticed_at_start(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char other[80];
    snprintf(other, sizeof(other), "%s/other.key", dir);
    assert_int_equal(ab_seal_key_make(other, &err), 0);
    ab_conf_destroy(&conf);
    conf = ab_service_conf(&auth_service);
    assert_int_equal(ab_conf_set(conf, AB_CONF_FLAG, "test", "seal_key", other, &err), 0);
    assert_int_equal(key_start(conf, db, &err), -1);
    assert_non_null(strstr(err.text, "seal.key"));
    unlink(other);
    set("login_hold", "1s");
    assert_int_equal(key_start(conf, db, &err), 0);
}

static int listed_keys(void)
{
    uint32_t n;
    assert_int_equal(ask(0, "key.list", 0, ""), 200);
    struct ab_cursor at = ab_cursor(reply.data, reply.len);
    assert_int_equal(ab_cursor_array(&at, &n), 0);
    return (int)n;
}

/* As its timer finds it; from the header of a token. */
static const char *signing_kid(void)
{
    struct ab_error err = {0};
    static char kid[64];
    uint8_t json[256];
    pg_exec(owner, "TRUNCATE users, login_attempts CASCADE");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "keys", &err), 0);
    registered("tenant", "x");
    assert_int_equal(login("username=tenant&password=x"), 200);
    const char *token = text("access_token");
    int64_t n = ab_base64url_decode(token, strcspn(token, "."), json, sizeof(json));
    assert_true(n > 0);
    snprintf(kid, sizeof(kid), "%s",
             ab_value_text(
                 ab_value_get(ab_value_parse(arena, (char *)json, (size_t)n, NULL), "kid"), ""));
    return kid;
}

static void a_rotated_key_signs_and_the_old_one_still_checks(void **state)
{
    (void)state;
    struct ab_error err = {0};
    registered("tenant", "x");
    assert_int_equal(login("username=tenant&password=x"), 200);
    char old[AB_TOKEN_MAX];
    snprintf(old, sizeof(old), "%s", text("access_token"));
    /* as `abies-admin keys rotate` does: retire the newest, the next start makes another */
    pg_exec(owner, "UPDATE signing_keys SET retired = now()");
    assert_int_equal(key_start(conf, db, &err), 0);
    assert_int_equal(login("username=tenant&password=x"), 200);
    const char *new = text("access_token");
    size_t header = strcspn(old, ".");
    assert_int_equal(header, strcspn(new, "."));
    assert_memory_not_equal(old, new, header); /* another kid */
    claims_of(old);
    claims_of(new);
    assert_int_equal(listed_keys(), 2);
    pg_exec(owner,
            "UPDATE signing_keys SET retired = now() - interval '50 h' WHERE retired IS NOT NULL");
    assert_int_equal(listed_keys(), 1);
    set("short_token_ttl", "60h"); /* the longer life of the two counts */
    assert_int_equal(listed_keys(), 2);
}

static void a_new_key_signs_when_the_gateways_have_it(void **state)
{
    (void)state;
    struct ab_error err = {0};
    /* two keys that can be opened: the one that has been made, and one more */
    pg_exec(owner, "UPDATE signing_keys SET retired = now() WHERE retired IS NULL");
    assert_int_equal(key_start(conf, db, &err), 0);
    pg_exec(owner, "DELETE FROM signing_keys WHERE kid NOT IN (SELECT kid FROM signing_keys ORDER "
                   "BY created DESC LIMIT 2)");
    pg_exec(owner, "UPDATE signing_keys SET created = now() - interval '1 h', retired = now() + "
                   "interval '1 min' WHERE retired IS NOT NULL");
    pg_exec(owner, "UPDATE signing_keys SET created = now() WHERE retired IS NULL");
    char old[64], new[64];
    snprintf(old, sizeof(old), "%s",
             pg_text(owner, "SELECT kid FROM signing_keys WHERE retired IS NOT NULL"));
    snprintf(new, sizeof(new), "%s",
             pg_text(owner, "SELECT kid FROM signing_keys WHERE retired IS NULL"));
    assert_string_equal(signing_kid(), old);
    assert_int_equal(listed_keys(), 2); /* but the gateways are told of it */
    pg_exec(owner, "UPDATE signing_keys SET created = created - interval '16 s'");
    assert_string_equal(signing_kid(), new);
    pg_exec(owner, "UPDATE signing_keys SET created = created - interval '1 min', retired = "
                   "retired - interval '1 min'");
    assert_string_equal(signing_kid(), new);
    pg_exec(owner, "UPDATE signing_keys SET retired = now() WHERE retired IS NULL");
    assert_int_equal(key_start(conf, db, &err), 0);
}

/* ---- one failure anywhere */

static void one_failure_anywhere_makes_no_half_user(void **state)
{
    (void)state;
    for (int nth = 1;; nth++) {
        pg_exec(owner, "TRUNCATE users, requests CASCADE");
        ab_fault_arm(nth);
        int status = ask(0, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"x\"}");
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        assert_true(status == 201 || status == 503);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM users"), status == 201);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM requests"), status == 201);
        assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
        if (!fired)
            break;
        assert_in_range(nth, 1, 50);
    }
}

static void one_failure_anywhere_never_loses_a_renewal(void **state)
{
    (void)state;
    char first[64];
    registered("tenant", "x");
    for (int nth = 1;; nth++) {
        assert_int_equal(login("username=tenant&password=x&refresh=1"), 200);
        snprintf(first, sizeof(first), "%s", text("refresh_token"));
        ab_fault_arm(nth);
        int status = refresh(first);
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        assert_true(status == 200 || status == 503);
        if (status == 503) /* whatever broke: the client repeats itself */
            assert_int_equal(refresh(first), 200);
        if (!fired)
            break;
        assert_in_range(nth, 1, 50);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_registered_user_logs_in_and_is_known),
        TEST(auth_how_names_the_methods_the_old_way),
        TEST(a_method_that_is_off_has_no_routes),
        TEST(a_taken_name_is_400_and_its_password_stays),
        TEST(a_repeated_registration_is_one_user),
        TEST(no_digest_of_a_password_is_kept),
        TEST(registration_can_be_closed),
        TEST(wrong_unknown_and_without_password_look_the_same),
        TEST(odd_names_and_passwords_work),
        TEST(guesses_are_counted_by_user_and_address),
        TEST(old_attempts_are_forgotten),
        TEST(a_login_that_asks_for_it_can_be_renewed),
        TEST(a_lost_reply_may_be_asked_for_again),
        TEST(a_stolen_refresh_token_ends_the_whole_family),
        TEST(a_used_refresh_token_past_its_grace_ends_the_family),
        TEST(expired_and_unknown_refresh_tokens_are_refused),
        TEST(a_deleted_user_cannot_renew),
        TEST(programs_that_share_a_token_file_renew_at_once_and_agree),
        TEST(a_site_token_is_for_a_site_of_ones_own),
        TEST(only_a_user_token_makes_tokens),
        TEST(a_list_of_tokens_shows_no_secret),
        TEST(a_deleted_token_ends_at_once_and_is_told),
        TEST(gateways_get_the_public_keys_and_nothing_else),
        TEST(a_second_replica_takes_the_key_of_the_first),
        TEST(another_seal_key_is_noticed_at_start),
        TEST(a_rotated_key_signs_and_the_old_one_still_checks),
        TEST(a_new_key_signs_when_the_gateways_have_it),
        TEST(one_failure_anywhere_makes_no_half_user),
        TEST(one_failure_anywhere_never_loses_a_renewal),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
