/* test_buf.c - growing buffers, and errors, which are texts with a limit too */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/str.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void appends_grow_and_end_with_nul(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf b = {0};
    ab_buf_str(&b, "a");
    ab_buf_char(&b, '=');
    ab_buf_int(&b, INT64_MIN);
    ab_buf_char(&b, ' ');
    ab_buf_int(&b, 0);
    ab_buf_printf(&b, " %s", "x");
    assert_string_equal(b.data, "a=-9223372036854775808 0 x");
    assert_int_equal(b.len, strlen(b.data));
    for (int i = 0; i < 10000; i++)
        ab_buf_printf(&b, "%0300d", i);
    assert_int_equal(b.len, 26 + 3000000);
    assert_false(b.failed);
}

static void past_the_limit_it_fails_and_stays_failed(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf b = {.limit = 10};
    ab_buf_str(&b, "0123456789");
    assert_false(b.failed);
    ab_buf_char(&b, 'x');
    assert_true(b.failed);
    assert_string_equal(b.data, "0123456789");
    b.len = 0;
    ab_buf_char(&b, 'x');
    assert_int_equal(b.len, 0);
    ab_buf_clear(&b);
    ab_buf_str(&b, "ok");
    assert_string_equal(b.data, "ok");
    assert_null(ab_buf_room(&b, SIZE_MAX));
}

static void take_gives_the_memory_away(void **state)
{
    (void)state;
    struct ab_buf b = {0};
    ab_buf_str(&b, "mine");
    char *text = ab_buf_take(&b);
    assert_string_equal(text, "mine");
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    free(text);
}

static const char *json(struct ab_buf *b, const char *text, size_t n)
{
    ab_buf_clear(b);
    ab_buf_json_str(b, text, n);
    assert_true(ab_utf8_ok(b->data, b->len));
    return b->data;
}

static void json_strings_are_escaped_and_always_utf8(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf b = {0};
    assert_string_equal(json(&b, "", 0), "\"\"");
    assert_string_equal(json(&b, "a\"b\\c/\n\t\r\x01\x00z", 12),
                        "\"a\\\"b\\\\c/\\n\\t\\r\\u0001\\u0000z\"");
    assert_string_equal(json(&b, "\xC3\xBC\xE2\x82\xAC\xF0\x9F\x8C\xB2", 9),
                        "\"\xC3\xBC\xE2\x82\xAC\xF0\x9F\x8C\xB2\"");
    assert_string_equal(json(&b, "a\xFFz\xC3", 4), "\"a\xEF\xBF\xBDz\xEF\xBF\xBD\"");
    assert_string_equal(json(&b, "\xED\xA0\x80", 3), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    for (int c = 0; c < 256; c++) {
        char two[2] = {(char)c, 'x'};
        (void)json(&b, two, 2);
    }
}

static void an_error_may_be_built_from_itself(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(ab_fail(&err, AB_ENOENT, "job %d", 7), -1);
    assert_string_equal(err.kind, "not_found");
    ab_fail_within(&err, "site %s", "x");
    assert_string_equal(err.text, "site x: job 7");
    ab_fail_kind(&err, AB_EBUSY, "db_gone", "again: %s", err.text);
    assert_string_equal(err.text, "again: site x: job 7");
    assert_string_equal(err.kind, "db_gone");
    assert_int_equal(err.code, 503);
    errno = ENOENT;
    ab_fail_errno(&err, AB_EINTERNAL, "open `%s`", "f");
    assert_string_equal(err.text, "open `f`: No such file or directory");
    assert_int_equal(ab_fail(NULL, AB_EINTERNAL, "nobody asks"), -1);
}

static void a_long_error_is_cut_between_characters(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char long_text[1200];
    for (size_t shift = 0; shift < 3; shift++) {
        memset(long_text, 'a', sizeof(long_text));
        for (size_t i = shift; i + 3 < sizeof(long_text); i += 3)
            memcpy(long_text + i, "\xE2\x82\xAC", 3);
        long_text[sizeof(long_text) - 1] = '\0';
        ab_fail(&err, AB_EINVAL, "%s", long_text);
        assert_true(strlen(err.text) > sizeof(err.text) - 5);
        assert_true(ab_utf8_ok(err.text, strlen(err.text)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_grow_and_end_with_nul),
        cmocka_unit_test(past_the_limit_it_fails_and_stays_failed),
        cmocka_unit_test(take_gives_the_memory_away),
        cmocka_unit_test(json_strings_are_escaped_and_always_utf8),
        cmocka_unit_test(an_error_may_be_built_from_itself),
        cmocka_unit_test(a_long_error_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
