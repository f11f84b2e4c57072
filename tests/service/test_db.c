/* test_db.c - parameters, rows and errors of common/db */
#include "db/db.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/rand.h"
#include "blocks.sql.h"
#include "pg.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static ab_db_t *db;
static ab_arena_t *arena;

#define VALUE_INT(v)                                                                               \
    {                                                                                              \
        .type = AB_DB_INT, .i = (v)                                                                \
    }
#define VALUE_TEXT(v)                                                                              \
    {                                                                                              \
        .type = AB_DB_TEXT, .p = (v), .n = strlen(v)                                               \
    }
#define VALUE_NULL                                                                                 \
    {                                                                                              \
        .type = AB_DB_NULL                                                                         \
    }
#define RUN(sql, params, err) ab_db_run(db, &(sql), (params), AB_COUNT(params), arena, (err))

static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void assert_text(const PGresult *r, const char *column, const char *wanted)
{
    size_t n;
    const char *text = ab_col_text(r, 0, ab_col(r, column), &n);
    assert_non_null(text);
    assert_int_equal(n, strlen(wanted));
    assert_memory_equal(text, wanted, n);
}

static void every_type_of_parameter_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_param params[] = {
        {"bool_", {.type = AB_DB_BOOL, .b = true}},
        {"int2_", VALUE_INT(-7)},
        {"int4_", VALUE_INT(INT32_MIN)},
        {"int8_", VALUE_INT(INT64_MAX)},
        {"real4_", {.type = AB_DB_REAL, .f = 1.5}},
        {"real8_", {.type = AB_DB_REAL, .f = -0.1}},
        {"text_", VALUE_TEXT("h\xc3\xa9llo ''")},
        {"json_", VALUE_TEXT("{\"b\": 1,  \"a\": 2}")},
        {"jsonb_", VALUE_TEXT("{\"b\": 1,  \"a\": 2}")},
        {"bytes_", {.type = AB_DB_BYTES, .p = "a\0b", .n = 3}},
        {"time_", {.type = AB_DB_TIME, .i = INT64_C(1767225845000678)}},
        {"uuid_", {.type = AB_DB_UUID, .p = uuid, .n = 16}},
        {"state_", VALUE_TEXT("RUN_DONE")},
        {"xid_", VALUE_INT(12345678901)},
        {"span_", VALUE_TEXT("90 seconds")},
        {"sum_", VALUE_TEXT("-12345.678")},
    };
    PGresult *r = RUN(SQL_scalars, params, &err);
    assert_string_equal(err.text, "");
    assert_non_null(r);
    assert_true(ab_col_bool(r, 0, ab_col(r, "bool_")));
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "int2_")), -7);
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "int4_")), INT32_MIN);
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "int8_")), INT64_MAX);
    assert_true(ab_col_real(r, 0, ab_col(r, "real4_")) == 1.5);
    assert_true(ab_col_real(r, 0, ab_col(r, "real8_")) == -0.1);
    assert_text(r, "text_", "h\xc3\xa9llo ''");
    assert_text(r, "again", "h\xc3\xa9llo ''");
    assert_text(r, "json_", "{\"b\": 1,  \"a\": 2}");
    assert_text(r, "jsonb_", "{\"a\": 2, \"b\": 1}");
    size_t n;
    const void *bytes = ab_col_bytes(r, 0, ab_col(r, "bytes_"), &n);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "a\0b", 3);
    assert_int_equal(ab_col_time(r, 0, ab_col(r, "time_")), INT64_C(1767225845000678));
    char text[AB_UUID_TEXT];
    assert_true(ab_col_uuid(r, 0, ab_col(r, "uuid_"), text));
    assert_string_equal(text, "01020304-0506-0708-090a-0b0c0d0e0f10");
    assert_text(r, "state_", "RUN_DONE");
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "xid_")), 12345678901);
    assert_text(r, "span_", "00:01:30");
    assert_true(fabs(ab_col_real(r, 0, ab_col(r, "sum_")) + 12345.678) < 1e-9);
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "sum_")), -12345);
    assert_text(r, "quoted", "a :quoted text");
}

