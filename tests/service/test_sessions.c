/* test_sessions.c - leases: who gets which jobs, and what happens when a session ends (sessions.md
 * of the contract) */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include "svc_sessions/sweep.h"
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

/* n runnable jobs. */
static int64_t runnable(int n, int64_t *ids, const char *fields)
{
    int64_t first = new_jobs(user, app, n, ids, fields);
    assert_int_equal(ask(user, "PUT", "/jobs/?state=STAGED_IN", "{'state': 'PREPROCESSED'}"), 200);
    return first;
}

static int acquire(int64_t session, const char *spec)
{
    int status = ask(user, "POST", path("/sessions/%" I, session), "{%s}", spec);
    if (status != 200)
        fail_msg("%d: %s", status, answer());
    return len("");
}

/* ---- sessions */

static void a_session_is_made_at_ones_own_site_with_a_batch_job_of_that_site(void **state)
{
    (void)state;
    int64_t stranger = new_user(), foreign = new_site(stranger), other = new_site(user);
    int64_t batch_job = new_batch_job(user, site), elsewhere = new_batch_job(user, other);
    const char *before = pg_text(
        desk_db(),
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')");
    char from[64];
    snprintf(from, sizeof(from), "%s", before);
    int64_t session = new_session(user, site, batch_job);
    assert_int_equal(num("site_id"), site);
    assert_int_equal(num("batch_job_id"), batch_job);
    assert_true(strcmp(txt("heartbeat"), from) >= 0);
    assert_null(strstr(txt("heartbeat"), "+00:00"));
    assert_true(session > 0);
    assert_int_equal(ask(user, "POST", "/sessions/", "{'site_id': %" I "}", foreign), 400);
    assert_int_equal(ask(user, "POST", "/sessions/", "{'site_id': 999999}"), 400);
    assert_int_equal(ask(user, "POST", "/sessions/", "{'site_id': %" I ", 'batch_job_id': %" I "}",
                         site, elsewhere),
                     400);
    assert_int_equal(
        ask(user, "POST", "/sessions/", "{'site_id': %" I ", 'batch_job_id': null}", site), 201);
    assert_true(is_null("batch_job_id"));
    assert_int_equal(ask(user, "GET", "/sessions/?limit=1&offset=7", NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_int_equal(len("results"), 2);
    assert_int_equal(ask(user, "GET", path("/sessions/?id=%" I, session), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
}

static void a_tick_answers_null_and_moves_the_heartbeat(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    char before[64];
    snprintf(before, sizeof(before), "%s", txt("heartbeat"));
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, session), NO_BODY), 200);
    assert_string_equal(answer(), "");
    assert_int_equal(ask(user, "GET", "/sessions/", NO_BODY), 200);
    assert_true(strcmp(txt("results.0.heartbeat"), before) > 0);
    snprintf(before, sizeof(before), "%s", txt("results.0.heartbeat"));
    assert_int_equal(acquire(session, "'max_num_jobs': 1, 'filter_tags': {}"), 0);
    assert_int_equal(ask(user, "GET", "/sessions/", NO_BODY), 200);
    assert_true(strcmp(txt("results.0.heartbeat"), before) > 0);
    assert_int_equal(ask(user, "PUT", "/sessions/999999", NO_BODY), 404);
    assert_string_equal(txt("kind"), "not_found");
}

static void a_heartbeat_says_what_to_kill_and_what_is_lost(void **state)
{
    (void)state;
    int64_t ids[3], session = new_session(user, site, 0);
    runnable(3, ids, "");
    assert_int_equal(acquire(session, "'max_num_jobs': 2, 'filter_tags': {}"), 2);
    move(user, ids[0], "RUNNING");
    assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", ids[0]), "{}"), 200);
    move(user, ids[1], "PREPROCESSED");
    assert_int_equal(ask(user, "POST", path("/sessions/%" I "/heartbeat", session),
                         "{'jobs': [%" I ", %" I ", %" I "]}", ids[0], ids[1], ids[2]),
                     200);
    assert_true(real("expires_in_sec") > 0);
    assert_int_equal(len("cancel"), 1);
    assert_int_equal(num("cancel.0"), ids[0]);
    assert_int_equal(len("lost"),
                     1); /* the first is still held, the second too: the same state is no change */
    assert_int_equal(num("lost.0"), ids[2]);
    assert_int_equal(ask(user, "POST", path("/sessions/%" I "/heartbeat", session), NO_BODY), 200);
    assert_int_equal(len("lost"), 0);
    assert_int_equal(ask(user, "POST", "/sessions/999999/heartbeat", "{}"), 404);
}

/* ---- who gets what */

static void two_sessions_share_ten_jobs(void **state)
{
    (void)state;
    int64_t first = new_batch_job(user, site), second = new_batch_job(user, site);
    int64_t a = new_session(user, site, first), b = new_session(user, site, second);
    runnable(10, NULL, "");
    assert_int_equal(acquire(a, "'max_num_jobs': 2, 'filter_tags': {}"), 2);
    assert_int_equal(num("0.batch_job_id"), first);
    assert_int_equal(num("0.lease"), 1);
    assert_int_equal(acquire(b, "'max_num_jobs': 1000, 'filter_tags': {}"), 8);
    assert_int_equal(num("7.batch_job_id"), second);
    assert_int_equal(acquire(b, "'max_num_jobs': 1000, 'filter_tags': {}"), 0);
}

static void limits_select(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    runnable(8, NULL, "'wall_time_min': 40");
    runnable(6, NULL, "'num_nodes': 8");
    runnable(1, NULL, "'wall_time_min': 41");
    runnable(1, NULL, "'ranks_per_node': 2, 'wall_time_min': 50");
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'serial_only': true,"
                                      " 'max_nodes_per_job': 1, 'max_wall_time_min': 40"),
                     8);
    assert_int_equal(acquire(session,
                             "'max_num_jobs': 100, 'filter_tags': {}, 'max_nodes_per_job': 8,"
                             " 'max_wall_time_min': 40.9"),
                     6);
    assert_int_equal(
        acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'max_wall_time_min': -1"), 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'states': []"), 0);
    assert_int_equal(
        acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'app_ids': [999999]"), 0);
    assert_int_equal(acquire(session,
                             "'max_num_jobs': 100, 'filter_tags': {}, 'max_wall_time_min': 0,"
                             " 'max_nodes_per_job': null, 'unknown': 1"),
                     2);
}

