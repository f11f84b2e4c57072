/* test_walk.c - msgpack becomes JSON in pieces of any size */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All kinds of values, long texts of every class of character, deep and empty containers. */
static void build(struct ab_buf *out)
{
    char text[2000];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 5 == 0    ? '"'
                  : i % 7 == 0  ? '\n'
                  : i % 11 == 0 ? '\x01'
                                : (char)('a' + i % 26);
    ab_pack_array(out, 16);
    ab_pack_nil(out);
    ab_pack_bool(out, true);
    ab_pack_bool(out, false);
    ab_pack_int(out, INT64_MIN);
    ab_pack_int(out, INT64_MAX);
    ab_pack_real(out, 0.1);
    ab_pack_real(out, NAN);
    ab_pack_real(out, -1e300);
    ab_pack_strn(out, text, sizeof(text));
    ab_pack_str(out, "");
    ab_pack_str(out, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb2");
    ab_pack_map(out, 3);
    ab_pack_strn(out, text, 900); /* a long key */
    ab_pack_array(out, 0);
    ab_pack_str(out, "b");
    ab_pack_map(out, 0);
    ab_pack_str(out, "c");
    ab_pack_int(out, 1);
    char json[3000];
    memset(json, ' ', sizeof(json));
    memcpy(json, "{\"a\":1", 6);
    json[sizeof(json) - 1] = '}';
    ab_pack_json(out, json, sizeof(json));
    ab_pack_time(out, INT64_C(1767322245000678), false);
    ab_pack_time(out, INT64_C(1767322245000000), true);
    for (int i = 0; i < 13; i++)
        ab_pack_array(out, 1);
    ab_pack_nil(out);
}

static void every_size_of_piece_gives_the_same_text(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
    build(&frame);
    assert_true(ab_wire_ok(frame.data, frame.len));
    char *whole = json_of(frame.data, frame.len);
    assert_non_null(whole);
    for (size_t size = 512; size < 3000; size += size < 560 ? 1 : 37) {
        AB_AUTO(ab_buf_free) struct ab_buf text = {0};
        struct ab_walk walk;
        char *piece = malloc(size); /* of exactly this size: a write behind it is seen */
        int rc, rounds = 0;
        ab_walk_start(&walk, frame.data, frame.len);
        do {
            char *end = piece;
            rc = ab_walk_json(&walk, &end, piece + size);
            assert_true(end > piece || rc != 0); /* each round gets on */
            ab_buf_add(&text, piece, (size_t)(end - piece));
            assert_true(++rounds < 1000);
        } while (rc == 0);
        free(piece);
        assert_int_equal(rc, 1);
        assert_string_equal(text.data, whole);
    }
    free(whole);
}

static void the_text_is_json_that_reads_back(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    build(&frame);
    char *text = json_of(frame.data, frame.len);
    const struct ab_value *v = ab_value_parse(arena, text, strlen(text), &err);
    assert_non_null(v);
    assert_int_equal(v->n, 16);
    assert_int_equal(v->items[3].i, INT64_MIN);
    assert_int_equal(v->items[4].i, INT64_MAX);
    assert_true(v->items[5].f == 0.1);
    assert_int_equal(v->items[6].type, AB_V_NULL); /* JSON has no NaN */
    assert_true(v->items[7].f == -1e300);
    assert_int_equal(v->items[8].len, 2000);
    assert_string_equal(v->items[10].s, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8c\xb2");
    assert_string_equal(v->items[13].s, "2026-01-02T02:50:45.000678");
    assert_string_equal(v->items[14].s, "2026-01-02T02:50:45+00:00");
    free(text);
}

/* Texts are looked at eight bytes at a time: each byte at each place, with each kind beside it. */
static void each_byte_is_written_right_at_each_place(void **state)
{
    (void)state;
    static const char beside[] = {'a', ' ', '!', '#', '[', ']', '"', '\\', '\x1f', '\x7f'};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    for (int byte = 1; byte < 0x80; byte++) /* we read no NUL */
        for (size_t place = 0; place < 19; place++) {
            char in[19];
            AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
            struct ab_error err = {0};
            memset(in, beside[(place + (size_t)byte) % sizeof(beside)], sizeof(in));
            in[place] = (char)byte;
            ab_pack_strn(&frame, in, sizeof(in));
            char *text = json_of(frame.data, frame.len);
            assert_non_null(text);
            for (const char *c = text; *c; c++)
                assert_true(*c >= 0x20);
            const struct ab_value *v = ab_value_parse(arena, text, strlen(text), &err);
            free(text);
            assert_non_null(v);
            assert_int_equal(v->len, sizeof(in));
            assert_memory_equal(v->s, in, sizeof(in));
        }
}

static void small_values_print_as_expected(void **state)
{
    (void)state;
    static const struct {
        const char *frame, *text;
        size_t len;
    } rows[] = {
        {"\xc0", "null", 1},
        {"\x00", "0", 1},
        {"\xff", "-1", 1},
        {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615", 9},
        {"\xd3\xff\xff\xff\xff\xff\xff\xff\xfe", "-2", 9},
        {"\xd0\x80", "-128", 2},
        {"\xd1\x80\x00", "-32768", 3},
        {"\xcc\xff", "255", 2},
        {"\xca\x3f\x80\x00\x00", "1.0", 5},
        {"\x80", "{}", 1},
        {"\x90", "[]", 1},
        {"\x92\x90\x80", "[[],{}]", 3},
        {"\x82\xa1"
         "a\x01\xa1"
         "b\x91\x02",
         "{\"a\":1,\"b\":[2]}", 8},
        {"\xa4\x7f\x1f\b/", "\"\x7f\\u001f\\b/\"", 5},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *text = json_of(rows[i].frame, rows[i].len);
        assert_non_null(text);
        assert_string_equal(text, rows[i].text);
        free(text);
    }
}

static void broken_frames_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *frame;
        size_t len;
    } rows[] = {{"\xc1", 1},         {"\xc0\xc0", 2},  {"\x91", 1},
                {"\x81\x01\x02", 3}, {"\xa1\xff", 2},  {"\xc4\x01x", 3},
                {"\xd4\x05x", 3},    {"\xd4\x02x", 3}, {"\xdd\xff\xff\xff\xff", 5}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_null(json_of(rows[i].frame, rows[i].len));
    char deep[18];
    memset(deep, 0x91, sizeof(deep));
    deep[17] = 0;
    assert_null(json_of(deep, sizeof(deep)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_of_piece_gives_the_same_text),
        cmocka_unit_test(the_text_is_json_that_reads_back),
        cmocka_unit_test(each_byte_is_written_right_at_each_place),
        cmocka_unit_test(small_values_print_as_expected),
        cmocka_unit_test(broken_frames_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
