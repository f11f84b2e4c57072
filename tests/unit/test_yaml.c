/* test_yaml.c - YAML that people write, and YAML that somebody made to hurt */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "yaml/yaml.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static ab_arena_t *arena;
static struct ab_error err;

static int setup(void **state)
{
    (void)state;
    arena = ab_arena_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ab_arena_destroy(&arena);
    return 0;
}

static const struct ab_yaml *parse(const char *text)
{
    err = (struct ab_error){0};
    return ab_yaml_parse(arena, "f.yml", text, strlen(text), &err);
}

static const struct ab_yaml *good(const char *text)
{
    const struct ab_yaml *y = parse(text);
    if (!y)
        fail_msg("%s", err.text);
    return y;
}

static void bad(const char *text, const char *why)
{
    if (parse(text))
        fail_msg("`%s` was taken", text);
    if (!strstr(err.text, why))
        fail_msg("`%s` does not say `%s`", err.text, why);
}

static void maps_lists_and_texts_keep_their_places(void **state)
{
    (void)state;
    const struct ab_yaml *y = good("# comment\nname: eigen\nlist: [a, 'b', ~]\nmap:\n  x: 1\n  y: "
                                   "|\n    two\n    lines\nnothing:\n");
    assert_int_equal(y->type, AB_Y_MAP);
    assert_int_equal(y->n, 4);
    assert_string_equal(ab_yaml_get(y, "name")->text, "eigen");
    assert_int_equal(ab_yaml_get(y, "name")->line, 2);
    assert_int_equal(ab_yaml_get(y, "name")->column, 7);
    const struct ab_yaml *list = ab_yaml_get(y, "list");
    assert_int_equal(list->type, AB_Y_LIST);
    assert_int_equal(list->n, 3);
    assert_false(list->items[0].quoted);
    assert_true(list->items[1].quoted);
    assert_int_equal(list->items[2].type, AB_Y_NULL);
    assert_string_equal(ab_yaml_get(ab_yaml_get(y, "map"), "y")->text, "two\nlines\n");
    assert_int_equal(y->key_lines[3], 9);
    assert_int_equal(ab_yaml_get(y, "nothing")->type, AB_Y_NULL);
    assert_null(ab_yaml_get(y, "none"));
}

static void an_empty_file_is_an_empty_map(void **state)
{
    (void)state;
    static const char *const empty[] = {"",      "\n\n",      "# only a comment\n",
                                        "---\n", "  # x\n#y", "\xEF\xBB\xBF# bom\n"};
    for (size_t i = 0; i < AB_COUNT(empty); i++) {
        assert_int_equal(good(empty[i])->type, AB_Y_MAP);
        assert_int_equal(good(empty[i])->n, 0);
    }
}

static void what_we_do_not_use_is_refused_with_its_place(void **state)
{
    (void)state;
    bad("a: &x 1\nb: 2\n", "f.yml:1:4: anchors");
    bad("a: *x\n", "aliases");
    bad("a: !!int 1\n", "tags");
    bad("a: !x [1]\n", "tags");
    bad("a: 1\nb: 2\na: 3\n", "f.yml:3:1: key `a` stands twice, first in line 1");
    bad("---\na: 1\n---\nb: 2\n", "second document");
    bad("a: \"x\\0y\"\n", "NUL");
    bad("[1, 2]: x\n", "a key must be a plain word");
    bad("<<: {a: 1}\n", "merge keys");
    bad("%YAML 1.1\n---\na: 1\n", "directives");
    bad("a: [1, 2\n", "f.yml:2:1");
    bad("a: b: c\n", "f.yml:1:5");
    bad("\ta: 1\n", "f.yml:1:1");
    bad("a: 'x\n", "f.yml");
    bad("a: \xFF\n", "UTF-8");
    assert_null(ab_yaml_parse(arena, "f.yml", "a\0b", 3, &err));
    assert_non_null(strstr(err.text, "NUL"));
}