static void a_budget_takes_small_jobs_first(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    runnable(4, NULL, "'num_nodes': 2");
    runnable(8, NULL, "'node_packing_count': 8");
    assert_int_equal(
        acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'max_aggregate_nodes': 5"), 10);
    assert_int_equal(
        acquire(session, "'max_num_jobs': 100, 'filter_tags': {}, 'max_aggregate_nodes': 0"), 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {}"), 2);
}

/* The table of sessions.md 3.2: (nodes, packing, minutes). */
static void the_prefix_that_fits_is_returned_in_order(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 5},   {1, 4, 5},  {1, 4, 50}, {2, 1, 0},
                                    {4, 1, 100}, {1, 1, 90}, {2, 1, 30}, {8, 1, 0}};
    static const struct {
        const char *spec, *expected;
    } tries[] = {
        {"'max_aggregate_nodes': 100", "3 2 6 1 7 4 5 8"},
        {"'max_aggregate_nodes': 3.5", "3 2 6 1"},
        {"'max_aggregate_nodes': 3.5, 'sort_by': 'long_large_first'", ""},
        {"'max_aggregate_nodes': 4, 'sort_by': 'long_large_first'", "5"},
        {"'max_aggregate_nodes': 100, 'sort_by': 'long_large_first'", "5 6 3 7 2 1 8 4"},
        {"'max_aggregate_nodes': 4, 'sort_by': 'anything'", "3 2 6 1"},
        {"'max_aggregate_nodes': 3, 'max_num_jobs': 3", "3 2 6"},
        {"'max_aggregate_nodes': 3.5, 'filter_tags': {'a': 'b'}", "3 2 6 1"},
        {"'max_aggregate_nodes': 4, 'sort_by': 'long_large_first', 'filter_tags': {'a': 'b'}", "5"},
        /* ours: what is too large may be passed over */
        {"'max_aggregate_nodes': 3.5, 'sort_by': 'long_large_first', 'look_ahead': 1", "6 3 7 2"},
        {"'max_aggregate_nodes': 6, 'sort_by': 'long_large_first', 'look_ahead': 0", "5 6 3"},
        {"'max_aggregate_nodes': 6, 'sort_by': 'long_large_first', 'look_ahead': 8", "5 6 3 2"},
        {"'max_aggregate_nodes': 3.5, 'sort_by': 'long_large_first', 'look_ahead': 2,"
         " 'filter_tags': {'a': 'b'}",
         "6 3 7 2"},
        {"'max_aggregate_nodes': 3.5, 'sort_by': 'long_large_first', 'look_ahead': 1,"
         " 'max_num_jobs': 2",
         "6 3"},
        {"'max_aggregate_nodes': 3, 'look_ahead': 8", "3 2 6 1"},
        {"'max_aggregate_nodes': 0, 'look_ahead': 8", ""},
        {"'max_aggregate_nodes': 9223372036854775808, 'look_ahead': 8", "3 2 6 1 7 4 5 8"},
        {"'max_aggregate_nodes': 1e300, 'look_ahead': 8", "3 2 6 1 7 4 5 8"},
    };
    int64_t ids[8];
    for (int i = 0; i < 8; i++)
        ids[i] = new_job(user, app,
                         path("'num_nodes': %d, 'node_packing_count': %d, 'wall_time_min': %d, "
                              "'tags': {'a': 'b'}",
                              shapes[i][0], shapes[i][1], shapes[i][2]));
    assert_int_equal(ask(user, "PUT", "/jobs/", "{'state': 'PREPROCESSED'}"), 200);
    for (size_t t = 0; t < sizeof(tries) / sizeof(tries[0]); t++) {
        char got[64] = "";
        int64_t session = new_session(user, site, 0);
        int n = acquire(
            session,
            path("%s%s%s", strstr(tries[t].spec, "max_num_jobs") ? "" : "'max_num_jobs': 100, ",
                 strstr(tries[t].spec, "filter_tags") ? "" : "'filter_tags': {}, ", tries[t].spec));
        for (int k = 0; k < n; k++)
            for (int i = 0; i < 8; i++)
                if (ids[i] == num(path("%d.id", k)))
                    snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%d", *got ? " " : "",
                             i + 1);
        assert_string_equal(got, tries[t].expected);
        assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    }
}

