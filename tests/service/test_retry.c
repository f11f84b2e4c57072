/* test_retry.c - a job with a retry policy runs again by itself, so often and no more */
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

/* A job that is runnable. */
static int64_t runnable(const char *retry)
{
    int64_t job = new_job(user, app, *retry ? path("'retry': {%s}", retry) : "");
    move(user, job, "PREPROCESSED");
    return job;
}

static void end_run(int64_t job, const char *state, const char *data)
{
    move(user, job, "RUNNING");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'state': '%s', 'state_data': {%s}}",
                         state, data),
                     200);
}

/* Ids that a launcher gets, "" for none. */
static const char *leased(int64_t session, const char *more)
{
    static char text[1024];
    text[0] = '\0';
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 100, 'filter_tags': {}%s%s}", *more ? ", " : "", more),
                     200);
    for (int i = 0; i < len(""); i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%" I, i ? " " : "",
                 num(path("%d.id", i)));
    return text;
}

static const char *last_event(int64_t job, const char *key)
{
    return pg_text(desk_db(),
                   "SELECT data->>'%s' FROM events WHERE job_id = %" I " ORDER BY id DESC LIMIT 1",
                   key, job);
}

static int64_t attempts_of(int64_t job)
{
    return pg_int(desk_db(), "SELECT attempts FROM jobs WHERE id = %" I, job);
}

/* ---- runs */

static void a_failed_run_is_tried_again_until_no_attempt_is_left(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 2");
    end_run(job, "RUN_ERROR", "'returncode': 3, 'error': 'tail'");
    assert_string_equal(state_of(job), "RESTART_READY");
    assert_string_equal(last_event(job, "message"), "attempt 1 of 2 ended (exit): the next one");
    assert_string_equal(last_event(job, "cause"), "exit");
    assert_string_equal(last_event(job, "attempt"), "1");
    assert_string_equal(last_event(job, "max_attempts"), "2");
    end_run(job, "RUN_ERROR", "'returncode': 3");
    assert_string_equal(state_of(job), "FAILED");
    assert_string_equal(
        history_of(job),
        "CREATED>STAGED_IN STAGED_IN>PREPROCESSED PREPROCESSED>RUNNING RUNNING>RUN_ERROR "
        "RUN_ERROR>RESTART_READY:attempt 1 of 2 ended (exit): the next one RESTART_READY>RUNNING "
        "RUNNING>RUN_ERROR RUN_ERROR>FAILED:attempt 2 of 2 ended (exit): none is left");
    assert_int_equal(
        ask(user, "GET", path("/events/?job_id=%" I "&ordering=timestamp", job), NO_BODY), 200);
    assert_int_equal(num("count"), 8);
    assert_string_equal(txt("results.7.to_state"), "FAILED");
    assert_string_equal(txt("results.6.to_state"), "RUN_ERROR");
    assert_int_equal(num("results.3.data.returncode"), 3);
}

static void without_a_policy_the_hooks_decide(void **state)
{
    (void)state;
    int64_t job = runnable("");
    end_run(job, "RUN_ERROR", "'returncode': 3");
    assert_string_equal(state_of(job), "RUN_ERROR");
    move(user, job, "RESTART_READY");
    end_run(job, "RUN_TIMEOUT", "");
    assert_string_equal(state_of(job), "RUN_TIMEOUT");
    assert_int_equal(attempts_of(job), 2);
}

