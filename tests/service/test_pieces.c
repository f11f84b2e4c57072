/* test_pieces.c - calls that change very many rows: a piece at a time, each a transaction */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

enum {
    MANY = 2500
};

static int64_t user, site, app;

/* n jobs of the user, set-wise. */
static void many(int n, const char *state)
{
    pg_exec(desk_db(),
            "WITH new AS (SELECT nextval('job_ids') AS id FROM generate_series(1, %d)), "
            "hot AS (INSERT INTO jobs (id, owner_id, site_id, app_id, last_update, state) "
            "        SELECT id, %" I ", %" I ", %" I ", now(), '%s' FROM new), "
            "cold AS (INSERT INTO job_specs (id, owner_id, app_id, workdir, tags) "
            "         SELECT id, %" I ", %" I ", 'w' || id, '{\"many\": \"yes\"}' FROM new), "
            "log AS (INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state) "
            "        SELECT nextval('event_ids'), %" I ", id, now(), 'CREATED', '%s' FROM new) "
            "INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events) "
            "SELECT %" I ", %" I ", %" I ", '%s', %d, %d * 1000000::bigint, %d",
            n, user, site, app, state, user, app, user, state, user, site, app, state, n, n, n);
}

static int64_t left(const char *where)
{
    return pg_int(desk_db(), "SELECT count(*) FROM jobs WHERE owner_id = %" I " AND %s", user,
                  where);
}

static int set_up(void **state)
{
    (void)state;
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    desk_set("jobs", "piece_time", "0");
    give_up_behind(0);
    return 0;
}

static struct who in_pieces(const char *key)
{
    return (struct who){.user = user, .key = key, .in_pieces = true};
}

static void deleting_by_filter_goes_on_until_all_are_gone(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    many(MANY, "STAGED_IN");
    int64_t kept = new_job(user, app, "");
    assert_int_equal(ask_as(&me, "DELETE", "/jobs/?tags=many:yes", NO_BODY), 204);
    assert_true(pieces() >= 3);
    assert_int_equal(left("true"), 1);
    assert_string_equal(state_of(kept), "STAGED_IN");
    check_books();
}

static void filters_on_either_table_and_on_both_mean_the_same_jobs(void **state)
{
    (void)state;
    static const char *const filters[] = {"tags=many:yes&state=STAGED_IN",
                                          "state=STAGED_IN",
                                          "state=STAGED_IN&state=FAILED&state=STAGED_IN",
                                          "tags=many:yes",
                                          "tags=many:yes&state__ne=FAILED&workdir__contains=w",
                                          "pending_file_cleanup=true&state__ne=FAILED"};
    struct who me = in_pieces(NULL);
    struct who place = {.user = user, .token_site = site, .in_pieces = true};
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        const struct who *who = i % 2 ? &me : &place;
        many(1200, "STAGED_IN");
        many(3, "JOB_FINISHED");
        if (ask_as(who, "GET", path("/jobs/?%s&limit=1", filters[i]), NO_BODY) != 200)
            fail_msg("%s: %s", filters[i], answer());
        assert_true(num("count") >= 1200);
        assert_int_equal(ask_as(who, "DELETE", path("/jobs/?%s", filters[i]), NO_BODY), 204);
        assert_int_equal(left("state = 'STAGED_IN'"), 0);
        assert_int_equal(ask_as(who, "DELETE", "/jobs/", NO_BODY), 204);
        assert_int_equal(left("true"), 0);
    }
    check_books();
}

static void who_cannot_go_on_gets_all_at_once(void **state)
{
    (void)state;
    many(MANY, "STAGED_IN");
    assert_int_equal(ask(user, "DELETE", "/jobs/?tags=many:yes", NO_BODY), 204);
    assert_int_equal(left("true"), 0);
}

static void a_piece_is_committed_whatever_becomes_of_the_next(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    many(MANY, "STAGED_IN");
    give_up_behind(1);
    ask_as(&me, "DELETE", "/jobs/?tags=many:yes", NO_BODY);
    assert_int_equal(left("true"), MANY - 1000);
    check_books();
}

