/* test_pipeline.c - several statements in one round trip */
#include "base/cleanup.h"
#include "db/db.h"
#include "pg.h"
#include "steps.sql.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static ab_db_t *db;
static ab_arena_t *arena;

static struct ab_db_step step(const struct ab_sql *sql, const char *name, struct ab_db_value value)
{
    struct ab_db_param *param = ab_alloc(arena, 1, sizeof(*param));
    *param = (struct ab_db_param){name, value};
    return (struct ab_db_step){.sql = sql, .params = param, .n = 1};
}

static struct ab_db_step number(const struct ab_sql *sql, int64_t n)
{
    return step(sql, "n", (struct ab_db_value){.type = AB_DB_INT, .i = n});
}

static struct ab_db_step keep(const char *text)
{
    return step(&SQL_keep, "state",
                (struct ab_db_value){.type = AB_DB_TEXT, .p = text, .n = strlen(text)});
}

static void results_come_in_the_order_of_the_steps(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_step steps[200]; /* more than one chunk */
    for (int i = 0; i < 200; i++)
        steps[i] = number(&SQL_echo_number, i);
    assert_int_equal(ab_db_pipeline(db, steps, 200, arena, &err), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(ab_col_int(steps[i].result, 0, 0), i);
    assert_int_equal(ab_db_pipeline(db, steps, 0, arena, &err), 0);
}

static void large_parameters_and_results_do_not_block_each_other(void **state)
{
    (void)state;
    struct ab_error err = {0};
    size_t n = 3 << 20;
    char *text = ab_alloc(arena, n, 1);
    memset(text, 'x', n);
    struct ab_db_step steps[8];
    for (int i = 0; i < 8; i++)
        steps[i] = step(&SQL_echo_text, "text",
                        (struct ab_db_value){.type = AB_DB_TEXT, .p = text, .n = n});
    assert_int_equal(ab_db_pipeline(db, steps, 8, arena, &err), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(PQgetlength(steps[i].result, 0, 0), n);
}

static void the_first_failure_is_the_error_and_nothing_of_it_stays(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_step steps[] = {keep("a"), number(&SQL_divide, 0), keep("b"),
                                 number(&SQL_divide, 0)};
    pg_exec(db, "BEGIN");
    assert_int_equal(ab_db_pipeline(db, steps, 4, arena, &err), -1);
    assert_int_equal(err.code, AB_EINVAL);
    assert_non_null(strstr(err.text, "division by zero"));
    assert_non_null(steps[0].result);
    assert_null(steps[1].result);
    assert_null(steps[2].result);
    pg_exec(db, "ROLLBACK");
    assert_int_equal(pg_int(db, "SELECT count(*) FROM notes"), 0);
}

static void a_failure_in_one_chunk_keeps_the_next_from_running(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_step steps[100];
    for (int i = 0; i < 100; i++)
        steps[i] = i == 10 ? number(&SQL_divide, 0) : number(&SQL_echo_number, i);
    steps[99] = keep("late"); /* outside of a transaction it would stay */
    assert_int_equal(ab_db_pipeline(db, steps, 100, arena, &err), -1);
    assert_null(steps[99].result);
    assert_int_equal(pg_int(db, "SELECT count(*) FROM notes"), 0);
}

static void a_commit_that_rolls_back_is_a_failure(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_step steps[] = {{.sql = &SQL_commit_it}};
    pg_exec(db, "BEGIN");
    assert_int_equal(ab_db_exec(db, "SELECT 1 / 0", &err), -1);
    assert_null(ab_db_run(db, &SQL_commit_it, NULL, 0, arena, &err));
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_non_null(strstr(err.text, "nothing was committed"));
    pg_exec(db, "BEGIN");
    assert_int_equal(ab_db_exec(db, "SELECT 1 / 0", &err), -1);
    assert_int_equal(ab_db_pipeline(db, steps, 1, arena, &err), -1);
    assert_non_null(strstr(err.text, "nothing was committed"));
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
}

static void a_step_without_its_parameter_fails_and_the_connection_lives(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_step steps[] = {number(&SQL_echo_number, 1), {.sql = &SQL_echo_number}};
    assert_int_equal(ab_db_pipeline(db, steps, 2, arena, &err), -1);
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_non_null(strstr(err.text, ":n was not given"));
    assert_int_equal(pg_int(db, "SELECT 5"), 5);
}

static void end_connection(void)
{
    AB_AUTO(ab_db_close) ab_db_t *other = pg_open();
    int64_t pid = pg_int(db, "SELECT pg_backend_pid()");
    assert_int_equal(pg_int(other, "SELECT pg_terminate_backend(%d, 5000)::int", (int)pid), 1);
}

static void a_connection_lost_in_a_pipeline_is_gone(void **state)
{
    (void)state;
    struct ab_error err = {0};
    end_connection();
    struct ab_db_step steps[] = {number(&SQL_echo_number, 1), number(&SQL_echo_number, 2)};
    assert_int_equal(ab_db_pipeline(db, steps, 2, arena, &err), -1);
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "db_gone");
    assert_int_equal(ab_db_ensure(db, &err), 0);
    assert_int_equal(ab_db_pipeline(db, steps, 2, arena, &err), 0);
    assert_int_equal(ab_col_int(steps[1].result, 0, 0), 2);
}

static void what_was_kept_back_goes_ahead_of_whatever_comes_next(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const char *const begin = "BEGIN READ ONLY", *const types[] = {"int8"};
    const struct ab_db_step ahead = {.text = begin};
    const struct ab_db_value three[] = {{.type = AB_DB_INT, .i = 3}};
    const struct ab_db_param n[] = {{"n", three[0]}};

    assert_int_equal(ab_db_ahead(db, &ahead, arena, &err), 0);
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
    PGresult *r = ab_db_query(db, "SELECT $1 + 1", three, types, 1, arena, &err);
    assert_int_equal(ab_col_int(r, 0, 0), 4);
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_INTRANS);
    assert_int_equal(ab_db_exec(db, "ROLLBACK", &err), 0);

    assert_int_equal(ab_db_ahead(db, &ahead, arena, &err), 0);
    r = ab_db_run(db, &SQL_echo_number, n, 1, arena, &err);
    assert_int_equal(ab_col_int(r, 0, 0), 3);
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_INTRANS);
    assert_int_equal(ab_db_exec(db, "ROLLBACK", &err), 0);

    assert_int_equal(ab_db_ahead(db, &ahead, arena, &err), 0);
    assert_int_equal(ab_db_exec(db, "ROLLBACK", &err), 0); /* of what has just begun */
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
}

