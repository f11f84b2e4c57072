/* test_array.c - POST /jobs/array: a job for each combination of parameters */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

static int64_t user, site, app;

static int fresh(void **state)
{
    (void)state;
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    return 0;
}

static int books(void **state)
{
    (void)state;
    check_books();
    return 0;
}

/* Template's further members, the rest of the body. */
static int make(const char *more, const char *rest)
{
    return ask(user, "POST", "/jobs/array", "{'template': {'app_id': %" I "%s%s}, %s}", app,
               *more ? ", " : "", more, rest);
}

static int64_t jobs_there(void)
{
    return pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE owner_id = %" I, user);
}

/* "workdir {parameters}" of each job, in the order of their ids. */
static const char *made(void)
{
    return pg_text(desk_db(),
                   "SELECT string_agg(workdir || ' ' || parameters, ' ' ORDER BY id) FROM job_specs"
                   " WHERE owner_id = %" I,
                   user);
}

static void a_product_has_each_value_with_each_other_one(void **state)
{
    (void)state;
    assert_int_equal(make("'parameters': {'seed': 7, 'n': 0}, 'num_nodes': 2, 'tags': {'k': 'v'}",
                          "'workdir': 'run/{{n}}-{{mode}}', 'parameters': {'n': [1, 2.5], 'mode': "
                          "['fast', true, 'a b']}"),
                     201);
    assert_int_equal(num("count"), 6);
    assert_int_equal(len("ids"), 6);
    assert_int_equal(len(""), 2);
    assert_string_equal(made(), "run/1-fast {\"seed\":7,\"n\":1,\"mode\":\"fast\"} "
                                "run/1-true {\"seed\":7,\"n\":1,\"mode\":true} "
                                "run/1-a b {\"seed\":7,\"n\":1,\"mode\":\"a b\"} "
                                "run/2.5-fast {\"seed\":7,\"n\":2.5,\"mode\":\"fast\"} "
                                "run/2.5-true {\"seed\":7,\"n\":2.5,\"mode\":true} "
                                "run/2.5-a b {\"seed\":7,\"n\":2.5,\"mode\":\"a b\"}");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I, num("ids.5")), NO_BODY), 200);
    assert_string_equal(txt("workdir"), "run/2.5-a b");
    assert_string_equal(txt("state"), "STAGED_IN");
    assert_string_equal(txt("tags.k"), "v");
    assert_int_equal(num("num_nodes"), 2);
    assert_int_equal(num("ranks_per_node"), 1);
    assert_string_equal(history_of(num("id")), "CREATED>STAGED_IN");
    assert_int_equal(ask(user, "GET", "/jobs/?tags=k:v", NO_BODY), 200);
    assert_int_equal(num("count"), 6);
}

static void zip_takes_the_lists_side_by_side(void **state)
{
    (void)state;
    assert_int_equal(make("", "'combine': 'zip', 'workdir': '{{a}}/x', 'parameters': {'a': ['p', "
                              "'q'], 'b': [[1], {'c': null}]}"),
                     201);
    assert_string_equal(made(), "p/x {\"a\":\"p\",\"b\":[1]} q/x {\"a\":\"q\",\"b\":{\"c\":null}}");
    assert_int_equal(make("", "'combine': 'zip', 'workdir': '{{a}}', 'parameters': {'a': [1, 2], "
                              "'b': [1]}"),
                     422);
    assert_non_null(strstr(txt("text"), "a has 2 values and b has 1"));
}

