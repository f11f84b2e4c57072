/* test_device.c - devices without a browser, and browsers that come back from the provider */
#include "auth_rig.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/rand.h"
#include "crypt/crypt.h"
#include "svc_auth/auth.h"
#include "svc_auth/device.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define GRANT "grant_type=urn:ietf:params:oauth:grant-type:device_code"
#define CLIENT "9f0c6d9e-7a55-4a1c-8a54-0c6d2f5b8a11"

/* ---- devices */

static char device_code[400], user_code[16];

static void begin(void)
{
    assert_int_equal(rig_ask("device.login", "client_id=" CLIENT), 200);
    snprintf(device_code, sizeof(device_code), "%s", rig_text("device_code"));
    snprintf(user_code, sizeof(user_code), "%s", rig_text("user_code"));
}

static int poll_as(const uint8_t uuid[16], const char *more)
{
    char form[1024];
    snprintf(form, sizeof(form), GRANT "&client_id=" CLIENT "&device_code=%s%s", device_code, more);
    return rig_ask_as(&(struct ab_caller){.uuid = uuid}, "device.token", "", form);
}

static int poll(void)
{
    return poll_as(NULL, "");
}

static void approve(int64_t user)
{
    pg_exec(owner, "UPDATE device_attempts SET user_id = %" PRId64, user);
}

static void the_routes_are_there_with_their_method_only(void **state)
{
    (void)state;
    SET("login_methods", "password");
    assert_int_equal(rig_ask("device.login", "client_id=" CLIENT), 404);
    assert_string_equal(error.kind, "no_route");
    assert_int_equal(rig_ask("device.token", "grant_type=x&device_code=x&client_id=" CLIENT), 404);
    assert_int_equal(rig_look("oauth.login_device", "user_code=x"), 404);
    assert_int_equal(rig_look("oauth.login", ""), 404);
    assert_int_equal(rig_look("oauth.callback", "state=x&code=x"), 404);
    SET("login_methods", "oauth_authcode");
    assert_int_equal(rig_ask("device.login", "client_id=" CLIENT), 404);
    assert_int_equal(rig_look("oauth.callback", "state=x&code=x"), 400);
    assert_int_equal(rig_ask("user.login", "username=a&password=b"), 404);
    assert_int_equal(rig_ask("user.register", "{\"username\":\"a\",\"password\":\"b\"}"), 404);
    assert_int_equal(rig_ask("auth.how", ""), 200);
    assert_string_equal(fake_json(&reply), "[\"LoginMethod.oauth_authcode\"]");
}

static void a_method_without_its_settings_stops_the_start(void **state)
{
    (void)state;
    struct ab_error err = {0};
    SET(ALL_METHODS);
    assert_int_equal(auth_service.start(conf, db, &err), -1);
    assert_non_null(strstr(err.text, "oauth_issuer"));
    SET(ALL_METHODS, "oauth_issuer", "https://login.example.org", "oauth_client_id", "abies");
    assert_int_equal(auth_service.start(conf, db, &err), -1);
    assert_non_null(strstr(err.text, "ABIES_OAUTH_CLIENT_SECRET_FILE"));
    SET(ALL_METHODS, "oauth_issuer", "https://login.example.org", "oauth_client_id", "abies",
        "oauth_client_secret", "x", "oauth_client_auth", "none");
    assert_int_equal(auth_service.start(conf, db, &err), -1);
    SET(ALL_METHODS, "oauth_issuer", "https://login.example.org", "oauth_client_id", "abies",
        "oauth_client_secret", "x", "device_interval", "30s");
    assert_int_equal(auth_service.start(conf, db, &err), -1);
    SET(ALL_METHODS, "oauth_issuer", "https://login.example.org", "oauth_client_id", "abies",
        "oauth_client_secret", "x");
    assert_int_equal(auth_service.start(conf, db, &err), 0);
    assert_int_equal(ab_conf_set(conf, AB_CONF_FLAG, "flag", "oauth_client_secret", "x", &err), -1);
}

static void a_device_gets_exactly_the_six_members_of_the_contract(void **state)
{
    (void)state;
    begin();
    assert_int_equal(tree->n, 6);
    assert_int_equal(strlen(device_code), 342);
    assert_string_equal(rig_text("verification_uri"),
                        "https://abies.example.org:8443/auth/oauth/ALCF/login/device");
    assert_non_null(strstr(fake_json(&reply), "\"expires_in\":300.0,\"interval\":3.0}"));
    char code[DEVICE_USER_CODE];
    assert_int_equal(device_code_read(user_code, code), 0);
    assert_string_equal(code, user_code);
    /* of both codes only what is needed is kept */
    assert_int_equal(pg_int(owner,
                            "SELECT count(*) FROM device_attempts a WHERE a::text LIKE '%%%s%%'",
                            device_code),
                     0);
}

