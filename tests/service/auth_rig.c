/* auth_rig.c - see auth_rig.h */
#include "auth_rig.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "bus/server.h"
#include "crypt/crypt.h"
#include "fake.h"
#include "schema/pack.h"
#include "svc_auth/auth.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

ab_db_t *db, *owner;
ab_conf_t *conf;
int64_t rig_id = 1;
ab_arena_t *arena;
struct ab_buf reply;
const struct ab_value *tree;
struct ab_error error;
char rig_dir[] = "/tmp/abies-test-XXXXXX";
static char seal[64];

/* ---- asking */

const char *rig_text(const char *key)
{
    const char *v = ab_value_text(ab_value_get(tree, key), NULL);
    if (!v)
        fail_msg("no %s in %s", key, fake_json(&reply));
    return v;
}

int64_t rig_number(const char *key)
{
    return ab_value_int(ab_value_get(tree, key), -1);
}

int rig_pack(const char *verb, const char *query, const char *body, struct ab_buf *packed)
{
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    const struct ab_route *route = ab_route_of_verb(verb);
    char id[24];
    struct ab_http_parts parts = {
        .path_id = id,
        .path_id_len = (size_t)snprintf(id, sizeof(id), "%" PRId64, rig_id),
        .query = query,
        .query_len = strlen(query),
        .body = body,
        .body_len = strlen(body),
        .has_body = *body != '\0',
        .content_json = route->body_form != AB_BODY_FORM,
        .content_form = route->body_form == AB_BODY_FORM,
    };
    return ab_json_request(route, &parts, packed, &issues);
}

int rig_ask_as(const struct ab_caller *caller, const char *verb, const char *query,
               const char *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    struct ab_caller with_host = *caller;
    with_host.host = caller->host ? caller->host : "abies.example.org:8443";
    if (rig_pack(verb, query, body, &packed) < 0)
        return 422;
    int status = ab_service_call_as(&auth_service, db, conf, &with_host, verb, packed.data,
                                    packed.len, &reply);
    ab_arena_reset(arena);
    tree = NULL;
    error = (struct ab_error){0};
    if (status >= 400)
        ab_bus_error_unpack(reply.data, reply.len, status, arena, &error);
    else if (reply.len && strcmp(verb, "key.list") != 0) /* its keys are bytes: no JSON */
        tree = fake_tree(arena, &reply);
    return status;
}

int rig_ask(const char *verb, const char *body)
{
    return rig_ask_as(&(struct ab_caller){.peer = "192.0.2.1"}, verb, "", body);
}

int rig_ask_id(const struct ab_caller *caller, const char *verb, int64_t id, const char *body)
{
    rig_id = id;
    return rig_ask_as(caller, verb, "", body);
}

int rig_as(int64_t user, const char *verb, int64_t id, const char *body)
{
    return rig_ask_id(&(struct ab_caller){.owner_id = user, .username = "tenant"}, verb, id, body);
}

int rig_login(const char *form)
{
    return rig_ask("user.login", form);
}

int rig_refresh_keyed(const char *token, const char *key)
{
    char body[200];
    snprintf(body, sizeof(body), "{\"refresh_token\": \"%s\"}", token);
    return rig_ask_as(&(struct ab_caller){.key = key}, "token.refresh", "", body);
}

int rig_refresh(const char *token)
{
    return rig_refresh_keyed(token, NULL);
}

int rig_look(const char *verb, const char *query)
{
    return rig_ask_as(&(struct ab_caller){.peer = "192.0.2.1"}, verb, query, "");
}

bool rig_unbroken(int nth)
{
    bool fired = ab_fault_fired();
    ab_fault_arm(0);
    assert_in_range(nth, 1, 50);
    return !fired;
}

bool rig_was_held_back(void)
{
    return ab_service_hold() == 1000;
}

/* Settings at their defaults but for these. */
void rig_set(const char *const *pairs)
{
    struct ab_error err = {0};
    ab_conf_destroy(&conf);
    conf = ab_service_conf(&auth_service);
    int rc = ab_conf_set(conf, AB_CONF_FLAG, "test", "seal_key", seal, &err);
    for (; rc == 0 && pairs[0]; pairs += 2)
        rc = ab_conf_set(conf, AB_CONF_FILE, "test", pairs[0], pairs[1], &err);
    if (rc < 0)
        fail_msg("%s", err.text);
}

int rig_open(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_crypt_init();
    owner = pg_open();
    db = pg_open_as("abies_auth");
    arena = ab_arena_new();
    assert_non_null(mkdtemp(rig_dir));
    snprintf(seal, sizeof(seal), "%s/seal.key", rig_dir);
    assert_int_equal(ab_seal_key_make(seal, &err), 0);
    SET("login_hold", "1s");
    if (ab_db_prepare(db, auth_service.sql, &err) < 0 || auth_service.start(conf, db, &err) < 0)
        fail_msg("%s", err.text);
    return 0;
}

int rig_close(void **state)
{
    (void)state;
    unlink(seal);
    rmdir(rig_dir);
    ab_buf_free(&reply);
    ab_arena_destroy(&arena);
    ab_conf_destroy(&conf);
    ab_db_close(&db);
    ab_db_close(&owner);
    return 0;
}

int rig_clear(void **state)
{
    (void)state;
    SET(ALL_METHODS);
    rig_id = 1;
    pg_exec(owner, "TRUNCATE users, tokens, revoked_tokens, login_attempts, requests, ended_users, "
                   "device_attempts, login_states, identities, audit CASCADE");
    return 0;
}

int64_t rig_user(const char *name, const char *password)
{
    char hash[AB_PASSWORD_HASH_MAX] = "";
    if (password)
        assert_int_equal(ab_password_hash(password, strlen(password), hash, NULL), 0);
    pg_exec(owner, "INSERT INTO users (username, password_hash) VALUES ('%s', nullif('%s', ''))",
            name, hash);
    return pg_int(owner, "SELECT id FROM users WHERE username = '%s'", name);
}

int64_t rig_registered(const char *name, const char *password)
{
    char body[200];
    snprintf(body, sizeof(body), "{\"username\": \"%s\", \"password\": \"%s\"}", name, password);
    assert_int_equal(rig_as(0, "user.register", 0, body), 201);
    return rig_number("id");
}

/* Its claims, checked with the keys that gateways get. */
struct ab_token rig_claims(const char *access)
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
