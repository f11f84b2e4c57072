/* test_crypt.c - passwords, sealing, digests, random texts */
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int start(void **state)
{
    (void)state;
    ab_crypt_init();
    return 0;
}

static void a_password_checks_against_its_own_hash_only(void **state)
{
    (void)state;
    char hash[AB_PASSWORD_HASH_MAX];
    assert_int_equal(ab_password_hash("secret", 6, hash, NULL), 0);
    assert_memory_equal(hash, "$argon2id$", 10);
    assert_int_equal(ab_password_check(hash, "secret", 6, NULL), 1);
    assert_int_equal(ab_password_check(hash, "secreT", 6, NULL), 0);
    assert_int_equal(ab_password_check(hash, "secret\0x", 8, NULL), 0);
    assert_false(ab_password_outdated(hash));
    assert_true(ab_password_outdated("$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$AAAA"));
}

static void a_damaged_hash_lets_nobody_in(void **state)
{
    (void)state;
    assert_int_equal(ab_password_check("", "", 0, NULL), 0);
    assert_int_equal(ab_password_check("$argon2id$", "x", 1, NULL), 0);
    assert_int_equal(ab_password_check("x", "x", 1, NULL), 0);
    char longer[400];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[399] = '\0';
    assert_int_equal(ab_password_check(longer, "x", 1, NULL), 0);
}

static void a_very_long_password_is_an_error_not_a_hash(void **state)
{
    (void)state;
    static char longer[AB_PASSWORD_MAX + 1];
    char hash[AB_PASSWORD_HASH_MAX];
    struct ab_error err = {0};
    assert_int_equal(ab_password_hash(longer, sizeof(longer), hash, &err), -1);
    assert_int_equal(err.code, AB_EINVAL);
    assert_int_equal(ab_password_check(NULL, longer, sizeof(longer), NULL), 0);
}

static int64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void an_unknown_user_costs_as_much_as_a_known_one(void **state)
{
    (void)state;
    char hash[AB_PASSWORD_HASH_MAX];
    assert_int_equal(ab_password_hash("secret", 6, hash, NULL), 0);
    int64_t t0 = cpu_us();
    assert_int_equal(ab_password_check(hash, "wrong", 5, NULL), 0);
    int64_t t1 = cpu_us();
    assert_int_equal(ab_password_check(NULL, "wrong", 5, NULL), 0);
    int64_t t2 = cpu_us();
    /* the same work; the factor only has to tell "hashed" from "did not hash" on a busy machine */
    assert_true((t2 - t1) * 4 > t1 - t0);
}

static void *one_check(void *arg)
{
    return ab_password_check(NULL, "x", 1, arg) == 0 ? NULL : arg;
}

static void more_hashes_than_seats_all_get_their_turn(void **state)
{
    (void)state;
    pthread_t threads[AB_PASSWORD_AT_ONCE * 2];
    struct ab_error errors[AB_COUNT(threads)] = {0};
    for (size_t i = 0; i < AB_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, one_check, &errors[i]), 0);
    for (size_t i = 0; i < AB_COUNT(threads); i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void what_is_sealed_opens_with_its_key_only(void **state)
{
    (void)state;
    uint8_t key[32] = {1}, other[32] = {2}, sealed[5 + AB_SEAL_EXTRA], plain[5];
    ab_seal(key, "hello", 5, sealed);
    assert_int_equal(ab_unseal(key, sealed, sizeof(sealed), plain, NULL), 0);
    assert_memory_equal(plain, "hello", 5);
    assert_int_equal(ab_unseal(other, sealed, sizeof(sealed), plain, NULL), -1);
    assert_int_equal(ab_unseal(key, sealed, AB_SEAL_EXTRA - 1, plain, NULL), -1);
    for (size_t i = 0; i < sizeof(sealed); i++) {
        sealed[i] ^= 1;
        assert_int_equal(ab_unseal(key, sealed, sizeof(sealed), plain, NULL), -1);
        sealed[i] ^= 1;
    }
}

static void a_seal_key_is_made_once_and_must_be_private(void **state)
{
    (void)state;
    char dir[] = "/tmp/abies-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/seal.key", dir);
    uint8_t first[32], again[32];
    struct ab_error err = {0};
    assert_int_equal(ab_seal_key_load(path, first, &err), -1);
    assert_int_equal(ab_seal_key_make(path, NULL), 0);
    assert_int_equal(ab_seal_key_load(path, first, NULL), 0);
    assert_int_equal(ab_seal_key_make(path, NULL), 0);
    assert_int_equal(ab_seal_key_load(path, again, NULL), 0);
    assert_memory_equal(first, again, 32);
    chmod(path, 0644);
    assert_int_equal(ab_seal_key_load(path, again, &err), -1);
    chmod(path, 0600);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(ab_seal_key_load(path, again, &err), -1);
    unlink(path);
    rmdir(dir);
}

static void secrets_differ_and_digests_do_not(void **state)
{
    (void)state;
    char a[AB_SECRET_TEXT_MAX], b[AB_SECRET_TEXT_MAX];
    ab_secret_text(a);
    ab_secret_text(b);
    assert_int_equal(strlen(a), 43);
    assert_string_not_equal(a, b);
    uint8_t x[32], y[32], key[32] = {3};
    ab_hash("abc", 3, x, 32);
    ab_hash("abc", 3, y, 32);
    assert_true(ab_equal(x, y, 32));
    ab_hash_keyed(key, "abc", 3, y, 32);
    assert_false(ab_equal(x, y, 32));
    ab_wipe(x, 32);
    assert_memory_equal(x, ((uint8_t[32]){0}), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_password_checks_against_its_own_hash_only),
        cmocka_unit_test(a_damaged_hash_lets_nobody_in),
        cmocka_unit_test(a_very_long_password_is_an_error_not_a_hash),
        cmocka_unit_test(an_unknown_user_costs_as_much_as_a_known_one),
        cmocka_unit_test(more_hashes_than_seats_all_get_their_turn),
        cmocka_unit_test(what_is_sealed_opens_with_its_key_only),
        cmocka_unit_test(a_seal_key_is_made_once_and_must_be_private),
        cmocka_unit_test(secrets_differ_and_digests_do_not),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
