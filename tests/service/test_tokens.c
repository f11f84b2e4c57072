/* test_tokens.c - tokens that were asked for: of sites and scripts, made once, listed, ended */
#include "auth_rig.h"
#include "base/fault.h"
#include "base/rand.h"
#include "svc_auth/auth.h"
#include "svc_auth/key.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int64_t add_site(int64_t user)
{
    pg_exec(owner, "INSERT INTO sites (owner_id, name, path) VALUES (%" PRId64 ", 's', '/s')",
            user);
    return pg_int(owner, "SELECT max(id) FROM sites");
}

static void a_site_token_is_for_a_site_of_ones_own(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x"), stranger = rig_registered("stranger", "x"),
            site = add_site(tenant);
    char body[200], first[64];
    snprintf(body, sizeof(body), "{\"name\":\"theta\",\"scope\":\"site\",\"site_id\":%" PRId64 "}",
             site);
    assert_int_equal(rig_as(stranger, "token.create", 0, body), 404);
    assert_int_equal(rig_as(tenant, "token.create", 0, body), 201);
    struct ab_token token = rig_claims(rig_text("access_token"));
    assert_int_equal(token.scopes, AB_SCOPE_SITE);
    assert_int_equal(token.site, site);
    assert_int_equal(rig_number("site_id"), site);
    assert_string_equal(rig_text("scope"), "site");
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(first), 200);
    token = rig_claims(rig_text("access_token"));
    assert_int_equal(token.scopes, AB_SCOPE_SITE);
    assert_int_equal(token.site, site);
    assert_int_equal(rig_as(tenant, "token.create", 0, "{\"name\":\"x\",\"scope\":\"site\"}"), 400);
    snprintf(body, sizeof(body), "{\"name\":\"x\",\"scope\":\"read\",\"site_id\":%" PRId64 "}",
             site);
    assert_int_equal(rig_as(tenant, "token.create", 0, body), 400);
    assert_int_equal(rig_as(tenant, "token.create", 0, "{\"name\":\"x\",\"scope\":\"admin\"}"),
                     422);
}

static void only_a_user_token_makes_tokens(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x");
    struct ab_caller reader = {.owner_id = tenant, .scopes = AB_SCOPE_READ},
                     site = {.owner_id = tenant, .scopes = AB_SCOPE_SITE, .token_site = 1};
    assert_int_equal(rig_ask_id(&reader, "token.create", 0, "{\"name\":\"x\"}"), 403);
    assert_int_equal(rig_ask_id(&site, "token.create", 0, "{\"name\":\"x\"}"), 403);
    assert_int_equal(rig_ask_id(&site, "token.list", 0, ""), 403);
}

static void a_list_of_tokens_shows_no_secret(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x"), stranger = rig_registered("stranger", "x");
    assert_int_equal(rig_as(tenant, "token.create", 0, "{\"name\":\"script\",\"scope\":\"read\"}"),
                     201);
    assert_int_equal(rig_as(tenant, "token.list", 0, ""), 200);
    assert_int_equal(tree->n, 1);
    assert_string_equal(ab_value_text(ab_value_get(&tree->items[0], "name"), ""), "script");
    assert_int_equal(ab_value_get(&tree->items[0], "access_token")->type, AB_V_NULL);
    assert_int_equal(ab_value_get(&tree->items[0], "refresh_token")->type, AB_V_NULL);
    assert_int_equal(rig_as(stranger, "token.list", 0, ""), 200);
    assert_int_equal(tree->n, 0);
}

static void a_deleted_token_ends_at_once_and_is_told(void **state)
{
    (void)state;
    char first[64], want[16];
    int64_t tenant = rig_registered("tenant", "x"), stranger = rig_registered("stranger", "x");
    assert_int_equal(rig_as(tenant, "token.create", 0, "{\"name\":\"script\"}"), 201);
    int64_t id = rig_number("id");
    struct ab_token token = rig_claims(rig_text("access_token"));
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_as(stranger, "token.delete", id, ""), 404);
    assert_string_equal(error.kind, "not_found");
    assert_int_equal(rig_as(tenant, "token.delete", id, ""), 204);
    snprintf(want, sizeof(want), "r%" PRId64, tenant);
    assert_string_equal(ab_service_hints(), want);
    assert_int_equal(rig_refresh(first), 401);
    assert_int_equal(rig_as(0, "token.revoked", 0, ""), 200);
    assert_int_equal(tree->n, 1);
    assert_string_equal(ab_value_text(ab_value_get(&tree->items[0], "jti"), ""), token.jti);
    assert_int_equal(ab_value_int(ab_value_get(&tree->items[0], "expires"), 0), token.exp);
    assert_int_equal(rig_as(tenant, "token.delete", id, ""), 404);
}