static void zero_is_no_limit_unless_it_is_asked_to_fit_nothing(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    runnable(2, NULL, "");
    const char *const nothing[] = {"'max_nodes_per_job': 0", "'max_wall_time_min': 0",
                                   "'max_nodes_per_job': 4, 'max_wall_time_min': 0"};
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
        assert_int_equal(acquire(session, path("'max_num_jobs': 9, 'filter_tags': {},"
                                               " 'zero_fits_nothing': true, %s",
                                               nothing[i])),
                         0);
    assert_int_equal(acquire(session, "'max_num_jobs': 1, 'filter_tags': {}, 'zero_fits_nothing':"
                                      " true, 'max_nodes_per_job': null"),
                     1);
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {},"
                                      " 'max_nodes_per_job': 0, 'max_wall_time_min': 0"),
                     1);
}

static void higher_priority_goes_first(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    runnable(1, NULL, "");
    int64_t urgent = runnable(1, NULL, "'num_nodes': 4, 'priority': 1");
    assert_int_equal(acquire(session, "'max_num_jobs': 1, 'filter_tags': {}"), 1);
    assert_int_equal(num("0.id"), urgent);
}

static void tags_must_all_match(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    runnable(3, NULL, "'tags': {'a': '1', 'b': '2'}");
    runnable(2, NULL, "'tags': {'a': '1'}");
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {'a': 1, 'b': 3}"), 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {'a': 1, 'b': 2}"), 3);
    assert_int_equal(acquire(session, "'max_num_jobs': 1, 'filter_tags': {'a': 1}"), 1);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {}"), 1);
}

static void rare_tags_behind_a_long_queue_are_found(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    new_jobs(user, app, 5000, NULL, "");
    assert_int_equal(ask(user, "PUT", "/jobs/", "{'state': 'PREPROCESSED'}"), 200);
    runnable(3, NULL, "'num_nodes': 2, 'tags': {'rare': 'y'}");
    runnable(1, NULL, "'node_packing_count': 2, 'tags': {'rare': 'y'}");
    assert_int_equal(
        acquire(session,
                "'max_num_jobs': 100, 'filter_tags': {'rare': 'y'}, 'max_aggregate_nodes': 5"),
        3);
    assert_int_equal(num("0.node_packing_count"), 2);
    assert_int_equal(num("1.num_nodes"), 2);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {'rare': 'n'}"), 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 100, 'filter_tags': {'rare': 'y'}"), 1);
}

