/* test_pickle.c - pickles of Python: plain data comes out whole, anything else is refused by name
 *
 *     test_pickle           the lines of tests/unit/pickles.txt, made by pickles.py
 *     test_pickle FILE...   other lines of the same form: label, base64, JSON or `!` and a part of
 *                           the refusal
 */
#include "app/app.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "crypt/crypt.h"
#include "pickle/pickle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LINE_MAX_BYTES ((size_t)2 << 20)

static const char *files[8] = {"tests/unit/pickles.txt"};
static size_t n_files = 1;
static int wrong; /* lines: all are looked at before the test fails */

static void written(const struct ab_value *v, struct ab_buf *out)
{
    ab_buf_clear(out);
    ab_value_write(out, v);
    ab_buf_char(out, '\0');
}

static void check_value(const char *label, const struct ab_value *v, const struct ab_error *err,
                        const char *json, ab_arena_t *arena)
{
    AB_AUTO(ab_buf_free) struct ab_buf got = {0}, want = {0};
    const struct ab_value *expected = ab_value_parse(arena, json, strlen(json), NULL);

    if (!v) {
        print_error("%s: refused: %s\n", label, err->text);
        wrong++;
        return;
    }
    assert_non_null(expected);
    written(v, &got);
    written(expected, &want);
    if (strcmp(got.data, want.data) == 0)
        return;
    print_error("%s: %.300s instead of %.300s\n", label, got.data, want.data);
    wrong++;
}

static void check_line(char *line)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    char *base64 = strchr(line, ' ');
    assert_non_null(base64);
    *base64++ = '\0';
    char *expected = strchr(base64, ' ');
    assert_non_null(expected);
    *expected++ = '\0';
    size_t len = strcmp(base64, "-") == 0 ? 0 : strlen(base64);
    uint8_t *room = malloc(len + 1);
    int64_t n = ab_base64_decode(base64, len, room, len + 1);
    assert_true(n >= 0);
    uint8_t *bytes = malloc(n ? (size_t)n : 1); /* exactly as long: a read behind it is seen */
    memcpy(bytes, room, (size_t)n);
    const struct ab_value *v = ab_pickle_parse(arena, bytes, (size_t)n, &err);
    free(bytes);
    free(room);
    if (*expected != '!') {
        check_value(line, v, &err, expected, arena);
        return;
    }
    if (v || !strstr(err.text, expected + 1)) {
        print_error("%s: \"%s\" instead of \"%s\"\n", line, v ? "accepted" : err.text,
                    expected + 1);
        wrong++;
        return;
    }
    assert_int_equal(err.code, AB_EINVAL);
    assert_true(strlen(err.text) < sizeof(err.text) - 40); /* its remedy is not cut off */
}

static void what_python_pickles_is_read_or_refused_by_name(void **state)
{
    (void)state;
    char *line = malloc(LINE_MAX_BYTES);
    size_t n = 0;

    for (size_t i = 0; i < n_files; i++) {
        FILE *file = fopen(files[i], "re");
        if (!file)
            fail_msg("cannot open %s", files[i]);
        for (; fgets(line, (int)LINE_MAX_BYTES, file); n++) {
            line[strcspn(line, "\n")] = '\0';
            check_line(line);
        }
        fclose(file);
    }
    free(line);
    assert_int_equal(wrong, 0);
    assert_true(n >= 100);
    print_message("%zu pickles\n", n);
}

/* The largest texts that a job can carry, of the kinds that take longest. */
static void a_hostile_pickle_takes_little_time_and_memory(void **state)
{
    (void)state;
    static const char *const repeated[] = {"(",
                                           "]",
                                           "}",
                                           "N2",
                                           "]a",
                                           "(t",
                                           "\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09",
                                           "]\x94h\x00"
                                           "a",
                                           "I123456789012345678901234567890\n"};
    const size_t size = 384000;
    char *bytes = malloc(size);

    for (size_t i = 0; i < AB_COUNT(repeated); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct ab_error err = {0};
        int64_t begin = ab_now_ms();
        for (size_t at = 0, n = strlen(repeated[i]); at < size; at += n)
            memcpy(bytes + at, repeated[i], at + n <= size ? n : size - at);
        bytes[size - 1] = '.';
        if (!ab_pickle_parse(arena, bytes, size, &err))
            assert_int_equal(err.code, AB_EINVAL);
        assert_true(ab_now_ms() - begin < 5000);
        assert_true(ab_arena_size(arena) < (size_t)32 << 20);
    }
    free(bytes);
}

static const struct ab_value *parameters(ab_arena_t *arena, const char *json, const char *pickled,
                                         struct ab_error *err)
{
    struct job job = {.parameters = {json, json ? strlen(json) : 0},
                      .serialized_parameters = pickled};
    const struct ab_value *v = NULL;

    *err = (struct ab_error){0};
    int rc = ab_app_parameters(&job, arena, &v, err);
    assert_int_equal(rc, err->code ? -1 : 0);
    return v;
}

#define PICKLED "gASVDwAAAAAAAAB9lIwBbpSMBGZpdmWUcy4=" /* {"n": "five"} */
#define EVIL "Y29zCnN5c3RlbQoofXRSLg=="

static void parameters_win_over_pickled_ones(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err;

    assert_null(parameters(arena, NULL, NULL, &err));
    assert_null(parameters(arena, NULL, "", &err));
    const struct ab_value *v = parameters(arena, "{\"n\":1}", PICKLED, &err);
    assert_int_equal(ab_value_int(ab_value_get(v, "n"), 0), 1);
    v = parameters(arena, "{\"n\":1}", EVIL, &err); /* never looked at */
    assert_int_equal(ab_value_int(ab_value_get(v, "n"), 0), 1);
    v = parameters(arena, "{}", PICKLED, &err);
    assert_string_equal(ab_value_text(ab_value_get(v, "n"), ""), "five");
    v = parameters(arena, "null", PICKLED, &err);
    assert_string_equal(ab_value_text(ab_value_get(v, "n"), ""), "five");
    v = parameters(arena, NULL, "gASVDwAAAAAA\nAAB9lIwBbpSM\nBGZpdmWUcy4=\n", &err);
    assert_string_equal(ab_value_text(ab_value_get(v, "n"), ""), "five");
}

static void pickled_parameters_that_cannot_be_read_say_so(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err;

    assert_null(parameters(arena, "{}", "txt", &err));
    assert_string_equal(err.text, "serialized_parameters: not base64 of a pickled dict; send "
                                  "`parameters` as JSON instead");
    assert_null(parameters(arena, "{}", "Ti4=", &err)); /* None */
    assert_non_null(strstr(err.text, "holds no dict"));
    assert_null(parameters(arena, "{}", EVIL, &err));
    assert_string_equal(
        err.text, "serialized_parameters: names the Python object os.system (GLOBAL at byte 0); "
                  "only dict, list, tuple, str, int, float, bool and None are read and nothing is "
                  "executed: convert the value before (float(x), x.tolist(), str(x)) or send "
                  "`parameters` as JSON");
    assert_int_equal(err.code, AB_EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_python_pickles_is_read_or_refused_by_name),
        cmocka_unit_test(a_hostile_pickle_takes_little_time_and_memory),
        cmocka_unit_test(parameters_win_over_pickled_ones),
        cmocka_unit_test(pickled_parameters_that_cannot_be_read_say_so),
    };

    if (argc > 1)
        for (n_files = 0; n_files < AB_COUNT(files) && (int)n_files + 1 < argc; n_files++)
            files[n_files] = argv[n_files + 1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
