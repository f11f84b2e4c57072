/* test_renewal.c - tokens that renew themselves, and who gets an answer again */
#include "auth_rig.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/rand.h"
#include "crypt/crypt.h"
#include "schema/pack.h"
#include "svc_auth/auth.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void a_login_that_asks_for_it_can_be_renewed(void **state)
{
    (void)state;
    int64_t id = rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    struct ab_token token = rig_claims(rig_text("access_token"));
    assert_int_equal(token.exp - token.iat, 3600);
    char first[64], second[64];
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(first), 200);
    assert_int_equal(rig_claims(rig_text("access_token")).user, id);
    assert_string_not_equal(rig_claims(rig_text("access_token")).jti, token.jti);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    assert_string_not_equal(first, second);
    assert_int_equal(rig_refresh(second), 200);
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
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(first), 200);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    snprintf(access, sizeof(access), "%s", rig_text("access_token"));
    assert_int_equal(rig_refresh(first), 200);
    assert_string_equal(rig_text("refresh_token"), second);
    assert_string_equal(rig_claims(rig_text("access_token")).jti, rig_claims(access).jti);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM refresh_tokens"), 2);
}

static void a_stolen_refresh_token_ends_the_whole_family(void **state)
{
    (void)state;
    char first[64], second[64], third[64];
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(first), 200);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(second), 200);
    snprintf(third, sizeof(third), "%s", rig_text("refresh_token"));
    struct ab_token token = rig_claims(rig_text("access_token"));

    assert_int_equal(rig_refresh(first),
                     401); /* its successor has been used: two parties have it */
    assert_true(strncmp(ab_service_hints(), "r", 1) == 0);
    assert_int_equal(rig_refresh(third), 401);
    assert_int_equal(rig_refresh(second), 401);
    /* and the access tokens that are out */
    assert_int_equal(rig_as(0, "token.revoked", 0, ""), 200);
    assert_int_equal(tree->n, 3);
    assert_non_null(strstr(fake_json(&reply), token.jti));
}

static void a_used_refresh_token_past_its_grace_ends_the_family(void **state)
{
    (void)state;
    char first[64], second[64];
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(first), 200);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    pg_exec(owner,
            "UPDATE refresh_tokens SET used = used - interval '31 s' WHERE used IS NOT NULL");
    assert_int_equal(rig_refresh(first), 401);
    assert_int_equal(rig_refresh(second), 401);
}

#define PROOF "rn-0123456789abcdef0123456789abcdef01234567"

static void age(const char *how_long)
{
    pg_exec(owner,
            "UPDATE refresh_tokens SET used = used - interval '%s', access_ends = "
            "access_ends - interval '%s'",
            how_long, how_long);
}

/* Of a log-in. */
static void log_in(char first[64])
{
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, 64, "%s", rig_text("refresh_token"));
}

static void who_proves_to_have_asked_gets_its_answer_however_late(void **state)
{
    (void)state;
    char first[64], second[64], jti[AB_UUID_TEXT];
    log_in(first);
    assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    snprintf(jti, sizeof(jti), "%s", rig_claims(rig_text("access_token")).jti);
    age("10 minutes");
    assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
    assert_string_equal(rig_text("refresh_token"), second);
    assert_string_equal(rig_claims(rig_text("access_token")).jti, jti);
    /* a day later its access token has ended: there is another one, which can be revoked as well */
    age("1 day");
    assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
    assert_string_equal(rig_text("refresh_token"), second);
    struct ab_token fresh = rig_claims(rig_text("access_token"));
    assert_string_not_equal(fresh.jti, jti);
    assert_int_equal(pg_int(owner,
                            "SELECT count(*) FROM refresh_tokens WHERE jti = '%s' AND used IS NULL",
                            fresh.jti),
                     1);
    assert_int_equal(rig_refresh(second), 200);
}

static void a_proof_is_worth_nothing_once_the_successor_was_used(void **state)
{
    (void)state;
    char first[64], second[64], third[64];
    log_in(first);
    assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
    snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh(second), 200);
    snprintf(third, sizeof(third), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh_keyed(first, PROOF), 401);
    assert_int_equal(rig_refresh(third), 401);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM audit WHERE action = 'token.reuse'"), 1);
}

