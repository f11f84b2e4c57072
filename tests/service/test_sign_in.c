/* test_sign_in.c - users that are locked out, tokens that end, and what is written down */
#include "auth_rig.h"
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include "svc_auth/auth.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The claim of an access token that has just been signed. */
static int64_t issued_at(const char *access)
{
    uint8_t json[AB_TOKEN_MAX];
    const char *body = strchr(access, '.') + 1;
    int64_t n = ab_base64url_decode(body, strcspn(body, "."), json, sizeof(json));
    assert_true(n > 0);
    return ab_value_int(
        ab_value_get(ab_value_parse(arena, (const char *)json, (size_t)n, NULL), "iat"), -1);
}

/* ---- users that are locked out */

static int login(const char *form)
{
    return rig_ask("user.login", form);
}

static void who_is_locked_out_cannot_log_in_and_it_looks_like_a_wrong_password(void **state)
{
    (void)state;
    rig_user("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret"), 200);
    pg_exec(owner, "UPDATE users SET disabled = now()");
    assert_int_equal(login("username=tenant&password=secret"), 401);
    assert_string_equal(error.text, "Unauthorized");
    assert_int_equal(ab_service_hold(), 1000);
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 401);
    pg_exec(owner, "UPDATE users SET disabled = NULL");
    assert_int_equal(login("username=tenant&password=secret"), 200);
}

static void who_is_locked_out_cannot_renew_or_make_tokens(void **state)
{
    (void)state;
    char body[200];
    int64_t tenant = rig_user("tenant", "secret");
    struct ab_caller caller = {.owner_id = tenant, .username = "tenant"};
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(body, sizeof(body), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    pg_exec(owner, "UPDATE users SET disabled = now()");
    assert_int_equal(rig_ask("token.refresh", body), 401);
    assert_int_equal(rig_ask_as(&caller, "token.create", "", "{\"name\":\"x\"}"), 401);
    pg_exec(owner, "UPDATE users SET disabled = NULL");
    assert_int_equal(rig_ask("token.refresh", body), 200); /* a site goes on where it was */
    pg_exec(owner, "DELETE FROM users");
    assert_int_equal(rig_ask_as(&caller, "token.create", "", "{\"name\":\"x\"}"), 401);
}

static void a_password_that_changes_while_it_is_checked_lets_nobody_in(void **state)
{
    (void)state;
    static const char *const forms[] = {"username=tenant&password=secret",
                                        "username=tenant&password=secret&refresh=1"};
    /* what happens between the check and the token: attempts are forgiven */
    pg_exec(owner,
            "CREATE FUNCTION meanwhile() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN UPDATE users SET password_hash = 'another'; RETURN NEW; END $$");
    pg_exec(owner, "CREATE TRIGGER meanwhile AFTER UPDATE ON login_attempts FOR EACH ROW EXECUTE "
                   "FUNCTION meanwhile()");
    for (size_t i = 0; i < AB_COUNT(forms); i++) {
        rig_clear(NULL);
        rig_user("tenant", "secret");
        assert_int_equal(login(forms[i]), 401);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 0);
    }
    pg_exec(owner, "DROP FUNCTION meanwhile() CASCADE");
}

