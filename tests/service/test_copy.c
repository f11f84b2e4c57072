/* test_copy.c - COPY in binary: every encoder, and what can go wrong */
#include "base/cleanup.h"
#include "copies.sql.h"
#include "db/db.h"
#include "pg.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static ab_db_t *db;

static void job_row(struct ab_buf *out, int64_t id, const char *state, int nodes)
{
    ab_copy_row(out, 9);
    ab_copy_int8(out, id);
    ab_copy_int8(out, 1);
    ab_copy_int8(out, 1);
    ab_copy_int8(out, 1);
    ab_copy_time(out, INT64_C(1767225845000678));
    ab_copy_text(out, state, strlen(state));
    ab_copy_int4(out, nodes);
    ab_copy_bool(out, true);
    ab_copy_null(out);
}

static void copied_rows_are_the_rows_that_were_encoded(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf jobs = {0}, specs = {0};
    const int64_t parents[] = {3, -4};
    ab_copy_begin(&jobs);
    job_row(&jobs, 1, "READY", 7);
    ab_copy_end(&jobs);
    assert_int_equal(ab_db_copy(db, &SQL_jobs_in, &jobs, &err), 0);
    assert_string_equal(
        pg_text(db, "SELECT concat_ws(' ', last_update AT TIME ZONE 'UTC', state, num_nodes,"
                    " cancel, coalesce(return_code, -1)) FROM jobs WHERE id = 1"),
        "2026-01-01 00:04:05.000678 READY 7 t -1");
    ab_copy_begin(&specs);
    for (int i = 1; i <= 2; i++) {
        ab_copy_row(&specs, 8);
        ab_copy_int8(&specs, i);
        ab_copy_int8(&specs, 1);
        ab_copy_int8(&specs, 1);
        ab_copy_float8(&specs, 0.25);
        ab_copy_text(&specs, "", 0);
        ab_copy_int8s(&specs, parents, i == 1 ? 2 : 0);
        ab_copy_jsonb(&specs, "{\"b\":1,\"a\":2}", 13);
        ab_copy_text(&specs, "{\"b\":1,  \"a\":2}", 15);
    }
    ab_copy_end(&specs);
    assert_int_equal(ab_db_copy(db, &SQL_specs_in, &specs, &err), 0);
    assert_string_equal(
        pg_text(
            db,
            "SELECT concat_ws(' ', gpus_per_rank, '[' || workdir || ']', parent_ids, tags, data)"
            " FROM job_specs WHERE id = 1"),
        "0.25 [] {3,-4} {\"a\": 2, \"b\": 1} {\"b\":1,  \"a\":2}");
    assert_string_equal(pg_text(db, "SELECT parent_ids FROM job_specs WHERE id = 2"), "{}");
}

static void no_rows_are_fine(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_copy_begin(&data);
    ab_copy_end(&data);
    assert_int_equal(ab_db_copy(db, &SQL_jobs_in, &data, &err), 0);
}

static void many_megabytes_go_through(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_copy_begin(&data);
    for (int i = 0; i < 50000; i++)
        job_row(&data, 1000 + i, "PREPROCESSED", 1 + i % 5);
    ab_copy_end(&data);
    assert_true(data.len > 4 << 20);
    assert_int_equal(ab_db_copy(db, &SQL_jobs_in, &data, &err), 0);
    assert_int_equal(pg_int(db, "SELECT count(*) FROM jobs WHERE id >= 1000"), 50000);
}

/* In a transaction that fails and is rolled back; the connection serves the next call. */
static void refused(const struct ab_buf *data, int code, const char *kind, const char *text)
{
    struct ab_error err = {0};
    pg_exec(db, "BEGIN");
    assert_int_equal(ab_db_copy(db, &SQL_jobs_in, data, &err), -1);
    assert_int_equal(err.code, code);
    if (kind)
        assert_string_equal(err.kind, kind);
    assert_non_null(strstr(err.text, text));
    pg_exec(db, "ROLLBACK");
    assert_int_equal(pg_int(db, "SELECT 1"), 1);
}

static void rows_that_break_a_rule_are_refused_and_the_connection_lives(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf nodes = {0}, twice = {0}, label = {0};
    ab_copy_begin(&nodes);
    job_row(&nodes, 90000, "READY", 0);
    ab_copy_end(&nodes);
    refused(&nodes, AB_EINVAL, "jobs_num_nodes_check", "jobs_num_nodes_check");
    ab_copy_begin(&twice);
    job_row(&twice, 90000, "READY", 1);
    job_row(&twice, 90000, "READY", 1);
    ab_copy_end(&twice);
    refused(&twice, AB_EINVAL, "jobs_pkey", "jobs_in");
    ab_copy_begin(&label);
    job_row(&label, 90000, "NO_SUCH_STATE", 1);
    ab_copy_end(&label);
    refused(&label, AB_EINVAL, "bad_value", "NO_SUCH_STATE");
}

static void incomplete_data_never_begins(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf no_end = {0}, columns = {0}, full = {.limit = 60};
    ab_copy_begin(&no_end);
    ab_copy_row(&no_end, 9);
    ab_copy_int8(&no_end, 90001);
    refused(&no_end, AB_EINTERNAL, NULL, "trailer");
    ab_copy_begin(&columns);
    ab_copy_row(&columns, 1);
    ab_copy_int8(&columns, 90001);
    ab_copy_end(&columns);
    refused(&columns, AB_EINTERNAL, NULL, "columns");
    ab_copy_begin(&full);
    job_row(&full, 90001, "READY", 1);
    ab_copy_end(&full);
    refused(&full, AB_ETOOBIG, NULL, "buffer");
}

static int set_up(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_sql *const *const lists[] = {copies_sql, NULL};
    db = pg_open();
    return ab_db_prepare(db, lists, &err);
}

static int tear_down(void **state)
{
    (void)state;
    ab_db_close(&db);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copied_rows_are_the_rows_that_were_encoded),
        cmocka_unit_test(no_rows_are_fine),
        cmocka_unit_test(many_megabytes_go_through),
        cmocka_unit_test(rows_that_break_a_rule_are_refused_and_the_connection_lives),
        cmocka_unit_test(incomplete_data_never_begins),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