static void a_repeat_goes_through_what_is_done_and_on_from_there(void **state)
{
    (void)state;
    struct who me = in_pieces("again");
    many(MANY, "STAGED_IN");
    give_up_behind(2);
    ask_as(&me, "POST", "/jobs/cancel?tags=many:yes", NO_BODY);
    assert_int_equal(left("state = 'FAILED'"), 2000);
    give_up_behind(0);
    assert_int_equal(ask_as(&me, "POST", "/jobs/cancel?tags=many:yes", NO_BODY), 200);
    assert_int_equal(num("cancelled"), MANY);
    assert_int_equal(num("requested"), 0);
    assert_int_equal(left("state = 'FAILED'"), MANY);
    /* and once more: the same answer, of jobs that are no candidates any more */
    assert_int_equal(ask_as(&me, "POST", "/jobs/cancel?tags=many:yes", NO_BODY), 200);
    assert_int_equal(num("cancelled"), MANY);
    check_books();
}

static void a_walk_ends_though_jobs_are_created_meanwhile(void **state)
{
    (void)state;
    struct who me = in_pieces("meanwhile");
    many(MANY, "STAGED_IN");
    give_up_behind(1);
    ask_as(&me, "DELETE", "/jobs/?tags=many:yes", NO_BODY);
    many(10, "STAGED_IN");
    give_up_behind(0);
    assert_int_equal(ask_as(&me, "DELETE", "/jobs/?tags=many:yes", NO_BODY), 204);
    assert_int_equal(left("true"), 10);
}

static void an_app_goes_when_its_last_job_has_gone(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    many(MANY, "RUNNING");
    give_up_behind(1);
    ask_as(&me, "DELETE", path("/apps/%" I, app), NO_BODY);
    assert_int_equal(left("true"), MANY - 1000);
    assert_int_equal(ask(user, "GET", path("/apps/%" I, app), NO_BODY), 200);
    give_up_behind(0);
    assert_int_equal(ask_as(&me, "DELETE", path("/apps/%" I, app), NO_BODY), 204);
    assert_int_equal(left("true"), 0);
    assert_int_equal(ask(user, "GET", path("/apps/%" I, app), NO_BODY), 404);
    check_books();
}

