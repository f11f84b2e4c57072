/* test_frame.c - headers of the mesh and error bodies, ours and hostile ones */
#include "base/arena.h"
#include "base/cleanup.h"
#include "bus/frame.h"
#include "bus/server.h"
#include "schema/pack.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ab_frame_request full = {
    .number = UINT64_C(0x7fffffffffffffff),
    .verb = "job.create",
    .user = 7,
    .remaining_ms = 29999,
    .key = "k\xc3\xa9y",
    .scopes = 21,
    .uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255},
    .trace = "t",
    .peer = "192.0.2.1",
    .username = "tenant",
    .token_site = 12,
    .try = 2,
    .host = "abies.example.org:8443",
};

static void a_request_comes_out_as_it_went_in(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    struct ab_frame_request out;
    ab_frame_pack_request(&header, AB_BUS_VERSION, &full);
    char *text = malloc(header.len + AB_FRAME_TEXTS); /* exact: the sanitizer watches its end */
    assert_int_equal(ab_frame_version(header.data, header.len), AB_BUS_VERSION);
    assert_int_equal(ab_frame_read_request(header.data, header.len, &out, text), 0);
    assert_int_equal(out.number, full.number);
    assert_string_equal(out.verb, full.verb);
    assert_int_equal(out.user, 7);
    assert_int_equal(out.remaining_ms, 29999);
    assert_string_equal(out.key, full.key);
    assert_int_equal(out.scopes, 21);
    assert_memory_equal(out.uuid, full.uuid, 16);
    assert_string_equal(out.trace, "t");
    assert_string_equal(out.peer, "192.0.2.1");
    assert_string_equal(out.username, "tenant");
    assert_int_equal(out.token_site, 12);
    assert_int_equal(out.try, 2);
    assert_string_equal(out.host, "abies.example.org:8443");
    free(text);
}

static void what_is_absent_stays_absent(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    struct ab_frame_request in = {.number = 1, .verb = "v", .remaining_ms = -5}, out;
    char text[256];
    ab_frame_pack_request(&header, AB_BUS_VERSION, &in);
    assert_int_equal(ab_frame_read_request(header.data, header.len, &out, text), 0);
    assert_null(out.key);
    assert_null(out.trace);
    assert_null(out.peer);
    assert_null(out.username);
    assert_null(out.host);
    assert_int_equal(out.remaining_ms, -5);
}

static void elements_of_a_later_version_are_skipped(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    uint64_t number;
    int status;
    ab_pack_array(&header, 5);
    ab_pack_int(&header, AB_BUS_VERSION + 1);
    ab_pack_int(&header, 77);
    ab_pack_int(&header, 201);
    ab_pack_map(&header, 1);
    ab_pack_str(&header, "new");
    ab_pack_array(&header, 0);
    ab_pack_str(&header, "newer");
    assert_int_equal(ab_frame_read_reply(header.data, header.len, &number, &status), 0);
    assert_int_equal(number, 77);
    assert_int_equal(status, 201);
}

static void versions_may_differ_by_one(void **state)
{
    (void)state;
    assert_int_equal(ab_frame_common_version(AB_BUS_VERSION), AB_BUS_VERSION);
    assert_int_equal(ab_frame_common_version(AB_BUS_VERSION + 1), AB_BUS_VERSION);
    assert_int_equal(ab_frame_common_version(AB_BUS_VERSION + 2), 0);
    assert_int_equal(ab_frame_common_version(0), 0);
    assert_int_equal(ab_frame_common_version(-1), 0);
    assert_int_equal(ab_frame_common_version(INT32_MAX), 0);
}

static void a_ready_comes_out_as_it_went_in(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    struct ab_frame_ready out, in = {.service = "jobs",
                                     .instance = "jobs-h-1-0a",
                                     .capacity = 16,
                                     .queued = 3,
                                     .oldest_ms = 4};
    ab_frame_pack_ready(&header, AB_BUS_VERSION, &in);
    assert_int_equal(ab_frame_read_ready(header.data, header.len, &out), 0);
    assert_string_equal(out.service, "jobs");
    assert_string_equal(out.instance, "jobs-h-1-0a");
    assert_int_equal(out.capacity, 16);
    assert_int_equal(out.queued, 3);
    assert_int_equal(out.oldest_ms, 4);
}