static void a_session_without_batch_job_processes_and_keeps_the_last_batch_job(void **state)
{
    (void)state;
    int64_t batch_job = new_batch_job(user, site), pilot = new_session(user, site, batch_job);
    int64_t processing = new_session(user, site, 0), ids[3];
    new_jobs(user, app, 3, ids, "'tags': {'a': 'b'}");
    assert_int_equal(
        acquire(processing,
                "'max_num_jobs': 1, 'filter_tags': {}, 'states': ['STAGED_IN', 'RUN_DONE']"),
        1);
    assert_true(is_null("0.batch_job_id"));
    move(user, ids[0], "PREPROCESSED");
    assert_int_equal(acquire(pilot, "'max_num_jobs': 1, 'filter_tags': {}"), 1);
    move(user, ids[0], "RUNNING");
    move(user, ids[0], "RUN_DONE");
    assert_int_equal(acquire(processing,
                             "'max_num_jobs': 9, 'filter_tags': {'a': 'b'},"
                             " 'states': ['STAGED_IN', 'RUN_DONE', 'RUN_ERROR', 'RUN_TIMEOUT']"),
                     3);
    assert_int_equal(num("0.id"), ids[0]);
    assert_int_equal(num("0.batch_job_id"), batch_job);
    assert_int_equal(num("0.lease"), 3);
    move(user, ids[0], "FAILED");
    move(user, ids[1], "PREPROCESSED");
    assert_int_equal(
        acquire(processing,
                "'max_num_jobs': 9, 'filter_tags': {}, 'states': ['FAILED', 'PREPROCESSED']"),
        2);
}

static void only_jobs_of_the_sessions_site_are_handed_out(void **state)
{
    (void)state;
    int64_t other = new_site(user), far = new_app(user, other),
            session = new_session(user, other, 0);
    runnable(2, NULL, "");
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 0);
    move(user, new_job(user, far, ""), "PREPROCESSED");
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
}

static void acquiring_writes_no_event_and_shows_the_old_time(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0), job = runnable(1, NULL, "");
    char before[64];
    assert_int_equal(ask(user, "GET", path("/jobs/%" I, job), NO_BODY), 200);
    snprintf(before, sizeof(before), "%s", txt("last_update"));
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
    assert_string_equal(txt("0.last_update"), before);
    assert_string_equal(history_of(job), "CREATED>STAGED_IN STAGED_IN>PREPROCESSED");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I, job), NO_BODY), 200);
    assert_true(strcmp(txt("last_update"), before) > 0);
}

static void what_another_transaction_has_locked_is_skipped(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0), ids[2];
    runnable(2, ids, "");
    ab_db_t *busy = pg_open();
    pg_exec(busy, "BEGIN");
    pg_exec(busy, "UPDATE jobs SET last_update = now() WHERE id = %" I, ids[0]);
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
    assert_int_equal(num("0.id"), ids[1]);
    pg_exec(busy, "ROLLBACK");
    ab_db_close(&busy);
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
    assert_int_equal(num("0.id"), ids[0]);
}

static void a_repeated_acquire_hands_out_the_same_jobs(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0), ids[6];
    runnable(6, ids, "");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, ids[4]), "{'priority': 9}"), 200);
    struct who once = {.user = user, .key = "my lease"};
    const char *post = path("/sessions/%" I, session),
               *spec = "{'max_num_jobs': 4, 'filter_tags': {}}";
    assert_int_equal(ask_as(&once, "POST", post, "%s", spec), 200);
    assert_int_equal(len(""), 4);
    assert_int_equal(num("0.id"), ids[4]);
    int64_t last = num("3.id");
    assert_int_equal(ask_as(&once, "POST", post, "%s", spec), 200);
    assert_int_equal(len(""), 4);
    assert_int_equal(num("0.id"), ids[4]);
    assert_int_equal(num("3.id"), last);
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE session_id = %" I, session),
                     4);
    assert_int_equal(
        pg_int(desk_db(), "SELECT max(lease) FROM jobs WHERE session_id = %" I, session), 1);
}