static void one_combination_is_one_job(void **state)
{
    (void)state;
    assert_int_equal(make("", "'workdir': 'here', 'parameters': {'n': [1]}"), 201);
    assert_int_equal(num("count"), 1);
    assert_string_equal(made(), "here {\"n\":1}");
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *rest, *says;
    } wrong[] = {
        {"'workdir': 'r/{{n}}/{{m}}', 'parameters': {'n': [1]}", "names {{m}}"},
        {"'workdir': 'r/{{n', 'parameters': {'n': [1]}", "{{ without }} in \"{{n\""},
        {"'workdir': 'r/{{ n }}', 'parameters': {'n': [1]}", "names {{ n }}"},
        {"'workdir': 'r', 'parameters': {'n': [1, 2]}", "does not name {{n}}"},
        {"'workdir': 'r/{{n}}', 'parameters': {'n': [1], 'm': [1, 2]}", "does not name {{m}}"},
        {"'workdir': 'r', 'combine': 'zip', 'parameters': {'n': [1, 2]}", "names no parameter"},
        {"'workdir': '{{n}}', 'parameters': {}", "1 to 64 lists"},
        {"'workdir': '{{n}}', 'parameters': {'n': []}", "n must be a list"},
        {"'workdir': '{{n}}', 'parameters': {'n': 3}", "n must be a list"},
        {"'workdir': '{{n}}', 'parameters': {'n': 'abc'}", "n must be a list"},
        {"'workdir': '{{n}}', 'parameters': {'n': null}", "n must be a list"},
        {"'workdir': '{{n}}', 'parameters': {'': [1]}", "is no name"},
        {"'workdir': '{{n}}', 'parameters': {'a}}b': [1]}", "is no name"},
        {"'workdir': '{{n}}', 'parameters': {'n': [1, '../x']}", "value 1 of n"},
        {"'workdir': '{{n}}', 'parameters': {'n': ['..']}", "value 0 of n"},
        {"'workdir': '{{n}}', 'parameters': {'n': ['']}", "value 0 of n"},
        {"'workdir': '{{n}}', 'parameters': {'n': ['a\\nb']}", "value 0 of n"},
        {"'workdir': '{{n}}', 'parameters': {'n': [null]}", "value 0 of n"},
        {"'workdir': '{{n}}', 'parameters': {'n': [[1]]}", "value 0 of n"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        int status = make("", wrong[i].rest);
        if (status != 422 || !strstr(txt("text"), wrong[i].says))
            fail_msg("%s: %d %s", wrong[i].rest, status, answer());
    }
    /* the same folder twice: as in any list of jobs */
    assert_int_equal(make("", "'workdir': '{{n}}', 'parameters': {'n': [1, 2, 1]}"), 400);
    assert_int_equal(num("items.0.index"), 2);
    assert_int_equal(make("", "'workdir': '{{n}}', 'parameters': {'n': [1, '1']}"), 400);
    assert_int_equal(jobs_there(), 0);
}

static void what_no_schema_allows_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "{'template': {}, 'workdir': '{{n}}', 'parameters': {'n': [1]}}",
        "{'template': {'app_id': 1, 'num_nodes': 0}, 'workdir': '{{n}}', 'parameters': {'n': [1]}}",
        "{'template': {'app_id': 1}, 'parameters': {'n': [1]}}",
        "{'template': {'app_id': 1}, 'workdir': '/{{n}}', 'parameters': {'n': [1]}}",
        "{'template': {'app_id': 1}, 'workdir': '{{n}}'}",
        "{'template': {'app_id': 1}, 'workdir': '{{n}}', 'parameters': [1]}",
        "{'template': {'app_id': 1}, 'workdir': '{{n}}', 'parameters': {'n': [1]}, 'combine': 'x'}",
        ("{'template': {'app_id': 1, 'transfers': {'input': {'path': 'a'}}}, 'workdir': '{{n}}',"
         " 'parameters': {'n': [1]}}"),
        "[]",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(ask(user, "POST", "/jobs/array", "%s", wrong[i]), 422);
    assert_int_equal(jobs_there(), 0);
}

static void references_are_checked_as_in_any_list_of_jobs(void **state)
{
    (void)state;
    int64_t other = new_user(), foreign = new_app(other, new_site(other));
    const char *const rest = "'workdir': '{{n}}', 'parameters': {'n': [1, 2]}";
    assert_int_equal(
        ask(user, "POST", "/jobs/array", "{'template': {'app_id': %" I "}, %s}", foreign, rest),
        404);
    assert_int_equal(make("'parent_ids': [999999]", rest), 404);
    assert_int_equal(
        make("'transfers': {'nope': {'location_alias': 'beamline', 'path': '/p'}}", rest), 400);
    assert_int_equal(make("'transfers': {'input': {'location_alias': 'nope', 'path': '/p'}}", rest),
                     400);
    struct who agent = {.user = user, .token_site = new_site(user)};
    assert_int_equal(
        ask_as(&agent, "POST", "/jobs/array", "{'template': {'app_id': %" I "}, %s}", app, rest),
        404);
    assert_int_equal(jobs_there(), 0);
}

