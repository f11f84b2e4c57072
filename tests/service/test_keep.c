/* test_keep.c - events that are kept for a time: in pieces, with true counts, and cursors that know what they missed */
#include "base/cleanup.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64
#define PART (INT64_C(1) << 24)

static int64_t user, site, app;

static int set_up(void **state)
{
    (void)state;
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    desk_set("sessions", "event_keep", "48h");
    return 0;
}

/* As if so much time had passed since the last event. Marks are an hour apart. */
static void pass(const char *time)
{
    pg_exec(desk_db(), "UPDATE event_marks SET at = at - interval '2 h'");
    tick("sessions", "room");
    pg_exec(desk_db(), "UPDATE event_marks SET at = at - interval '%s'", time);
}

static int64_t events_of(int64_t owner)
{
    return pg_int(desk_db(), "SELECT count(*) FROM events WHERE owner_id = %" I, owner);
}

static int64_t counted(int64_t owner)
{
    assert_int_equal(ask(owner, "GET", "/events/?limit=1", NO_BODY), 200);
    return num("count");
}

static void old_events_go_and_the_counts_with_them(void **state)
{
    (void)state;
    int64_t ids[20];
    new_jobs(user, app, 20, ids, "");
    for (int i = 0; i < 20; i++)
        move(user, ids[i], "PREPROCESSED");
    assert_int_equal(counted(user), 40);
    tick("sessions", "room");
    tick("sessions", "events");
    assert_int_equal(counted(user), 40);
    pass("49 h");
    move(user, ids[0], "RUNNING");
    tick("sessions", "events");
    assert_int_equal(counted(user), 1);
    assert_int_equal(events_of(user), 1);
    assert_int_equal(ask(user, "GET", "/events/?limit=1&to_state=STAGED_IN", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    check_books();
    /* the jobs themselves are as they were */
    assert_string_equal(state_of(ids[1]), "PREPROCESSED");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I "/explain", ids[1]), NO_BODY), 200);
}

static void without_the_setting_events_are_kept_for_ever(void **state)
{
    (void)state;
    new_jobs(user, app, 5, NULL, "");
    pass("9000 h");
    desk_set("sessions", "event_keep", "0");
    tick("sessions", "events");
    assert_int_equal(events_of(user), 5);
}

static void nothing_younger_than_an_hour_goes_whatever_the_setting(void **state)
{
    (void)state;
    new_jobs(user, app, 5, NULL, "");
    pass("30 min");
    desk_set("sessions", "event_keep", "1s");
    tick("sessions", "events");
    assert_int_equal(events_of(user), 5);
}

static void an_event_that_somebody_holds_waits_for_the_next_time(void **state)
{
    (void)state;
    int64_t ids[5];
    new_jobs(user, app, 5, ids, "");
    pass("49 h");
    AB_AUTO(ab_db_close) ab_db_t *second = pg_open();
    pg_exec(second, "BEGIN");
    pg_exec(second, "SELECT FROM events WHERE job_id = %" I " FOR UPDATE", ids[2]);
    tick("sessions", "events");
    assert_int_equal(events_of(user), 1);
    check_books();
    pg_exec(second, "ROLLBACK");
    tick("sessions", "events");
    assert_int_equal(events_of(user), 0);
    check_books();
}