/* Deep, wide and long input ends in an error within a second, not in a long wait. */
static void hostile_input_is_refused_quickly(void **state)
{
    (void)state;
    size_t n = 250000;
    char *text = malloc(n + 1);
    int64_t began = ab_now_ms();
    memset(text, '[', n);
    text[n] = '\0';
    bad(text, "nested too deeply");
    memset(text, '{', n);
    bad(text, "");
    for (size_t i = 0; i + 2 <= n; i += 2)
        memcpy(text + i, "- ", 2);
    bad(text, "nested too deeply");
    for (size_t i = 0; i + 2 <= n; i += 2)
        memcpy(text + i, "? ", 2);
    bad(text, "");
    AB_AUTO(ab_buf_free) struct ab_buf wide = {0};
    for (int i = 0; wide.len < n; i++)
        ab_buf_printf(&wide, "k%d: 1\n", i);
    bad(wide.data, "too many keys");
    ab_buf_clear(&wide);
    while (wide.len < 300000)
        ab_buf_str(&wide, "# padding\n");
    bad(wide.data, "larger than");
    free(text);
    assert_true(ab_now_ms() - began
                < 8000); /* sanitizers are slow; without them it is some 50 ms */

    const struct ab_yaml *y;
    ab_buf_clear(&wide);
    for (int i = 0; i < 31; i++)
        ab_buf_char(&wide, '[');
    for (int i = 0; i < 31; i++)
        ab_buf_char(&wide, ']');
    y = good(wide.data);
    assert_int_equal(y->type, AB_Y_LIST);
}

static void unknown_keys_get_a_near_match(void **state)
{
    (void)state;
    static const char *const names[] = {"prefetch_depth", "wall_time"};
    const struct ab_yaml *y = good("wall_time: 5\nprefetch_dept: 3\n");
    assert_int_equal(ab_yaml_only("f.yml", y, names, 2, &err), -1);
    assert_string_equal(err.text,
                        "f.yml:2: unknown key `prefetch_dept`; did you mean `prefetch_depth`?");
    assert_int_equal(ab_yaml_only("f.yml", NULL, names, 2, &err), 0);
    assert_int_equal(ab_yaml_only("f.yml", &y->items[0], names, 2, &err), -1);
}

static void typed_readers_take_their_type_and_nothing_else(void **state)
{
    (void)state;
    const struct ab_yaml *y = good("i: 12\nq: '12'\nr: 1.5e3\nb: true\ny: yes\nd: 5m\ns: 90\nh: "
                                   "0.5\nl: [a, b]\nn: ~\nm: {}\nx: 0x10\nnan: nan\n");
    int64_t i;
    double r;
    bool b;
    const char *t, **list;
    size_t n;
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "i"), 0, 20, 7, &i, &err), 0);
    assert_int_equal(i, 12);
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "none"), 0, 20, 7, &i, &err), 0);
    assert_int_equal(i, 7);
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "n"), 0, 20, 7, &i, &err), 0);
    assert_int_equal(i, 7);
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "i"), 0, 10, 7, &i, &err), -1);
    assert_string_equal(err.text,
                        "f.yml:1:4: a whole number from 0 to 10 is wanted here, not `12`");
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "q"), 0, 20, 7, &i, &err), -1);
    assert_int_equal(ab_yaml_int("f.yml", ab_yaml_get(y, "x"), 0, 20, 7, &i, &err), -1);
    assert_int_equal(ab_yaml_real("f.yml", ab_yaml_get(y, "r"), 0, &r, &err), 0);
    assert_true(r > 1499.9 && r < 1500.1);
    assert_int_equal(ab_yaml_real("f.yml", ab_yaml_get(y, "nan"), 0, &r, &err), -1);
    assert_int_equal(ab_yaml_bool("f.yml", ab_yaml_get(y, "b"), false, &b, &err), 0);
    assert_true(b);
    assert_int_equal(ab_yaml_bool("f.yml", ab_yaml_get(y, "y"), false, &b, &err), -1);
    assert_int_equal(ab_yaml_duration("f.yml", ab_yaml_get(y, "d"), 1000, 0, &i, &err), 0);
    assert_int_equal(i, 300000);
    assert_int_equal(ab_yaml_duration("f.yml", ab_yaml_get(y, "s"), 1000, 0, &i, &err), 0);
    assert_int_equal(i, 90000);
    assert_int_equal(ab_yaml_duration("f.yml", ab_yaml_get(y, "h"), 60000, 0, &i, &err), 0);
    assert_int_equal(i, 30000);
    assert_int_equal(ab_yaml_duration("f.yml", ab_yaml_get(y, "b"), 1000, 0, &i, &err), -1);
    assert_int_equal(ab_yaml_text("f.yml", ab_yaml_get(y, "i"), NULL, &t, &err), 0);
    assert_string_equal(t, "12");
    assert_int_equal(ab_yaml_text("f.yml", ab_yaml_get(y, "l"), NULL, &t, &err), -1);
    assert_int_equal(ab_yaml_strings("f.yml", ab_yaml_get(y, "l"), arena, &list, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_string_equal(list[1], "b");
    assert_null(list[2]);
    assert_int_equal(ab_yaml_strings("f.yml", ab_yaml_get(y, "m"), arena, &list, &n, &err), -1);
}

static void scalars_that_are_written_are_read_back(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "plain",
        "two words",
        "~",
        "null",
        "true",
        "Yes",
        "12",
        "1.5",
        "0x1F",
        "1:30",
        "- a",
        "a: b",
        "a #b",
        "#",
        "'x'",
        "\"q\"",
        "a\\b",
        "tab\tnl\n",
        " blank ",
        "{a}",
        "[a]",
        "&a",
        "*a",
        "!t",
        "%x",
        "@x",
        "`x`",
        "---",
        "...",
        "tcp://h:1",
        "\x01",
        "\xC2\x85",
        "\xE2\x80\xA8",
        "\xEF\xBB\xBF",
        "\xC3\xBC\xF0\x9F\x8C\xB2",
        "a,b",
        "=",
        "2026-01-01",
        "<<",
        "?",
        "-",
        "|",
        ">",
        "\x7F",
    };
    for (size_t i = 0; i < AB_COUNT(texts); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        ab_buf_str(&out, "k: ");
        ab_yaml_scalar(&out, texts[i]);
        ab_buf_str(&out, "\nl: [");
        ab_yaml_scalar(&out, texts[i]);
        ab_buf_str(&out, "]\n");
        const struct ab_yaml *y = good(out.data);
        assert_int_equal(ab_yaml_get(y, "k")->type, AB_Y_TEXT);
        assert_string_equal(ab_yaml_get(y, "k")->text, texts[i]);
        assert_string_equal(ab_yaml_get(y, "l")->items[0].text, texts[i]);
    }
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_yaml_scalar(&out, "eigen");
    assert_string_equal(out.data, "eigen");
}

