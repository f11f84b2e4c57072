/* test_value.c - free JSON as a tree, and replies as structs, for API clients */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    ab_arena_t *arena;
    struct ab_error err;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->arena = ab_arena_new();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ab_arena_destroy(&f->arena);
    free(f);
    return 0;
}

static const struct ab_value *parse(struct fixture *f, const char *text)
{
    return ab_value_parse(f->arena, text, strlen(text), &f->err);
}

static void a_tree_is_read_by_chained_calls(void **state)
{
    struct fixture *f = *state;
    const struct ab_value *v =
        parse(f, "{\"a\":{\"b\":[1,2.5,\"x\",true,null]},\"n\":7,\"big\":1e30,\"n\":8}");
    assert_non_null(v);
    const struct ab_value *list = ab_value_get(ab_value_get(v, "a"), "b");
    assert_int_equal(list->type, AB_V_LIST);
    assert_int_equal(list->n, 5);
    assert_int_equal(ab_value_int(&list->items[0], -1), 1);
    assert_int_equal(ab_value_int(&list->items[1], -1), 2);
    assert_true(ab_value_real(&list->items[1], 0) == 2.5);
    assert_true(ab_value_real(&list->items[0], 0) == 1);
    assert_string_equal(ab_value_text(&list->items[2], ""), "x");
    assert_true(ab_value_bool(&list->items[3], false));
    assert_int_equal(list->items[4].type, AB_V_NULL);
    assert_int_equal(ab_value_int(ab_value_get(v, "n"), 0), 8);
    assert_int_equal(ab_value_int(ab_value_get(v, "big"), -1), -1);
    assert_null(ab_value_get(ab_value_get(ab_value_get(v, "none"), "of"), "these"));
    assert_string_equal(ab_value_text(ab_value_get(v, "n"), "otherwise"), "otherwise");
    assert_true(ab_value_bool(NULL, true));
}

static void a_tree_is_written_as_it_was_read(void **state)
{
    struct fixture *f = *state;
    static const char *const texts[] = {"null",
                                        "true",
                                        "false",
                                        "0",
                                        "-5",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "2.5",
                                        "1e+300",
                                        "\"a\\\"\\\\\\n\xc3\xa9\"",
                                        "[]",
                                        "{}",
                                        "[1,[2,{\"a\":[]}]]",
                                        "{\"a\":{\"b\":null},\"c\":[false]}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        const struct ab_value *v = parse(f, texts[i]);
        assert_non_null(v);
        ab_value_write(&out, v);
        assert_string_equal(out.data, texts[i]);
    }
}

static void what_is_no_json_is_refused_with_its_place(void **state)
{
    struct fixture *f = *state;
    assert_null(parse(f, "{\"a\":\n  x}"));
    assert_string_equal(f->err.text, "not JSON: Expecting value (line 2, column 3)");
    assert_null(parse(f, ""));
    assert_null(parse(f, "[1] 2"));
    assert_null(parse(f, "[\"\\ud800\"]"));
    assert_null(parse(f, "[1e999]"));
    assert_null(parse(f, "\"\xff\""));
    char deep[131] = "";
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    assert_null(parse(f, deep));
    deep[129] = '\0'; /* one level less */
    assert_non_null(ab_value_parse(f->arena, deep + 1, 128, &f->err));
}

static void a_reply_may_be_an_object_a_list_or_a_page(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        size_t n;
        int64_t count;
    } rows[] = {
        {"{\"id\":1,\"name\":\"a\"}", 1, 1},
        {"[{\"id\":1},{\"id\":2}]", 2, 2},
        {"{\"count\":70,\"results\":[{\"id\":1}]}", 1, 70},
        {"{\"count\":0,\"results\":[]}", 0, 0},
        {"[]", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct ab_list list;
        int64_t count = -1;
        assert_int_equal(ab_json_read(&ab_schema_site, rows[i].text, strlen(rows[i].text), f->arena,
                                      &list, &count, &f->err),
                         0);
        assert_int_equal(list.n, rows[i].n);
        assert_int_equal(count, rows[i].count);
        const struct site *sites = list.v;
        for (size_t k = 0; k < list.n; k++)
            assert_int_equal(sites[k].id, k + 1);
    }
}

static void a_reply_is_read_tolerantly(void **state)
{
    struct fixture *f = *state;
    static const char text[] = "{\"id\":5,\"new_field\":{\"x\":1},\"state\":\"A_NEW_STATE\",\"num_"
                               "nodes\":null,\"tags\":{\"a\":\"b\"},"
                               "\"last_update\":\"2026-01-02T03:04:05.000678+00:00\",\"parent_"
                               "ids\":[1,2],\"workdir\":3,\"wall_time_min\":\"x\"}";
    struct ab_list list;
    assert_int_equal(
        ab_json_read(&ab_schema_job, text, sizeof(text) - 1, f->arena, &list, NULL, &f->err), 0);
    const struct job *job = list.v;
    assert_int_equal(job->id, 5);
    assert_false(AB_HAS(job, job, state)); /* a state that we do not know yet */
    assert_true(AB_HAS(job, job, num_nodes) && AB_IS_NULL(job, job, num_nodes));
    assert_int_equal(job->tags.n, 9);
    assert_memory_equal(job->tags.p, "{\"a\":\"b\"}", 9);
    assert_int_equal(job->last_update, INT64_C(1767323045000678));
    assert_int_equal(job->parent_ids.n, 2);
    assert_string_equal(job->workdir, "3");
    assert_false(AB_HAS(job, job, wall_time_min));
    assert_int_equal(ab_json_read(&ab_schema_job, "<html>", 6, f->arena, &list, NULL, &f->err), -1);
    assert_string_equal(f->err.text, "the reply is not JSON: Expecting value at character 0");
    assert_int_equal(ab_json_read(&ab_schema_job, "3", 1, f->arena, &list, NULL, &f->err), -1);
}

static void a_struct_is_written_with_the_fields_it_has(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct job_transfer files[] = {{.key = "in", .location_alias = "lab", .path = "/a\"b"}};
    AB_SET(job_transfer, &files[0], location_alias);
    AB_SET(job_transfer, &files[0], path);
    struct job job = {.workdir = "w",
                      .num_nodes = 3,
                      .state = AB_JOB_RUNNING,
                      .transfers = {files, 1},
                      .gpus_per_rank = 0.5};
    AB_SET(job, &job, workdir);
    AB_SET(job, &job, num_nodes);
    AB_SET(job, &job, transfers);
    AB_SET(job, &job, gpus_per_rank);
    AB_SET(job, &job, state); /* nothing that a creation carries */
    AB_SET_NULL(job, &job, return_code);
    ab_json_write(&out, &ab_schema_job, AB_CREATE, &job);
    assert_string_equal(
        out.data, "{\"workdir\":\"w\",\"return_code\":null,\"num_nodes\":3,\"gpus_per_rank\":0.5,"
                  "\"transfers\":{\"in\":{\"location_alias\":\"lab\",\"path\":\"/a\\\"b\"}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tree_is_read_by_chained_calls, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_tree_is_written_as_it_was_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_json_is_refused_with_its_place, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_reply_may_be_an_object_a_list_or_a_page, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_reply_is_read_tolerantly, set_up, tear_down),
        cmocka_unit_test(a_struct_is_written_with_the_fields_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