static void tokens_are_no_older_than_the_users_cut(void **state)
{
    (void)state;
    char body[200];
    rig_user("tenant", "secret");
    pg_exec(owner, "UPDATE users SET tokens_from = date_trunc('second', now()) + interval '30 s'");
    int64_t cut = pg_int(owner, "SELECT extract(epoch FROM tokens_from)::bigint FROM users");
    assert_int_equal(login("username=tenant&password=secret"), 200);
    assert_int_equal(issued_at(rig_text("access_token")), cut);
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    assert_int_equal(issued_at(rig_text("access_token")), cut);
    snprintf(body, sizeof(body), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    assert_int_equal(rig_ask("token.refresh", body), 200);
    assert_int_equal(issued_at(rig_text("access_token")), cut);
    assert_int_equal(rig_ask("token.refresh", body), 200); /* a reply that got lost */
    assert_int_equal(issued_at(rig_text("access_token")), cut);
    pg_exec(owner, "UPDATE users SET tokens_from = now() - interval '1 h'");
    assert_int_equal(login("username=tenant&password=secret"), 200);
    assert_in_range(issued_at(rig_text("access_token")), time(NULL) - 5, time(NULL) + 1);
}

static const char *ended(void)
{
    assert_int_equal(rig_ask("user.ended", ""), 200);
    return fake_json(&reply);
}

static void gateways_are_told_of_users_whose_tokens_ended(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char want[100];
    int64_t tenant = rig_user("tenant", NULL), stranger = rig_user("stranger", NULL);
    assert_string_equal(ended(), "[]");
    pg_exec(owner, "UPDATE users SET disabled = now() WHERE id = %" PRId64, tenant);
    snprintf(want, sizeof(want), "[{\"user\":%" PRId64 ",\"from\":9223372036854775807}]", tenant);
    assert_string_equal(ended(), want);
    pg_exec(owner,
            "UPDATE users SET disabled = NULL, tokens_from = '2026-01-01 00:00:07+00' WHERE id = "
            "%" PRId64,
            tenant);
    assert_string_equal(ended(), "[]"); /* so long ago that no token is left */
    pg_exec(owner, "UPDATE users SET tokens_from = date_trunc('second', now()) WHERE id = %" PRId64,
            stranger);
    snprintf(want, sizeof(want), "[{\"user\":%" PRId64 ",\"from\":%" PRId64 "}]", stranger,
             pg_int(owner,
                    "SELECT extract(epoch FROM tokens_from)::bigint FROM users WHERE id = %" PRId64,
                    stranger));
    assert_string_equal(ended(), want);
    pg_exec(owner, "DELETE FROM users");
    assert_int_equal(rig_ask("user.ended", ""), 200);
    assert_int_equal(tree->n, 2);
    pg_exec(owner,
            "UPDATE ended_users SET ended = now() - interval '50 h'"); /* tokens live for 48 */
    assert_string_equal(ended(), "[]");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_users", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM ended_users"), 0);
}

/* ---- what is written down */

static const char *written(void)
{
    return pg_text(owner, "SELECT coalesce(string_agg(format('%%s %%s %%s %%s|%%s', action, "
                          "outcome, actor, peer, detail), E'\\n' ORDER BY id), '') FROM audit");
}

static void sign_ins_are_written_down_with_who_and_from_where(void **state)
{
    (void)state;
    int64_t tenant = rig_user("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret"), 200);
    assert_int_equal(login("username=tenant&password=wrong"), 401);
    assert_int_equal(login("username=hunter2&password=x"), 401); /* a password in the wrong field */
    assert_int_equal(rig_ask("user.register", "{\"username\":\"stranger\",\"password\":\"pw\"}"),
                     201);
    assert_string_equal(written(), "login.password ok tenant 192.0.2.1|\n"
                                   "login.password failed tenant 192.0.2.1|wrong password\n"
                                   "login.password failed  192.0.2.1|unknown user\n"
                                   "user.register ok stranger 192.0.2.1|");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE user_id = %" PRId64, tenant),
                     2);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE request IS NOT NULL"), 4);
    assert_int_equal(
        pg_int(owner, "SELECT count(*) FROM audit a WHERE a::text ~ 'secret|hunter|pw'"), 0);
}

