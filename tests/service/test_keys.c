/* test_keys.c - keys that sign, and what gateways are told of them */
#include "auth_rig.h"
#include "base/rand.h"
#include "crypt/crypt.h"
#include "svc_auth/auth.h"
#include "svc_auth/key.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void gateways_get_the_public_keys_and_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(rig_as(0, "key.list", 0, ""), 200);
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
    snprintf(other, sizeof(other), "%s/other.key", rig_dir);
    assert_int_equal(ab_seal_key_make(other, &err), 0);
    ab_conf_destroy(&conf);
    conf = ab_service_conf(&auth_service);
    assert_int_equal(ab_conf_set(conf, AB_CONF_FLAG, "test", "seal_key", other, &err), 0);
    assert_int_equal(key_start(conf, db, &err), -1);
    assert_non_null(strstr(err.text, "seal.key"));
    unlink(other);
    SET("login_hold", "1s");
    assert_int_equal(key_start(conf, db, &err), 0);
}

static int listed_keys(void)
{
    uint32_t n;
    assert_int_equal(rig_as(0, "key.list", 0, ""), 200);
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
    rig_registered("tenant", "x");
    assert_int_equal(rig_login("username=tenant&password=x"), 200);
    const char *token = rig_text("access_token");
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
    rig_registered("tenant", "x");
    assert_int_equal(rig_login("username=tenant&password=x"), 200);
    char old[AB_TOKEN_MAX];
    snprintf(old, sizeof(old), "%s", rig_text("access_token"));
    /* as `abies-admin keys rotate` does: retire the newest, the next start makes another */
    pg_exec(owner, "UPDATE signing_keys SET retired = now()");
    assert_int_equal(key_start(conf, db, &err), 0);
    assert_int_equal(rig_login("username=tenant&password=x"), 200);
    const char *new = rig_text("access_token");
    size_t header = strcspn(old, ".");
    assert_int_equal(header, strcspn(new, "."));
    assert_memory_not_equal(old, new, header); /* another kid */
    rig_claims(old);
    rig_claims(new);
    assert_int_equal(listed_keys(), 2);
    pg_exec(owner,
            "UPDATE signing_keys SET retired = now() - interval '50 h' WHERE retired IS NOT NULL");
    assert_int_equal(listed_keys(), 1);
    SET("short_token_ttl", "60h"); /* the longer life of the two counts */
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

#define TEST(name) cmocka_unit_test_setup(name, rig_clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gateways_get_the_public_keys_and_nothing_else),
        TEST(a_second_replica_takes_the_key_of_the_first),
        TEST(another_seal_key_is_noticed_at_start),
        TEST(a_rotated_key_signs_and_the_old_one_still_checks),
        TEST(a_new_key_signs_when_the_gateways_have_it),
    };
    return cmocka_run_group_tests(tests, rig_open, rig_close);
}