static void null_is_null_for_every_type(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_param params[16] = {0};
    int n = 0;
    for (; SQL_scalars.params[n]; n++)
        params[n] = (struct ab_db_param){SQL_scalars.params[n], VALUE_NULL};
    PGresult *r = ab_db_run(db, &SQL_scalars, params, (size_t)n, arena, &err);
    assert_non_null(r);
    for (int i = 0; i < n; i++)
        assert_true(ab_col_null(r, 0, i));
    char text[AB_UUID_TEXT];
    assert_false(ab_col_uuid(r, 0, ab_col(r, "uuid_"), text));
    assert_null(ab_col_text(r, 0, ab_col(r, "text_"), NULL));
    assert_int_equal(ab_col_int(r, 0, ab_col(r, "int8_")), 0);
}

#define ARRAY(v)                                                                                   \
    {                                                                                              \
        .type = AB_DB_ARRAY, .items = (v), .n_items = AB_COUNT(v)                                  \
    }

static void arrays_carry_nulls_and_every_type_of_item(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_value bools[] = {{.type = AB_DB_BOOL, .b = true}, VALUE_NULL};
    const struct ab_db_value int4s[] = {VALUE_INT(1), VALUE_NULL, VALUE_INT(-3)};
    const struct ab_db_value int8s[] = {VALUE_INT(INT64_MIN), VALUE_NULL, VALUE_INT(5)};
    const struct ab_db_value reals[] = {{.type = AB_DB_REAL, .f = 0.5}, VALUE_INT(2)};
    const struct ab_db_value texts[] = {VALUE_TEXT(""), VALUE_TEXT("a,\"b"), VALUE_NULL};
    const struct ab_db_value states[] = {VALUE_TEXT("READY"), VALUE_NULL};
    const struct ab_db_value jsons[] = {VALUE_TEXT("{}"), VALUE_NULL};
    const struct ab_db_value jsonbs[] = {VALUE_TEXT("[1]")};
    const struct ab_db_value times[] = {{.type = AB_DB_TIME, .i = 0}, VALUE_NULL};
    const struct ab_db_value uuids[] = {{.type = AB_DB_UUID, .p = uuid, .n = 16}};
    const struct ab_db_param params[] = {
        {"bools", ARRAY(bools)}, {"int4s", ARRAY(int4s)},   {"int8s", ARRAY(int8s)},
        {"reals", ARRAY(reals)}, {"texts", ARRAY(texts)},   {"states", ARRAY(states)},
        {"jsons", ARRAY(jsons)}, {"jsonbs", ARRAY(jsonbs)}, {"times", ARRAY(times)},
        {"uuids", ARRAY(uuids)},
    };
    PGresult *r = RUN(SQL_arrays, params, &err);
    assert_string_equal(err.text, "");
    assert_text(r, "bools", "{t,NULL}");
    assert_text(r, "int4s", "{1,NULL,-3}");
    assert_text(r, "int8s_text", "{-9223372036854775808,NULL,5}");
    assert_text(r, "reals", "{0.5,2}");
    assert_text(r, "texts", "{\"\",\"a,\\\"b\",NULL}");
    assert_text(r, "states", "{READY,NULL}");
    assert_text(r, "jsons", "{\"{}\",NULL}");
    assert_text(r, "jsonbs", "{[1]}");
    assert_text(r, "times", "{\"1970-01-01 00:00:00+00\",NULL}");
    assert_text(r, "uuids", "{01020304-0506-0708-090a-0b0c0d0e0f10}");
    size_t n;
    int64_t *ids = ab_col_int8s(r, 0, ab_col(r, "int8s"), arena, &n);
    assert_int_equal(n, 2); /* a null has no place in a list of ids */
    assert_true(ids[0] == INT64_MIN && ids[1] == 5);
}

