/* test_wire.c - frames that lie: nothing is allocated, read or believed that is not there */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */ /* tables of frames */
#define OK(bytes) assert_true(ab_wire_ok(bytes, sizeof(bytes) - 1))
#define BAD(bytes) assert_false(ab_wire_ok(bytes, sizeof(bytes) - 1))

static void well_formed_frames_pass(void **state)
{
    (void)state;
    OK("\xc0");
    OK("\xc2");
    OK("\x7f");
    OK("\xff");
    OK("\xcf\xff\xff\xff\xff\xff\xff\xff\xff");
    OK("\xd3\x80\0\0\0\0\0\0\0");
    OK("\xca\0\0\0\0");
    OK("\xa3"
       "abc");
    OK("\xc4\x02\xff\xff");
    OK("\x92\x01\x02");
    OK("\x81\xa1"
       "a\x01");
    OK("\xdc\0\x01\xc0");
    OK("\xde\0\0");
    OK("\xc7\x02\x01{}");
    OK("\xd7\x02\0\0\0\0\0\0\0\0");
    OK("\xd7\x03\0\0\0\0\0\0\0\0");
}

static void lengths_that_are_not_there_are_refused(void **state)
{
    (void)state;
    BAD("");
    BAD("\xc1");
    BAD("\xdd\xff\xff\xff\xff");             /* an array of four thousand million */
    BAD("\xdf\xff\xff\xff\xff");             /* a map of as many */
    BAD("\xdd\x00\x00\x00\x02\xc0");         /* one of two */
    BAD("\xdb\xff\xff\xff\xff" "abc");       /* a string */
    BAD("\xc6\xff\xff\xff\xff" "abc");       /* bytes */
    BAD("\xc9\xff\xff\xff\xff\x01" "abc");   /* an extension */
    BAD("\xd9");
    BAD("\xcd\x01");
    BAD("\xcb\0\0\0");
    BAD("\xd7\x02\0\0\0");
    BAD("\x81\xa1" "a");                     /* a key without a value */
    BAD("\xc0\xc0");                         /* something behind it */
    /* thirty-one arrays of ten million each, as one inside the other: 155 bytes */
    char nest[155];
    for (size_t i = 0; i < sizeof(nest); i += 5)
        memcpy(nest + i, "\xdd\x00\x98\x96\x80", 5);
    assert_false(ab_wire_ok(nest, sizeof(nest)));
}

static void what_no_message_of_ours_holds_is_refused(void **state)
{
    (void)state;
    BAD("\x81\x01\x02");                                   /* a key that is a number */
    BAD("\x82\xa1" "a\x01\xa1" "a\x02");                   /* the same key twice */
    BAD("\xa2\xc3\x28");                                   /* no UTF-8 */
    BAD("\x81\xa2\xed\xa0\x01");                           /* nor in a key */
    BAD("\xd4\x04" "a");                                   /* an unknown extension */
    BAD("\xd6\x02" "abcd");                                /* a time of four bytes */
    BAD("\xc7\x00\x01");                                   /* free JSON of no byte */
    BAD("\xd5\x01{\0");                                    /* free JSON with NUL */
    BAD("\xd5\x01\"\xff");                                 /* free JSON that is no UTF-8 */
}

static void depth_is_limited_to_sixteen(void **state)
{
    (void)state;
    char frame[64];
    memset(frame, 0x91, sizeof(frame)); /* arrays of one */
    frame[16] = (char)0xc0;
    assert_true(ab_wire_ok(frame, 17));
    frame[16] = (char)0x91;
    frame[17] = (char)0xc0;
    assert_false(ab_wire_ok(frame, 18));
}

/* A map of n different keys, the last one the same as the first if `twice`. */
static void map_of(struct ab_buf *out, uint32_t n, bool twice)
{
    ab_buf_clear(out);
    ab_pack_map(out, n);
    for (uint32_t i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%u", twice && i == n - 1 ? 0 : i);
        ab_pack_str(out, key);
        ab_pack_nil(out);
    }
}

