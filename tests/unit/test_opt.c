/* test_opt.c - command lines of the CLI */
#include "base/cleanup.h"
#include "base/opt.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct got {
    const char *state;
    bool by_state, json;
    int64_t limit;
    struct ab_opt_list tags;
    char *argv[12];
    char **rest;
    int argc;
    struct ab_error err;
};

static int parse(struct got *g, const char *const *words)
{
    const struct ab_opt options[] = {
        AB_OPT_TEXT('s', "state", &g->state, "STATE", "only jobs in this state"),
        AB_OPT_FLAG('b', "by-state", &g->by_state, "count them by state"),
        AB_OPT_FLAG('j', "json", &g->json, "print JSON"),
        AB_OPT_INT('n', "limit", &g->limit, "N", "at most this many"),
        {'t', "tag", "tag", AB_OPT_KIND_LIST, &g->tags, "KEY=VALUE", "only jobs with this tag"},
        {0},
    };
    int n = 0;
    for (; words[n]; n++)
        g->argv[n] = (char *)words[n];
    g->argv[n] = NULL;
    g->argc = n;
    g->rest = g->argv;
    return ab_opt_parse("abies job ls", "[ID...]", "List jobs", options, &g->argc, &g->rest,
                        &g->err);
}

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static void options_are_taken_out_in_every_gnu_form(void **state)
{
    (void)state;
    struct got g = {0};
    assert_int_equal(
        parse(&g, WORDS("1", "--state", "READY", "-bn5", "--tag=a=1", "2", "-t", "b=2", "-tc=3")),
        0);
    assert_string_equal(g.state, "READY");
    assert_true(g.by_state);
    assert_false(g.json);
    assert_int_equal(g.limit, 5);
    assert_int_equal(g.tags.n, 3);
    assert_string_equal(g.tags.v[0], "a=1");
    assert_string_equal(g.tags.v[2], "c=3");
    assert_int_equal(g.argc, 2);
    assert_string_equal(g.rest[0], "1");
    assert_string_equal(g.rest[1], "2");
}

static void two_dashes_end_options_and_single_dash_and_numbers_are_none(void **state)
{
    (void)state;
    struct got g = {0};
    assert_int_equal(parse(&g, WORDS("-", "-5", "-j", "--", "--state", "-x")), 0);
    assert_true(g.json);
    assert_null(g.state);
    assert_int_equal(g.argc, 4);
    assert_string_equal(g.rest[2], "--state");
}

static void old_long_names_with_one_dash_work(void **state)
{
    (void)state;
    struct got g = {0};
    assert_int_equal(parse(&g, WORDS("-tag", "x=1", "-tag=y=2")), 0);
    assert_int_equal(g.tags.n, 2);
    assert_string_equal(g.tags.v[1], "y=2");
}

static void mistakes_get_a_near_match(void **state)
{
    (void)state;
    struct got g = {0};
    assert_int_equal(parse(&g, WORDS("--stat=READY")), -1);
    assert_non_null(strstr(g.err.text, "did you mean --state?"));
    assert_int_equal(parse(&g, WORDS("-x")), -1);
    assert_int_equal(parse(&g, WORDS("--limit", "many")), -1);
    assert_non_null(strstr(g.err.text, "whole number"));
    assert_int_equal(parse(&g, WORDS("--limit")), -1);
    assert_non_null(strstr(g.err.text, "needs a value"));
    assert_int_equal(parse(&g, WORDS("--json=1")), -1);
}

static void help_wins(void **state)
{
    (void)state;
    struct got g = {0};
    assert_int_equal(parse(&g, WORDS("--help")), 1);
    assert_int_equal(parse(&g, WORDS("x", "-h")), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_taken_out_in_every_gnu_form),
        cmocka_unit_test(two_dashes_end_options_and_single_dash_and_numbers_are_none),
        cmocka_unit_test(old_long_names_with_one_dash_work),
        cmocka_unit_test(mistakes_get_a_near_match),
        cmocka_unit_test(help_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