static void more_than_can_be_kept_back_runs_in_its_order(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_step begin = {.text = "BEGIN"},
                            more = {.text = "CREATE TEMP TABLE IF NOT EXISTS once (n int)"};
    assert_int_equal(ab_db_ahead(db, &begin, arena, &err), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ab_db_ahead(db, &more, arena, &err), 0);
    assert_non_null(ab_db_query(db, "SELECT * FROM once", NULL, NULL, 0, arena, &err));
    assert_int_equal(ab_db_exec(db, "ROLLBACK", &err), 0);
}

static void a_failure_ahead_is_the_next_statements(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_step bad = {.text = "SELECT 1 / 0"};
    const struct ab_db_param n[] = {{"n", {.type = AB_DB_INT, .i = 3}}};
    assert_int_equal(ab_db_ahead(db, &bad, arena, &err), 0);
    assert_null(ab_db_run(db, &SQL_echo_number, n, 1, arena, &err));
    assert_non_null(strstr(err.text, "division by zero"));
    assert_non_null(ab_db_run(db, &SQL_echo_number, n, 1, arena, &err));

    assert_int_equal(ab_db_ahead(db, &bad, arena, &err), 0);
    ab_db_drop_ahead(db);
    assert_non_null(ab_db_run(db, &SQL_echo_number, n, 1, arena, &err));
}