static void the_cause_decides_and_other_causes_are_left_to_the_hooks(void **state)
{
    (void)state;
    static const struct {
        const char *on, *state, *data, *then;
    } cases[] = {
        {"'exit'", "RUN_ERROR", "'returncode': 1", "RESTART_READY"},
        {"'exit'", "RUN_ERROR", "", "RESTART_READY"},
        {"'exit'", "RUN_ERROR", "'returncode': 255", "RESTART_READY"},
        {"'exit'", "RUN_ERROR", "'returncode': -9", "RUN_ERROR"},
        {"'exit'", "RUN_ERROR", "'returncode': 137", "RUN_ERROR"},
        {"'exit'", "RUN_TIMEOUT", "", "RUN_TIMEOUT"},
        {"'signal'", "RUN_ERROR", "'returncode': -9", "RESTART_READY"},
        {"'signal'", "RUN_ERROR", "'returncode': 137", "RESTART_READY"},
        {"'signal'", "RUN_ERROR", "'returncode': '137'", "RUN_ERROR"},
        {"'signal'", "RUN_ERROR", "'returncode': 1e300", "RUN_ERROR"},
        {"'walltime'", "RUN_TIMEOUT", "'message': 'killed'", "RESTART_READY"},
        {"'walltime'", "RUN_ERROR", "'returncode': 1", "RUN_ERROR"},
        {"'node_loss'", "RUN_TIMEOUT", "", "RUN_TIMEOUT"},
        {"'node_loss'", "RUN_TIMEOUT", "'cause': 'node_loss'", "RESTART_READY"},
        {"'node_loss'", "RUN_TIMEOUT", "'cause': 'nonsense'", "RUN_TIMEOUT"},
        {"'node_loss'", "RUN_TIMEOUT", "'cause': ['node_loss']", "RUN_TIMEOUT"},
        {"'stage_in'", "RUN_ERROR", "'cause': 'stage_in'", "RUN_ERROR"},
        {"", "RUN_ERROR", "", "RUN_ERROR"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t job = runnable(path("'max_attempts': 9, 'on': [%s]", cases[i].on));
        end_run(job, cases[i].state, cases[i].data);
        if (strcmp(state_of(job), cases[i].then) != 0)
            fail_msg("on %s, %s {%s}: %s", cases[i].on, cases[i].state, cases[i].data,
                     state_of(job));
    }
}

static void max_attempts_counts_every_run_whatever_ended_it(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 2, 'on': ['exit']");
    end_run(job, "RUN_TIMEOUT", "");
    move(user, job, "RESTART_READY"); /* a hook */
    end_run(job, "RUN_TIMEOUT", "");
    assert_string_equal(state_of(job), "FAILED");
    assert_string_equal(last_event(job, "message"),
                        "attempt 2 of 2 ended (walltime): none is left");
}

static void a_run_that_nobody_reported_as_running_is_an_attempt_too(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 2");
    for (int i = 1; i <= 2; i++) {
        move(user, job, "RUN_ERROR");
        assert_int_equal(attempts_of(job), i);
    }
    assert_string_equal(state_of(job), "FAILED");
}

static void no_hook_is_asked_about_what_the_service_has_decided(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 3"), launcher = new_session(user, site, 0),
            processing = new_session(user, site, 0);
    assert_string_equal(leased(launcher, ""), path("%" I, job));
    int64_t lease = num("0.lease");
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'lease': %" I ", 'state': 'RUNNING'}]", job, lease),
                     200);
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'lease': %" I ", 'state': 'RUN_ERROR'}]", job, lease),
                     200);
    assert_string_equal(state_of(job), "RESTART_READY");
    assert_string_equal(leased(processing, "'states': ['STAGED_IN', 'RUN_DONE', 'RUN_ERROR', "
                                           "'RUN_TIMEOUT']"),
                        "");
    /* the same report once more, as a new request: its lease is over */
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'lease': %" I ", 'state': 'RUN_ERROR', 'data': {}}]", job,
                         lease),
                     409);
    assert_string_equal(leased(launcher, ""), path("%" I, job));
    assert_int_equal(attempts_of(job), 1);
}

static void jobs_of_one_report_go_their_own_ways(void **state)
{
    (void)state;
    enum {
        N = 900
    };
    int64_t ids[N];
    struct ab_buf body = {0};
    new_jobs(user, app, N / 3, ids, "'retry': {'max_attempts': 2}");
    new_jobs(user, app, N / 3, ids + N / 3, "'retry': {'max_attempts': 1}");
    new_jobs(user, app, N / 3, ids + 2 * N / 3, "");
    assert_int_equal(ask(user, "PUT", "/jobs/", "{'state': 'RUNNING'}"), 200);
    for (int i = 0; i < N; i++)
        ab_buf_printf(&body, "%s{'id': %" I ", 'state': 'RUN_ERROR'}", i ? "," : "", ids[i]);
    assert_int_equal(ask(user, "PATCH", "/jobs/", "[%s]", body.data), 200);
    assert_int_equal(num(""), N);
    ab_buf_free(&body);
    assert_string_equal(
        pg_text(desk_db(),
                "SELECT string_agg(state || ' ' || n, ', ' ORDER BY state) FROM (SELECT state,"
                " count(*) AS n FROM jobs WHERE owner_id = %" I " GROUP BY state) AS s",
                user),
        "FAILED 300, RESTART_READY 300, RUN_ERROR 300");
}

/* ---- lost sessions */