/* ---- once */

#define SCRIPT "{\"name\":\"script\",\"scope\":\"read\"}"

struct made {
    int64_t id;
    char access[AB_TOKEN_MAX], refresh[64];
};

/* What the answer hands out. */
static struct made made(void)
{
    struct made out = {.id = rig_number("id")};
    snprintf(out.access, sizeof(out.access), "%s", rig_text("access_token"));
    snprintf(out.refresh, sizeof(out.refresh), "%s", rig_text("refresh_token"));
    return out;
}

static int create_keyed(int64_t user, const char *key, const char *body)
{
    const struct ab_caller caller = {.owner_id = user, .username = "tenant", .key = key};
    return rig_ask_id(&caller, "token.create", 0, body);
}

static void a_repeated_key_makes_one_token_and_gives_it_again(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    struct made first = made();
    char whole[4096];
    snprintf(whole, sizeof(whole), "%s", fake_json(&reply));
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    assert_string_equal(fake_json(&reply), whole); /* Ed25519 signs alike each time */
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 1);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM refresh_tokens"), 1);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'token.create'"), 1);
    assert_int_equal(rig_claims(first.access).scopes, AB_SCOPE_READ);
    assert_int_equal(rig_refresh(first.refresh), 200);
    /* another key, and no key, make others */
    assert_int_equal(create_keyed(tenant, "k2", SCRIPT), 201);
    assert_string_not_equal(made().refresh, first.refresh);
    assert_int_equal(create_keyed(tenant, NULL, SCRIPT), 201);
    assert_int_equal(create_keyed(tenant, NULL, SCRIPT), 201);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 4);
}

static void a_key_is_for_one_request_of_one_user(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x"), stranger = rig_registered("stranger", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    struct made first = made();
    assert_int_equal(create_keyed(tenant, "k1", "{\"name\":\"script\",\"scope\":\"user\"}"), 422);
    assert_string_equal(error.kind, "key_reused");
    assert_int_equal(create_keyed(stranger, "k1", SCRIPT), 201);
    assert_string_not_equal(made().refresh, first.refresh);
    assert_int_equal(rig_claims(made().access).user, stranger);
}

static void a_token_that_was_renewed_since_is_still_answered_as_at_first(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    struct made first = made();
    assert_int_equal(rig_refresh(first.refresh), 200);
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    assert_string_equal(made().refresh, first.refresh);
    assert_string_equal(made().access, first.access);
}

static void what_has_ended_is_not_given_out_again(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    assert_int_equal(rig_as(tenant, "token.delete", made().id, ""), 204);
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 404);
    assert_non_null(strstr(error.text, "another Idempotency-Key"));
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 0);

    assert_int_equal(create_keyed(tenant, "k2", SCRIPT), 201);
    pg_exec(owner, "UPDATE users SET disabled = now()");
    assert_int_equal(create_keyed(tenant, "k2", SCRIPT), 404);
    /* the user's older access tokens were cut: the repetition's is none of the younger ones */
    pg_exec(owner, "UPDATE users SET disabled = NULL, tokens_from = now() + interval '1 hour'");
    assert_int_equal(create_keyed(tenant, "k2", SCRIPT), 201);
    assert_int_equal(
        pg_int(owner, "SELECT count(*) FROM users WHERE tokens_from > to_timestamp(%" PRId64 ")",
               rig_claims(made().access).iat),
        1);
}

