/* test_str.c - small things for bytes from elsewhere; random ids */
#include "base/cleanup.h"
#include "base/rand.h"
#include "base/str.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void utf8_is_checked_strictly(void **state)
{
    (void)state;
    assert_true(ab_utf8_ok("", 0));
    assert_true(ab_utf8_ok(
        "a\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF",
        22));
    static const char *const bad[] = {
        "\x80",
        "\xC0\x80",
        "\xC1\xBF",
        "\xC3",
        "\xE0\x9F\xBF",
        "\xED\xA0\x80",
        "\xE2\x82",
        "\xE2\x28\xA1",
        "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xF0\x9F\x8C",
        "\xFF",
    };
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        for (size_t before = 0; before < 20; before++) { /* ASCII is skipped eight at a time */
            char text[64];
            memset(text, 'a', before);
            memcpy(text + before, bad[i], strlen(bad[i]));
            assert_false(ab_utf8_ok(text, before + strlen(bad[i])));
        }
}

static void whole_numbers_only(void **state)
{
    (void)state;
    int64_t n;
    assert_int_equal(ab_parse_i64("-9223372036854775808", 20, INT64_MIN, INT64_MAX, &n), 0);
    assert_true(n == INT64_MIN);
    assert_int_equal(ab_parse_i64("9223372036854775807", 19, INT64_MIN, INT64_MAX, &n), 0);
    assert_true(n == INT64_MAX);
    assert_int_equal(ab_parse_i64("+5", 2, 0, 5, &n), 0);
    assert_int_equal(n, 5);
    static const char *const bad[] = {
        "",    "-", "+", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "-9223372036854775809",
        "--1", "6"};
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        assert_int_equal(ab_parse_i64(bad[i], strlen(bad[i]), INT64_MIN,
                                      strcmp(bad[i], "6") ? INT64_MAX : 5, &n),
                         -1);
}