static void a_job_whose_launcher_is_lost_runs_again(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 3"), session = new_session(user, site, 0);
    assert_string_equal(leased(session, ""), path("%" I, job));
    move(user, job, "RUNNING");
    pg_exec(desk_db(), "UPDATE sessions SET heartbeat = now() - interval '1 hour' WHERE id = %" I,
            session);
    tick("sessions", "sweep");
    assert_string_equal(state_of(job), "RESTART_READY");
    assert_string_equal(last_event(job, "message"),
                        "attempt 1 of 3 ended (node_loss): the next one");
    char lost[256];
    snprintf(lost, sizeof(lost),
             "RUNNING>RUN_TIMEOUT:Session %" I " ended while the job was RUNNING "
             "RUN_TIMEOUT>RESTART_READY:attempt 1 of 3 ended (node_loss): the next one",
             session);
    assert_non_null(strstr(history_of(job), lost));
    assert_string_equal(leased(new_session(user, site, 0), ""), path("%" I, job));
}

static void a_job_that_kills_its_nodes_does_not_go_on_for_ever(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 3, 'on': ['node_loss']");
    for (int i = 1; i <= 3; i++) {
        int64_t session = new_session(user, site, 0);
        assert_string_equal(leased(session, ""), path("%" I, job));
        move(user, job, "RUNNING");
        assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
        assert_string_equal(state_of(job), i < 3 ? "RESTART_READY" : "FAILED");
    }
    assert_string_equal(last_event(job, "message"),
                        "attempt 3 of 3 ended (node_loss): none is left");
    assert_string_equal(leased(new_session(user, site, 0), ""), "");
}

static void a_lost_session_leaves_other_jobs_to_their_hooks(void **state)
{
    (void)state;
    int64_t plain = runnable(""), other = runnable("'max_attempts': 3, 'on': ['exit']"),
            unstarted = runnable("'max_attempts': 3"), session = new_session(user, site, 0);
    leased(session, "");
    move(user, plain, "RUNNING");
    move(user, other, "RUNNING");
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_string_equal(state_of(plain), "RUN_TIMEOUT");
    assert_string_equal(state_of(other), "RUN_TIMEOUT");
    assert_string_equal(state_of(unstarted), "PREPROCESSED");
    assert_int_equal(attempts_of(unstarted), 0);
}

/* ---- cancelled */

static void a_job_to_be_cancelled_is_not_tried_again(void **state)
{
    (void)state;
    static const char *const ends[] = {"RUN_ERROR", "RUN_TIMEOUT"};
    for (int i = 0; i < 4; i++) {
        int64_t job = runnable(i < 2 ? "'max_attempts': 3" : "");
        move(user, job, "RUNNING");
        assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", job), "{}"), 200);
        assert_int_equal(num("requested"), 1);
        move(user, job, ends[i % 2]); /* a launcher that knows nothing of cancellation */
        assert_string_equal(state_of(job), "FAILED");
        assert_string_equal(last_event(job, "message"), "cancelled");
    }
    int64_t job = runnable("'max_attempts': 3, 'on': ['node_loss']"),
            session = new_session(user, site, 0);
    leased(session, "");
    move(user, job, "RUNNING");
    assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", job), "{}"), 200);
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_string_equal(state_of(job), "FAILED");
}

/* ---- waiting */

static bool waits(int64_t job)
{
    return pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE id = %" I " AND not_before > now()",
                  job);
}

static void its_time_comes(int64_t job)
{
    pg_exec(desk_db(), "UPDATE jobs SET not_before = now() - interval '1 s' WHERE id = %" I, job);
}

static void a_job_is_not_leased_before_its_time(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "",
        "'max_aggregate_nodes': 10",
        "'max_aggregate_nodes': 10, 'sort_by': 'long_large_first'",
        "'states': ['RESTART_READY', 'RUN_ERROR', 'STAGED_IN', 'READY']",
    };
    int64_t job = runnable("'max_attempts': 3, 'backoff_sec': 60"),
            session = new_session(user, site, 0);
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'tags': {'k': 'v'}}"), 200);
    end_run(job, "RUN_ERROR", "");
    assert_string_equal(state_of(job), "RESTART_READY");
    assert_string_equal(last_event(job, "message"),
                        "attempt 1 of 3 ended (exit): the next one in 60 s");
    assert_true(waits(job));
    assert_int_equal(pg_int(desk_db(),
                            "SELECT count(*) FROM jobs WHERE id = %" I
                            " AND not_before = last_update + interval '60 s'",
                            job),
                     1);
    tick("sessions", "waiting");
    for (int i = 0; i < 4; i++)
        assert_string_equal(leased(session, ways[i]), "");
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {'k': 'v'}}"),
                     200);
    assert_int_equal(len(""), 0);

    its_time_comes(job);
    assert_string_equal(leased(session, ""), ""); /* not in the queue yet */
    tick("sessions", "waiting");
    assert_string_equal(leased(session, ""), path("%" I, job));
}

