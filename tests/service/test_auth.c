/* test_auth.c - registering, logging in, and who tries too often */
#include "auth_rig.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "svc_auth/auth.h"
#include <string.h>

static int setup(void **state)
{
    rig_clear(state);
    SET("login_hold", "1s");
    return 0;
}

/* ---- register, log in, me */

static void a_registered_user_logs_in_and_is_known(void **state)
{
    (void)state;
    int64_t id = rig_registered("tenant", "secret");
    assert_string_equal(rig_text("username"), "tenant");
    assert_int_equal(rig_login("username=tenant&password=secret&grant_type=password"), 200);
    assert_string_equal(rig_text("token_type"), "bearer");
    assert_int_equal(tree->n, 3); /* old clients take these three keys and no other */
    struct ab_token token = rig_claims(rig_text("access_token"));
    assert_int_equal(token.user, id);
    assert_string_equal(token.username, "tenant");
    assert_int_equal(token.scopes, AB_SCOPE_USER);
    assert_int_equal(token.exp - token.iat, 48 * 3600);
    int64_t expires_us;
    assert_int_equal(
        ab_time_parse(rig_text("expiration"), strlen(rig_text("expiration")), &expires_us), 0);
    assert_int_equal(expires_us / 1000000, token.exp);
    assert_null(strchr(rig_text("expiration"), '+'));

    struct ab_caller caller = {.owner_id = id, .username = "tenant"};
    assert_int_equal(rig_ask_id(&caller, "user.me", 0, ""), 200);
    assert_int_equal(rig_number("id"), id);
    assert_string_equal(rig_text("username"), "tenant");
}

static void auth_how_names_the_methods_the_old_way(void **state)
{
    (void)state;
    assert_int_equal(rig_as(0, "auth.how", 0, ""), 200);
    assert_string_equal(fake_json(&reply), "[\"LoginMethod.password\"]");
}

static void a_method_that_is_off_has_no_routes(void **state)
{
    (void)state;
    SET("login_methods", "");
    assert_int_equal(rig_login("username=tenant&password=x"), 404);
    assert_string_equal(error.kind, "no_route");
    assert_int_equal(rig_as(0, "user.register", 0, "{\"username\":\"a\",\"password\":\"b\"}"), 404);
    struct ab_error err = {0};
    SET("login_methods", "passwort");
    assert_int_equal(auth_service.start(conf, db, &err), -1);
}

static void a_taken_name_is_400_and_its_password_stays(void **state)
{
    (void)state;
    rig_registered("tenant", "secret");
    assert_int_equal(
        rig_as(0, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"other\"}"), 400);
    assert_true(rig_was_held_back());
    assert_int_equal(rig_login("username=tenant&password=secret"), 200);
    assert_int_equal(rig_login("username=tenant&password=other"), 401);
}

static void a_repeated_registration_is_one_user(void **state)
{
    (void)state;
    struct ab_caller caller = {.key = "k1"};
    const char *body = "{\"username\":\"tenant\",\"password\":\"secret\"}";
    assert_int_equal(rig_ask_id(&caller, "user.register", 0, body), 201);
    int64_t id = rig_number("id");
    assert_int_equal(rig_ask_id(&caller, "user.register", 0, body), 201);
    assert_int_equal(rig_number("id"), id);
    assert_null(
        pg_text(owner, "SELECT 'leaked' FROM requests WHERE reply::text LIKE '%%secret%%'"));
}

static void no_digest_of_a_password_is_kept(void **state)
{
    (void)state;
    struct ab_caller caller = {.key = "k1"};
    assert_int_equal(
        rig_ask_id(&caller, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"a\"}"),
        201);
    /* what is compared with a repetition is the name alone */
    assert_int_equal(
        rig_ask_id(&caller, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"b\"}"),
        201);
    assert_int_equal(
        rig_ask_id(&caller, "user.register", 0, "{\"username\":\"stranger\",\"password\":\"a\"}"),
        422);
    assert_int_equal(rig_login("username=tenant&password=a"), 200);
    assert_int_equal(rig_login("username=tenant&password=b"), 401);
}