static void repeated_keys_are_found_in_maps_of_any_size(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
    static const uint32_t sizes[] = {2, 3, 17, 64, 65, 1000, 4096};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        map_of(&frame, sizes[i], false);
        assert_true(ab_wire_ok(frame.data, frame.len));
        map_of(&frame, sizes[i], true);
        assert_false(ab_wire_ok(frame.data, frame.len));
    }
    map_of(&frame, 4097, false);
    assert_false(ab_wire_ok(frame.data, frame.len));
}

/* Everything that reads frames, on one frame. Nothing may crash; the sanitizers look on. */
static void read_all(const void *bytes, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err;
    struct ab_request request;
    struct ab_cursor value;
    (void)ab_wire_ok(bytes, len);
    free(json_of(bytes, len));
    (void)ab_cursor_find(ab_cursor(bytes, len), "b", &value);
    (void)ab_unpack_request(ab_route_of_verb("job.create"), bytes, len, arena, &request, &err);
    (void)ab_unpack_request(ab_route_of_verb("job.list"), bytes, len, arena, &request, &err);
}

/* A copy of exactly this size: a read behind it is seen. */
static void read_copy(const void *bytes, size_t len)
{
    char *copy = malloc(len ? len : 1);
    memcpy(copy, bytes, len);
    read_all(copy, len);
    free(copy);
}

static void a_frame_cut_at_any_byte_is_refused_and_read_safely(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {.verb = "job.create", .body = "[{\"app_id\":300,\"workdir\":\"a/b\",\"tags\":{\"k\":\"v\"},\"num_nodes\":70000,"
                                       "\"gpus_per_rank\":0.5,\"parent_ids\":[1,2,3],\"return_code\":null,"
                                       "\"transfers\":{\"a\":{\"location_alias\":\"l\",\"path\":\"/p\"}}}]"},
        {.verb = "job.list", .query = "id=1&id=70000&last_update_after=2026-01-02T03:04:05&tags=a:b&state=READY"},
    };
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
        packed_of(&asked[i], &frame);
        for (size_t len = 0; len < frame.len; len++) {
            char *copy = malloc(len ? len : 1);
            memcpy(copy, frame.data, len);
            assert_false(ab_wire_ok(copy, len));
            char *text = json_of(copy, len);
            assert_true(len == 0 ? strcmp(text, "null") == 0 : !text);
            free(text);
            read_all(copy, len);
            free(copy);
        }
        for (size_t at = 0; at < frame.len; at++) /* and with any one byte wrong */
            for (int c = 0; c < 256; c += 3) {
                char was = frame.data[at];
                frame.data[at] = (char)c;
                read_copy(frame.data, frame.len);
                frame.data[at] = was;
            }
    }
}