static int read_ready(const char *service, size_t service_len, const char *instance,
                      int64_t capacity)
{
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    struct ab_frame_ready out;
    ab_pack_array(&header, 6);
    ab_pack_int(&header, 1);
    ab_pack_strn(&header, service, service_len);
    ab_pack_str(&header, instance);
    ab_pack_int(&header, capacity);
    ab_pack_int(&header, 0);
    ab_pack_int(&header, 0);
    return ab_frame_read_ready(header.data, header.len, &out);
}

static void names_are_short_and_visible_and_numbers_sane(void **state)
{
    (void)state;
    char long_name[200];
    memset(long_name, 'x', sizeof(long_name));
    long_name[199] = '\0';
    assert_int_equal(read_ready("jobs", 4, "i", 4), 0);
    assert_int_equal(read_ready("", 0, "i", 4), -1);
    assert_int_equal(read_ready("jobs", 4, "", 4), -1);
    assert_int_equal(read_ready("jo\0s", 4, "i", 4), -1);
    assert_int_equal(read_ready("jo\ns", 4, "i", 4), -1); /* it goes to a log line */
    assert_int_equal(read_ready(long_name, 32, "i", 4), -1);
    assert_int_equal(read_ready("jobs", 4, long_name, 4), -1);
    assert_int_equal(read_ready("jobs", 4, "i", -1), -1);
    assert_int_equal(read_ready("jobs", 4, "i", 1 << 20), -1);
}

static void a_status_that_is_none_is_no_reply(void **state)
{
    (void)state;
    static const int bad[] = {0, 100, 199, 600, -200};
    for (size_t i = 0; i < AB_COUNT(bad); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf header = {0};
        uint64_t number;
        int status;
        ab_frame_pack_reply(&header, AB_BUS_VERSION, 5, bad[i]);
        assert_int_equal(ab_frame_read_reply(header.data, header.len, &number, &status), -1);
    }
}

/* Every cut and every flipped byte: read or refused, never past the end. */
static void broken_headers_are_refused_or_read_within_their_bytes(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    int refused = 0;
    ab_frame_pack_request(&header, AB_BUS_VERSION, &full);
    for (size_t cut = 0; cut < header.len; cut++) {
        struct ab_frame_request out;
        char *copy = malloc(cut ? cut : 1), *text = malloc(cut + AB_FRAME_TEXTS);
        memcpy(copy, header.data, cut);
        assert_int_equal(ab_frame_read_request(copy, cut, &out, text), -1);
        free(copy);
        free(text);
    }
    for (size_t i = 0; i < header.len; i++) {
        for (int value = 0; value < 256; value++) {
            struct ab_frame_request out;
            struct ab_frame_ready ready;
            uint64_t number;
            int status;
            char *copy = malloc(header.len), *text = malloc(header.len + AB_FRAME_TEXTS);
            memcpy(copy, header.data, header.len);
            copy[i] = (char)value;
            refused += ab_frame_read_request(copy, header.len, &out, text) < 0;
            (void)ab_frame_read_ready(copy, header.len, &ready);
            (void)ab_frame_read_reply(copy, header.len, &number, &status);
            (void)ab_frame_read_refused(copy, header.len, text, header.len);
            free(copy);
            free(text);
        }
    }
    assert_true(refused > 1000);
}

static void a_refusal_is_safe_in_a_log(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf header = {0};
    char text[16];
    ab_frame_pack_refused(&header, AB_BUS_VERSION, "two\nlines that are far too long");
    assert_int_equal(ab_frame_read_refused(header.data, header.len, text, sizeof(text)), 0);
    assert_string_equal(text, "two lines that ");
}