static void durations_and_sizes_need_a_unit_that_we_know(void **state)
{
    (void)state;
    int64_t n;
    assert_int_equal(ab_parse_duration("250ms", &n), 0);
    assert_int_equal(n, 250);
    assert_int_equal(ab_parse_duration("48h", &n), 0);
    assert_int_equal(n, 48 * 3600000LL);
    assert_int_equal(ab_parse_duration("6.2s", &n), 0);
    assert_int_equal(n, 6200);
    assert_int_equal(ab_parse_duration("0.25h", &n), 0);
    assert_int_equal(n, 900000);
    assert_int_equal(ab_parse_duration("0", &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(ab_parse_size("64MiB", &n), 0);
    assert_int_equal(n, 64LL << 20);
    assert_int_equal(ab_parse_size("512kB", &n), 0);
    assert_int_equal(n, 512000);
    assert_int_equal(ab_parse_size("17", &n), 0);
    assert_int_equal(n, 17);
    static const char *const bad[] = {"",    "s",          "5",    "5 s",
                                      "-5s", "5S",         "1.h",  ".5h",
                                      "1.5", "1.1234567s", "5sec", "9223372036854775807h"};
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        assert_int_equal(ab_parse_duration(bad[i], &n), -1);
    assert_int_equal(ab_parse_size("64mib", &n), -1);
    assert_int_equal(ab_parse_size("99999999999GiB", &n), -1);
}

static void the_nearest_name_is_found_if_one_is_near(void **state)
{
    (void)state;
    const char *names[] = {"prefetch_depth", "session_ttl", "workers", "listen"};
    assert_string_equal(ab_str_nearest("prefetch_dept", names, 4), "prefetch_depth");
    assert_string_equal(ab_str_nearest("sesion-ttl", names, 4), "session_ttl");
    assert_string_equal(ab_str_nearest("wrokers", names, 4), "workers");
    const char *nouns[] = {"app", "job"};
    assert_string_equal(ab_str_nearest("jbo", nouns, 2), "job");
    assert_null(ab_str_nearest("xyz", nouns, 2));
    const char *states[] = {"FAILED", "JOB_FINISHED"};
    assert_string_equal(ab_str_nearest("FINISHED", states, 2), "JOB_FINISHED");
    assert_null(ab_str_nearest("colour", names, 4));
    assert_null(ab_str_nearest("", names, 4));
    char huge[5000];
    memset(huge, 'w', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_null(ab_str_nearest(huge, names, 4));
}

static void a_relative_path_stays_below_unless_it_climbs(void **state)
{
    (void)state;
    assert_true(ab_path_stays_below("a/b.txt"));
    assert_true(ab_path_stays_below("./..a/b..//c"));
    static const char *const bad[] = {"", "/a", "..", "../a", "a/..", "a/../../b", "a//../b"};
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        assert_false(ab_path_stays_below(bad[i]));
    assert_false(ab_path_stays_below(NULL));
}

static void prefixes_and_suffixes(void **state)
{
    (void)state;
    assert_true(ab_str_starts("abies", "ab") && ab_str_starts("a", "")
                && !ab_str_starts("a", "ab"));
    assert_true(ab_str_ends("x.yml", ".yml") && ab_str_ends("a", "")
                && !ab_str_ends("yml", ".yml"));
}

static void uuids_are_version_7_and_grow(void **state)
{
    (void)state;
    uint8_t a[16], b[16];
    char text[AB_UUID_TEXT];
    ab_uuid7(a);
    for (int i = 0; i < 1000; i++) {
        ab_uuid7(b);
        assert_int_equal(b[6] >> 4, 7);
        assert_int_equal(b[8] >> 6, 2);
        assert_true(memcmp(a, b, 8) <= 0); /* time, to a quarter of a microsecond */
        memcpy(a, b, 16);
    }
    ab_uuid_text(b, text);
    assert_int_equal(strlen(text), 36);
    assert_int_equal(ab_uuid_parse(text, 36, a), 0);
    assert_memory_equal(a, b, 16);
}

static void uuids_are_read_in_every_common_form(void **state)
{
    (void)state;
    static const char *const same[] = {
        "0190163d-8694-739b-aea5-966c26f8ad91",
        "0190163D-8694-739B-AEA5-966C26F8AD91",
        "0190163d8694739baea5966c26f8ad91",
        "{0190163d-8694-739b-aea5-966c26f8ad91}",
        "urn:uuid:0190163d-8694-739b-aea5-966c26f8ad91",
    };
    uint8_t out[16];
    char text[AB_UUID_TEXT];
    for (size_t i = 0; i < AB_COUNT(same); i++) {
        assert_int_equal(ab_uuid_parse(same[i], strlen(same[i]), out), 0);
        ab_uuid_text(out, text);
        assert_string_equal(text, same[0]);
    }
    static const char *const bad[] = {"", "0190163d", "0190163d8694739baea5966c26f8ad9100",
                                      "0190163d8694739baea5966c26f8ad9g", "{}"};
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        assert_int_equal(ab_uuid_parse(bad[i], strlen(bad[i]), out), -1);
}

static void random_numbers_stay_below_and_back_off_is_bounded(void **state)
{
    (void)state;
    bool seen[7] = {0};
    for (int i = 0; i < 2000; i++)
        seen[ab_random_below(7)] = true;
    for (int i = 0; i < 7; i++)
        assert_true(seen[i]);
    assert_int_equal(ab_random_below(0), 0);
    for (int attempt = 0; attempt < 100; attempt++) {
        int64_t ms = ab_backoff_ms(attempt, 100, 5000);
        int64_t top = attempt < 6 ? 100LL << attempt : 5000;
        assert_true(ms >= 0 && ms < (top < 5000 ? top : 5000));
    }
}

static void a_child_does_not_repeat_its_parents_ids(void **state)
{
    (void)state;
    uint8_t first[16], its[16], ours[16];
    int to_us[2];
    ab_uuid7(first); /* the parent has drawn bytes in advance now */
    assert_int_equal(pipe(to_us), 0);
    pid_t child = fork();
    if (child == 0) {
        ab_uuid7(its);
        _exit(write(to_us[1], its, sizeof(its)) == sizeof(its) ? 0 : 1);
    }
    ab_uuid7(ours);
    assert_int_equal(read(to_us[0], its, sizeof(its)), sizeof(its));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_memory_not_equal(its + 8, ours + 8, 8);
    close(to_us[0]);
    close(to_us[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_checked_strictly),
        cmocka_unit_test(whole_numbers_only),
        cmocka_unit_test(a_child_does_not_repeat_its_parents_ids),
        cmocka_unit_test(durations_and_sizes_need_a_unit_that_we_know),
        cmocka_unit_test(the_nearest_name_is_found_if_one_is_near),
        cmocka_unit_test(a_relative_path_stays_below_unless_it_climbs),
        cmocka_unit_test(prefixes_and_suffixes),
        cmocka_unit_test(uuids_are_version_7_and_grow),
        cmocka_unit_test(uuids_are_read_in_every_common_form),
        cmocka_unit_test(random_numbers_stay_below_and_back_off_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