static void jobs_of_an_array_have_parents_and_files(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, "");
    assert_int_equal(
        make(path("'parent_ids': [%" I ", %" I "], 'retry': {'max_attempts': 3}, 'transfers':"
                  " {'input': {'location_alias': 'beamline', 'path': '/in/{{n}}/{{m}}.h5'},"
                  " 'output': {'location_alias': 'archive', 'path': '/out/all'}}",
                  parent, parent),
             "'workdir': 'w/{{n}}/{{m}}', 'parameters': {'n': [1, 2], 'm': ['a', 'b']}"),
        201);
    int64_t first = num("ids.0");
    assert_string_equal(state_of(first), "AWAITING_PARENTS");
    assert_string_equal(
        pg_text(desk_db(),
                "SELECT string_agg(remote_path || ' ' || direction || ' ' || state, ', ' ORDER BY"
                " direction, job_id) FROM transfer_items WHERE owner_id = %" I,
                user),
        "/in/1/a.h5 in pending, /in/1/b.h5 in pending, /in/2/a.h5 in pending, /in/2/b.h5 in "
        "pending, /out/all out awaiting_job, /out/all out awaiting_job, /out/all out "
        "awaiting_job, /out/all out awaiting_job");
    move(user, parent, "JOB_FINISHED");
    assert_string_equal(state_of(first), "READY");
    assert_string_equal(state_of(first + 3), "READY");
    assert_int_equal(ask(user, "GET", path("/jobs/?parent_id=%" I, parent), NO_BODY), 200);
    assert_int_equal(num("count"), 4);
    assert_int_equal(num("results.0.retry.max_attempts"), 3);
    assert_int_equal(make("'transfers': {'input': {'location_alias': 'beamline', 'path': "
                          "'/in/{{x}}'}}",
                          "'workdir': '{{n}}', 'parameters': {'n': [1]}"),
                     422);
    assert_non_null(strstr(txt("text"), "path of transfer input names {{x}}"));
}

static void list_of(struct ab_buf *out, int n)
{
    for (int i = 0; i < n; i++)
        ab_buf_printf(out, "%s%d", i ? "," : "[", i);
    ab_buf_char(out, ']');
}

static void a_hundred_thousand_are_one_call_and_one_more_is_too_many(void **state)
{
    (void)state;
    struct ab_buf body = {0};
    ab_buf_str(&body, "'workdir': 'w/{{i}}/{{k}}', 'parameters': {'i': ");
    list_of(&body, 400);
    ab_buf_str(&body, ", 'k': ");
    list_of(&body, 250);
    ab_buf_char(&body, '}');
    struct who once = {.user = user, .key = "the large one"};
    assert_int_equal(ask_as(&once, "POST", "/jobs/array", "{'template': {'app_id': %" I "}, %s}",
                            app, body.data),
                     201);
    assert_int_equal(num("count"), 100000);
    assert_int_equal(len("ids"), 100000);
    assert_int_equal(jobs_there(), 100000);
    int64_t first = num("ids.0"), last = num("ids.99999");
    assert_string_equal(pg_text(desk_db(),
                                "SELECT workdir || ' ' || parameters FROM job_specs"
                                " WHERE id = %" I,
                                last),
                        "w/399/249 {\"i\":399,\"k\":249}");
    const char *notice = noticed();
    assert_true(strlen(notice) < 100 * 1024);
    assert_non_null(strstr(notice, "\"count\":100000"));
    /* its repetition is the same answer, without more jobs */
    assert_int_equal(ask_as(&once, "POST", "/jobs/array", "{'template': {'app_id': %" I "}, %s}",
                            app, body.data),
                     201);
    assert_int_equal(num("count"), 100000);
    assert_int_equal(num("ids.0"), first);
    assert_int_equal(num("ids.99999"), last);
    assert_int_equal(jobs_there(), 100000);
    ab_buf_free(&body);

    ab_buf_str(&body, "'workdir': 'w/{{i}}', 'combine': 'zip', 'parameters': {'i': ");
    list_of(&body, 100001);
    ab_buf_char(&body, '}');
    assert_int_equal(make("", body.data), 422);
    assert_non_null(strstr(txt("text"), "more than 100000 jobs"));
    ab_buf_free(&body);
    /* and no product is so large that counting it would go wrong */
    ab_buf_str(&body, "'workdir': 'w', 'parameters': {");
    for (int i = 0; i < 64; i++)
        ab_buf_printf(&body, "%s'p%d': [1,2,3,4,5,6,7,8,9]", i ? "," : "", i);
    ab_buf_char(&body, '}');
    assert_int_equal(make("", body.data), 422);
    assert_non_null(strstr(txt("text"), "more than 100000 jobs"));
    ab_buf_free(&body);
    assert_int_equal(jobs_there(), 100000);
}

