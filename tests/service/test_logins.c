/* test_logins.c - log-ins that cannot be renewed: listed, revoked one by one, and bounded; who may try how often */
#include "auth_rig.h"
#include "crypt/crypt.h"
#include "svc_auth/auth.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int64_t user;

static int log_in(void)
{
    return rig_ask("user.login", "username=tenant&password=secret");
}

static int as_user(const char *verb, const char *body)
{
    return rig_ask_as(&(struct ab_caller){.owner_id = user, .username = "tenant"}, verb, "", body);
}

static int setup(void **state)
{
    int rc = rig_clear(state);
    SET("login_hold", "1ms");
    user = rig_user("tenant", "secret");
    return rc;
}

/* Row i of the list of tokens. */
static const struct ab_value *row(size_t i)
{
    assert_int_equal(as_user("token.list", ""), 200);
    return i < tree->n ? &tree->items[i] : NULL;
}

static int revoke(size_t i)
{
    rig_id = ab_value_int(ab_value_get(row(i), "id"), 0);
    return as_user("token.delete", "");
}

static int tick(const char *timer)
{
    struct ab_error err = {0};
    int rc = ab_service_tick(&auth_service, db, conf, timer, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

static void a_plain_login_is_listed_with_its_end(void **state)
{
    (void)state;
    char ends[64];
    assert_int_equal(log_in(), 200);
    snprintf(ends, sizeof(ends), "%s", rig_text("expiration"));
    const struct ab_value *it = row(0);
    assert_string_equal(ab_value_text(ab_value_get(it, "name"), ""), "login");
    assert_string_equal(ab_value_text(ab_value_get(it, "scope"), ""), "user");
    assert_string_equal(ab_value_text(ab_value_get(it, "expiration"), ""), ends);
    assert_int_equal(ab_value_get(it, "access_token")->type, AB_V_NULL);
    assert_null(row(1));
    assert_int_equal(rig_ask("user.login", "username=tenant&password=secret&refresh=1"), 200);
    assert_int_equal(ab_value_get(row(1), "expiration")->type, AB_V_NULL);
}

static void a_refused_login_leaves_no_row(void **state)
{
    (void)state;
    assert_int_equal(rig_ask("user.login", "username=tenant&password=wrong"), 401);
    assert_int_equal(rig_ask("user.login", "username=nobody&password=wrong"), 401);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 0);
}

static void one_login_is_revoked_and_the_others_go_on(void **state)
{
    (void)state;
    char jti[64], want[16];
    for (int i = 0; i < 3; i++)
        assert_int_equal(log_in(), 200);
    snprintf(jti, sizeof(jti), "%s",
             pg_text(owner, "SELECT jti FROM tokens ORDER BY id OFFSET 1 LIMIT 1"));
    assert_int_equal(revoke(1), 204);
    snprintf(want, sizeof(want), "r%" PRId64, user);
    assert_string_equal(ab_service_hints(), want); /* gateways hear of it at once */
    assert_int_equal(rig_ask("token.revoked", ""), 200);
    assert_int_equal(tree->n, 1);
    assert_string_equal(ab_value_text(ab_value_get(&tree->items[0], "jti"), ""), jti);
    assert_non_null(row(1));
    assert_null(row(2));
    assert_int_equal(as_user("token.delete", ""), 404);
}

static void another_user_can_neither_see_nor_revoke_it(void **state)
{
    (void)state;
    assert_int_equal(log_in(), 200);
    rig_id = ab_value_int(ab_value_get(row(0), "id"), 0);
    struct ab_caller other = {.owner_id = rig_user("other", NULL), .username = "other"};
    assert_int_equal(rig_ask_as(&other, "token.list", "", ""), 200);
    assert_int_equal(tree->n, 0);
    assert_int_equal(rig_ask_as(&other, "token.delete", "", ""), 404);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM revoked_tokens"), 0);
}

static void a_login_that_has_ended_is_not_listed_and_then_forgotten(void **state)
{
    (void)state;
    assert_int_equal(log_in(), 200);
    assert_int_equal(log_in(), 200);
    pg_exec(
        owner,
        "UPDATE tokens SET ends = now() - interval '1 s' WHERE id = (SELECT min(id) FROM tokens)");
    assert_non_null(row(0));
    assert_null(row(1));
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 2);
    (void)tick("forget_tokens");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 1);
}

static void ten_thousand_log_ins_are_enough(void **state)
{
    (void)state;
    pg_exec(owner,
            "INSERT INTO tokens (owner_id, name, scope, jti, ends) SELECT %" PRId64
            ", 'login', 'user', gen_random_uuid(), now() + interval '1 h' FROM generate_series(1, "
            "10000)",
            user);
    assert_int_equal(log_in(), 429);
    assert_int_equal(error.retry_sec, 60);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 10000);
    assert_int_equal(rig_ask("user.login", "username=tenant&password=secret&refresh=1"), 200);
    assert_int_equal(revoke(0), 204);
    assert_int_equal(log_in(), 200);
    pg_exec(owner, "UPDATE tokens SET ends = now() - interval '1 s' WHERE ends IS NOT NULL");
    assert_int_equal(tick("forget_tokens"), 1); /* in pieces: there is more */
    assert_int_equal(log_in(), 200);
}