static void the_address_is_that_of_the_request_or_of_the_setting(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a b", "a/b", "a\"b", "a@b", "a?b", "\xc3\xa9"};
    for (size_t i = 0; i < AB_COUNT(bad); i++) {
        struct ab_caller caller = {.host = bad[i]};
        assert_int_equal(rig_ask_as(&caller, "device.login", "", "client_id=" CLIENT), 400);
    }
    SET(ALL_METHODS, "public_url", "https://front.example.org/");
    assert_int_equal(
        rig_ask_as(&(struct ab_caller){.host = "a b"}, "device.login", "", "client_id=" CLIENT),
        200);
    assert_string_equal(rig_text("verification_uri"),
                        "https://front.example.org/auth/oauth/ALCF/login/device");
}

static void a_client_id_works_for_one_attempt(void **state)
{
    (void)state;
    begin();
    assert_int_equal(rig_ask("device.login", "client_id=" CLIENT), 400);
    assert_int_equal(ab_service_hold(), 1000);
    assert_int_equal(rig_ask("device.login", "client_id=%7B9F0C6D9E7A554A1C8A540C6D2F5B8A11%7D"),
                     400);
    assert_int_equal(rig_ask("device.login", ""), 422);
}

static void typed_codes_are_read_as_people_type_them(void **state)
{
    (void)state;
    char out[DEVICE_USER_CODE];
    static const char *const good[] = {"BCDF-GHJK", "bcdfghjk", " bcdf ghjk ", "b-c-d-f-g-h-j-k"};
    static const char *const bad[] = {"",          "BCDF",       "BCDF-GHJA",
                                      "BCDF-GHJY", "BCDF-GHJKL", "BCDF_GHJK",
                                      "BCDF-GHJ0", "\xff\xff",   "BCDFGHJ"};
    for (size_t i = 0; i < AB_COUNT(good); i++) {
        assert_int_equal(device_code_read(good[i], out), 0);
        assert_string_equal(out, "BCDF-GHJK");
    }
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        assert_int_equal(device_code_read(bad[i], out), -1);
}

static void early_polls_are_held_and_patient_ones_are_not(void **state)
{
    (void)state;
    begin();
    assert_int_equal(poll(), 400);
    assert_string_equal(error.text, "authorization_pending");
    assert_in_range(ab_service_hold(), 2000, 3000); /* about what is left of the interval */
    for (int i = 0; i < 20; i++) {                  /* however many at a time: none waits longer */
        assert_int_equal(poll(), 400);
        assert_in_range(ab_service_hold(), 1, 3000);
    }
    pg_exec(owner, "UPDATE device_attempts SET next_poll = now() - interval '1 s'");
    assert_int_equal(poll(), 400);
    assert_int_equal(ab_service_hold(), 0);
    assert_int_equal(poll(), 400);
    assert_in_range(ab_service_hold(), 2000, 3000);
    /* never past the request's own deadline */
    pg_exec(owner, "UPDATE device_attempts SET next_poll = now() + interval '3 s'");
    char form[1024];
    snprintf(form, sizeof(form), GRANT "&client_id=" CLIENT "&device_code=%s", device_code);
    struct ab_caller hurried = {.deadline_ms = ab_now_ms() + 2500};
    assert_int_equal(rig_ask_as(&hurried, "device.token", "", form), 400);
    assert_in_range(ab_service_hold(), 0, 1500);
}

static void a_poll_is_refused_in_the_contracts_order(void **state)
{
    (void)state;
    begin();
    assert_int_equal(rig_ask("device.token", "grant_type=x&device_code=y&client_id=" CLIENT), 400);
    assert_string_equal(error.text, "unsupported_grant_type");
    assert_int_equal(rig_ask("device.token", GRANT "&device_code=y&client_id=" CLIENT), 400);
    assert_string_equal(error.text, "invalid_client");
    assert_int_equal(ab_service_hold(), 1000);
    pg_exec(owner, "UPDATE device_attempts SET denied = true, expires = now() - interval '1 s'");
    assert_int_equal(poll(), 403);
    assert_string_equal(error.text, "access_denied");
    int64_t tenant = rig_user("tenant", NULL);
    approve(tenant);
    pg_exec(owner, "UPDATE device_attempts SET denied = false");
    assert_int_equal(poll(), 400); /* agreed, but too late */
    assert_string_equal(error.text, "expired_token");
}