static void a_settings_file_fills_settings(void **state)
{
    (void)state;
    static const struct ab_setting table[] = {
        {"bus_port", AB_CONF_INT, "7440", ""},
        {"gateways", AB_CONF_LIST, NULL, ""},
        {"session_ttl", AB_CONF_DURATION, "5m", ""},
        {0},
    };
    const struct ab_setting *const tables[] = {table};
    char path[] = "/tmp/abies-test-yaml-XXXXXX";
    close(mkstemp(path));
    const char *text = "bus_port: 1\ngateways: [tcp://a:1, tcp://b:2]\nsession_ttl:\n";
    assert_int_equal(ab_file_write(path, text, strlen(text), 0600, &err), 0);
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 1);
    assert_int_equal(ab_yaml_conf(conf, path, &err), 0);
    assert_int_equal(ab_conf_int(conf, "bus_port"), 1);
    assert_string_equal(ab_conf_list(conf, "gateways")[1], "tcp://b:2");
    assert_int_equal(ab_conf_ms(conf, "session_ttl"), 300000);

    text = "bus_port: 1\n\nbus_prt: 2\n";
    assert_int_equal(ab_file_write(path, text, strlen(text), 0600, &err), 0);
    assert_int_equal(ab_yaml_conf(conf, path, &err), -1);
    assert_non_null(strstr(err.text, ":3: unknown setting `bus_prt`; did you mean `bus_port`?"));
    text = "bus_port: {a: 1}\n";
    assert_int_equal(ab_file_write(path, text, strlen(text), 0600, &err), 0);
    assert_int_equal(ab_yaml_conf(conf, path, &err), -1);
    unlink(path);
    assert_int_equal(ab_yaml_conf(conf, path, &err), -1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(maps_lists_and_texts_keep_their_places),
        TEST(an_empty_file_is_an_empty_map),
        TEST(what_we_do_not_use_is_refused_with_its_place),
        TEST(hostile_input_is_refused_quickly),
        TEST(unknown_keys_get_a_near_match),
        TEST(typed_readers_take_their_type_and_nothing_else),
        TEST(scalars_that_are_written_are_read_back),
        TEST(a_settings_file_fills_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