static void a_repeated_acquire_leaves_out_what_is_held_no_more(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0), ids[2];
    runnable(2, ids, "");
    struct who once = {.user = user, .key = "a lost answer"};
    const char *post = path("/sessions/%" I, session),
               *spec = "{'max_num_jobs': 2, 'filter_tags': {}}";
    assert_int_equal(ask_as(&once, "POST", post, "%s", spec), 200);
    assert_int_equal(len(""), 2);
    move(user, ids[0], "FAILED");
    move(user, ids[0], "PREPROCESSED");
    assert_int_equal(acquire(new_session(user, site, 0), "'max_num_jobs': 2, 'filter_tags': {}"),
                     1);
    post = path("/sessions/%" I, session);
    assert_int_equal(ask_as(&once, "POST", post, "%s", spec), 200);
    assert_int_equal(len(""), 1);
    assert_int_equal(num("0.id"), ids[1]);
    assert_int_equal(ask(user, "DELETE", post, NO_BODY), 204);
    assert_int_equal(ask_as(&once, "POST", post, "%s", spec), 200);
    assert_int_equal(len(""), 0);
}

static void wrong_requests_are_422(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    static const char *const wrong[] = {"'max_num_jobs': 0, 'filter_tags': {}",
                                        "'max_num_jobs': 2049, 'filter_tags': {}",
                                        "'max_num_jobs': 1",
                                        "'filter_tags': {}",
                                        "'max_num_jobs': 1, 'filter_tags': {}, 'states': ['NOPE']",
                                        "'max_num_jobs': 1, 'filter_tags': null"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(ask(user, "POST", path("/sessions/%" I, session), "{%s}", wrong[i]), 422);
}

/* ---- the end */

static void deleting_a_session_frees_its_jobs_and_times_out_running_ones(void **state)
{
    (void)state;
    int64_t batch_job = new_batch_job(user, site), session = new_session(user, site, batch_job),
            ids[3];
    runnable(3, ids, "");
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 3);
    move(user, ids[0], "RUNNING");
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_non_null(strstr(told(), path("n%" I, user)));
    assert_non_null(strstr(told(), path("e%" I, user)));
    assert_string_equal(state_of(ids[0]), "RUN_TIMEOUT");
    assert_string_equal(state_of(ids[1]), "PREPROCESSED");
    assert_non_null(strstr(history_of(ids[0]), "RUNNING>RUN_TIMEOUT:"));
    assert_non_null(strstr(history_of(ids[0]), "ended while the job was RUNNING"));
    assert_int_equal(pg_int(desk_db(), "SELECT batch_job_id FROM jobs WHERE id = %" I, ids[0]),
                     batch_job);
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(
        ask(user, "POST", path("/sessions/%" I, session), "{'max_num_jobs': 1, 'filter_tags': {}}"),
        404);
    session = new_session(user, site, 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 2);
    move(user, ids[0], "RUN_DONE"); /* a late report is accepted */
    assert_string_equal(state_of(ids[0]), "RUN_DONE");
}

static void a_cancelled_job_whose_session_ends_has_failed(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0), job = runnable(1, NULL, "");
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
    move(user, job, "RUNNING");
    assert_int_equal(ask(user, "POST", path("/jobs/%" I "/cancel", job), "{}"), 200);
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_string_equal(state_of(job), "FAILED");
}