static void a_cursor_knows_whether_it_has_missed_something(void **state)
{
    (void)state;
    char first[64], last[64];
    int64_t quiet = new_user(), job = new_job(user, app, "");
    int64_t its = new_job(quiet, new_app(quiet, new_site(quiet)), "");
    assert_int_equal(ask(user, "GET", "/events/?since=0-0&limit=1", NO_BODY), 200);
    snprintf(first, sizeof(first), "%s", txt("cursor"));
    move(user, job, "PREPROCESSED");
    assert_int_equal(ask(user, "GET", path("/events/?since=%s", first), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    snprintf(last, sizeof(last), "%s", txt("cursor"));
    pass("49 h");
    tick("sessions", "events");
    move(user, job, "RUNNING");

    assert_int_equal(ask(user, "GET", path("/events/?since=%s", first), NO_BODY), 410);
    assert_int_equal(ask(user, "GET", path("/events/?since=%s", last), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_string_equal(txt("results.0.to_state"), "RUNNING");
    assert_int_equal(ask(user, "GET", "/events/?since=0-0", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    /* what another owner lost is no loss of ours */
    move(quiet, its, "PREPROCESSED");
    assert_int_equal(ask(quiet, "GET", path("/events/?since=%s", last), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
}

/* Its counts are about to stand under another site. */
static void events_of_an_app_that_is_moving_wait(void **state)
{
    (void)state;
    new_jobs(user, app, 5, NULL, "");
    pass("49 h");
    AB_AUTO(ab_db_close) ab_db_t *second = pg_open();
    pg_exec(second, "BEGIN");
    pg_exec(second, "SELECT FROM apps WHERE id = %" I " FOR UPDATE", app);
    tick("sessions", "events");
    assert_int_equal(events_of(user), 5);
    pg_exec(second, "ROLLBACK");
    assert_int_equal(
        ask(user, "PUT", path("/apps/%" I, app), "{'site_id': %" I "}", new_site(user)), 200);
    tick("sessions", "events");
    assert_int_equal(events_of(user), 0);
    check_books();
}

static void deleted_jobs_and_forgotten_events_are_counted_once(void **state)
{
    (void)state;
    int64_t ids[30];
    new_jobs(user, app, 30, ids, "");
    pass("49 h");
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, ids[7]), NO_BODY), 204);
    tick("sessions", "events");
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, ids[8]), NO_BODY), 204);
    assert_int_equal(counted(user), 0);
    check_books();
}

/* Many ids that no event has would take many ticks. */
static void forget_all(void)
{
    while (pg_int(desk_db(), "SELECT more::int FROM event_forget('48 h', 100000)"))
        ;
}

/* Last: it moves the numbers of events far up. */
static void partitions_that_are_empty_are_dropped_and_no_others(void **state)
{
    (void)state;
    int64_t ids[10];
    pg_exec(desk_db(), "SELECT setval('event_ids', greatest(%" I ", nextval('event_ids')))",
            4 * PART - 3);
    tick("sessions", "room");
    new_jobs(user, app, 10, ids, ""); /* into two partitions */
    tick("sessions", "room");
    pg_exec(desk_db(), "SELECT setval('event_ids', %" I ")", 7 * PART + 5);
    tick("sessions", "room");
    assert_int_equal(pg_int(desk_db(), "SELECT count(to_regclass('events_3'))"), 1);
    pass("49 h");
    int64_t young = new_job(user, app, "");
    tick("sessions", "room");
    forget_all();
    for (int i = 0; i < 20; i++)
        tick("sessions", "events");
    assert_int_equal(events_of(user), 1);
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass AND "
               "substr(inhrelid::regclass::text, 8)::int < 7"),
        0);
    assert_int_equal(pg_int(desk_db(), "SELECT count(to_regclass('events_7'))"), 1);
    assert_string_equal(history_of(young), "CREATED>STAGED_IN");
    move(user, young, "PREPROCESSED");
    check_books();
}

/* A reader has the table: dropping waits for nobody, the reader reads on. */
static void a_partition_in_use_is_dropped_another_time(void **state)
{
    (void)state;
    pg_exec(desk_db(), "SELECT setval('event_ids', %" I ")", 9 * PART);
    tick("sessions", "room");
    pass("49 h");
    AB_AUTO(ab_db_close) ab_db_t *reader = pg_open();
    pg_exec(reader, "BEGIN");
    pg_exec(reader, "SELECT FROM events LIMIT 1");
    forget_all();
    for (int i = 0; i < 10; i++)
        tick("sessions", "events");
    assert_int_equal(pg_int(desk_db(), "SELECT count(to_regclass('events_7'))"), 1);
    pg_exec(reader, "ROLLBACK");
    for (int i = 0; i < 10; i++)
        tick("sessions", "events");
    assert_int_equal(pg_int(desk_db(), "SELECT count(to_regclass('events_7'))"), 0);
    check_books();
}

int main(void)
{
    pg_alone(); /* the tail waits for the oldest transaction of the cluster */
#define test(f) cmocka_unit_test_setup(f, set_up)
    const struct CMUnitTest tests[] = {
        test(old_events_go_and_the_counts_with_them),
        test(without_the_setting_events_are_kept_for_ever),
        test(nothing_younger_than_an_hour_goes_whatever_the_setting),
        test(an_event_that_somebody_holds_waits_for_the_next_time),
        test(a_cursor_knows_whether_it_has_missed_something),
        test(events_of_an_app_that_is_moving_wait),
        test(deleted_jobs_and_forgotten_events_are_counted_once),
        test(partitions_that_are_empty_are_dropped_and_no_others),
        test(a_partition_in_use_is_dropped_another_time),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
