/* migrate.c - numbered files, each applied once, by one program at a time
 *
 * Each migration and its row of schema_version are one transaction, so a migrator that is killed
 * leaves either. The session's advisory lock goes with the connection. roles.sql runs after them
 * every time: a new table has no rights otherwise.
 */
#include "base/cleanup.h"
#include "base/fault.h"
#include "inner.h"
#include "migrations.h"
#include <stdlib.h>
#include <string.h>

enum {
    ROLES_TRIES = 8
};

/* "abies" as a number: one migrator a database. */
#define LOCK "pg_advisory_lock(418061510)"
#define UNLOCK "pg_advisory_unlock(418061510)"

static const char make_table[] = "CREATE TABLE IF NOT EXISTS schema_version ("
                                 " version int PRIMARY KEY,"
                                 " name    text NOT NULL,"
                                 " applied timestamptz NOT NULL DEFAULT now())";

/* 0001_init.sql -> 1; 0: no migration (roles.sql). */
static int number_of(const char *name)
{
    return name[0] >= '0' && name[0] <= '9' ? (int)strtol(name, NULL, 10) : 0;
}

int ab_schema_latest(void)
{
    int latest = 0;
    for (const struct ab_sql_file *f = ab_sql_files; f->name; f++)
        if (number_of(f->name) > latest)
            latest = number_of(f->name);
    return latest;
}

static int read_int(ab_db_t *self, const char *query, int *out, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    PGresult *r = ab_db_query(self, query, NULL, NULL, 0, arena, err);
    if (!r)
        return -1;
    *out = PQntuples(r) == 1 ? (int)ab_col_int(r, 0, 0) : 0;
    return 0;
}

int ab_schema_version(ab_db_t *self, int *version, struct ab_error *err)
{
    int there = 0;
    *version = 0;
    if (read_int(self, "SELECT count(to_regclass('public.schema_version'))", &there, err) < 0)
        return -1;
    if (!there)
        return 0;
    return read_int(self, "SELECT max(version) FROM public.schema_version", version, err);
}

/* BEGIN; the file; its row; COMMIT. */
static int apply(ab_db_t *self, const struct ab_sql_file *file, struct ab_error *err)
{
    int n = number_of(file->name);
    char row[200];
    snprintf(row, sizeof(row), "INSERT INTO schema_version (version, name) VALUES (%d, '%.100s')",
             n, file->name);
    if (ab_db_exec(self, "BEGIN", err) == 0 && ab_db_exec(self, file->text, err) == 0
        && (n == 0 || ab_db_exec(self, row, err) == 0) && !ab_fault("db.migrate")
        && ab_db_exec(self, "COMMIT", err) == 0)
        return 0;
    if (err && !err->code)
        ab_fail(err, AB_EBUSY, "interrupted");
    ab_db_exec(self, "ROLLBACK", NULL);
    return ab_fail_within(err, "%s", file->name);
}

/* Roles belong to the cluster, the lock to the database: two databases of one cluster may meet
 * here. */
static int apply_roles(ab_db_t *self, const struct ab_sql_file *file, struct ab_error *err)
{
    for (int i = 1;; i++) {
        struct ab_error why = {0};
        if (apply(self, file, &why) == 0)
            return 0;
        bool met = strstr(why.text, "concurrently") || strstr(why.text, "duplicate key")
                   || strstr(why.text, "already exists");
        if (!met || i == ROLES_TRIES) {
            if (err)
                *err = why;
            return -1;
        }
        char nap[64];
        snprintf(nap, sizeof(nap), "SELECT pg_sleep(%d * 0.02 * random())", i);
        if (ab_db_exec(self, nap, err) < 0)
            return -1;
    }
}

static int apply_all(ab_db_t *self, int *from, int *to, struct ab_error *err)
{
    if (ab_db_exec(self, make_table, err) < 0 || ab_schema_version(self, from, err) < 0)
        return -1;
    *to = *from;
    if (*from > ab_schema_latest())
        return ab_fail(
            err, AB_ECONFLICT,
            "the database has schema version %d, this program knows %d: use the newer program",
            *from, ab_schema_latest());
    for (const struct ab_sql_file *f = ab_sql_files; f->name; f++) {
        int n = number_of(f->name);
        if (n == 0 || n <= *from)
            continue;
        if (n != *to + 1)
            return ab_fail(err, AB_EINTERNAL, "%s follows migration %d: one is missing", f->name,
                           *to);
        if (apply(self, f, err) < 0)
            return -1;
        *to = n;
    }
    for (const struct ab_sql_file *f = ab_sql_files; f->name; f++)
        if (number_of(f->name) == 0 && apply_roles(self, f, err) < 0)
            return -1;
    return 0;
}

int ab_migrate(ab_db_t *self, int *from, int *to, struct ab_error *err)
{
    int before = 0, after = 0;
    /* The other migrator may take its time; a migration may build an index. */
    int wait_ms = self->wait_ms;
    self->wait_ms = 3600 * 1000;
    int rc = ab_db_exec(self, "SET statement_timeout = 0; SET lock_timeout = 0", err);
    if (rc == 0)
        rc = ab_db_exec(self, "SELECT " LOCK, err);
    if (rc == 0) {
        rc = apply_all(self, &before, &after, err);
        ab_db_exec(self, "SELECT " UNLOCK, NULL);
    }
    self->wait_ms = wait_ms;
    if (from)
        *from = before;
    if (to)
        *to = after;
    return rc;
}