static void empty_arrays_and_null_arrays_differ(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_db_param params[10];
    for (int i = 0; i < 10; i++)
        params[i] =
            (struct ab_db_param){SQL_arrays.params[i], {.type = i % 2 ? AB_DB_ARRAY : AB_DB_NULL}};
    PGresult *r = RUN(SQL_arrays, params, &err);
    assert_non_null(r);
    assert_true(ab_col_null(r, 0, ab_col(r, "bools")));
    assert_text(r, "int4s", "{}");
    size_t n = 9;
    ab_col_int8s(r, 0, ab_col(r, "int8s"), arena, &n);
    assert_int_equal(n, 0);
}

static void a_value_of_the_wrong_type_names_block_and_parameter(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_param text[] = {{"owner_id", VALUE_TEXT("1")}, {"name", VALUE_TEXT("s")}};
    assert_null(RUN(SQL_one_site, text, &err));
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_non_null(strstr(err.text, "one_site"));
    assert_non_null(strstr(err.text, ":owner_id"));

    const struct ab_db_value too_large[] = {VALUE_INT(INT64_C(1) << 40)};
    struct ab_db_param arrays[10];
    for (int i = 0; i < 10; i++)
        arrays[i] = (struct ab_db_param){SQL_arrays.params[i], VALUE_NULL};
    arrays[1].value = (struct ab_db_value)ARRAY(too_large);
    assert_null(RUN(SQL_arrays, arrays, &err));
    assert_non_null(strstr(err.text, "does not fit"));
    assert_non_null(strstr(err.text, ":int4s"));
}

static void a_parameter_that_is_not_given_is_named(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_param params[] = {{"owner_id", VALUE_INT(1)}};
    assert_null(RUN(SQL_one_site, params, &err));
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_non_null(strstr(err.text, ":name was not given"));
}

static void a_block_that_does_not_compile_is_named_at_prepare(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const char *const none[] = {NULL};
    const struct ab_sql bad = {.name = "misspelt",
                               .text = "SELECT no_such_column FROM jobs",
                               .params = none,
                               .file = "x.sql"};
    const struct ab_sql *const list[] = {&bad, NULL};
    const struct ab_sql *const *const lists[] = {list, NULL};
    AB_AUTO(ab_db_close) ab_db_t *other = pg_open();
    assert_int_equal(ab_db_prepare(other, lists, &err), -1);
    assert_non_null(strstr(err.text, "x.sql: misspelt"));
    assert_non_null(strstr(err.text, "no_such_column"));

    const char *const columns[] = {"id", "no_such_column", NULL};
    const struct ab_sql copy = {.name = "bad_copy",
                                .text = "COPY jobs (id, no_such_column) FROM STDIN",
                                .params = none,
                                .file = "y.sql",
                                .copy_columns = columns,
                                .copy_table = "jobs"};
    const struct ab_sql *const copies[] = {&copy, NULL};
    const struct ab_sql *const *const copy_lists[] = {copies, NULL};
    AB_AUTO(ab_db_close) ab_db_t *third = pg_open();
    assert_int_equal(ab_db_prepare(third, copy_lists, &err), -1);
    assert_non_null(strstr(err.text, "bad_copy"));
}

static void a_unique_violation_has_the_name_of_its_constraint(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_param params[] = {{"username", VALUE_TEXT("twice")}};
    assert_non_null(RUN(SQL_one_user, params, &err));
    assert_null(RUN(SQL_one_user, params, &err));
    assert_int_equal(err.code, AB_EINVAL);
    assert_string_equal(err.kind, "users_username_key");
}