static void the_sweeper_ends_what_was_not_heard_of(void **state)
{
    (void)state;
    int64_t silent = new_session(user, site, 0), alive = new_session(user, site, 0), ids[2];
    int64_t stranger = new_user(), foreign = new_session(stranger, new_site(stranger), 0);
    runnable(2, ids, "");
    assert_int_equal(acquire(silent, "'max_num_jobs': 2, 'filter_tags': {}"), 2);
    move(user, ids[0], "RUNNING");
    desk_set("sessions", "session_ttl", "1m");
    tick("sessions", "sweep");
    assert_string_equal(state_of(ids[0]), "RUNNING held");
    pg_exec(desk_db(),
            "UPDATE sessions SET heartbeat = now() - interval '61 s' WHERE id IN (%" I ", %" I ")",
            silent, foreign);
    tick("sessions", "sweep");
    assert_non_null(strstr(told(), path("e%" I, user)));
    assert_string_equal(state_of(ids[0]), "RUN_TIMEOUT");
    assert_string_equal(state_of(ids[1]), "PREPROCESSED");
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, silent), NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", path("/sessions/%" I, foreign), NO_BODY), 404);
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, alive), NO_BODY), 200);
    assert_int_equal(ask(user, "GET", "/sessions/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
}

static void silence_counts_only_while_heartbeats_can_come(void **state)
{
    (void)state;
    enum {
        TTL = 300000,
        PERIOD = 10000
    };
    struct sweep_watch watch = {0};
    int64_t now = 5000000;
    /* a new process: whoever is old may have had nobody to speak to */
    assert_false(sweep_watch(&watch, now, true, TTL, PERIOD));
    for (int64_t at = PERIOD; at < TTL; at += PERIOD)
        assert_false(sweep_watch(&watch, now + at, true, TTL, PERIOD));
    now += TTL;
    assert_true(sweep_watch(&watch, now, true, TTL, PERIOD));
    /* away for so short that no launcher can be too old by that */
    now += TTL / 3;
    assert_true(sweep_watch(&watch, now, true, TTL, PERIOD));
    /* for too long: without a database no tick came, without gateways they say so */
    now += TTL / 3 + 1;
    assert_false(sweep_watch(&watch, now, true, TTL, PERIOD));
    for (int64_t at = PERIOD; at < TTL; at += PERIOD)
        assert_false(sweep_watch(&watch, now + at, true, TTL, PERIOD));
    now += TTL;
    assert_true(sweep_watch(&watch, now, true, TTL, PERIOD));
    for (int i = 0; i < 20; i++)
        assert_false(sweep_watch(&watch, now += PERIOD, false, TTL, PERIOD));
    assert_false(sweep_watch(&watch, now += PERIOD, true, TTL, PERIOD));
    /* a period longer than the ttl is no gap */
    watch = (struct sweep_watch){0};
    assert_false(sweep_watch(&watch, now, true, 1000, 60000));
    assert_true(sweep_watch(&watch, now += 60000, true, 1000, 60000));
}

static void a_jump_of_the_databases_clock_makes_nobody_stale(void **state)
{
    (void)state;
    enum {
        TTL = 300000,
        PERIOD = 10000,
        HOUR = 3600000
    };
    for (int64_t jump = -HOUR; jump <= HOUR; jump += 2 * HOUR) {
        struct sweep_watch watch = {0};
        int64_t now = 5000000, clock = 1700000000000;
        bool counts = false;
        for (int64_t at = 0; at <= TTL; at += PERIOD) {
            /* it may be slewed: a percent is no jump */
            sweep_clock(&watch, now + at, clock + at + at / 100, TTL);
            counts = sweep_watch(&watch, now + at, true, TTL, PERIOD);
        }
        assert_true(counts);
        now += TTL + PERIOD;
        for (int64_t at = 0; at < TTL; at += PERIOD) {
            sweep_clock(&watch, now + at, clock + jump + TTL + PERIOD + at, TTL);
            assert_false(sweep_watch(&watch, now + at, true, TTL, PERIOD));
        }
        sweep_clock(&watch, now + TTL, clock + jump + 2 * TTL + PERIOD, TTL);
        assert_true(sweep_watch(&watch, now + TTL, true, TTL, PERIOD));
    }
}

static void a_heartbeat_from_the_future_counts_from_now(void **state)
{
    (void)state;
    int64_t silent = new_session(user, site, 0);
    pg_exec(desk_db(), "UPDATE sessions SET heartbeat = now() + interval '1 hour' WHERE id = %" I,
            silent);
    tick("sessions", "sweep");
    assert_int_equal(pg_int(desk_db(),
                            "SELECT count(*) FROM sessions WHERE id = %" I
                            " AND heartbeat BETWEEN now() - interval '5 s' AND now()",
                            silent),
                     1);
}

static void the_sweeper_ends_sessions_of_finished_batch_jobs(void **state)
{
    (void)state;
    int64_t over = new_batch_job(user, site), gone = new_batch_job(user, site);
    int64_t a = new_session(user, site, over), b = new_session(user, site, gone),
            job = runnable(1, NULL, "");
    assert_int_equal(acquire(a, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
    move(user, job, "RUNNING");
    assert_int_equal(ask(user, "PUT", path("/batch-jobs/%" I, over), "{'state': 'finished'}"), 200);
    assert_int_equal(ask(user, "PUT", path("/batch-jobs/%" I, gone), "{'state': 'submit_failed'}"),
                     200);
    tick("sessions", "sweep");
    assert_string_equal(state_of(job), "RUN_TIMEOUT");
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, a), NO_BODY), 404);
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, b), NO_BODY), 200);
}

