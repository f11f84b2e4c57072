/* test_migrate.c - from an empty database to the newest tables, whoever else tries the same */
#include "base/cleanup.h"
#include "base/fault.h"
#include "db/db.h"
#include "pg.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static ab_db_t *open_url(const char *url)
{
    struct ab_error err = {0};
    ab_db_t *db = ab_db_open(url, "test", &err);
    if (!db)
        print_error("%s\n", err.text);
    assert_non_null(db);
    return db;
}

static void an_empty_database_gets_every_migration_once(void **state)
{
    (void)state;
    struct ab_error err = {0};
    int version = -1, from = -1, to = -1;
    AB_AUTO(ab_db_close) ab_db_t *db = open_url(pg_url_empty());
    assert_int_equal(ab_schema_version(db, &version, &err), 0);
    assert_int_equal(version, 0);
    assert_int_equal(ab_migrate(db, &from, &to, &err), 0);
    assert_int_equal(from, 0);
    assert_int_equal(to, ab_schema_latest());
    assert_int_equal(ab_schema_version(db, &version, &err), 0);
    assert_int_equal(version, to);
    assert_int_equal(pg_int(db, "SELECT count(*) FROM schema_version"), to);

    assert_int_equal(ab_migrate(db, &from, &to, &err), 0);
    assert_int_equal(from, ab_schema_latest());
    assert_int_equal(to, ab_schema_latest());
    assert_int_equal(pg_int(db, "SELECT count(*) FROM schema_version"), to);
}

struct migrator {
    pthread_t thread;
    ab_db_t *db;
    int rc, from, to;
    struct ab_error err;
};

static void *migrate(void *arg)
{
    struct migrator *m = arg;
    m->rc = ab_migrate(m->db, &m->from, &m->to, &m->err);
    return NULL;
}

static void of_migrators_at_once_one_works_and_the_others_wait(void **state)
{
    (void)state;
    struct migrator all[4] = {0};
    int worked = 0;
    const char *url = pg_url_empty();
    for (int i = 0; i < 4; i++)
        all[i].db = open_url(url);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, migrate, &all[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i].thread, NULL);
        assert_string_equal(all[i].err.text, "");
        assert_int_equal(all[i].rc, 0);
        assert_int_equal(all[i].to, ab_schema_latest());
        worked += all[i].from == 0;
        ab_db_close(&all[i].db);
    }
    assert_int_equal(worked, 1);
}

static void databases_of_one_cluster_can_be_migrated_at_once(void **state)
{
    (void)state;
    struct migrator all[3] = {0};
    for (int i = 0; i < 3; i++)
        all[i].db = open_url(pg_url_empty());
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, migrate, &all[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(all[i].thread, NULL);
        assert_string_equal(all[i].err.text, "");
        assert_int_equal(all[i].rc, 0);
        ab_db_close(&all[i].db);
    }
}

static void a_migration_that_breaks_anywhere_leaves_a_whole_step_or_none(void **state)
{
    (void)state;
#ifdef AB_FAULTS
    AB_AUTO(ab_db_close) ab_db_t *db = open_url(pg_url_empty());
    for (int nth = 1;; nth++) {
        struct ab_error err = {0};
        int version, from, to;
        ab_fault_arm(nth);
        int rc = ab_migrate(db, &from, &to, &err);
        bool fired = ab_fault_fired();
        ab_fault_arm(0);
        if (!fired) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_true(rc == 0 || err.code == AB_EBUSY); /* 0: a fault of roles.sql was tried again */
        assert_int_equal(PQtransactionStatus(ab_db_conn(db)), PQTRANS_IDLE);
        assert_int_equal(ab_schema_version(db, &version, &err), 0);
        /* what is there is whole */
        int64_t jobs = pg_int(db, "SELECT count(to_regclass('jobs'))");
        assert_int_equal(jobs, version >= 1);
        assert_int_equal(pg_int(db, "SELECT count(to_regclass('requests'))"), jobs);
        pg_exec(db, "DROP SCHEMA public CASCADE");
        pg_exec(db, "CREATE SCHEMA public");
        pg_exec(db, "SELECT pg_advisory_unlock_all()");
    }
#endif
}

