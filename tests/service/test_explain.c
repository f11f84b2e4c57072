/* test_explain.c - GET /jobs/{id}/explain says what keeps a job from running, and what to do */
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

/* The codes, in order: "site_down transfers". */
static const char *why(int64_t job)
{
    static char codes[512];
    codes[0] = '\0';
    assert_int_equal(ask(user, "GET", path("/jobs/%" I "/explain", job), NO_BODY), 200);
    assert_int_equal(num("id"), job);
    assert_int_equal(len(""), 3);
    for (int i = 0; i < len("reasons"); i++) {
        snprintf(codes + strlen(codes), sizeof(codes) - strlen(codes), "%s%s", i ? " " : "",
                 txt(path("reasons.%d.code", i)));
        assert_true(strlen(txt(path("reasons.%d.text", i))) > 10);
        assert_true(len(path("reasons.%d.ids", i)) >= 0);
    }
    return codes;
}

static void says(int nth, const char *words)
{
    if (!strstr(txt(path("reasons.%d.text", nth)), words))
        fail_msg("no \"%s\" in: %s", words, txt(path("reasons.%d.text", nth)));
}

static int64_t runnable(const char *fields)
{
    int64_t job = new_job(user, app, fields);
    move(user, job, "PREPROCESSED");
    return job;
}

static void site_falls_silent(void)
{
    pg_exec(desk_db(), "UPDATE sites SET last_refresh = now() - interval '3 hours' WHERE id = %" I,
            site);
}

static void batch_job_is(int64_t id, const char *state)
{
    assert_int_equal(ask(user, "PUT", path("/batch-jobs/%" I, id),
                         "{'state': '%s', 'start_time': '2020-01-01T00:00:00'}", state),
                     200);
    pg_exec(desk_db(), "UPDATE batch_jobs SET start_time = now() - interval '5 min' WHERE id = %" I,
            id);
}

/* ---- parents */

static void parents_are_named_by_what_became_of_them(void **state)
{
    (void)state;
    int64_t p[5];
    new_jobs(user, app, 5, p, "");
    int64_t job = new_job(user, app,
                          path("'parent_ids': [%" I ", %" I ", %" I ", %" I ", %" I "]", p[0], p[1],
                               p[2], p[3], p[4]));
    assert_string_equal(why(job), "parents");
    assert_string_equal(txt("state"), "AWAITING_PARENTS");
    assert_int_equal(len("reasons.0.ids"), 5);
    says(0, "waits for 5 parents");

    move(user, p[0], "JOB_FINISHED");
    move(user, p[1], "FAILED");
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, p[2]), NO_BODY), 204);
    assert_string_equal(why(job), "parents parents parents");
    assert_int_equal(num("reasons.0.ids.0"), p[1]);
    says(0, "1 of its parents have FAILED");
    assert_int_equal(num("reasons.1.ids.0"), p[2]);
    says(1, "deleted");
    assert_int_equal(len("reasons.2.ids"), 2);
    says(2, "waits for 2 parents");
    /* one that had finished before it was deleted is not waited for */
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, p[0]), NO_BODY), 204);
    move(user, p[1], "JOB_FINISHED");
    move(user, p[3], "JOB_FINISHED");
    move(user, p[4], "JOB_FINISHED");
    assert_string_equal(why(job), "parents");
    says(0, "deleted");
    move(user, job, "READY");
    assert_string_equal(why(job), "queued");
}

/* ---- files */

static void files_are_named_by_what_became_of_them(void **state)
{
    (void)state;
    int64_t job = new_job(user, app,
                          "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'},"
                          " 'more': {'location_alias': 'beamline', 'path': '/y'},"
                          " 'output': {'location_alias': 'archive', 'path': '/z'}}");
    assert_string_equal(why(job), "transfers");
    assert_int_equal(len("reasons.0.ids"), 2);
    says(0, "2 files are still to be transferred in");
    int64_t item = num("reasons.0.ids.0");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, item),
                         "{'state': 'error', 'transfer_info': {'error': 'no such file'}}"),
                     200);
    site_falls_silent();
    assert_string_equal(why(job), "site_down transfers transfers");
    says(0, "not heard of for 3 h");
    says(1, "no such file");
    assert_int_equal(num("reasons.1.ids.0"), item);
    move(user, job, "POSTPROCESSED");
    assert_string_equal(why(job), "site_down transfers");
    says(1, "1 files are still to be transferred out");
}