static void fifty_lost_sessions_are_ended_by_a_few_ticks(void **state)
{
    (void)state;
    runnable(50, NULL, "");
    for (int i = 0; i < 50; i++)
        assert_int_equal(
            acquire(new_session(user, site, 0), "'max_num_jobs': 1, 'filter_tags': {}"), 1);
    assert_int_equal(ask(user, "PUT", "/jobs/?state=PREPROCESSED", "{'state': 'RUNNING'}"), 200);
    pg_exec(desk_db(),
            "UPDATE sessions SET heartbeat = now() - interval '1 h' WHERE owner_id = %" I, user);
    for (int i = 0; i < 3; i++)
        tick("sessions", "sweep");
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM sessions WHERE owner_id = %" I, user),
                     0);
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT count(*) FROM jobs WHERE owner_id = %" I " AND state = 'RUN_TIMEOUT'", user),
        50);
}

#ifdef AB_FAULTS
/* How often one tick speaks to the database when so many sessions, each with a running job, are
 * lost: the n-th time is made to fail (and is tried again) until there is no n-th. */
static int calls_of_a_sweep(int sessions)
{
    for (int nth = 1;; nth++) {
        for (int i = 0; i < sessions; i++) {
            int64_t job = runnable(1, NULL, "");
            assert_int_equal(
                acquire(new_session(user, site, 0), "'max_num_jobs': 1, 'filter_tags': {}"), 1);
            move(user, job, "RUNNING");
        }
        pg_exec(desk_db(),
                "UPDATE sessions SET heartbeat = now() - interval '1 h' WHERE owner_id = %" I,
                user);
        struct ab_error err = {0};
        ab_fault_arm(nth);
        int rc = try_tick("sessions", "sweep", &err);
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        if (rc < 0) /* a fault that is not tried again at once */
            tick("sessions", "sweep");
        assert_int_equal(
            pg_int(desk_db(), "SELECT count(*) FROM sessions WHERE owner_id = %" I, user), 0);
        if (!fired)
            return nth - 1;
    }
}

static void a_sweep_asks_as_often_for_many_as_for_one(void **state)
{
    (void)state;
    int one = calls_of_a_sweep(1);
    assert_in_range(one, 4, 12);
    assert_int_equal(calls_of_a_sweep(12), one);
}
#endif

static void housekeeping_forgets_old_requests_and_makes_partitions(void **state)
{
    (void)state;
    struct who once = {.user = user, .key = "k"};
    assert_int_equal(ask_as(&once, "POST", "/sessions/", "{'site_id': %" I "}", site), 201);
    int64_t id = num("id");
    tick("sessions", "requests");
    assert_int_equal(ask_as(&once, "POST", "/sessions/", "{'site_id': %" I "}", site), 201);
    assert_int_equal(num("id"), id);
    pg_exec(desk_db(), "UPDATE requests SET created = now() - interval '25 h' WHERE owner_id = %" I,
            user);
    tick("sessions", "requests");
    assert_int_equal(ask_as(&once, "POST", "/sessions/", "{'site_id': %" I "}", site), 201);
    assert_int_not_equal(num("id"), id);

    tick("sessions", "room");
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM pg_class WHERE relname = 'events_2'"),
                     0);
    pg_exec(desk_db(), "SELECT setval('event_ids', (1 << 24) + 7)");
    tick("sessions", "room");
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM pg_class WHERE relname = 'events_2'"),
                     1);
    tick("sessions", "room");
    new_job(user, app, "");
}

/* ---- failures, tenants */

