/* test_table.c - tables fit the terminal, and nothing in them talks to it */
#include "base/arena.h"
#include "base/cleanup.h"
#include "cli/output.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char text[8192];

/* The table as it is printed for so many columns. */
static const char *printed(const struct table *t, int width)
{
    FILE *f = fmemopen(text, sizeof(text), "w");
    table_print(t, f, width);
    fclose(f);
    return text;
}

static void two_columns(struct table *t, ab_arena_t *arena, const char *a, const char *b)
{
    static const char *const heads[] = {"ID", "NAME"};
    table_begin(t, arena, heads, 2);
    t->right = 1;
    table_add(t, (const char *const[]){a, b});
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct table t;
    two_columns(&t, arena, "1234", "x");
    table_add(&t, (const char *const[]){"7", "longer name"});
    table_add(&t, (const char *const[]){NULL, "end"});
    assert_string_equal(printed(&t, 0), "  ID  NAME\n1234  x\n   7  longer name\n      end\n");
}

static void the_widest_column_is_cut_to_fit(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct table t;
    two_columns(&t, arena, "1", "abcdefghijklmnopqrstuvwxyz");
    assert_string_equal(printed(&t, 20), "ID  NAME\n 1  abcdefghijklmno\u2026\n");
    assert_string_equal(printed(&t, 30), "ID  NAME\n 1  abcdefghijklmnopqrstuvwxyz\n");
}

static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    static const char *const heads[] = {"A", "B", "C", "D"};
    for (int width = 40; width < 200; width += 7) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct table t;
        char cell[4][120];
        const char *cells[4];
        table_begin(&t, arena, heads, 4);
        for (int i = 0; i < 4; i++) {
            memset(cell[i], 'a' + i, sizeof(cell[i]));
            cell[i][(width * (i + 3)) % 119] = '\0';
            cells[i] = cell[i];
        }
        table_add(&t, cells);
        char *rest = (char *)printed(&t, width), *line;
        while ((line = strsep(&rest, "\n"))) {
            size_t columns = 0;
            for (const char *p = line; *p; p++)
                columns += ((unsigned char)*p & 0xC0) != 0x80;
            assert_true(columns <= (size_t)width);
        }
    }
}

static void characters_count_not_bytes(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct table t;
    static const char *const heads[] = {"NAME", "X"};
    table_begin(&t, arena, heads, 2);
    table_add(&t, (const char *const[]){"\u00fc\u00fc\u00fc", "1"});
    assert_string_equal(printed(&t, 0), "NAME  X\n\u00fc\u00fc\u00fc   1\n");
}

static void control_characters_never_reach_the_terminal(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct table t;
    two_columns(&t, arena, "1", "\x1b]0;owned\x07\x1b[2J\r\n\x7f\xc2\x9b\xff\xe2\x82");
    const char *out = printed(&t, 0);
    assert_string_equal(out, "ID  NAME\n 1  ?]0;owned??[2J?????\x3f?\n");
    for (const char *p = out; *p; p++)
        assert_true(*p == '\n' || (unsigned char)*p >= 0x20);
}

static void times_are_short(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    assert_string_equal(short_time(arena, 0.25), "0.2 s");
    assert_string_equal(short_time(arena, 59), "59 s");
    assert_string_equal(short_time(arena, 3600), "60 min");
    assert_string_equal(short_time(arena, 90000), "25 h");
    assert_string_equal(short_time(arena, 864000), "10 d");
    assert_string_equal(short_time(arena, -5), "0.0 s");
}

static void the_width_can_be_set(void **state)
{
    (void)state;
    setenv("COLUMNS", "77", 1);
    assert_int_equal(terminal_width(), 77);
    setenv("COLUMNS", "many", 1);
    assert_true(terminal_width() != 77);
    unsetenv("COLUMNS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(the_widest_column_is_cut_to_fit),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(characters_count_not_bytes),
        cmocka_unit_test(control_characters_never_reach_the_terminal),
        cmocka_unit_test(times_are_short),
        cmocka_unit_test(the_width_can_be_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