static int64_t prepared(void)
{
    return pg_int(db, "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'kept%%'");
}

/* One of several shapes; -1: it failed. */
static int64_t run_kept(int shape, int64_t add, struct ab_error *err)
{
    const char *const types[] = {"int8"};
    const struct ab_db_value value = {.type = AB_DB_INT, .i = add};
    struct ab_db_step one = {.text = ab_printf(arena, "SELECT $1 + %d", shape),
                             .values = &value,
                             .types = types,
                             .n = 1,
                             .keep = true};
    return ab_db_pipeline(db, &one, 1, arena, err) < 0 ? -1 : ab_col_int(one.result, 0, 0);
}

static void a_text_that_comes_again_is_prepared_once(void **state)
{
    (void)state;
    struct ab_error err = {0};
    int64_t before = prepared();
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_kept(10, i, &err), 10 + i);
    assert_int_equal(prepared(), before + 1);
    assert_int_equal(run_kept(20, 1, &err), 21);
    assert_int_equal(prepared(), before + 2);
    assert_int_equal(run_kept(10, 1, &err), 11);
}

static void texts_beyond_the_bound_run_unprepared(void **state)
{
    (void)state;
    struct ab_error err = {0};
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < 200; i++)
            assert_int_equal(run_kept(i, 1, &err), i + 1);
    assert_in_range(prepared(), 1, 199);
}

static void a_text_that_does_not_compile_is_an_error_each_time(void **state)
{
    (void)state;
    struct ab_error err = {0};
    int64_t before = prepared();
    for (int i = 0; i < 2; i++) {
        struct ab_db_step bad = {.text = "SELECT nothing_there", .keep = true};
        assert_int_equal(ab_db_pipeline(db, &bad, 1, arena, &err), -1);
        assert_non_null(strstr(err.text, "nothing_there"));
    }
    assert_int_equal(prepared(), before);
    assert_int_equal(run_kept(7, 1, &err), 8);
}

static void what_was_kept_is_prepared_again_on_a_new_connection(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(run_kept(30, 1, &err), 31);
    end_connection();
    assert_int_equal(run_kept(30, 1, &err), -1);
    assert_string_equal(err.kind, "db_gone");
    assert_int_equal(ab_db_ensure(db, &err), 0);
    assert_int_equal(prepared(), 0);
    assert_int_equal(run_kept(30, 1, &err), 31);
    assert_int_equal(prepared(), 1);
}

static int set_up(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_sql *const *const lists[] = {steps_sql, NULL};
    db = pg_open();
    pg_exec(db, "CREATE TABLE notes (state text PRIMARY KEY, expires timestamptz NOT NULL)");
    arena = ab_arena_new();
    return ab_db_prepare(db, lists, &err);
}

static int tear_down(void **state)
{
    (void)state;
    ab_arena_destroy(&arena);
    ab_db_close(&db);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_come_in_the_order_of_the_steps),
        cmocka_unit_test(large_parameters_and_results_do_not_block_each_other),
        cmocka_unit_test(the_first_failure_is_the_error_and_nothing_of_it_stays),
        cmocka_unit_test(a_failure_in_one_chunk_keeps_the_next_from_running),
        cmocka_unit_test(a_commit_that_rolls_back_is_a_failure),
        cmocka_unit_test(a_step_without_its_parameter_fails_and_the_connection_lives),
        cmocka_unit_test(a_connection_lost_in_a_pipeline_is_gone),
        cmocka_unit_test(what_was_kept_back_goes_ahead_of_whatever_comes_next),
        cmocka_unit_test(more_than_can_be_kept_back_runs_in_its_order),
        cmocka_unit_test(a_failure_ahead_is_the_next_statements),
        cmocka_unit_test(a_text_that_comes_again_is_prepared_once),
        cmocka_unit_test(texts_beyond_the_bound_run_unprepared),
        cmocka_unit_test(a_text_that_does_not_compile_is_an_error_each_time),
        cmocka_unit_test(what_was_kept_is_prepared_again_on_a_new_connection),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