static void one_failure_anywhere_leaves_no_half_lease(void **state)
{
    (void)state;
    int64_t session = new_session(user, site, 0);
    bool fired = true;
    int refused = 0;
    for (int nth = 1; fired; nth++) {
        runnable(3, NULL, path("'tags': {'nth': '%d'}", nth));
        ab_fault_arm(nth);
        int status = ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 2, 'filter_tags': {'nth': %d}}", nth);
        fired = ab_fault_fired();
        ab_fault_arm(0);
        if (status == 200)
            assert_int_equal(len(""), 2);
        else
            assert_int_equal(status, 503);
        refused += status == 503;
        assert_int_equal(
            pg_int(desk_db(),
                   "SELECT count(*) FROM jobs j JOIN job_specs s USING (id) WHERE session_id = %" I
                   " AND lease = 1 AND s.tags @> '{\"nth\": \"%d\"}'",
                   session, nth),
            status == 200 ? 2 : 0);
    }
    assert_in_range(refused, 1, 100);
}

static void a_stranger_sees_and_takes_nothing(void **state)
{
    (void)state;
    int64_t stranger = new_user(), session = new_session(user, site, 0);
    runnable(1, NULL, "");
    assert_int_equal(ask(stranger, "PUT", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(ask(stranger, "POST", path("/sessions/%" I "/heartbeat", session), "{}"), 404);
    assert_int_equal(ask(stranger, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}}"),
                     404);
    assert_int_equal(ask(stranger, "DELETE", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(ask(stranger, "GET", "/sessions/", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(acquire(session, "'max_num_jobs': 9, 'filter_tags': {}"), 1);
}

static void a_sites_token_is_for_that_site(void **state)
{
    (void)state;
    int64_t other = new_site(user), mine = new_session(user, site, 0),
            away = new_session(user, other, 0);
    struct who agent = {.user = user, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/sessions/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.id"), mine);
    assert_int_equal(ask_as(&agent, "PUT", path("/sessions/%" I, away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "POST", path("/sessions/%" I, away),
                            "{'max_num_jobs': 1, 'filter_tags': {}}"),
                     404);
    assert_int_equal(ask_as(&agent, "DELETE", path("/sessions/%" I, away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "POST", "/sessions/", "{'site_id': %" I "}", other), 400);
    assert_int_equal(ask_as(&agent, "DELETE", path("/sessions/%" I, mine), NO_BODY), 204);
}

#define test(f) cmocka_unit_test_setup_teardown(f, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_session_is_made_at_ones_own_site_with_a_batch_job_of_that_site),
        test(a_tick_answers_null_and_moves_the_heartbeat),
        test(a_heartbeat_says_what_to_kill_and_what_is_lost),
        test(two_sessions_share_ten_jobs),
        test(limits_select),
        test(a_budget_takes_small_jobs_first),
        test(the_prefix_that_fits_is_returned_in_order),
        test(zero_is_no_limit_unless_it_is_asked_to_fit_nothing),
        test(higher_priority_goes_first),
        test(tags_must_all_match),
        test(rare_tags_behind_a_long_queue_are_found),
        test(a_session_without_batch_job_processes_and_keeps_the_last_batch_job),
        test(only_jobs_of_the_sessions_site_are_handed_out),
        test(acquiring_writes_no_event_and_shows_the_old_time),
        test(what_another_transaction_has_locked_is_skipped),
        test(a_repeated_acquire_hands_out_the_same_jobs),
        test(a_repeated_acquire_leaves_out_what_is_held_no_more),
        test(wrong_requests_are_422),
        test(deleting_a_session_frees_its_jobs_and_times_out_running_ones),
        test(a_cancelled_job_whose_session_ends_has_failed),
        test(the_sweeper_ends_what_was_not_heard_of),
        test(silence_counts_only_while_heartbeats_can_come),
        test(a_jump_of_the_databases_clock_makes_nobody_stale),
        test(a_heartbeat_from_the_future_counts_from_now),
        test(the_sweeper_ends_sessions_of_finished_batch_jobs),
        test(fifty_lost_sessions_are_ended_by_a_few_ticks),
#ifdef AB_FAULTS
        test(a_sweep_asks_as_often_for_many_as_for_one),
#endif
        test(housekeeping_forgets_old_requests_and_makes_partitions),
        test(one_failure_anywhere_leaves_no_half_lease),
        test(a_stranger_sees_and_takes_nothing),
        test(a_sites_token_is_for_that_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
