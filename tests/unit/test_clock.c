/* test_clock.c - times as the API prints and takes them */
#include "base/cleanup.h"
#include "base/clock.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char *format(int64_t us, bool aware)
{
    static char text[AB_TIME_TEXT];
    size_t n = ab_time_format(us, aware, text);
    assert_int_equal(n, strlen(text));
    return text;
}

static int64_t parse(const char *text)
{
    int64_t us = INT64_MIN;
    assert_int_equal(ab_time_parse(text, strlen(text), &us), 0);
    return us;
}

static void microseconds_are_printed_only_when_there_are_some(void **state)
{
    (void)state;
    assert_string_equal(format(0, false), "1970-01-01T00:00:00");
    assert_string_equal(format(0, true), "1970-01-01T00:00:00+00:00");
    assert_string_equal(format(678, false), "1970-01-01T00:00:00.000678");
    assert_string_equal(format(-1, true), "1969-12-31T23:59:59.999999+00:00");
    assert_string_equal(format(1772366400000000, false), "2026-03-01T12:00:00");
    assert_string_equal(format(951825600000000, false), "2000-02-29T12:00:00");
}

static void years_outside_are_clamped(void **state)
{
    (void)state;
    assert_string_equal(format(INT64_MIN, false), "0001-01-01T00:00:00");
    assert_string_equal(format(INT64_MAX, false), "9999-12-31T23:59:59.999999");
}

static void all_forms_of_the_contract_are_read(void **state)
{
    (void)state;
    static const char *const same[] = {
        "2026-01-02T03:04:05",
        "2026-01-02t03:04:05",
        "2026-01-02 03:04:05",
        "2026-01-02T03:04:05Z",
        "2026-01-02 03:04:05.000000",
        "2026-01-02T03:04:05.0000000001",
        "2026-01-02T05:04:05+02:00",
        "2026-01-02T05:04:05+0200",
        "2026-01-02T05:04:05+02",
        "2026-01-01T21:34:05-05:30",
        "2026-01-02 03:04:05.0+00:00",
        "1767323045",
        "1767323045.0",
        "1767323045000",
        "1.767323045e9",
    };
    for (size_t i = 0; i < AB_COUNT(same); i++)
        assert_int_equal(parse(same[i]), 1767323045000000);
    assert_int_equal(parse("2026-01-02 03:04:05.000678"), 1767323045000678);
    assert_int_equal(parse("2026-01-02T03:04:05.5"), 1767323045500000);
    assert_int_equal(parse("2026-01-02T03:04"), 1767323040000000);
    assert_int_equal(parse("-1"), -1000000);
    assert_int_equal(parse("0"), 0);
}

static void anything_else_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "2026-01-02",
        "2026-01-02T",
        "2026-13-02T03:04:05",
        "2026-02-29T03:04:05",
        "2026-00-01T00:00",
        "2026-01-00T00:00",
        "0000-01-01T00:00",
        "2026-01-02T24:00:00",
        "2026-01-02T03:60",
        "2026-01-02T03:04:60",
        "2026-01-02T03:04:05.",
        "2026-01-02T03:04:05X",
        "2026-01-02T03:04:05+",
        "2026-01-02T03:04:05+2",
        "2026-01-02T03:04:05+02:0",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T03:04:05Z ",
        " 2026-01-02T03:04:05",
        "2026-01-02_03:04:05",
        "yesterday",
        "nan",
        "inf",
        "0x10",
        "1e",
        "12 ",
        "+",
        "2026-01-02T03:04:05.1234567890123",
    };
    int64_t us;
    for (size_t i = 0; i < AB_COUNT(bad); i++)
        if (ab_time_parse(bad[i], strlen(bad[i]), &us) == 0)
            fail_msg("`%s` was taken", bad[i]);
    assert_int_equal(ab_time_parse("2026-01-02T03:04:05\0", 20, &us), -1);
}

static void numbers_become_times(void **state)
{
    (void)state;
    int64_t us;
    assert_int_equal(ab_time_from_number(1767323045.25, &us), 0);
    assert_int_equal(us, 1767323045250000);
    assert_int_equal(ab_time_from_number(1767323045250.0, &us), 0);
    assert_int_equal(us, 1767323045250000);
    assert_int_equal(ab_time_from_number(NAN, &us), -1);
    assert_int_equal(ab_time_from_number(INFINITY, &us), -1);
    assert_int_equal(ab_time_from_number(1e300, &us), 0);
}

static void what_is_printed_is_read_back_exactly(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252ULL;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        int64_t us = (int64_t)(x % 315537897600000000ULL) - 62135596800000000LL;
        const char *text = format(us, i % 2);
        assert_int_equal(parse(text), us);
        struct tm tm = {0};
        assert_non_null(
            strptime(text, "%Y-%m-%dT%H:%M:%S", &tm)); /* libc agrees about the calendar */
        assert_int_equal(timegm(&tm),
                         us >= 0 || us % 1000000 == 0 ? us / 1000000 : us / 1000000 - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(microseconds_are_printed_only_when_there_are_some),
        cmocka_unit_test(years_outside_are_clamped),
        cmocka_unit_test(all_forms_of_the_contract_are_read),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(numbers_become_times),
        cmocka_unit_test(what_is_printed_is_read_back_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
