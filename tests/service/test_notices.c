/* test_notices.c - /subscribe-user is told of jobs that are created, changed and deleted */
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

/* The last notice, whole. */
static void __attribute__((format(printf, 1, 2))) is_told(const char *format, ...)
{
    char want[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(want, sizeof(want), format, args);
    va_end(args);
    for (char *c = want; *c; c++)
        if (*c == '\'')
            *c = '"';
    assert_string_equal(noticed(), want);
}

static bool mentions(const char *words)
{
    return strstr(noticed(), words) != NULL;
}

static int patch(const int64_t *ids, int n, const char *fields)
{
    struct ab_buf body = {0};
    for (int i = 0; i < n; i++)
        ab_buf_printf(&body, "%s{'id': %" I ", %s}", i ? "," : "[", ids[i], fields);
    ab_buf_char(&body, ']');
    int status = ask(user, "PATCH", "/jobs/", "%s", body.data);
    ab_buf_free(&body);
    return status;
}

static void a_few_new_jobs_are_shown_whole(void **state)
{
    (void)state;
    new_jobs(user, app, 20, NULL, "'num_nodes': 3");
    assert_true(mentions("{\"action\":\"bulk-create\",\"type\":\"job\",\"data\":[{"));
    assert_true(mentions("\"num_nodes\":3"));
    assert_true(mentions("\"state\":\"STAGED_IN\""));
    assert_non_null(strstr(told(), path("n%" I, user)));
}

static void many_new_jobs_are_named_by_number(void **state)
{
    (void)state;
    int64_t ids[21];
    new_jobs(user, app, 21, ids, "");
    assert_true(mentions("{\"action\":\"bulk-create\",\"type\":\"job\",\"data\":{\"ids\":["));
    assert_true(mentions(path("%" I "],\"count\":21}}", ids[20])));
    new_jobs(user, app, 5000, NULL, "");
    assert_true(mentions("\"count\":5000}}"));
    assert_true(strlen(noticed()) < 64 * 1024);
}

static void a_large_job_is_named_by_number(void **state)
{
    (void)state;
    struct ab_buf data = {0};
    ab_buf_str(&data, "'data': {'x': '");
    for (int i = 0; i < 70000; i++)
        ab_buf_char(&data, 'x');
    ab_buf_str(&data, "'}");
    int64_t job = new_job(user, app, data.data);
    is_told("{'action':'bulk-create','type':'job','data':{'ids':[%" I "],'count':1}}", job);
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{%s}", data.data), 200);
    is_told("{'action':'bulk-update','type':'job','data':{'ids':[%" I "],'count':1}}", job);
    ab_buf_free(&data);
}

static void a_change_shows_what_was_sent_and_where_the_job_came_to(void **state)
{
    (void)state;
    int64_t ids[3], job;
    new_jobs(user, app, 3, ids, "");
    job = ids[0];
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'num_nodes': 2, 'tags': {'k': 'v'}, 'return_code': null}"),
                     200);
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I
            ",'tags':{'k':'v'},'return_code':null,'num_nodes':2}]}",
            job);
    /* asked for POSTPROCESSED, and JOB_FINISHED because nothing is to be staged out */
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'state': 'POSTPROCESSED', 'state_data': {'secret': 'of the event'}}"),
                     200);
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I ",'state':'JOB_FINISHED'}]}",
            job);
    /* the state it has already is no change */
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'state': 'JOB_FINISHED'}"), 200);
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I "}]}", job);
    /* several, each with its own */
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'state': 'RUNNING'}, {'id': %" I ", 'priority': 4}]",
                         ids[1], ids[2]),
                     200);
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I ",'state':'RUNNING'},{'id':%" I
            ",'priority':4}]}",
            ids[1], ids[2]);
    assert_int_equal(ask(user, "PUT", path("/jobs/?id=%" I, ids[2]), "{'state': 'PREPROCESSED'}"),
                     200);
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I ",'state':'PREPROCESSED'}]}",
            ids[2]);
}