static void what_would_fill_the_memory_is_refused(void **state)
{
    (void)state;
    struct ab_buf body = {0};
    ab_buf_str(&body, "'workdir': 'w/{{i}}', 'parameters': {'i': ");
    list_of(&body, 20000);
    ab_buf_str(&body, ", 'big': ['");
    for (int i = 0; i < 8000; i++)
        ab_buf_char(&body, 'x');
    ab_buf_str(&body, "']}");
    assert_int_equal(make("", body.data), 413);
    ab_buf_free(&body);

    struct ab_buf data = {0};
    ab_buf_str(&data, "'data': {'big': '");
    for (int i = 0; i < 8000; i++)
        ab_buf_char(&data, 'x');
    ab_buf_str(&data, "'}");
    ab_buf_str(&body, "'workdir': 'w/{{i}}', 'parameters': {'i': ");
    list_of(&body, 20000);
    ab_buf_char(&body, '}');
    assert_int_equal(make(data.data, body.data), 413);
    ab_buf_free(&data);

    ab_buf_str(&data, "'parent_ids': ");
    list_of(&data, 30);
    assert_int_equal(make(data.data, body.data), 422);
    assert_non_null(strstr(txt("text"), "edges"));
    ab_buf_free(&data);
    ab_buf_free(&body);

    ab_buf_str(&body, "'workdir': '{{i}}', 'parameters': {'i': ['");
    for (int i = 0; i < 257; i++)
        ab_buf_char(&body, 'x');
    ab_buf_str(&body, "']}");
    assert_int_equal(make("", body.data), 422);
    assert_non_null(strstr(txt("text"), "256 characters"));
    ab_buf_free(&body);
    assert_int_equal(jobs_there(), 0);
}

static void one_failure_anywhere_makes_the_whole_array_or_nothing(void **state)
{
    (void)state;
    int64_t count = 0;
    bool fired = true;
    int refused = 0;
    for (int nth = 1; fired; nth++) {
        ab_fault_arm(nth);
        int status = make("", "'workdir': '{{n}}', 'parameters': {'n': [1, 2, 3]}");
        fired = ab_fault_fired();
        ab_fault_arm(0);
        refused += status == 503;
        if (status != 503)
            assert_int_equal(status, 201);
        count += status == 503 ? 0 : 3;
        assert_int_equal(jobs_there(), count);
        check_books();
    }
    assert_in_range(refused, 1, 100);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_product_has_each_value_with_each_other_one),
        TEST(zip_takes_the_lists_side_by_side),
        TEST(one_combination_is_one_job),
        TEST(what_is_wrong_is_named),
        TEST(what_no_schema_allows_is_refused),
        TEST(references_are_checked_as_in_any_list_of_jobs),
        TEST(jobs_of_an_array_have_parents_and_files),
        TEST(a_hundred_thousand_are_one_call_and_one_more_is_too_many),
        TEST(what_would_fill_the_memory_is_refused),
        TEST(one_failure_anywhere_makes_the_whole_array_or_nothing),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
