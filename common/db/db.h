/* db.h - PostgreSQL: statements from .sql files, prepared by name, bound by name, results in binary
 *
 * tools/embed_sql turns each `-- name: block` into `const struct ab_sql SQL_block`, and a file into
 * the NULL-terminated `lease_sql[]`. A connection belongs to one thread.
 */
#ifndef AB_DB_H
#define AB_DB_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ab_sql {
    const char *name;                /* of the block = of the prepared statement */
    const char *text;                /* with $1.. in place of :names */
    const char *const *params;       /* their names, NULL-terminated */
    const char *file;                /* "lease.sql" */
    const char *const *copy_columns; /* of a COPY .. FROM STDIN block; NULL else */
    const char *copy_table;
};

typedef struct ab_db ab_db_t;

/* url: libpq URI or keywords. Sets application_name, UTC, tcp_user_timeout, keepalives. Connects at
 * once. */
ab_db_t *ab_db_open(const char *url, const char *application, struct ab_error *err);
void ab_db_close(ab_db_t **self);
PGconn *ab_db_conn(ab_db_t *self);

/* Once at start, for all connections that are opened later: a pooler stands in between that gives
 * each transaction a server connection of its own (PgBouncer, pool_mode = transaction). Nothing may
 * be kept in a session then, so blocks are sent whole each time instead of prepared. */
void ab_db_pooled(bool pooled);

/* After a lost connection: reconnect and prepare again; -1 while the server is away. */
int ab_db_ensure(ab_db_t *self, struct ab_error *err);

/* Longest wait for one answer (40 s at first; the server's statement_timeout should be shorter).
 * Over it the connection is given up: AB_EBUSY, db_gone. */
void ab_db_limit(ab_db_t *self, int64_t ms);

/* Prepare every block of the lists (NULL-terminated list of NULL-terminated lists), read back the
 * parameter types. A block that does not compile is named in the error. Kept for reconnects. */
int ab_db_prepare(ab_db_t *self, const struct ab_sql *const *const *lists, struct ab_error *err);

/* One parameter. Encoded in binary by the type that PREPARE reported; a type that does not fit is
 * our own mistake and is an AB_EINTERNAL error that names block and parameter. */
enum ab_db_type {
    AB_DB_NULL,
    AB_DB_BOOL,
    AB_DB_INT,
    AB_DB_REAL,
    AB_DB_TEXT,
    AB_DB_BYTES,
    AB_DB_TIME,
    AB_DB_UUID,
    AB_DB_ARRAY
};
struct ab_db_value {
    enum ab_db_type type;
    union {
        bool b;
        int64_t i; /* INT; TIME in us since 1970 UTC */
        double f;
        struct {
            /* TEXT (also for enum, json, jsonb, interval, numeric), BYTES, UUID (16 bytes) */
            const void *p;
            size_t n;
        };
        struct {
            const struct ab_db_value *items; /* ARRAY, one dimension */
            size_t n_items;
        };
    };
};

struct ab_db_param {
    const char *name;
    struct ab_db_value value;
};

/* Run a prepared block; parameters are looked up by name in `params`. The result (binary format) is
 * cleared when the arena goes. NULL and `err` on failure. AB_EBUSY by kind: "db_conflict"
 * serialization failure, deadlock, changed tables (ab_db_ensure, then the whole transaction again),
 * "db_timeout" of a lock or statement, "db_gone" connection lost (ab_db_ensure), "db_full". A
 * unique, check or foreign key violation is AB_EINVAL with the constraint's name as kind; a value
 * that PostgreSQL refuses (\u0000 in jsonb) AB_EINVAL "bad_value"; anything else AB_EINTERNAL. */
PGresult *ab_db_run(ab_db_t *self, const struct ab_sql *sql, const struct ab_db_param *params,
                    size_t n, ab_arena_t *arena, struct ab_error *err);

/* Free text with $n parameters (list queries built from filters), same rules; the types are given.
 */
PGresult *ab_db_query(ab_db_t *self, const char *text, const struct ab_db_value *params,
                      const char *const *types, size_t n, ab_arena_t *arena, struct ab_error *err);
int ab_db_exec(ab_db_t *self, const char *text, struct ab_error *err); /* no parameters, no rows */