static void registration_can_be_closed(void **state)
{
    (void)state;
    SET("open_registration", "false");
    assert_int_equal(rig_as(0, "user.register", 0, "{\"username\":\"a\",\"password\":\"b\"}"), 403);
}

static void wrong_unknown_and_without_password_look_the_same(void **state)
{
    (void)state;
    rig_registered("tenant", "secret");
    pg_exec(owner, "INSERT INTO users (username) VALUES ('intruder')");
    static const char *const forms[] = {
        "username=tenant&password=wrong", "username=stranger&password=secret",
        "username=intruder&password=", "username=TENANT&password=secret",
        "username=tenant&password=secret%20"};
    for (size_t i = 0; i < AB_COUNT(forms); i++) {
        assert_int_equal(rig_login(forms[i]), 401);
        assert_string_equal(error.text, "Unauthorized");
        assert_true(rig_was_held_back());
    }
    assert_int_equal(rig_login("username=tenant&password=secret"), 200);
    assert_false(rig_was_held_back());
}

static void odd_names_and_passwords_work(void **state)
{
    (void)state;
    rig_registered("\xc3\xa9\xe6\xbc\xa2 \xf0\x9f\x8c\xb2", "\xf0\x9f\x8c\xb2:&=%");
    assert_int_equal(
        rig_login("username=%C3%A9%E6%BC%A2+%F0%9F%8C%B2&password=%F0%9F%8C%B2%3A%26%3D%25"), 200);
    rig_registered("x", ""); /* there is no password policy */
    assert_int_equal(rig_login("username=x&password="), 200);
    assert_int_equal(rig_login("username=x"), 422);
    assert_int_equal(rig_as(0, "user.register", 0, "{\"username\":\"\\u0000\",\"password\":\"b\"}"),
                     422);
}

/* ---- guessing */

static void guesses_are_counted_by_user_and_address(void **state)
{
    (void)state;
    rig_registered("tenant", "secret");
    SET("login_limit", "5");
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_login("username=tenant&password=wrong"), 401);
    assert_int_equal(rig_login("username=tenant&password=secret"), 429); /* even the right one */
    assert_true(rig_was_held_back());
    assert_in_range(error.retry_sec, 1, 60);
    /* another address is not held responsible, nor is another user */
    struct ab_caller elsewhere = {.peer = "192.0.2.2"};
    assert_int_equal(rig_ask_id(&elsewhere, "user.login", 0, "username=tenant&password=secret"),
                     200);
    assert_int_equal(rig_login("username=stranger&password=wrong"), 401);
    /* the window passes */
    pg_exec(owner, "UPDATE login_attempts SET since = since - interval '61 s'");
    assert_int_equal(rig_login("username=tenant&password=secret"), 200);
}

static void old_attempts_are_forgotten(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(rig_login("username=stranger&password=wrong"), 401);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_attempts"), 2);
    pg_exec(owner, "UPDATE login_attempts SET since = since - interval '3 minutes'");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_attempts", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_attempts"), 0);
}

/* ---- one failure anywhere */

static void one_failure_anywhere_makes_no_half_user(void **state)
{
    (void)state;
    for (int nth = 1, through = 0; !through; nth++) {
        pg_exec(owner, "TRUNCATE users, requests CASCADE");
        ab_fault_arm(nth);
        int status = rig_as(0, "user.register", 0, "{\"username\":\"tenant\",\"password\":\"x\"}");
        through = rig_unbroken(nth);
        assert_true(status == 201 || status == 503);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM users"), status == 201);
        assert_int_equal(pg_int(owner, "SELECT count(*) FROM requests"), status == 201);
        assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

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
        TEST(one_failure_anywhere_makes_no_half_user),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
