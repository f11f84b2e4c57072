/* test_sessions.c - sessions of launchers: their signs of life, and what happens when they end
 * (sessions.md of the contract) */
#include "base/fault.h"
#include "leases.h"
#include "pg.h"
#include "svc_sessions/sweep.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

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

/* ---- tenants */

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
        test(a_stranger_sees_and_takes_nothing),
        test(a_sites_token_is_for_that_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