static void what_is_done_with_tokens_is_written_down(void **state)
{
    (void)state;
    char body[200], want[300];
    struct ab_caller caller = {
        .owner_id = rig_user("tenant", NULL), .username = "tenant", .peer = "192.0.2.9"};
    assert_int_equal(rig_ask_as(&caller, "token.create", "", "{\"name\":\"x\",\"scope\":\"read\"}"),
                     201);
    int64_t id = ab_value_int(ab_value_get(tree, "id"), 0);
    snprintf(body, sizeof(body), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    assert_int_equal(rig_ask("token.refresh", body),
                     200); /* what all sites do all the time is not */
    pg_exec(owner, "UPDATE refresh_tokens SET used = used - interval '1 h'");
    assert_int_equal(rig_ask("token.refresh", body), 401);
    snprintf(want, sizeof(want),
             "token.create ok tenant 192.0.2.9|token %" PRId64 ", scope read\n"
             "token.reuse failed  192.0.2.1|token %" PRId64 " ended: its refresh token came twice",
             id, id);
    assert_string_equal(written(), want);
    pg_exec(owner, "TRUNCATE audit");
    pg_exec(owner,
            "INSERT INTO tokens (id, owner_id, name, scope) VALUES (1, %" PRId64
            ", 'x', 'user') ON CONFLICT DO NOTHING",
            caller.owner_id);
    assert_int_equal(rig_ask_as(&caller, "token.delete", "", ""), 204);
    assert_string_equal(written(), "token.delete ok tenant 192.0.2.9|token 1");
    assert_int_equal(rig_ask_as(&caller, "token.delete", "", ""), 404);
    assert_string_equal(written(), "token.delete ok tenant 192.0.2.9|token 1");
}

static void who_has_a_refresh_token_may_end_it_and_all_that_came_of_it(void **state)
{
    (void)state;
    char first[200], second[200];
    rig_user("tenant", "secret");
    assert_int_equal(login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    assert_int_equal(rig_ask("token.refresh", first), 200);
    snprintf(second, sizeof(second), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    assert_int_equal(rig_ask("token.revoke", "{\"refresh_token\":\"nonsense\"}"), 204);
    assert_int_equal(rig_ask("token.revoke", first),
                     204); /* used before: it still tells who it is */
    assert_int_equal(strncmp(ab_service_hints(), "r", 1), 0);
    assert_int_equal(rig_ask("token.refresh", second), 401);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM revoked_tokens"), 2);
    assert_int_equal(rig_ask("token.revoke", second), 204);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'token.revoke'"), 1);
}

static void what_cannot_be_written_down_does_not_happen(void **state)
{
    (void)state;
    struct ab_caller caller = {.owner_id = rig_user("tenant", "secret"), .username = "tenant"};
    pg_exec(owner, "ALTER TABLE audit RENAME TO hidden");
    assert_true(login("username=tenant&password=secret") >= 500);
    assert_true(rig_ask_as(&caller, "token.create", "", "{\"name\":\"x\"}") >= 500);
    assert_true(rig_ask("user.register", "{\"username\":\"stranger\",\"password\":\"pw\"}") >= 500);
    pg_exec(owner, "ALTER TABLE hidden RENAME TO audit");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM users"), 1);
    /* of the log-in a row may stay, but nobody got its token */
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens WHERE name <> 'login'"), 0);
}

static void the_log_is_kept_as_long_as_the_setting_says(void **state)
{
    (void)state;
    struct ab_error err = {0};
    pg_exec(owner, "INSERT INTO audit (action, outcome, at) SELECT 'x', 'ok', now() - interval '1 "
                   "h' * n FROM generate_series(10, 100, 10) n");
    SET(ALL_METHODS, "audit_keep", "0s");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_audit", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit"), 10);
    SET(ALL_METHODS, "audit_keep", "55h");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_audit", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit"), 5);
}

#define TEST(name) cmocka_unit_test_setup(name, rig_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_is_locked_out_cannot_log_in_and_it_looks_like_a_wrong_password),
        TEST(who_is_locked_out_cannot_renew_or_make_tokens),
        TEST(a_password_that_changes_while_it_is_checked_lets_nobody_in),
        TEST(tokens_are_no_older_than_the_users_cut),
        TEST(gateways_are_told_of_users_whose_tokens_ended),
        TEST(sign_ins_are_written_down_with_who_and_from_where),
        TEST(what_is_done_with_tokens_is_written_down),
        TEST(who_has_a_refresh_token_may_end_it_and_all_that_came_of_it),
        TEST(what_cannot_be_written_down_does_not_happen),
        TEST(the_log_is_kept_as_long_as_the_setting_says),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