static void files_that_are_tried_again_say_when(void **state)
{
    (void)state;
    int64_t job = new_job(user, app,
                          "'retry': {'max_attempts': 3, 'on': ['stage_in'], 'backoff_sec': 600},"
                          " 'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}");
    why(job);
    int64_t item = num("reasons.0.ids.0");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, item), "{'state': 'error'}"), 200);
    assert_string_equal(why(job), "retry_wait");
    says(0, "in 10 min");
    assert_int_equal(num("reasons.0.ids.0"), item);
}

/* ---- hooks */

static void a_job_between_two_steps_waits_for_the_processing_module(void **state)
{
    (void)state;
    static const char *const states[][2] = {{"STAGED_IN", "preprocess"},
                                            {"RUN_DONE", "postprocess"},
                                            {"RUN_ERROR", "handle_error"},
                                            {"RUN_TIMEOUT", "handle_timeout"}};
    int64_t job = new_job(user, app, "");
    for (int i = 0; i < 4; i++) {
        move(user, job, states[i][0]);
        assert_string_equal(why(job), "queued");
        says(0, states[i][1]);
    }
    site_falls_silent();
    assert_string_equal(why(job), "site_down queued");
    /* a session of the site's own is a sign of life too */
    int64_t session = new_session(user, site, 0);
    assert_string_equal(why(job), "queued");
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}, 'states': ['RUN_TIMEOUT']}"),
                     200);
    assert_string_equal(why(job), "held");
    assert_int_equal(num("reasons.0.ids.0"), session);
    says(0, "hook");
}

/* ---- allocations */

static void a_runnable_job_needs_an_allocation(void **state)
{
    (void)state;
    int64_t job = runnable("'num_nodes': 2");
    assert_string_equal(why(job), "no_allocation");
    says(0, "abies queue submit");
    int64_t batch_job = new_batch_job(user, site); /* 4 nodes, 30 min */
    assert_string_equal(why(job), "queued");
    assert_int_equal(num("reasons.0.ids.0"), batch_job);
    says(0, "as soon as the batch system starts");
    site_falls_silent();
    assert_string_equal(why(job), "queued site_down");
    batch_job_is(batch_job, "running");
    assert_string_equal(why(job), "queued");
    says(0, "0 runnable jobs come before it");
    batch_job_is(batch_job, "finished");
    assert_string_equal(why(job), "site_down no_allocation");
}

static void the_place_in_the_queue_is_that_of_the_lease(void **state)
{
    (void)state;
    int64_t batch_job = new_batch_job(user, site);
    batch_job_is(batch_job, "running");
    int64_t large = runnable("'num_nodes': 3"), small = runnable("'num_nodes': 1"),
            urgent = runnable("'num_nodes': 4, 'priority': 1");
    why(large);
    says(0, "2 runnable jobs come before it");
    why(small);
    says(0, "1 runnable jobs come before it");
    why(urgent);
    says(0, "0 runnable jobs come before it");
    new_jobs(user, app, 1100, NULL, "");
    assert_int_equal(ask(user, "PUT", "/jobs/?state=STAGED_IN", "{'state': 'PREPROCESSED'}"), 200);
    why(large);
    says(0, "1000 or more runnable jobs come before it");
}