static void a_hint_carries_owner_and_topic(void **state)
{
    (void)state;
    static const int64_t owners[] = {0, 1, -1, INT64_MAX, INT64_MIN, 0x0102030405060708};
    for (size_t i = 0; i < AB_COUNT(owners); i++) {
        char head[AB_HINT_HEAD], topic = 0;
        int64_t owner = 5;
        ab_frame_pack_hint(head, 'e', owners[i]);
        assert_int_equal(ab_frame_read_hint(head, sizeof(head), &topic, &owner), 0);
        assert_int_equal(topic, 'e');
        assert_true(owner == owners[i]);
        assert_int_equal(ab_frame_read_hint(head, sizeof(head) - 1, &topic, &owner), -1);
    }
    char head[AB_HINT_HEAD];
    ab_frame_pack_hint(head, 'n', 0x0102030405060708);
    assert_memory_equal(head, "n\1\2\3\4\5\6\7\10",
                        AB_HINT_HEAD); /* big endian: part of the wire */
}

/* ------------------------------------------------------------------ error bodies */

static void an_error_comes_out_as_it_went_in(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct ab_error_item items[] = {{0, 11, "first"}, {-1, 0, ""}, {5, INT64_MAX, "sixth"}};
    struct ab_error in = {0}, out;
    (void)ab_fail_kind(&in, 409, "lost_lease", "jobs are not yours");
    in.items = items;
    in.n_items = 3;
    in.retry_sec = 2;
    ab_bus_error_pack(&body, &in);
    assert_true(ab_wire_ok(body.data, body.len));
    assert_int_equal(ab_bus_error_unpack(body.data, body.len, 409, arena, &out), 0);
    assert_int_equal(out.code, 409);
    assert_string_equal(out.kind, "lost_lease");
    assert_string_equal(out.text, "jobs are not yours");
    assert_int_equal(out.retry_sec, 2);
    assert_int_equal(out.n_items, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(out.items[i].index == items[i].index);
        assert_true(out.items[i].id == items[i].id);
        assert_string_equal(out.items[i].reason, items[i].reason);
    }
}

static void a_broken_error_body_still_gives_an_error(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct ab_error_item item = {1, 2, "why"};
    struct ab_error in = {0}, out;
    (void)ab_fail(&in, 503, "busy");
    in.items = &item;
    in.n_items = 1;
    ab_bus_error_pack(&body, &in);
    for (size_t i = 0; i < body.len; i++) {
        for (int value = 0; value < 256; value++) {
            char *copy = malloc(body.len);
            memcpy(copy, body.data, body.len);
            copy[i] = (char)value;
            (void)ab_bus_error_unpack(copy, body.len, 503, arena, &out);
            assert_int_equal(out.code, 503);
            assert_in_range(out.retry_sec, 0, 3600);
            assert_true(out.n_items == 0 || out.items);
            free(copy);
        }
        ab_arena_reset(arena);
    }
    assert_int_equal(ab_bus_error_unpack("", 0, 500, arena, &out), -1);
    assert_int_equal(out.code, 500);
    assert_string_equal(out.kind, "error");
}

static void a_huge_count_of_items_allocates_nothing(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    static const char body[] = "\x81\xa5items\xdd\x00\x01\x86\xa0"; /* 100,000 items, none there */
    struct ab_error out;
    size_t before = ab_arena_size(arena);
    assert_int_equal(ab_bus_error_unpack(body, sizeof(body) - 1, 400, arena, &out), -1);
    assert_int_equal(out.n_items, 0);
    assert_int_equal(ab_arena_size(arena), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_comes_out_as_it_went_in),
        cmocka_unit_test(what_is_absent_stays_absent),
        cmocka_unit_test(elements_of_a_later_version_are_skipped),
        cmocka_unit_test(versions_may_differ_by_one),
        cmocka_unit_test(a_ready_comes_out_as_it_went_in),
        cmocka_unit_test(names_are_short_and_visible_and_numbers_sane),
        cmocka_unit_test(a_status_that_is_none_is_no_reply),
        cmocka_unit_test(broken_headers_are_refused_or_read_within_their_bytes),
        cmocka_unit_test(a_refusal_is_safe_in_a_log),
        cmocka_unit_test(a_hint_carries_owner_and_topic),
        cmocka_unit_test(an_error_comes_out_as_it_went_in),
        cmocka_unit_test(a_broken_error_body_still_gives_an_error),
        cmocka_unit_test(a_huge_count_of_items_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
