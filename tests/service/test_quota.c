/* test_quota.c - a user has so many jobs and sites and no more */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int no_limits(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "0");
    desk_set("jobs", "max_sites", "0");
    check_books();
    return 0;
}

static void users_limit(const char *column, const char *value)
{
    pg_exec(desk_db(), "UPDATE users SET %s = %s WHERE id = %" I, column, value, user);
}

static int create(int n)
{
    static int made;
    struct ab_buf body = {0};
    ab_buf_char(&body, '[');
    for (int i = 0; i < n; i++)
        ab_buf_printf(&body, "%s{'app_id': %" I ", 'workdir': '%d'}", i ? "," : "", app, ++made);
    ab_buf_char(&body, ']');
    int status = ask(user, "POST", "/jobs/", "%s", body.data);
    ab_buf_free(&body);
    return status;
}

static int64_t jobs_there(void)
{
    return pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE owner_id = %" I, user);
}

static void beyond_the_limit_no_job_of_the_call_is_created(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "10");
    assert_int_equal(create(8), 201);
    assert_int_equal(create(3), 403);
    assert_string_equal(txt("kind"), "quota");
    assert_non_null(strstr(txt("text"), "max_jobs"));
    assert_non_null(strstr(txt("text"), "you have 8 that have not ended, and may have 10"));
    assert_non_null(strstr(txt("text"), "so 2 would do"));
    assert_int_equal(jobs_there(), 8);
    assert_int_equal(create(2), 201);
    assert_int_equal(create(1), 403);
    assert_int_equal(create(0), 201);
    assert_int_equal(ask(user, "POST", "/jobs/array",
                         "{'template': {'app_id': %" I "}, 'workdir': '{{n}}',"
                         " 'parameters': {'n': [1]}}",
                         app),
                     403);
    assert_int_equal(jobs_there(), 10);
}

static void what_has_ended_does_not_count(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "3");
    assert_int_equal(create(3), 201);
    int64_t job = num("0.id");
    assert_int_equal(create(1), 403);
    move(user, job, "JOB_FINISHED");
    assert_int_equal(create(1), 201);
    move(user, job + 1, "FAILED");
    assert_int_equal(create(1), 201);
    assert_int_equal(create(1), 403);
    assert_int_equal(ask(user, "DELETE", "/jobs/?state=STAGED_IN", NO_BODY), 204);
    assert_int_equal(create(3), 201);
}

static void other_users_do_not_count(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "3");
    assert_int_equal(create(3), 201);
    fresh(NULL);
    assert_int_equal(create(3), 201);
}

static void a_user_may_have_a_limit_of_his_own(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "3");
    users_limit("max_jobs", "5");
    assert_int_equal(create(5), 201);
    assert_int_equal(create(1), 403);
    users_limit("max_jobs", "0");
    assert_int_equal(create(1), 201);
    users_limit("max_jobs", "NULL");
    assert_int_equal(create(1), 403);
    users_limit("max_jobs", "5"); /* fewer than there are */
    assert_int_equal(create(1), 403);
    assert_non_null(strstr(txt("text"), "so 0 would do"));
}

static void a_wrong_job_is_said_before_the_limit(void **state)
{
    (void)state;
    desk_set("jobs", "max_jobs", "1");
    assert_int_equal(ask(user, "POST", "/jobs/",
                         "[{'app_id': 999999, 'workdir': 'a'}, {'app_id': 999999, 'workdir': "
                         "'b'}]"),
                     404);
}

static void two_at_once_do_not_slip_in_together(void **state)
{
    (void)state;
    enum {
        CALLERS = 4,
        CALLS = 20
    };
    pid_t pids[CALLERS];
    users_limit("max_jobs", "37");
    for (int k = 0; k < CALLERS; k++) {
        pids[k] = fork();
        assert_true(pids[k] >= 0);
        if (pids[k] > 0)
            continue;
        desk_open(NULL);
        for (int i = 0; i < CALLS; i++) {
            int status = create(1);
            if (status != 201 && status != 403)
                _exit(1);
        }
        _exit(0);
    }
    for (int k = 0; k < CALLERS; k++) {
        int status;
        assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(jobs_there(), 37);
}

static void sites_have_a_limit_too(void **state)
{
    (void)state;
    static const char body[] = "{'name': '%s', 'path': '/p'}";
    char text[64];
    desk_set("jobs", "max_sites", "2");
    snprintf(text, sizeof(text), body, "second");
    assert_int_equal(ask(user, "POST", "/sites/", "%s", text), 201);
    int64_t second = num("id");
    snprintf(text, sizeof(text), body, "third");
    assert_int_equal(ask(user, "POST", "/sites/", "%s", text), 403);
    assert_string_equal(txt("kind"), "quota");
    assert_non_null(strstr(txt("text"), "max_sites"));
    assert_int_equal(ask(user, "PUT", path("/sites/%" I, second), "{'name': 'other'}"), 200);
    users_limit("max_sites", "3");
    assert_int_equal(ask(user, "POST", "/sites/", "%s", text), 201);
    assert_int_equal(ask(user, "DELETE", path("/sites/%" I, second), NO_BODY), 204);
    snprintf(text, sizeof(text), body, "fourth");
    assert_int_equal(ask(user, "POST", "/sites/", "%s", text), 201);
}

static void a_job_at_the_limit_says_so(void **state)
{
    (void)state;
    users_limit("max_jobs", "2");
    assert_int_equal(create(2), 201);
    int64_t job = num("0.id");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I "/explain", job), NO_BODY), 200);
    assert_string_equal(txt("reasons.1.code"), "quota");
    assert_non_null(strstr(txt("reasons.1.text"), "2 jobs that have not ended"));
    move(user, job + 1, "JOB_FINISHED");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I "/explain", job), NO_BODY), 200);
    assert_int_equal(len("reasons"), 1);
    assert_int_equal(ask(user, "GET", path("/jobs/%" I "/explain", job + 1), NO_BODY), 200);
    assert_string_equal(txt("reasons.0.code"), "done");
    assert_int_equal(len("reasons"), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, no_limits)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(beyond_the_limit_no_job_of_the_call_is_created),
        TEST(what_has_ended_does_not_count),
        TEST(other_users_do_not_count),
        TEST(a_user_may_have_a_limit_of_his_own),
        TEST(a_wrong_job_is_said_before_the_limit),
        TEST(two_at_once_do_not_slip_in_together),
        TEST(sites_have_a_limit_too),
        TEST(a_job_at_the_limit_says_so),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