static void check_foreign_key_and_null_violations_are_the_callers(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_param empty[] = {{"username", VALUE_TEXT("")}};
    assert_null(RUN(SQL_one_user, empty, &err));
    assert_int_equal(err.code, AB_EINVAL);
    assert_string_equal(err.kind, "users_username_check");
    const struct ab_db_param nobody[] = {{"owner_id", VALUE_INT(999999)},
                                         {"name", VALUE_TEXT("s")}};
    assert_null(RUN(SQL_one_site, nobody, &err));
    assert_int_equal(err.code, AB_EINVAL);
    assert_string_equal(err.kind, "sites_owner_id_fkey");
    const struct ab_db_param null[] = {{"username", VALUE_NULL}};
    assert_null(RUN(SQL_one_user, null, &err));
    assert_int_equal(err.code, AB_EINVAL);
    assert_string_equal(err.kind, "username");
}

static void text_that_postgresql_refuses_is_a_bad_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"a\": \"\\u0000\"}", "{\"a\": \"\xff\"}", "{",
                                      "\"\\ud800\""};
    for (size_t i = 0; i < AB_COUNT(bad); i++) {
        struct ab_error err = {0};
        const struct ab_db_param params[] = {{"tags", VALUE_TEXT(bad[i])}};
        assert_null(RUN(SQL_tagged, params, &err));
        assert_int_equal(err.code, AB_EINVAL);
        assert_string_equal(err.kind, "bad_value");
    }
    struct ab_error err = {0};
    const struct ab_db_param nul[] = {{"username", {.type = AB_DB_TEXT, .p = "a\0b", .n = 3}}};
    assert_null(RUN(SQL_one_user, nul, &err));
    assert_string_equal(err.kind, "bad_value");
}

static void numerics_become_integers_and_reals(void **state)
{
    (void)state;
    static const int64_t numbers[][3] = {
        {1, 2, 3},        {0, 0, 0},         {10000, 0, 0},
        {-10000, -1, 0},  {INT64_MAX, 0, 0}, {INT64_MIN, 0, 0},
        {99999999, 1, 0}, {INT64_MAX, 1, 0}, {INT64_MIN, -1, 0},
    };
    for (size_t i = 0; i < AB_COUNT(numbers); i++) {
        struct ab_error err = {0};
        const struct ab_db_value items[] = {VALUE_INT(numbers[i][0]), VALUE_INT(numbers[i][1]),
                                            VALUE_INT(numbers[i][2])};
        const struct ab_db_param params[] = {{"numbers", ARRAY(items)}};
        PGresult *r = RUN(SQL_numbers, params, &err);
        assert_non_null(r);
        __int128 sum = (__int128)numbers[i][0] + numbers[i][1] + numbers[i][2];
        __int128 clamped = sum > INT64_MAX ? INT64_MAX : sum < INT64_MIN ? INT64_MIN : sum;
        assert_true(ab_col_int(r, 0, 0) == (int64_t)clamped);
        double avg = (double)sum / 3;
        assert_true(fabs(ab_col_real(r, 0, 1) - avg) <= fabs(avg) * 1e-12);
    }
}

static void free_text_takes_parameters_by_named_type(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_db_value states[] = {VALUE_TEXT("READY"), VALUE_TEXT("FAILED")};
    const struct ab_db_value values[] = {ARRAY(states), VALUE_INT(3), VALUE_TEXT("{\"a\": 1}")};
    const char *const types[] = {"job_state[]", "bigint", "jsonb"};
    for (int i = 0; i < 2; i++) { /* the second time from the cache */
        PGresult *r =
            ab_db_query(db, "SELECT 'READY' = ANY ($1) AS a, $2 + 1 AS b, $3 ->> 'a' AS c", values,
                        types, 3, arena, &err);
        assert_non_null(r);
        assert_true(ab_col_bool(r, 0, 0));
        assert_int_equal(ab_col_int(r, 0, 1), 4);
        assert_text(r, "c", "1");
    }
    const char *const unknown[] = {"no_such_type"};
    assert_null(ab_db_query(db, "SELECT $1", values, unknown, 1, arena, &err));
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_non_null(strstr(err.text, "no_such_type"));
}

