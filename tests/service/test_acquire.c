/* test_acquire.c - leases: who gets which jobs (sessions.md of the contract) */
#include "base/fault.h"
#include "leases.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

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

#define test(f) cmocka_unit_test_setup_teardown(f, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
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
        test(one_failure_anywhere_leaves_no_half_lease),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
