/* inner.h - what the files of db/ share; nobody else includes it */
#ifndef AB_DB_INNER_H
#define AB_DB_INNER_H

#include "db.h"

/* How a parameter of a type is written. */
enum encoding {
    ENC_BOOL,
    ENC_INT2,
    ENC_INT4,
    ENC_INT8, /* also xid8 */
    ENC_FLOAT4,
    ENC_FLOAT8,
    ENC_TEXT, /* text, enum, json: the bytes */
    ENC_JSONB,
    ENC_BYTEA,
    ENC_TIME,
    ENC_UUID,
    ENC_WORDS, /* the server parses it: interval, numeric and whatever else has no encoder here */
    ENC_ARRAY,
};

struct type {
    Oid oid;
    Oid item; /* of an array */
    enum encoding encoding;
    enum encoding item_encoding;
    char name[64];
};

enum {
    DB_MAX_AHEAD = 8,
    DB_MAX_KEPT = 64, /* plans of a connection that came from texts */
};

/* A text that was prepared under the name "kept_" and its place. */
struct kept {
    char *text;
    size_t len;
};

/* One prepared block. */
struct statement {
    const struct ab_sql *sql;
    struct type *types; /* of its parameters, in the order of sql->params */
    int n;
};

struct named_type {
    char name[64]; /* as given to ab_db_query */
    struct type type;
};

struct ab_db {
    PGconn *conn;
    char *url, *application;
    bool pooled;         /* as ab_db_pooled says */
    bool broken;         /* out of step or too slow: the next ensure starts afresh */
    int wait_ms;         /* longest wait for one answer */
    int tries;           /* failed connects in a row */
    int64_t next_try_ms; /* no connect before this */

    const struct ab_sql **blocks; /* everything that ab_db_prepare was given */
    size_t n_blocks;
    struct statement *statements; /* hash by address of the block; n_slots is a power of two */
    size_t n_slots;
    struct kept kept[DB_MAX_KEPT];
    size_t n_kept;
    struct type *types; /* those that are not built in, read from pg_type */
    size_t n_types;
    struct named_type *named;
    size_t n_named;

    struct ab_db_step ahead[DB_MAX_AHEAD]; /* wait for the next statement */
    size_t n_ahead;

    struct ab_buf params; /* encoded parameters of the call that is being sent */
};

/* ---- conn.c */
/* Wait until everything has left. -1: lost, or over wait_ms. */
int db_flush(ab_db_t *self, struct ab_error *err);
/* Wait until PQgetResult does not block. -1: lost, or over wait_ms. */
int db_wait(ab_db_t *self, struct ab_error *err);
/* Flush and read up to the end of one command; the result with an error, else the last one. NULL:
 * lost. */
PGresult *db_answer(ab_db_t *self, struct ab_error *err);
/* A fault, or a connection that is known to be dead: an error before anything is sent. */
int db_ready(ab_db_t *self, const char *fault, struct ab_error *err);

/* ---- fail.c: err from a result or from the connection; both return -1 */
int db_fail_result(ab_db_t *self, const PGresult *r, const char *what, struct ab_error *err);
int db_fail_lost(ab_db_t *self, const char *what, struct ab_error *err);

/* ---- types.c */
/* Look up by oid; asks the server for what is not built in. */
int db_type_find(ab_db_t *self, Oid oid, struct type *out, struct ab_error *err);
int db_type_named(ab_db_t *self, const char *name, struct type *out, struct ab_error *err);
void db_types_forget(ab_db_t *self);

/* ---- prepare.c */
int db_prepare_all(ab_db_t *self, struct ab_error *err);
const struct statement *db_statement(const ab_db_t *self, const struct ab_sql *sql);
void db_statements_forget(ab_db_t *self);
/* Prepare the step's text unless it is, or there are as many as may be. */
int db_keep_text(ab_db_t *self, const struct ab_db_step *step, struct ab_error *err);
/* What it was prepared as; false: it is to be sent whole. */
struct kept_name {
    char text[16];
};
bool db_kept_name(const ab_db_t *self, const struct ab_db_step *step, struct kept_name *out);

/* ---- bind.c: parameters of one call, encoded one behind the other in self->params */
enum {
    DB_MAX_PARAMS = 64
};
struct bound {
    const char *values[DB_MAX_PARAMS];
    int lengths[DB_MAX_PARAMS];
    int formats[DB_MAX_PARAMS];
    Oid oids[DB_MAX_PARAMS];
    ptrdiff_t offsets[DB_MAX_PARAMS]; /* while the buffer may still move */
    int n;
};
/* `what` and `name` are for the error: block and parameter. */
int db_bind_begin(ab_db_t *self, struct bound *out, size_t n, const char *what,
                  struct ab_error *err);
int db_bind_add(ab_db_t *self, struct bound *out, const struct type *type,
                const struct ab_db_value *value, const char *what, const char *name,
                struct ab_error *err);
int db_bind_end(ab_db_t *self, struct bound *out, const char *what, struct ab_error *err);

/* ---- db.c: what was kept back runs now, in a round trip of its own */
int db_run_ahead(ab_db_t *self, struct ab_error *err);

/* Make the arena own r; NULL stays NULL. */
PGresult *db_keep(PGresult *r, ab_arena_t *arena);

#endif