static void a_failed_transaction_cannot_be_committed_in_silence(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(ab_db_exec(db, "BEGIN", &err), 0);
    assert_int_equal(ab_db_exec(db, "SELECT 1 / 0", &err), -1);
    assert_string_equal(err.kind, "bad_value");
    assert_int_equal(ab_db_exec(db, "COMMIT", &err), -1);
    assert_int_equal(err.code, AB_EINTERNAL);
    assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
}

static void lock_and_statement_timeouts_are_busy(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *other = pg_open();
    pg_exec(other, "BEGIN");
    pg_exec(other, "LOCK TABLE sites");
    pg_exec(db, "SET lock_timeout = 50");
    assert_int_equal(ab_db_exec(db, "SELECT * FROM sites", &err), -1);
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "db_timeout");
    pg_exec(db, "RESET lock_timeout");
    pg_exec(db, "SET statement_timeout = 50");
    const struct ab_db_param params[] = {{"seconds", VALUE_INT(10)}};
    assert_null(RUN(SQL_nap, params, &err));
    assert_string_equal(err.kind, "db_timeout");
    pg_exec(db, "RESET statement_timeout");
    pg_exec(other, "ROLLBACK");
}

static void a_serialization_failure_is_a_conflict(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *other = pg_open();
    pg_exec(db, "INSERT INTO notes VALUES ('s', now())");
    pg_exec(db, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    pg_int(db, "SELECT count(*) FROM notes");
    pg_exec(other, "UPDATE notes SET expires = now()");
    assert_int_equal(ab_db_exec(db, "UPDATE notes SET expires = now()", &err), -1);
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "db_conflict");
    pg_exec(db, "ROLLBACK");
}

static void an_injected_failure_leaves_the_connection_usable(void **state)
{
    (void)state;
#ifdef AB_FAULTS
    const struct ab_db_param params[] = {{"seconds", VALUE_INT(0)}};
    struct ab_error err = {0};
    ab_fault_arm(1);
    assert_null(RUN(SQL_nap, params, &err));
    assert_true(ab_fault_fired());
    ab_fault_arm(0);
    assert_int_equal(err.code, AB_EBUSY);
    assert_non_null(RUN(SQL_nap, params, &err));
#endif
}

static int set_up(void **state)
{
    (void)state;
    struct ab_error err = {0};
    const struct ab_sql *const *const lists[] = {blocks_sql, NULL};
    db = pg_open();
    pg_exec(db, "CREATE TABLE notes (state text PRIMARY KEY, expires timestamptz NOT NULL)");
    arena = ab_arena_new();
    if (ab_db_prepare(db, lists, &err) < 0)
        print_error("%s\n", err.text);
    return err.code;
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
        cmocka_unit_test(every_type_of_parameter_comes_back_as_it_was_sent),
        cmocka_unit_test(null_is_null_for_every_type),
        cmocka_unit_test(arrays_carry_nulls_and_every_type_of_item),
        cmocka_unit_test(empty_arrays_and_null_arrays_differ),
        cmocka_unit_test(a_value_of_the_wrong_type_names_block_and_parameter),
        cmocka_unit_test(a_parameter_that_is_not_given_is_named),
        cmocka_unit_test(a_block_that_does_not_compile_is_named_at_prepare),
        cmocka_unit_test(a_unique_violation_has_the_name_of_its_constraint),
        cmocka_unit_test(check_foreign_key_and_null_violations_are_the_callers),
        cmocka_unit_test(text_that_postgresql_refuses_is_a_bad_value),
        cmocka_unit_test(numerics_become_integers_and_reals),
        cmocka_unit_test(free_text_takes_parameters_by_named_type),
        cmocka_unit_test(a_failed_transaction_cannot_be_committed_in_silence),
        cmocka_unit_test(lock_and_statement_timeouts_are_busy),
        cmocka_unit_test(a_serialization_failure_is_a_conflict),
        cmocka_unit_test(an_injected_failure_leaves_the_connection_usable),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