static void a_stolen_database_makes_no_token(void **state)
{
    (void)state;
    int64_t tenant = rig_registered("tenant", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    struct made first = made();
    pg_exec(owner, "CREATE TEMP TABLE dump AS SELECT r::text AS line FROM requests r UNION ALL "
                   "SELECT t::text FROM tokens t UNION ALL SELECT f::text FROM refresh_tokens f "
                   "UNION ALL SELECT a::text FROM audit a");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM dump"),
                     6); /* registered and made: two requests */
    /* neither as text nor as bytes, which are shown in hex */
    assert_int_equal(
        pg_int(
            owner,
            "SELECT count(*) FROM dump, (SELECT '%s' AS t) AS secret WHERE position(t IN line) > 0 "
            "OR position(encode(convert_to(t, 'UTF8'), 'hex') IN line) > 0 OR position(encode("
            "decode(rpad(translate(t, '-_', '+/'), 44, '='), 'base64'), 'hex') IN line) > 0",
            first.refresh),
        0);
    const char *signature = strrchr(first.access, '.') + 1;
    assert_int_equal(
        pg_int(owner, "SELECT count(*) FROM dump WHERE position('%.20s' IN line) > 0", signature),
        0);
    assert_null(pg_text(owner, "SELECT 'kept' FROM requests WHERE reply IS NOT NULL AND verb = "
                               "'token.create'"));
    /* and what it is made of makes another one under another seal key */
    struct ab_error err = {0};
    char other[80], again[AB_SECRET_TEXT_MAX];
    uint8_t jti[16];
    const char *jti_text = pg_text(owner, "SELECT jti::text FROM refresh_tokens");
    ab_conf_t *elsewhere = ab_service_conf(&auth_service);
    snprintf(other, sizeof(other), "%s/other.key", rig_dir);
    assert_int_equal(ab_seal_key_make(other, &err), 0);
    assert_int_equal(ab_conf_set(elsewhere, AB_CONF_FLAG, "test", "seal_key", other, &err), 0);
    assert_int_equal(ab_uuid_parse(jti_text, AB_UUID_TEXT - 1, jti), 0);
    key_derive_first(jti, again);
    assert_string_equal(again, first.refresh);
    pg_exec(owner, "DELETE FROM signing_keys");
    assert_int_equal(key_start(elsewhere, db, &err), 0);
    key_derive_first(jti, again);
    assert_string_not_equal(again, first.refresh);
    pg_exec(owner, "DELETE FROM signing_keys");
    assert_int_equal(key_start(conf, db, &err), 0);
    unlink(other);
    ab_conf_destroy(&elsewhere);
    pg_exec(owner, "DROP TABLE dump");
}

static void a_rotated_key_signs_what_is_repeated(void **state)
{
    (void)state;
    struct ab_error err = {0};
    int64_t tenant = rig_registered("tenant", "x");
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    struct made first = made();
    pg_exec(owner, "UPDATE signing_keys SET retired = now()");
    assert_int_equal(key_start(conf, db, &err), 0);
    assert_int_equal(create_keyed(tenant, "k1", SCRIPT), 201);
    assert_string_equal(made().refresh, first.refresh);
    assert_string_not_equal(made().access, first.access);
    assert_string_equal(rig_claims(made().access).jti, rig_claims(first.access).jti);
}

static void one_failure_anywhere_makes_no_half_token(void **state)
{
    (void)state;
    char key[16];
    int64_t tenant = rig_registered("tenant", "x");
    for (int nth = 1, through = 0; !through; nth++) {
        pg_exec(owner, "TRUNCATE tokens, audit CASCADE");
        snprintf(key, sizeof(key), "k%d", nth);
        ab_fault_arm(nth);
        int status = create_keyed(tenant, key, SCRIPT);
        through = rig_unbroken(nth);
        assert_true(status == 201 || status == 503);
        if (status == 503) /* whatever broke, COMMIT's answer as well: the client repeats itself */
            assert_int_equal(create_keyed(tenant, key, SCRIPT), 201);
        assert_int_equal(rig_refresh(made().refresh), 200);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 1);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit"), 1);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, rig_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_site_token_is_for_a_site_of_ones_own),
        TEST(only_a_user_token_makes_tokens),
        TEST(a_list_of_tokens_shows_no_secret),
        TEST(a_deleted_token_ends_at_once_and_is_told),
        TEST(a_repeated_key_makes_one_token_and_gives_it_again),
        TEST(a_key_is_for_one_request_of_one_user),
        TEST(a_token_that_was_renewed_since_is_still_answered_as_at_first),
        TEST(what_has_ended_is_not_given_out_again),
        TEST(a_stolen_database_makes_no_token),
        TEST(a_rotated_key_signs_what_is_repeated),
        TEST(one_failure_anywhere_makes_no_half_token),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