static void a_request_that_breaks_its_description_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *verb, *frame, *error;
        size_t len;
    } rows[] = {
        {"job.create", "\xc0", "job.create: the request is not a map", 1},
        {"job.create", "\x80", "job.create: b is missing", 1},
        {"job.create", "\x81\xa1" "b\xc0", "job.create: b: not a list", 4},
        {"job.create", "\x81\xa1" "b\x91\x01", "job.create: b[0]: not a map", 5},
        {"job.create", "\x81\xa1" "b\x91\x80", "job.create: b[0]: workdir: is missing", 5},
        {"job.update", "\x81\xa1" "b\x81\xa9" "num_nodes\x00", "job.update: b: num_nodes: 0 is not between 1 and 2147483647", 15},
        {"job.update", "\x81\xa1" "b\x81\xa9" "num_nodes\xc0", "job.update: b: num_nodes: may not be null", 15},
        {"job.update", "\x81\xa1" "b\x81\xa9" "num_nodes\xa1" "3", "job.update: b: num_nodes: not an integer", 16},
        {"job.update", "\x81\xa1" "b\x81\xa5" "state\xa3" "xyz", "job.update: b: state: 'xyz' is no job_state", 14},
        {"job.update", "\x81\xa1" "b\x81\xa7" "workdir\xa3" "a\0b", "job.update: b: workdir: not a text", 16},
        {"job.update", "\x81\xa1" "b\x82\xa5" "lease\x01\xa5" "lease\x02", "job.update: b: lease: given twice", 18},
        {"job.get", "\x81\xa2id\xa1" "5", "job.get: id: not an integer", 6},
        {"job.list", "\x81\xa1q\x81\xa5limit\xff", "job.list: q: limit: -1 is not between 0 and 100000", 11},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct ab_request request;
        struct ab_error err = {0};
        int rc = ab_unpack_request(ab_route_of_verb(rows[i].verb), rows[i].frame, rows[i].len, arena, &request, &err);
        assert_int_equal(rc, -1);
        assert_string_equal(err.text, rows[i].error);
        assert_int_equal(err.code, AB_ESCHEMA);
    }
}

static void a_hostile_list_of_bodies_costs_no_memory(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
    ab_pack_map(&frame, 1);
    ab_pack_str(&frame, "b");
    ab_pack_array(&frame, 2000000);
    for (int i = 0; i < 2000000; i++)
        ab_buf_char(&frame, (char)0x80);
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_request request;
    struct ab_error err = {0};
    assert_int_equal(ab_unpack_request(ab_route_of_verb("job.patch"), frame.data, frame.len, arena, &request, &err), -1);
    assert_true(ab_arena_size(arena) < 100000);
}

static void unknown_keys_of_a_newer_sender_are_skipped(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf frame = {0};
    ab_pack_map(&frame, 3);
    ab_pack_str(&frame, "new");
    ab_pack_array(&frame, 2);
    ab_pack_bin(&frame, "\xff", 1);
    ab_pack_real(&frame, 1.5);
    ab_pack_str(&frame, "b");
    ab_pack_map(&frame, 2);
    ab_pack_str(&frame, "also_new");
    ab_pack_map(&frame, 1);
    ab_pack_str(&frame, "x");
    ab_pack_nil(&frame);
    ab_pack_str(&frame, "num_nodes");
    ab_pack_int(&frame, 4);
    ab_pack_str(&frame, "next");
    ab_pack_array(&frame, 1);
    ab_pack_int(&frame, 77);
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_request request;
    struct ab_error err = {0};
    assert_int_equal(ab_unpack_request(ab_route_of_verb("job.update"), frame.data, frame.len, arena, &request, &err), 0);
    const struct job *job = request.body.v;
    assert_int_equal(request.body.n, 1);
    assert_int_equal(job->num_nodes, 4);
    assert_true(AB_HAS(job, job, num_nodes));
    assert_false(AB_HAS(job, job, state));
    assert_int_equal(request.next.n, 2);
    struct ab_cursor next = ab_cursor(request.next.p, request.next.n);
    uint32_t n;
    int64_t id;
    assert_int_equal(ab_cursor_array(&next, &n), 0);
    assert_int_equal(ab_cursor_int(&next, &id), 0);
    assert_int_equal(id, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_frames_pass),
        cmocka_unit_test(lengths_that_are_not_there_are_refused),
        cmocka_unit_test(what_no_message_of_ours_holds_is_refused),
        cmocka_unit_test(depth_is_limited_to_sixteen),
        cmocka_unit_test(repeated_keys_are_found_in_maps_of_any_size),
        cmocka_unit_test(a_frame_cut_at_any_byte_is_refused_and_read_safely),
        cmocka_unit_test(a_request_that_breaks_its_description_is_refused_with_its_place),
        cmocka_unit_test(a_hostile_list_of_bodies_costs_no_memory),
        cmocka_unit_test(unknown_keys_of_a_newer_sender_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