static void a_waiting_job_can_be_sent_off_or_cancelled_at_once(void **state)
{
    (void)state;
    int64_t a = runnable("'max_attempts': 3, 'backoff_sec': 60"),
            b = runnable("'max_attempts': 3, 'backoff_sec': 60");
    end_run(a, "RUN_ERROR", "");
    end_run(b, "RUN_ERROR", "");
    move(user, a, "PREPROCESSED");
    assert_false(waits(a));
    assert_string_equal(leased(new_session(user, site, 0), ""), path("%" I, a));
    assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", b), "{}"), 200);
    assert_string_equal(state_of(b), "FAILED");
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE not_before IS NOT NULL"
                                       " AND (state <> 'RESTART_READY' OR session_id IS NOT NULL)"),
                     0);
}

static void a_lost_job_waits_too(void **state)
{
    (void)state;
    int64_t job = runnable("'max_attempts': 3, 'backoff_sec': 60"),
            session = new_session(user, site, 0);
    leased(session, "");
    move(user, job, "RUNNING");
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_true(waits(job));
    assert_string_equal(leased(new_session(user, site, 0), ""), "");
}

static void what_waits_is_not_in_the_indexes_of_the_queues(void **state)
{
    (void)state;
    assert_int_equal(pg_int(desk_db(),
                            "SELECT count(*) FROM pg_index WHERE indexrelid IN"
                            " ('jobs_small_first'::regclass, 'jobs_long_first'::regclass)"
                            " AND pg_get_expr(indpred, indrelid) ~ 'not_before IS NULL'"),
                     2);
}

/* ---- stage-in */

static int64_t staged(const char *retry)
{
    return new_job(
        user, app,
        path("'retry': {%s}, 'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'},"
             " 'more': {'location_alias': 'beamline', 'path': '/y'}}",
             retry));
}

static int64_t item_of(int64_t job, int nth)
{
    return pg_int(desk_db(),
                  "SELECT id FROM transfer_items WHERE job_id = %" I
                  " ORDER BY id LIMIT 1 OFFSET %d",
                  job, nth);
}

static const char *items_of(int64_t job)
{
    return pg_text(
        desk_db(),
        "SELECT string_agg(state::text, ' ' ORDER BY id) FROM transfer_items WHERE job_id = %" I,
        job);
}

static void set_item(int64_t item, const char *state)
{
    assert_int_equal(ask(user, "PATCH", "/transfers/",
                         "[{'id': %" I
                         ", 'state': '%s', 'transfer_info': {'error': 'no such file'}}]",
                         item, state),
                     200);
}

static void a_failed_stage_in_is_tried_again_until_no_attempt_is_left(void **state)
{
    (void)state;
    int64_t job = staged("'max_attempts': 2, 'on': ['stage_in']"), a = item_of(job, 0),
            b = item_of(job, 1);
    set_item(a, "active");
    set_item(a, "error");
    assert_string_equal(txt("0.state"), "pending");
    assert_string_equal(state_of(job), "READY");
    assert_string_equal(items_of(job), "pending pending");
    assert_string_equal(history_of(job), "CREATED>READY READY>READY:attempt 1 of 2 ended "
                                         "(stage_in): the next one");
    assert_string_equal(last_event(job, "items"), path("[%" I "]", a));
    set_item(b, "error"); /* another file has attempts of its own */
    assert_string_equal(items_of(job), "pending pending");
    set_item(a, "done");
    set_item(b, "error");
    assert_string_equal(state_of(job), "FAILED");
    assert_string_equal(last_event(job, "message"),
                        "attempt 2 of 2 ended (stage_in): none is left");
    assert_string_equal(items_of(job), "done error");
}

static void a_stage_in_that_succeeds_in_the_end_goes_on(void **state)
{
    (void)state;
    int64_t job = staged("'max_attempts': 3, 'on': ['stage_in', 'exit']");
    assert_int_equal(ask(user, "PATCH", "/transfers/",
                         "[{'id': %" I ", 'state': 'error'}, {'id': %" I ", 'state': 'done'}]",
                         item_of(job, 0), item_of(job, 1)),
                     200);
    assert_string_equal(items_of(job), "pending done");
    set_item(item_of(job, 0), "done");
    assert_string_equal(state_of(job), "STAGED_IN");
    assert_int_equal(attempts_of(job), 0);
}