/* One user must not fill the list that every gateway holds. */
static void many_revocations_become_one_cut(void **state)
{
    (void)state;
    int64_t other = rig_user("other", NULL);
    assert_int_equal(log_in(), 200);
    assert_int_equal(log_in(), 200);
    pg_exec(owner,
            "INSERT INTO revoked_tokens (jti, expires, owner_id) SELECT gen_random_uuid(), now() + "
            "interval '1 h', %" PRId64 " FROM generate_series(1, 199)",
            user);
    assert_int_equal(revoke(0), 204);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM users WHERE tokens_from IS NOT NULL"), 0);
    assert_int_equal(revoke(0), 204);
    assert_int_equal(rig_ask("user.ended", ""), 200);
    assert_int_equal(tree->n, 1);
    assert_int_equal(ab_value_int(ab_value_get(&tree->items[0], "user"), 0), user);
    int64_t from = ab_value_int(ab_value_get(&tree->items[0], "from"), 0);

    assert_int_equal(log_in(), 200); /* and has a token that is good */
    assert_int_equal(revoke(0), 204);
    assert_int_equal(
        pg_int(owner,
               "SELECT extract(epoch FROM tokens_from)::bigint FROM users WHERE id = %" PRId64,
               user),
        from);
    assert_int_equal(
        pg_int(owner, "SELECT count(*) FROM users WHERE tokens_from IS NOT NULL AND id = %" PRId64,
               other),
        0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'token.cut'"), 1);

    (void)tick("forget_tokens");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM revoked_tokens"),
                     202); /* gateways may not know yet */
    pg_exec(owner, "UPDATE users SET tokens_from = tokens_from - interval '2 min' WHERE "
                   "tokens_from IS NOT NULL");
    pg_exec(owner, "UPDATE revoked_tokens SET since = since - interval '3 min'");
    pg_exec(owner,
            "INSERT INTO revoked_tokens (jti, expires, owner_id) VALUES (gen_random_uuid(), now() "
            "+ interval '1 h', %" PRId64 ")",
            user);
    (void)tick("forget_tokens");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM revoked_tokens"), 1);
}

static void without_the_key_that_seals_nothing_is_signed(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_conf_t *bare = ab_service_conf(&auth_service);
    assert_int_equal(auth_service.start(bare, db, &err), -1);
    assert_non_null(strstr(err.text, "seal_key is not set"));
    ab_conf_destroy(&bare);
}

static void registrations_of_an_address_are_counted_good_or_not(void **state)
{
    (void)state;
    SET("login_hold", "1ms", "login_limit", "3");
    for (int i = 0; i < 4; i++) {
        char body[80];
        snprintf(body, sizeof(body), "{\"username\":\"u%d\",\"password\":\"x\"}", i / 2);
        assert_int_equal(rig_ask("user.register", body), i == 3 ? 429 : i % 2 ? 400 : 201);
    }
    struct ab_caller elsewhere = {.peer = "192.0.2.2"};
    assert_int_equal(
        rig_ask_as(&elsewhere, "user.register", "", "{\"username\":\"u9\",\"password\":\"x\"}"),
        201);
}

static void right_passwords_are_never_counted(void **state)
{
    (void)state;
    SET("login_limit", "3");
    for (int i = 0; i < 10; i++)
        assert_int_equal(log_in(), 200);
}

static void one_address_cannot_try_all_names(void **state)
{
    (void)state;
    static const char *const peers[] = {
        "192.0.2.7",   "192.0.2.7:4711", "::ffff:192.0.2.7", "[::ffff:192.0.2.7]:1",
        "2001:db8::1", "2001:db8::2",    "[2001:db8::3]:99", "2001:db8:0:0:9::"};
    SET("login_limit_address", "6", "login_hold", "1ms");
    for (int i = 0; i < 14; i++) {
        char form[64];
        snprintf(form, sizeof(form), "username=u%d&password=x", i);
        struct ab_caller caller = {.peer = peers[i % 4 + (i >= 7 ? 4 : 0)]};
        assert_int_equal(rig_ask_as(&caller, "user.login", "", form), i % 7 == 6 ? 429 : 401);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_plain_login_is_listed_with_its_end),
        TEST(a_refused_login_leaves_no_row),
        TEST(one_login_is_revoked_and_the_others_go_on),
        TEST(another_user_can_neither_see_nor_revoke_it),
        TEST(a_login_that_has_ended_is_not_listed_and_then_forgotten),
        TEST(ten_thousand_log_ins_are_enough),
        TEST(many_revocations_become_one_cut),
        TEST(without_the_key_that_seals_nothing_is_signed),
        TEST(right_passwords_are_never_counted),
        TEST(one_address_cannot_try_all_names),
        TEST(registrations_of_an_address_are_counted_good_or_not),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