static void a_run_that_is_tried_again_shows_where_it_ends_up(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "'retry': {'max_attempts': 2}");
    move(user, job, "RUNNING");
    move(user, job, "RUN_ERROR");
    is_told("{'action':'bulk-update','type':'job','data':[{'id':%" I ",'state':'RESTART_READY'}]}",
            job);
}

static void many_changes_are_named_by_number(void **state)
{
    (void)state;
    int64_t ids[21];
    new_jobs(user, app, 21, ids, "");
    assert_int_equal(patch(ids, 20, "'num_nodes': 2"), 200);
    assert_true(mentions("\"num_nodes\":2}]}"));
    assert_int_equal(patch(ids, 21, "'num_nodes': 3"), 200);
    assert_true(mentions("{\"action\":\"bulk-update\",\"type\":\"job\",\"data\":{\"ids\":["));
    assert_true(mentions("\"count\":21}}"));
    assert_int_equal(ask(user, "PUT", "/jobs/", "{'num_nodes': 4}"), 200);
    assert_true(mentions("\"count\":21}}"));
}

static void what_was_refused_is_not_told(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'num_nodes': 2}, {'id': 999999999, 'num_nodes': 2}]",
                         job),
                     400);
    assert_string_equal(noticed(), "");
    assert_int_equal(ask(user, "PUT", "/jobs/?tags=no:body", "{'num_nodes': 2}"), 200);
    assert_int_equal(num(""), 0);
    assert_string_equal(noticed(), "");
}

static void deletions_are_told(void **state)
{
    (void)state;
    int64_t ids[3];
    new_jobs(user, app, 3, ids, "");
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, ids[0]), NO_BODY), 204);
    is_told("{'action':'bulk-delete','type':'job','data':{'ids':[%" I "]}}", ids[0]);
    assert_int_equal(ask(user, "DELETE", "/jobs/", NO_BODY), 204);
    is_told("{'action':'bulk-delete','type':'job','data':{'ids':[%" I ",%" I "],'count':2}}",
            ids[1], ids[2]);
    assert_int_equal(ask(user, "DELETE", "/jobs/", NO_BODY), 204);
    assert_string_equal(noticed(), "");
    for (int i = 0; i < 3; i++)
        new_jobs(user, app, 2500, NULL, "");
    assert_int_equal(ask(user, "DELETE", "/jobs/", NO_BODY), 204);
    assert_true(mentions("\"count\":7500}}"));
    assert_true(strlen(noticed()) < 64 * 1024);
}

static void cancellations_are_told(void **state)
{
    (void)state;
    int64_t ids[2];
    new_jobs(user, app, 2, ids, "");
    move(user, ids[1], "RUNNING");
    assert_int_equal(ask(user, "POST", path("/jobs/cancel?id=%" I "&id=%" I, ids[0], ids[1]), "{}"),
                     200);
    is_told("{'action':'bulk-update','type':'job','data':{'ids':[%" I ",%" I "],'count':2}}",
            ids[0], ids[1]);
}

static void an_array_is_told_by_number(void **state)
{
    (void)state;
    assert_int_equal(ask(user, "POST", "/jobs/array",
                         "{'template': {'app_id': %" I "}, 'workdir': '{{n}}',"
                         " 'parameters': {'n': [1, 2]}}",
                         app),
                     201);
    is_told("{'action':'bulk-create','type':'job','data':{'ids':[%" I ",%" I "],'count':2}}",
            num("ids.0"), num("ids.1"));
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_few_new_jobs_are_shown_whole),
        TEST(many_new_jobs_are_named_by_number),
        TEST(a_large_job_is_named_by_number),
        TEST(a_change_shows_what_was_sent_and_where_the_job_came_to),
        TEST(a_run_that_is_tried_again_shows_where_it_ends_up),
        TEST(many_changes_are_named_by_number),
        TEST(what_was_refused_is_not_told),
        TEST(deletions_are_told),
        TEST(cancellations_are_told),
        TEST(an_array_is_told_by_number),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