static void files_wait_for_their_time(void **state)
{
    (void)state;
    int64_t job = staged("'max_attempts': 3, 'on': ['stage_in'], 'backoff_sec': 30"),
            item = item_of(job, 0);
    set_item(item, "error");
    assert_string_equal(items_of(job), "error pending");
    assert_string_equal(last_event(job, "message"),
                        "attempt 1 of 3 ended (stage_in): the next one in 30 s");
    tick("transfers", "waiting");
    assert_string_equal(items_of(job), "error pending");
    pg_exec(desk_db(), "UPDATE transfer_items SET not_before = now() WHERE id = %" I, item);
    tick("transfers", "waiting");
    assert_string_equal(items_of(job), "pending pending");
    set_item(item, "error");
    set_item(item, "pending"); /* by hand, at once */
    assert_int_equal(
        pg_int(desk_db(), "SELECT count(*) FROM transfer_items WHERE not_before IS NOT NULL"), 0);
    /* of a job that no longer stages in they are left as they are */
    set_item(item, "error");
    assert_string_equal(state_of(job), "FAILED");
    job = staged("'max_attempts': 3, 'on': ['stage_in'], 'backoff_sec': 30");
    set_item(item_of(job, 0), "error");
    move(user, job, "FAILED");
    pg_exec(desk_db(),
            "UPDATE transfer_items SET not_before = now() WHERE job_id = %" I
            " AND state = 'error'",
            job);
    tick("transfers", "waiting");
    assert_string_equal(items_of(job), "error pending");
}

static void other_errors_of_files_are_the_users(void **state)
{
    (void)state;
    int64_t job = staged("'max_attempts': 3, 'on': ['exit']");
    set_item(item_of(job, 0), "error");
    assert_string_equal(items_of(job), "error pending");
    assert_string_equal(history_of(job), "CREATED>READY");
    /* an output, a job that stages in no more */
    job = new_job(user, app,
                  "'retry': {'max_attempts': 3, 'on': ['stage_in']}, 'transfers': {'output':"
                  " {'location_alias': 'archive', 'path': '/y'}}");
    move(user, job, "POSTPROCESSED");
    set_item(item_of(job, 0), "error");
    assert_string_equal(items_of(job), "error");
    job = staged("'max_attempts': 3, 'on': ['stage_in']");
    move(user, job, "PREPROCESSED");
    set_item(item_of(job, 0), "error");
    assert_string_equal(items_of(job), "error pending");
}

/* ---- the policy itself */

static void a_wrong_policy_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "{'max_attempts': 0}",
        "{'max_attempts': 1001}",
        "{'max_attempts': 2, 'on': ['nonsense']}",
        "{'max_attempts': 2, 'on': 'exit'}",
        "{'max_attempts': 2, 'backoff_sec': -1}",
        "{'max_attempts': 2, 'backoff_sec': 86401}",
        "[]",
        "3",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_int_equal(ask(user, "POST", "/jobs/",
                             "[{'app_id': %" I ", 'workdir': 'a', 'retry': %s}]", app, wrong[i]),
                         422);
}

static void a_policy_can_be_given_and_taken_later(void **state)
{
    (void)state;
    int64_t job = runnable("");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'retry': {'max_attempts': 5}}"),
                     200);
    end_run(job, "RUN_ERROR", "");
    assert_string_equal(state_of(job), "RESTART_READY");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'retry': null}"), 200);
    end_run(job, "RUN_ERROR", "");
    assert_string_equal(state_of(job), "RUN_ERROR");
    assert_int_equal(attempts_of(job), 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failed_run_is_tried_again_until_no_attempt_is_left),
        TEST(without_a_policy_the_hooks_decide),
        TEST(the_cause_decides_and_other_causes_are_left_to_the_hooks),
        TEST(max_attempts_counts_every_run_whatever_ended_it),
        TEST(a_run_that_nobody_reported_as_running_is_an_attempt_too),
        TEST(no_hook_is_asked_about_what_the_service_has_decided),
        TEST(jobs_of_one_report_go_their_own_ways),
        TEST(a_job_whose_launcher_is_lost_runs_again),
        TEST(a_job_that_kills_its_nodes_does_not_go_on_for_ever),
        TEST(a_lost_session_leaves_other_jobs_to_their_hooks),
        TEST(a_job_to_be_cancelled_is_not_tried_again),
        TEST(a_job_is_not_leased_before_its_time),
        TEST(a_waiting_job_can_be_sent_off_or_cancelled_at_once),
        TEST(a_lost_job_waits_too),
        TEST(what_waits_is_not_in_the_indexes_of_the_queues),
        TEST(a_failed_stage_in_is_tried_again_until_no_attempt_is_left),
        TEST(a_stage_in_that_succeeds_in_the_end_goes_on),
        TEST(files_wait_for_their_time),
        TEST(other_errors_of_files_are_the_users),
        TEST(a_wrong_policy_is_refused),
        TEST(a_policy_can_be_given_and_taken_later),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