static void one_request_gets_the_token_and_may_repeat_itself(void **state)
{
    (void)state;
    uint8_t first[16], second[16];
    ab_uuid7(first);
    ab_uuid7(second);
    int64_t tenant = rig_user("tenant", NULL);
    begin();
    approve(tenant);
    assert_int_equal(poll_as(first, ""), 200);
    assert_int_equal(tree->n, 3); /* old clients take these three members and no other */
    assert_string_equal(rig_text("token_type"), "bearer");
    assert_int_equal(poll_as(first, ""), 200); /* the service that had it died: sent again */
    assert_int_equal(poll_as(second, ""), 400);
    assert_string_equal(error.text, "invalid_client");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'login.device'"), 2);
}

static void a_device_may_ask_for_a_refresh_token(void **state)
{
    (void)state;
    begin();
    approve(rig_user("tenant", NULL));
    assert_int_equal(poll_as(NULL, "&refresh=1"), 200);
    char body[200];
    snprintf(body, sizeof(body), "{\"refresh_token\":\"%s\"}", rig_text("refresh_token"));
    assert_int_equal(rig_ask("token.refresh", body), 200);
}

struct racer {
    char form[1024];
    int status;
};

static void *race(void *arg)
{
    struct racer *self = arg;
    AB_AUTO(ab_db_close) ab_db_t *mine = pg_open_as("abies_auth");
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, out = {0};
    if (rig_pack("device.token", "", self->form, &body) == 0)
        self->status = ab_service_call(&auth_service, mine, conf, "device.token", 0, NULL,
                                       body.data, body.len, &out);
    return NULL;
}

static void of_polls_at_once_one_gets_the_token(void **state)
{
    (void)state;
    struct racer racers[6] = {0};
    pthread_t threads[6];
    int got = 0;
    begin();
    approve(rig_user("tenant", NULL));
    for (size_t i = 0; i < AB_COUNT(racers); i++) {
        snprintf(racers[i].form, sizeof(racers[i].form),
                 GRANT "&client_id=" CLIENT "&device_code=%s&refresh=1", device_code);
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < AB_COUNT(racers); i++) {
        pthread_join(threads[i], NULL);
        assert_true(racers[i].status == 200 || racers[i].status == 400);
        got += racers[i].status == 200;
    }
    assert_int_equal(got, 1);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 1);
}

static void who_is_locked_out_or_gone_gets_no_token_on_a_device(void **state)
{
    (void)state;
    int64_t tenant = rig_user("tenant", NULL);
    begin();
    approve(tenant);
    pg_exec(owner, "UPDATE users SET disabled = now()");
    assert_int_equal(poll(), 403);
    assert_string_equal(error.text, "access_denied");
    pg_exec(owner, "DELETE FROM users");
    assert_int_equal(poll(), 400);
    assert_string_equal(error.text, "invalid_client");
}

static void old_attempts_and_states_are_forgotten(void **state)
{
    (void)state;
    struct ab_error err = {0};
    begin();
    pg_exec(owner, "INSERT INTO login_states VALUES (decode(repeat('ab', 32), 'hex'), NULL, 'x', "
                   "now() - interval '1 s'),"
                   " (decode(repeat('cd', 32), 'hex'), NULL, 'x', now() + interval '1 min')");
    pg_exec(owner, "UPDATE device_attempts SET expires = now() - interval '29 min', denied = true");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_log_ins", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM device_attempts"), 1);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_states"), 1);
    assert_int_equal(poll(), 403); /* the client is still told */
    pg_exec(owner, "UPDATE device_attempts SET expires = now() - interval '31 min'");
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_log_ins", &err), 0);
    assert_int_equal(poll(), 400);
    assert_string_equal(error.text, "invalid_client");
}

static void one_failure_anywhere_loses_no_device_its_token(void **state)
{
    (void)state;
    uint8_t uuid[16];
    for (int nth = 1;; nth++) {
        rig_clear(NULL);
        begin();
        approve(rig_user("tenant", NULL));
        ab_uuid7(uuid);
        ab_fault_arm(nth);
        int status = poll_as(uuid, "&refresh=1");
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        assert_true(status == 200 || status == 503);
        if (status == 503) /* sent again, as the gateway does */
            assert_int_equal(poll_as(uuid, "&refresh=1"), 200);
        assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
        if (!fired)
            break;
        assert_in_range(nth, 1, 50);
    }
}

/* ---- browsers; the provider itself is a matter of tests/system */

static void a_browser_without_a_code_gets_the_page_that_asks_for_it(void **state)
{
    (void)state;
    assert_int_equal(rig_look("oauth.login_device", ""), 200);
    assert_int_equal(rig_look("oauth.login_device", "user_code="), 200);
}

static void wrong_user_codes_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(rig_look("oauth.login_device", "user_code=BBBB-BBBB"), 400);
        assert_string_equal(error.text, "invalid_client");
    }
    assert_int_equal(rig_look("oauth.login_device", "user_code=BBBB-BBBB"), 429);
    assert_int_equal(ab_service_hold(), 1000);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'limit'"), 1);
    assert_int_equal(rig_look("oauth.login_device", "user_code=BBBB-BBBB"), 429);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'limit'"), 1);
}