static void a_database_from_the_future_is_left_alone(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *db = pg_open();
    pg_exec(db, "INSERT INTO schema_version (version, name) VALUES (%d, 'x')",
            ab_schema_latest() + 1);
    assert_int_equal(ab_migrate(db, NULL, NULL, &err), -1);
    assert_int_equal(err.code, AB_ECONFLICT);
    assert_non_null(strstr(err.text, "newer program"));
    pg_exec(db, "DELETE FROM schema_version WHERE name = 'x'");
}

/* 1 allowed, 0 refused for want of rights. */
static int allowed(ab_db_t *db, const char *statement)
{
    struct ab_error err = {0};
    int rc = ab_db_exec(db, "BEGIN", &err);
    assert_int_equal(rc, 0);
    rc = ab_db_exec(db, statement, &err);
    if (rc < 0 && !strstr(err.text, "42501"))
        fail_msg("%s: %s", statement, err.text);
    ab_db_exec(db, "ROLLBACK", NULL);
    return rc == 0;
}

static void each_role_may_do_its_work_and_no_more(void **state)
{
    (void)state;
    static const struct {
        const char *role, *statement;
        int allowed;
    } rows[] = {
        {"abies_jobs", "SELECT version FROM schema_version", 1},
        {"abies_jobs", "UPDATE jobs SET num_nodes = 1", 1},
        {"abies_jobs", "SELECT username FROM users_public", 1},
        {"abies_jobs", "SELECT password_hash FROM users", 0},
        {"abies_jobs", "UPDATE events SET data = '{}'", 0},
        {"abies_jobs", "DROP TABLE jobs", 0},
        {"abies_sessions", "UPDATE jobs SET session_id = NULL, cancel = false, lease = lease + 1",
         1},
        {"abies_sessions", "UPDATE jobs SET num_nodes = 2", 0},
        {"abies_sessions", "DELETE FROM requests", 1},
        {"abies_sessions", "SELECT make_event_partition(1)", 1},
        {"abies_transfers", "SELECT make_event_partition(1)", 0},
        {"abies_sessions", "SELECT event_room(), event_drop(), event_forget('1 y', 1)", 1},
        {"abies_sessions", "DELETE FROM events", 0},
        {"abies_sessions", "UPDATE event_low SET low = 9", 0},
        {"abies_sessions", "INSERT INTO event_marks VALUES ('2000-01-01', 9)", 0},
        {"abies_jobs", "SELECT event_forget('1 y', 1)", 0},
        {"abies_transfers", "UPDATE transfer_items SET state = 'done'", 1},
        {"abies_transfers", "UPDATE transfer_items SET remote_path = '/'", 0},
        {"abies_transfers", "SELECT password_hash FROM users", 0},
        {"abies_auth", "SELECT password_hash FROM users", 1},
        {"abies_auth", "SELECT * FROM jobs", 0},
        {"abies_report", "SELECT * FROM jobs", 1},
        {"abies_report", "SELECT password_hash FROM users", 0},
        {"abies_report", "INSERT INTO job_parents VALUES (1, 2)", 0},
    };
    for (size_t i = 0; i < AB_COUNT(rows); i++) {
        AB_AUTO(ab_db_close) ab_db_t *db = pg_open_as(rows[i].role);
        if (strcmp(rows[i].role, "abies_report") == 0)
            pg_exec(db, "SET default_transaction_read_only = off");
        if (allowed(db, rows[i].statement) != rows[i].allowed)
            fail_msg("%s: %s: expected %d", rows[i].role, rows[i].statement, rows[i].allowed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_database_gets_every_migration_once),
        cmocka_unit_test(of_migrators_at_once_one_works_and_the_others_wait),
        cmocka_unit_test(databases_of_one_cluster_can_be_migrated_at_once),
        cmocka_unit_test(a_migration_that_breaks_anywhere_leaves_a_whole_step_or_none),
        cmocka_unit_test(a_database_from_the_future_is_left_alone),
        cmocka_unit_test(each_role_may_do_its_work_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
