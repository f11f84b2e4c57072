/* test_db_loss.c - a connection that dies, freezes or meets changed tables, and comes back */
#include "base/cleanup.h"
#include "base/clock.h"
#include "db/db.h"
#include "loss.sql.h"
#include "pg.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static ab_db_t *db, *admin;
static ab_arena_t *arena;

static const struct ab_db_param touch[] = {{"state", {.type = AB_DB_TEXT, .p = "x", .n = 1}}};

static PGresult *run(const struct ab_sql *sql, const struct ab_db_param *params, size_t n,
                     struct ab_error *err)
{
    *err = (struct ab_error){0};
    return ab_db_run(db, sql, params, n, arena, err);
}

static int backend(void)
{
    struct ab_error err;
    PGresult *r = run(&SQL_backend, NULL, 0, &err);
    assert_non_null(r);
    return (int)ab_col_int(r, 0, 0);
}

/* Until the database sees the backend gone (or there). */
static void terminate(int pid)
{
    assert_int_equal(pg_int(admin, "SELECT pg_terminate_backend(%d, 5000)::int", pid), 1);
}

static void ensure(void)
{
    struct ab_error err = {0};
    int64_t until = ab_now_ms() + 10000;
    while (ab_db_ensure(db, &err) < 0)
        assert_true(ab_now_ms() < until);
}

static void a_terminated_connection_is_noticed_before_it_costs_a_call(void **state)
{
    (void)state;
    struct ab_error err;
    terminate(backend());
    ensure();
    assert_non_null(run(&SQL_touch, touch, 1, &err));
}

static void a_connection_lost_in_a_call_is_gone_and_comes_back_prepared(void **state)
{
    (void)state;
    struct ab_error err;
    int pid = backend();
    const struct ab_db_param nap[] = {{"seconds", {.type = AB_DB_INT, .i = 30}}};
    pg_exec(db, "BEGIN");
    /* Another backend ends ours as soon as it sleeps. */
    AB_AUTO(ab_db_close) ab_db_t *killer = pg_open();
    PQsendQuery(ab_db_conn(killer),
                "DO $$ BEGIN FOR i IN 1..1000 LOOP"
                " PERFORM pg_terminate_backend(pid) FROM pg_stat_activity"
                "  WHERE datname = current_database() AND wait_event = 'PgSleep'"
                "  AND pid <> pg_backend_pid();"
                " EXIT WHEN FOUND; PERFORM pg_stat_clear_snapshot(), pg_sleep(0.02);"
                " END LOOP; END $$");
    PQflush(ab_db_conn(killer));
    assert_null(run(&SQL_nap, nap, 1, &err));
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "db_gone");
    assert_null(run(&SQL_nap, nap, 1, &err));
    assert_string_equal(err.kind, "db_gone");
    assert_int_equal(ab_db_exec(db, "ROLLBACK", &err), -1);
    ensure();
    assert_true(backend() != pid);
    assert_non_null(run(&SQL_touch, touch, 1, &err));
}

static void a_frozen_server_costs_the_limit_and_not_the_worker(void **state)
{
    (void)state;
    struct ab_error err;
    int pid = backend();
    ab_db_limit(db, 300);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    int64_t before = ab_now_ms();
    assert_null(run(&SQL_touch, touch, 1, &err));
    assert_string_equal(err.kind, "db_gone");
    assert_true(ab_now_ms() - before >= 300 && ab_now_ms() - before < 5000);
    ab_db_limit(db, 40000);
    ensure(); /* a new backend */
    assert_true(backend() != pid);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_non_null(run(&SQL_touch, touch, 1, &err));
}

static void a_server_that_is_away_is_busy_and_asked_again_with_patience(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *none = ab_db_open("host=/nonexistent dbname=x", "test", &err);
    assert_null(none);
    assert_int_equal(err.code, AB_EBUSY);
    assert_non_null(strstr(err.text, "cannot be reached"));

    /* Refuse new connections: the tries are spaced by a back-off and answer at once. */
    AB_AUTO(ab_db_close) ab_db_t *outside = ab_db_open(pg_url_empty(), "test", &err);
    assert_non_null(outside);
    const char *name = PQdb(ab_db_conn(admin));
    terminate(backend());
    pg_exec(outside, "ALTER DATABASE %s ALLOW_CONNECTIONS false", name);
    int64_t before = ab_now_ms();
    int failures = 0;
    for (; ab_now_ms() - before < 300; failures++) {
        assert_int_equal(ab_db_ensure(db, &err), -1);
        assert_int_equal(err.code, AB_EBUSY);
        assert_string_equal(err.kind, "db_gone");
    }
    assert_true(failures > 100); /* most of them did not try */
    pg_exec(outside, "ALTER DATABASE %s ALLOW_CONNECTIONS true", name);
    ensure();
    assert_non_null(run(&SQL_touch, touch, 1, &err));
}

static void tables_changed_by_a_migration_are_a_conflict_and_then_known(void **state)
{
    (void)state;
    struct ab_error err;
    pg_exec(admin, "INSERT INTO notes VALUES ('x', now())");
    assert_non_null(run(&SQL_touch, touch, 1, &err));
    pg_exec(admin, "ALTER TABLE notes ADD COLUMN more text");
    PGresult *r = run(&SQL_touch, touch, 1, &err);
    assert_null(r);
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "db_conflict");
    ensure();
    r = run(&SQL_touch, touch, 1, &err);
    assert_non_null(r);
    assert_int_equal(PQnfields(r), 3);
}

static int set_up(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_sql *const *const lists[] = {loss_sql, NULL};
    admin = pg_open();
    pg_exec(admin, "CREATE TABLE notes (state text PRIMARY KEY, expires timestamptz NOT NULL)");
    db = pg_open();
    arena = ab_arena_new();
    return ab_db_prepare(db, lists, &err);
}

static int tear_down(void **state)
{
    (void)state;
    ab_arena_destroy(&arena);
    ab_db_close(&db);
    ab_db_close(&admin);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminated_connection_is_noticed_before_it_costs_a_call),
        cmocka_unit_test(a_connection_lost_in_a_call_is_gone_and_comes_back_prepared),
        cmocka_unit_test(a_frozen_server_costs_the_limit_and_not_the_worker),
        cmocka_unit_test(a_server_that_is_away_is_busy_and_asked_again_with_patience),
        cmocka_unit_test(tables_changed_by_a_migration_are_a_conflict_and_then_known),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
