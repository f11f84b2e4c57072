/* test_trace.c - W3C trace context */
#include "base/rand.h"
#include "base/trace.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "0af7651916cd43dd8448eb211c80319c"
#define GOOD "00-" ID "-b7ad6b7169203331-01"

static bool reads(const char *text, char id[AB_TRACE_ID])
{
    size_t n = strlen(text);
    char *exact = malloc(n ? n : 1); /* so that reading behind the end is seen */
    memcpy(exact, text, n);
    bool ok = ab_trace_read(exact, n, id);
    free(exact);
    return ok;
}

static void a_header_of_the_specification_gives_its_trace(void **state)
{
    char id[AB_TRACE_ID];
    (void)state;
    assert_true(reads(GOOD, id));
    assert_string_equal(id, ID);
    assert_true(reads("00-" ID "-b7ad6b7169203331-00", id));
    assert_true(reads("cc-" ID "-b7ad6b7169203331-01", id)); /* of a later version */
    assert_true(reads("cc-" ID "-b7ad6b7169203331-01-what-may-come", id));
}

static void anything_else_is_no_trace(void **state)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-" ID "-b7ad6b7169203331",
        "00-" ID "-b7ad6b7169203331-1",
        "00-" ID "-b7ad6b7169203331-01-more",
        "00-" ID "-b7ad6b7169203331-01 ",
        "cc-" ID "-b7ad6b7169203331-01.more",
        "ff-" ID "-b7ad6b7169203331-01",
        "0x-" ID "-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-" ID "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
        "00_" ID "_b7ad6b7169203331_01",
        "00-" ID "-b7ad6b716920333'-01",
        "00-" ID "-b7ad6b7169203331-0/",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char id[AB_TRACE_ID] = "x";
        if (reads(bad[i], id))
            fail_msg("taken: %s", bad[i]);
        assert_string_equal(id, "");
    }
}

static void what_is_written_can_be_read_and_is_a_part_of_its_own(void **state)
{
    char id[AB_TRACE_ID], again[AB_TRACE_ID], one[AB_TRACE_TEXT], two[AB_TRACE_TEXT];
    uint8_t uuid[16];
    (void)state;
    ab_trace_new(id);
    ab_uuid7(uuid);
    ab_trace_write(id, uuid, one);
    ab_uuid7(uuid);
    ab_trace_write(id, uuid, two);
    assert_int_equal(strlen(one), AB_TRACE_TEXT - 1);
    assert_string_not_equal(one, two);
    assert_true(reads(one, again));
    assert_string_equal(again, id);
}

static void a_request_without_a_trace_has_its_own_number_as_one(void **state)
{
    char id[AB_TRACE_ID], header[AB_TRACE_TEXT], text[AB_UUID_TEXT];
    uint8_t uuid[16];
    (void)state;
    ab_uuid7(uuid);
    ab_uuid_text(uuid, text);
    ab_trace_of(uuid, id);
    ab_trace_write(id, uuid, header);
    assert_memory_equal(id, text, 8);
    assert_true(reads(header, id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_of_the_specification_gives_its_trace),
        cmocka_unit_test(anything_else_is_no_trace),
        cmocka_unit_test(what_is_written_can_be_read_and_is_a_part_of_its_own),
        cmocka_unit_test(a_request_without_a_trace_has_its_own_number_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