static void what_does_not_fit_says_why(void **state)
{
    (void)state;
    int64_t tags = new_batch_job(user, site), nodes = new_batch_job(user, site),
            minutes = new_batch_job(user, site), serial = new_batch_job(user, site);
    pg_exec(desk_db(), "UPDATE batch_jobs SET filter_tags = '{\"k\": \"v\"}' WHERE id = %" I, tags);
    pg_exec(desk_db(), "UPDATE batch_jobs SET num_nodes = 1 WHERE id = %" I, nodes);
    pg_exec(desk_db(), "UPDATE batch_jobs SET wall_time_min = 20 WHERE id = %" I, minutes);
    pg_exec(desk_db(), "UPDATE batch_jobs SET job_mode = 'serial' WHERE id = %" I, serial);
    batch_job_is(minutes, "running"); /* 15 minutes are left */
    int64_t job = runnable("'num_nodes': 2, 'wall_time_min': 16");
    assert_string_equal(why(job), "no_fit no_fit no_fit no_allocation");
    assert_int_equal(num("reasons.0.ids.0"), tags);
    assert_int_equal(num("reasons.1.ids.0"), nodes);
    assert_int_equal(num("reasons.1.ids.1"), serial);
    assert_int_equal(num("reasons.2.ids.0"), minutes);
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'wall_time_min': 14}"), 200);
    assert_string_equal(why(job), "queued");
    assert_int_equal(num("reasons.0.ids.0"), minutes);
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'wall_time_min': 16, 'tags': {'k': 'v', 'l': 'w'}}"),
                     200);
    assert_string_equal(why(job), "queued");
    assert_int_equal(len("reasons.0.ids"), 1);
    assert_int_equal(num("reasons.0.ids.0"), tags);
}

static void a_partition_counts_as_a_launcher(void **state)
{
    (void)state;
    assert_int_equal(
        ask(user, "POST", "/batch-jobs/",
            "{'site_id': %" I
            ", 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30, 'job_mode': "
            "'mpi', 'partitions': [{'job_mode': 'mpi', 'num_nodes': 3, 'filter_tags': {'k': 'v'}},"
            " {'job_mode': 'serial', 'num_nodes': 1, 'filter_tags': {}}]}",
            site),
        201);
    assert_string_equal(why(runnable("'num_nodes': 3, 'tags': {'k': 'v'}")), "queued");
    assert_string_equal(why(runnable("'num_nodes': 4, 'tags': {'k': 'v'}")),
                        "no_fit no_allocation");
    assert_string_equal(why(runnable("'num_nodes': 1")), "queued");
    assert_string_equal(why(runnable("'num_nodes': 1, 'ranks_per_node': 2")),
                        "no_fit no_allocation");
}

static void what_no_queue_of_the_site_gives_is_said_first(void **state)
{
    (void)state;
    assert_int_equal(ask(user, "PUT", path("/sites/%" I, site),
                         "{'allowed_queues': {'short': {'max_nodes': 100, 'max_walltime': 30, "
                         "'max_queued_jobs': 1}, 'long': {'max_nodes': 10, 'max_walltime': 1000, "
                         "'max_queued_jobs': 1}}}"),
                     200);
    new_batch_job(user, site);
    int64_t job = runnable("'num_nodes': 50, 'wall_time_min': 60");
    assert_string_equal(why(job), "no_fit");
    says(0, "50 nodes for 60 min");
    says(0, "at most 100 nodes, at most 1000 min");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'num_nodes': 1}"), 200);
    assert_string_equal(why(job), "no_fit no_allocation"); /* the batch job has 30 minutes */
}

static void a_leased_job_says_who_has_it(void **state)
{
    (void)state;
    int64_t batch_job = new_batch_job(user, site), job = runnable("");
    int64_t session = new_session(user, site, batch_job);
    assert_int_equal(
        ask(user, "POST", path("/sessions/%" I, session), "{'max_num_jobs': 1, 'filter_tags': {}}"),
        200);
    assert_string_equal(why(job), "held");
    assert_int_equal(num("reasons.0.ids.0"), session);
    says(0, path("in batch job %" I, batch_job));
    says(0, "as soon as it has room");
    move(user, job, "RUNNING");
    assert_string_equal(why(job), "held");
    says(0, "runs it (attempt 1)");
    assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", job), "{}"), 200);
    assert_string_equal(why(job), "cancelled held");
}