static void who_copied_a_token_cannot_follow_its_owner(void **state)
{
    (void)state;
    static const char *const guesses[] = {NULL, "rn-0123456789abcdef0123456789abcdef01234568", ""};
    for (size_t i = 0; i < AB_COUNT(guesses); i++) {
        char first[64], second[64];
        rig_clear(state);
        log_in(first);
        assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
        snprintf(second, sizeof(second), "%s", rig_text("refresh_token"));
        age("31 s");
        assert_int_equal(rig_refresh_keyed(first, guesses[i]), 401);
        assert_int_equal(rig_refresh(second), 401); /* found out: it ends for both */
    }
}

/* Short, made from the token as clients did once, or the token itself. */
static void a_key_that_can_be_guessed_proves_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char first[64], made[33];
        uint8_t digest[16];
        rig_clear(state);
        log_in(first);
        ab_hash(first, strlen(first), digest, sizeof(digest));
        ab_hex(digest, sizeof(digest), made);
        const char *const keys[] = {"0123456789", made, first};
        assert_int_equal(rig_refresh_keyed(first, keys[i]), 200);
        assert_null(pg_text(owner, "SELECT 'kept' FROM refresh_tokens WHERE proof IS NOT NULL"));
        assert_int_equal(rig_refresh_keyed(first, keys[i]),
                         200); /* in the moment of grace, as ever */
        age("31 s");
        assert_int_equal(rig_refresh_keyed(first, keys[i]), 401);
    }
}

static void of_a_proof_only_a_digest_is_kept(void **state)
{
    (void)state;
    char first[64];
    log_in(first);
    assert_int_equal(rig_refresh_keyed(first, PROOF), 200);
    assert_int_equal(
        pg_int(owner, "SELECT length(proof) FROM refresh_tokens WHERE used IS NOT NULL"), 32);
    assert_null(pg_text(owner,
                        "SELECT 'kept' FROM refresh_tokens WHERE position(convert_to('%.20s', "
                        "'UTF8') IN proof) > 0",
                        PROOF));
}

static void expired_and_unknown_refresh_tokens_are_refused(void **state)
{
    (void)state;
    char first[64];
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    assert_int_equal(rig_refresh("nonsense"), 401);
    assert_true(rig_was_held_back());
    pg_exec(owner, "UPDATE refresh_tokens SET expires = now() - interval '1 s'");
    assert_int_equal(rig_refresh(first), 401);
    struct ab_error err = {0};
    assert_int_equal(ab_service_tick(&auth_service, db, conf, "forget_tokens", &err), 0);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM tokens"), 0);
}

static void a_deleted_user_cannot_renew(void **state)
{
    (void)state;
    char first[64];
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
    pg_exec(owner, "DELETE FROM users");
    assert_int_equal(rig_refresh(first), 401);
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
    rig_registered("tenant", "secret");
    assert_int_equal(rig_login("username=tenant&password=secret&refresh=1"), 200);
    snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
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

static void one_failure_anywhere_never_loses_a_renewal(void **state)
{
    (void)state;
    char first[64];
    rig_registered("tenant", "x");
    for (int nth = 1, through = 0; !through; nth++) {
        assert_int_equal(rig_login("username=tenant&password=x&refresh=1"), 200);
        snprintf(first, sizeof(first), "%s", rig_text("refresh_token"));
        ab_fault_arm(nth);
        int status = rig_refresh(first);
        through = rig_unbroken(nth);
        assert_true(status == 200 || status == 503);
        if (status == 503) /* whatever broke: the client repeats itself */
            assert_int_equal(rig_refresh(first), 200);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, rig_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_login_that_asks_for_it_can_be_renewed),
        TEST(a_lost_reply_may_be_asked_for_again),
        TEST(a_stolen_refresh_token_ends_the_whole_family),
        TEST(a_used_refresh_token_past_its_grace_ends_the_family),
        TEST(who_proves_to_have_asked_gets_its_answer_however_late),
        TEST(a_proof_is_worth_nothing_once_the_successor_was_used),
        TEST(who_copied_a_token_cannot_follow_its_owner),
        TEST(a_key_that_can_be_guessed_proves_nothing),
        TEST(of_a_proof_only_a_digest_is_kept),
        TEST(expired_and_unknown_refresh_tokens_are_refused),
        TEST(a_deleted_user_cannot_renew),
        TEST(programs_that_share_a_token_file_renew_at_once_and_agree),
        TEST(one_failure_anywhere_never_loses_a_renewal),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
