/* test_arena.c - request memory */
#include "base/arena.h"
#include "base/cleanup.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *p = ab_alloc(arena, 1, n);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAA, n);
    }
}

static void pieces_do_not_overlap_and_large_ones_keep_the_small_block(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    char *small = ab_strdup(arena, "small");
    char *large = ab_alloc(arena, 1000, 1000);
    memset(large, 'x', 1000000);
    char *next = ab_strdup(arena, "next");
    assert_string_equal(small, "small");
    assert_string_equal(next, "next");
    assert_true(next > small && next < small + 8192);
    assert_true(ab_arena_size(arena) >= 1000000);
}

static void reset_keeps_one_block_and_its_memory_is_zeroed_again(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    for (int i = 0; i < 1000; i++)
        memset(ab_alloc(arena, 1, 1000), 0xFF, 1000);
    assert_true(ab_arena_size(arena) > 1000000);
    ab_arena_reset(arena);
    assert_true(ab_arena_size(arena) <= 16384);
    unsigned char *p = ab_alloc(arena, 1, 1000);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], 0);
    for (int round = 0; round < 50; round++) {
        ab_arena_reset(arena);
        ab_printf(arena, "%d", round);
        assert_true(ab_arena_size(arena) <= 16384);
    }
}

static char order[8];

static void note(void *ptr)
{
    size_t n = strlen(order);
    order[n] = *(const char *)ptr;
}

static void deferred_calls_run_last_first_at_reset_and_at_the_end(void **state)
{
    (void)state;
    ab_arena_t *arena = ab_arena_new();
    memset(order, 0, sizeof(order));
    ab_defer(arena, note, ab_strdup(arena, "a"));
    ab_defer(arena, note, ab_strdup(arena, "b"));
    ab_arena_reset(arena);
    assert_string_equal(order, "ba");
    ab_defer(arena, note, ab_strdup(arena, "c"));
    ab_arena_destroy(&arena);
    assert_string_equal(order, "bac");
    assert_null(arena);
    ab_arena_destroy(&arena);
}

static void copies_end_with_nul(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    assert_string_equal(ab_strndup(arena, "abcdef", 3), "abc");
    assert_string_equal(ab_strndup(arena, NULL, 0), "");
    assert_memory_equal(ab_memdup(arena, "a\0b", 3), "a\0b", 3);
    char *text = ab_printf(arena, "%0600d-%s", 7, "end");
    assert_int_equal(strlen(text), 604);
    assert_string_equal(text + 599, "7-end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(pieces_do_not_overlap_and_large_ones_keep_the_small_block),
        cmocka_unit_test(reset_keeps_one_block_and_its_memory_is_zeroed_again),
        cmocka_unit_test(deferred_calls_run_last_first_at_reset_and_at_the_end),
        cmocka_unit_test(copies_end_with_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