/* Several statements in one round trip (pipeline mode). results[i] belongs to the arena. The first
 * failure is the error; the rest are aborted. */
struct ab_db_step {
    const struct ab_sql *sql;         /* a prepared block with its params, or NULL: */
    const char *text;                 /* free text with $n parameters, */
    const struct ab_db_value *values; /* as in ab_db_query */
    const char *const *types;
    const struct ab_db_param *params;
    size_t n; /* of params or values */
    /* This text comes again: in a pipeline it is prepared when it first comes, as a block is, so it
     * has the plan of the role's settings. Of few shapes only; more than 64 are sent whole. */
    bool keep;
    /* Of a large answer, in a pipeline: each row as it comes, gone afterwards; false: no more is
     * wanted (it is read and dropped). NULL: all in the result. */
    bool (*row)(void *arg, const PGresult *r);
    void *arg;
    PGresult *result;
};
int ab_db_pipeline(ab_db_t *self, struct ab_db_step *steps, size_t n, ab_arena_t *arena,
                   struct ab_error *err);

/* Keep a step back, and send it ahead of the next statement in the same round trip: BEGIN costs
 * nothing so. Its result is only checked: if it fails, the next statement fails with its error. What
 * the step points to must live until then. */
int ab_db_ahead(ab_db_t *self, const struct ab_db_step *step, ab_arena_t *arena,
                struct ab_error *err);
void ab_db_drop_ahead(ab_db_t *self);

/* COPY .. FROM STDIN (FORMAT binary): `data` is complete (header and trailer included) before it
 * begins, because no timeout of the server ends a client that freezes inside. Build it with the
 * calls below; text does for text, enum and json. */
int ab_db_copy(ab_db_t *self, const struct ab_sql *sql, const struct ab_buf *data,
               struct ab_error *err);
void ab_copy_begin(struct ab_buf *out);
void ab_copy_row(struct ab_buf *out, int n_columns);
void ab_copy_null(struct ab_buf *out);
void ab_copy_bool(struct ab_buf *out, bool v);
void ab_copy_int4(struct ab_buf *out, int32_t v);
void ab_copy_int8(struct ab_buf *out, int64_t v);
void ab_copy_float8(struct ab_buf *out, double v);
void ab_copy_text(struct ab_buf *out, const char *v, size_t n);
void ab_copy_jsonb(struct ab_buf *out, const char *v, size_t n);
void ab_copy_time(struct ab_buf *out, int64_t utc_us);
void ab_copy_int8s(struct ab_buf *out, const int64_t *v, size_t n);
void ab_copy_end(struct ab_buf *out);

/* ---- binary results. A null is 0, false, NULL. */
bool ab_col_null(const PGresult *r, int row, int col);
/* int2, int4, int8, oid, xid8; of a numeric the whole part, clamped. */
int64_t ab_col_int(const PGresult *r, int row, int col);
/* float4, float8, numeric, integers. */
double ab_col_real(const PGresult *r, int row, int col);
bool ab_col_bool(const PGresult *r, int row, int col);
/* Microseconds since 1970, UTC. */
int64_t ab_col_time(const PGresult *r, int row, int col);
/* text, enum, json, jsonb without its version byte. Points into r. len may be NULL. */
const char *ab_col_text(const PGresult *r, int row, int col, size_t *len);
/* bytea, uuid. */
const void *ab_col_bytes(const PGresult *r, int row, int col, size_t *len);
/* A uuid as text; false: it is null. */
bool ab_col_uuid(const PGresult *r, int row, int col, char out[37]);
/* bigint[] or int[]; nulls in it are left out. */
int64_t *ab_col_int8s(const PGresult *r, int row, int col, ab_arena_t *arena, size_t *n);
/* Column number by name; a name that is not there is our own mistake (assert). */
int ab_col(const PGresult *r, const char *name);

/* ---- migrations: numbered files 0001_name.sql embedded at build time, applied under an advisory
 * lock, then roles.sql. Table schema_version(version int, name text, applied timestamptz). */
int ab_migrate(ab_db_t *self, int *from, int *to, struct ab_error *err);
int ab_schema_version(ab_db_t *self, int *version, struct ab_error *err); /* 0: empty database */
int ab_schema_latest(void);

#endif