static void a_job_that_runs_nowhere_is_told(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    move(user, job, "RUNNING");
    assert_string_equal(why(job), "held");
    says(0, "no session has it");
    move(user, job, "CREATED");
    assert_string_equal(why(job), "held");
    says(0, "set another one");
}

static void a_job_that_waits_for_its_next_attempt_says_when(void **state)
{
    (void)state;
    int64_t job = runnable("'retry': {'max_attempts': 3, 'backoff_sec': 90}");
    move(user, job, "RUNNING");
    move(user, job, "RUN_ERROR");
    assert_string_equal(why(job), "retry_wait no_allocation");
    says(0, "attempt 1 of 3");
    says(0, "in 90 s");
    assert_int_equal(ask(user, "GET", path("/sites/%" I "/backlog", site), NO_BODY), 200);
    assert_int_equal(num("jobs.RESTART_READY"), 1);
    assert_int_equal(num("runnable.jobs"), 0); /* nobody needs nodes for it yet */
    assert_float_equal(real("runnable.nodes"), 0.0, 1e-9);
}

/* ---- ends */

static void an_end_says_how_it_came(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    move(user, job, "JOB_FINISHED");
    assert_string_equal(why(job), "done");
    says(0, "finished");
    job = new_job(user, app, "");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'state': 'FAILED', 'state_data': {'message': 'no licence'}}"),
                     200);
    assert_string_equal(why(job), "done");
    says(0, "FAILED (no licence)");
    job = new_job(user, app, "");
    assert_int_equal(
        ask(user, "POST", path("/jobs/%" I "/cancel", job), "{'reason': 'wrong input'}"), 200);
    assert_string_equal(why(job), "cancelled");
    says(0, "wrong input");
    job = new_job(user, app, "");
    move(user, job, "FAILED");
    assert_string_equal(why(job), "done");
    says(0, "does not say why");
}

static void words_of_others_are_cut_to_a_length(void **state)
{
    (void)state;
    struct ab_buf words = {0};
    int64_t job = new_job(user, app, "");
    for (int i = 0; i < 4000; i++)
        ab_buf_str(&words, "\xc3\xa9%s%n");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'state': 'FAILED', 'state_data': {'message': '%s', 'error': '%s'}}",
                         words.data, words.data),
                     200);
    assert_string_equal(why(job), "done");
    assert_in_range(strlen(txt("reasons.0.text")), 900, 1200);
    ab_buf_free(&words);
}

/* ---- whose */

static void only_the_owner_is_answered(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, ""), stranger = new_user();
    const char *where = path("/jobs/%" I "/explain", job);
    assert_int_equal(ask(stranger, "GET", where, NO_BODY), 404);
    assert_int_equal(ask(user, "GET", "/jobs/999999999/explain", NO_BODY), 404);
    assert_int_equal(ask_as(&(struct who){.user = user, .token_site = site}, "GET", where, NO_BODY),
                     200);
    assert_int_equal(
        ask_as(&(struct who){.user = user, .token_site = new_site(user)}, "GET", where, NO_BODY),
        404);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parents_are_named_by_what_became_of_them),
        TEST(files_are_named_by_what_became_of_them),
        TEST(files_that_are_tried_again_say_when),
        TEST(a_job_between_two_steps_waits_for_the_processing_module),
        TEST(a_runnable_job_needs_an_allocation),
        TEST(the_place_in_the_queue_is_that_of_the_lease),
        TEST(what_does_not_fit_says_why),
        TEST(a_partition_counts_as_a_launcher),
        TEST(what_no_queue_of_the_site_gives_is_said_first),
        TEST(a_leased_job_says_who_has_it),
        TEST(a_job_that_runs_nowhere_is_told),
        TEST(a_job_that_waits_for_its_next_attempt_says_when),
        TEST(an_end_says_how_it_came),
        TEST(words_of_others_are_cut_to_a_length),
        TEST(only_the_owner_is_answered),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