static void a_batch_job_goes_when_its_jobs_have_forgotten_it(void **state)
{
    (void)state;
    struct who me = in_pieces("batch");
    int64_t batch_job = new_batch_job(user, site), session = new_session(user, site, batch_job);
    many(MANY, "PREPROCESSED");
    pg_exec(desk_db(), "UPDATE jobs SET batch_job_id = %" I " WHERE owner_id = %" I, batch_job,
            user);
    give_up_behind(1);
    assert_int_equal(ask_as(&me, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 202);
    int64_t rest = left("batch_job_id IS NOT NULL");
    assert_in_range(rest, 1, MANY - 1000);
    assert_int_equal(ask(user, "GET", path("/batch-jobs/%" I, batch_job), NO_BODY), 200);
    /* its launcher goes on meanwhile, and what it takes now is found as well */
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 2000, 'filter_tags': {}}"),
                     200);
    assert_int_equal(len(""), 2000);
    give_up_behind(0);
    assert_int_equal(ask_as(&me, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 204);
    assert_true(pieces() > 2);
    assert_int_equal(left("batch_job_id IS NOT NULL"), 0);
    assert_int_equal(left("true"), MANY);
    assert_int_equal(left(path("session_id = %" I, session)), 2000);
    assert_int_equal(
        pg_int(desk_db(), "SELECT count(batch_job_id) FROM sessions WHERE id = %" I, session), 0);
    assert_int_equal(ask(user, "GET", path("/batch-jobs/%" I, batch_job), NO_BODY), 404);
    assert_int_equal(ask_as(&me, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 204);
    assert_int_equal(ask(user, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 404);
}

static void a_batch_job_of_few_jobs_goes_at_once(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    int64_t batch_job = new_batch_job(user, site);
    many(1000, "PREPROCESSED");
    pg_exec(desk_db(), "UPDATE jobs SET batch_job_id = %" I " WHERE owner_id = %" I, batch_job,
            user);
    assert_int_equal(ask_as(&me, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 204);
    assert_int_equal(pieces(), 1);
    assert_int_equal(left("batch_job_id IS NOT NULL"), 0);
}

static void a_site_goes_with_its_apps_and_sessions(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    int64_t session = new_session(user, site, 0);
    new_app(user, site);
    many(MANY, "PREPROCESSED");
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 100, 'filter_tags': {}}"),
                     200);
    assert_int_equal(ask_as(&me, "DELETE", path("/sites/%" I, site), NO_BODY), 204);
    assert_true(pieces() >= 3);
    assert_int_equal(left("true"), 0);
    assert_int_equal(ask(user, "GET", path("/sites/%" I, site), NO_BODY), 404);
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM sessions WHERE id = %" I, session), 0);
    check_books();
}

/* ---- sessions */

static int64_t holding(int n)
{
    int64_t session = new_session(user, site, 0);
    many(n, "RUNNING");
    pg_exec(desk_db(), "UPDATE jobs SET session_id = %" I " WHERE owner_id = %" I, session, user);
    return session;
}

static void a_session_ends_in_pieces_and_is_nobodys_meanwhile(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    int64_t session = holding(2 * MANY);
    give_up_behind(1);
    ask_as(&me, "DELETE", path("/sessions/%" I, session), NO_BODY);
    assert_int_equal(left("state = 'RUN_TIMEOUT'"), 2000);
    assert_int_equal(ask(user, "PUT", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 100, 'filter_tags': {}}"),
                     404);
    assert_int_equal(ask(user, "GET", "/sessions/", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    check_books();
    tick("sessions", "sweep"); /* whoever had begun is gone */
    tick("sessions", "sweep");
    assert_int_equal(left("session_id IS NULL AND state = 'RUN_TIMEOUT'"), 2 * MANY);
    assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM sessions WHERE id = %" I, session), 0);
    check_books();
}

static void deleting_a_large_session_frees_all_its_jobs(void **state)
{
    (void)state;
    struct who me = in_pieces(NULL);
    int64_t session = holding(2 * MANY);
    assert_int_equal(ask_as(&me, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_int_equal(pieces(), 3);
    assert_int_equal(left("session_id IS NULL AND state = 'RUN_TIMEOUT'"), 2 * MANY);
    int64_t second = holding(10);
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, second), NO_BODY), 204);
    assert_int_equal(left("session_id IS NULL"), 2 * MANY + 10);
    check_books();
}

static void a_silent_session_is_swept_in_pieces(void **state)
{
    (void)state;
    int64_t session = holding(2 * MANY);
    pg_exec(desk_db(), "UPDATE sessions SET heartbeat = now() - interval '1 h' WHERE id = %" I,
            session);
    tick("sessions", "sweep");
    assert_int_equal(left("session_id IS NOT NULL"), 2 * MANY - 2000);
    /* its launcher wakes up: too late, for all of it */
    assert_int_equal(ask(user, "POST", path("/sessions/%" I "/heartbeat", session), "{'jobs': []}"),
                     404);
    tick("sessions", "sweep");
    tick("sessions", "sweep");
    assert_int_equal(left("session_id IS NOT NULL"), 0);
    check_books();
}

static void pieces_of_another_tenant_touch_nothing_of_ours(void **state)
{
    (void)state;
    struct who them = {.user = new_user(), .in_pieces = true};
    many(MANY, "STAGED_IN");
    assert_int_equal(ask_as(&them, "DELETE", "/jobs/", NO_BODY), 204);
    assert_int_equal(left("true"), MANY);
    assert_int_equal(ask_as(&them, "DELETE", path("/apps/%" I, app), NO_BODY), 404);
    assert_int_equal(ask_as(&them, "DELETE", path("/sites/%" I, site), NO_BODY), 404);
}

int main(void)
{
#define test(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        test(deleting_by_filter_goes_on_until_all_are_gone),
        test(filters_on_either_table_and_on_both_mean_the_same_jobs),
        test(who_cannot_go_on_gets_all_at_once),
        test(a_piece_is_committed_whatever_becomes_of_the_next),
        test(a_repeat_goes_through_what_is_done_and_on_from_there),
        test(a_walk_ends_though_jobs_are_created_meanwhile),
        test(an_app_goes_when_its_last_job_has_gone),
        test(a_batch_job_goes_when_its_jobs_have_forgotten_it),
        test(a_batch_job_of_few_jobs_goes_at_once),
        test(a_site_goes_with_its_apps_and_sessions),
        test(a_session_ends_in_pieces_and_is_nobodys_meanwhile),
        test(deleting_a_large_session_frees_all_its_jobs),
        test(a_silent_session_is_swept_in_pieces),
        test(pieces_of_another_tenant_touch_nothing_of_ours),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