static void codes_that_were_answered_or_have_expired_lead_nowhere(void **state)
{
    (void)state;
    static const char *const changes[] = {"expires = now() - interval '1 s'", "denied = true",
                                          "user_id = (SELECT id FROM users)"};
    rig_user("tenant", NULL);
    for (size_t i = 0; i < AB_COUNT(changes); i++) {
        char query[64];
        pg_exec(owner, "TRUNCATE device_attempts CASCADE");
        begin();
        pg_exec(owner, "UPDATE device_attempts SET %s", changes[i]);
        snprintf(query, sizeof(query), "user_code=%s", user_code);
        assert_int_equal(rig_look("oauth.login_device", query), 400);
    }
}

static void add_state(const char *state, const char *attempt, const char *expires)
{
    uint8_t hash[32];
    char hex[65];
    ab_hash(state, strlen(state), hash, sizeof(hash));
    ab_hex(hash, sizeof(hash), hex);
    pg_exec(owner, "INSERT INTO login_states VALUES (decode('%s', 'hex'), %s, 'https://x/y', %s)",
            hex, attempt, expires);
}

static void an_error_of_the_provider_uses_the_state_up_and_denies_its_device(void **state)
{
    (void)state;
    const char *attempt = "(SELECT id FROM device_attempts)", *soon = "now() + interval '1 min'";
    begin();
    add_state("s1", attempt, soon);
    assert_int_equal(
        rig_look("oauth.callback", "state=s1&error=server_error&error_description=a+b"), 200);
    assert_string_equal(fake_json(&reply),
                        "{\"error\":\"server_error\",\"error_description\":\"a b\"}");
    assert_int_equal(poll(), 400); /* that was no denial */
    assert_string_equal(error.text, "authorization_pending");
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM login_states"), 0);

    assert_int_equal(rig_look("oauth.callback", "state=s1&error=access_denied"),
                     200); /* used before */
    assert_string_equal(fake_json(&reply),
                        "{\"error\":\"access_denied\",\"error_description\":null}");
    add_state("s2", attempt, "now() - interval '1 s'");
    assert_int_equal(rig_look("oauth.callback", "state=s2&error=access_denied"), 200); /* expired */
    add_state("s3", "NULL", soon);
    assert_int_equal(rig_look("oauth.callback", "state=s3&error=access_denied"),
                     200); /* no device's */
    assert_int_equal(poll(), 400);

    add_state("s4", attempt, soon);
    assert_int_equal(rig_look("oauth.callback", "state=s4&error=access_denied&code=x"), 200);
    assert_int_equal(poll(), 403);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = "
                                   "'login.device.approve' AND outcome = 'failed'"),
                     2);
}

static void a_callback_needs_a_state_and_a_code_or_an_error(void **state)
{
    (void)state;
    assert_int_equal(rig_look("oauth.callback", "code=x"), 422);
    assert_int_equal(rig_look("oauth.callback", "state=x"), 422);
    assert_string_equal(error.kind, "query.code");
    assert_int_equal(rig_look("oauth.callback", "state=x&code=y"), 400);
    assert_string_equal(error.text, "invalid_state");
    add_state("old", "NULL", "now() - interval '1 s'");
    assert_int_equal(rig_look("oauth.callback", "state=old&code=y"), 400);
    assert_string_equal(error.text, "invalid_state");
}

#define TEST(name) cmocka_unit_test_setup(name, rig_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_routes_are_there_with_their_method_only),
        TEST(a_method_without_its_settings_stops_the_start),
        TEST(a_device_gets_exactly_the_six_members_of_the_contract),
        TEST(the_address_is_that_of_the_request_or_of_the_setting),
        TEST(a_client_id_works_for_one_attempt),
        TEST(typed_codes_are_read_as_people_type_them),
        TEST(early_polls_are_held_and_patient_ones_are_not),
        TEST(a_poll_is_refused_in_the_contracts_order),
        TEST(one_request_gets_the_token_and_may_repeat_itself),
        TEST(a_device_may_ask_for_a_refresh_token),
        TEST(of_polls_at_once_one_gets_the_token),
        TEST(who_is_locked_out_or_gone_gets_no_token_on_a_device),
        TEST(old_attempts_and_states_are_forgotten),
        TEST(one_failure_anywhere_loses_no_device_its_token),
        TEST(a_browser_without_a_code_gets_the_page_that_asks_for_it),
        TEST(wrong_user_codes_are_counted),
        TEST(codes_that_were_answered_or_have_expired_lead_nowhere),
        TEST(an_error_of_the_provider_uses_the_state_up_and_denies_its_device),
        TEST(a_callback_needs_a_state_and_a_code_or_an_error),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
