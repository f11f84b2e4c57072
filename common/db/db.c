/* db.c - running statements: one, free text, several in a round trip */
#include "base/fault.h"
#include "inner.h"
#include <string.h>

enum {
    CHUNK_STEPS = 64, /* what is sent before anything is read: bounded, or both sides block */
    CHUNK_BYTES = 256 * 1024,
    KEEP_BYTES = 1024 * 1024, /* of the parameter buffer between calls */
};

static void clear_result(void *r)
{
    PQclear(r);
}

PGresult *db_keep(PGresult *r, ab_arena_t *arena)
{
    if (r)
        ab_defer(arena, clear_result, r);
    return r;
}

/* COMMIT after a failed statement "succeeds" as ROLLBACK. */
static bool is_lost_commit(const char *text, const PGresult *r)
{
    return strcmp(text, "COMMIT") == 0 && strcmp(PQcmdStatus((PGresult *)r), "ROLLBACK") == 0;
}

static int fail_commit(struct ab_error *err)
{
    return ab_fail(err, AB_EINTERNAL,
                   "nothing was committed: a statement of the transaction had failed");
}

/* The result, or NULL with its error. */
static PGresult *check(ab_db_t *self, PGresult *r, const char *what, const char *text,
                       ab_arena_t *arena, struct ab_error *err)
{
    ExecStatusType is = r ? PQresultStatus(r) : PGRES_FATAL_ERROR;
    if ((is == PGRES_TUPLES_OK || is == PGRES_COMMAND_OK) && !is_lost_commit(text, r))
        return db_keep(r, arena);
    if (is == PGRES_COMMAND_OK) {
        fail_commit(err);
    } else if (r && (is == PGRES_COPY_IN || is == PGRES_COPY_OUT || is == PGRES_COPY_BOTH)) {
        self->broken = true; /* in the middle of a COPY that nobody will finish */
        ab_fail(err, AB_EINTERNAL, "%s: COPY runs through ab_db_copy", what);
    } else if (r) {
        db_fail_result(self, r, what, err);
    }
    PQclear(r);
    return NULL;
}

static void trim_params(ab_db_t *self)
{
    if (self->params.cap > KEEP_BYTES)
        ab_buf_free(&self->params);
}

/* Encode the parameters of a block, found by name. */
static int bind_block(ab_db_t *self, struct bound *out, const struct ab_sql *sql,
                      const struct ab_db_param *params, size_t n, struct ab_error *err)
{
    const struct statement *s = db_statement(self, sql);
    if (!s)
        return ab_fail(err, AB_EINTERNAL, "%s (%s) was never prepared", sql->name, sql->file);
    if (db_bind_begin(self, out, (size_t)s->n, sql->name, err) < 0)
        return -1;
    for (int i = 0; i < s->n; i++) {
        size_t k = 0;
        while (k < n && strcmp(params[k].name, sql->params[i]) != 0)
            k++;
        if (k == n)
            return ab_fail(err, AB_EINTERNAL, "%s: parameter :%s was not given", sql->name,
                           sql->params[i]);
        if (db_bind_add(self, out, &s->types[i], &params[k].value, sql->name, sql->params[i], err)
            < 0)
            return -1;
    }
    return db_bind_end(self, out, sql->name, err);
}

static int bind_text(ab_db_t *self, struct bound *out, const struct ab_db_step *step,
                     struct ab_error *err)
{
    if (db_bind_begin(self, out, step->n, "query", err) < 0)
        return -1;
    for (size_t i = 0; i < step->n; i++) {
        struct type type;
        if (db_type_named(self, step->types[i], &type, err) < 0
            || db_bind_add(self, out, &type, &step->values[i], "query", step->types[i], err) < 0)
            return -1;
    }
    return db_bind_end(self, out, "query", err);
}

static const char *name_of(const struct ab_db_step *step)
{
    return step->sql ? step->sql->name : "query";
}

static const char *text_of(const struct ab_db_step *step)
{
    return step->sql ? step->sql->text : step->text;
}

/* Bind and send; nothing was sent if it cannot be bound (1). -1: lost. */
static int send_step(ab_db_t *self, const struct ab_db_step *step, struct ab_error *err)
{
    struct bound b;
    if ((step->sql ? bind_block(self, &b, step->sql, step->params, step->n, err)
                   : bind_text(self, &b, step, err))
        < 0)
        return 1;
    struct kept_name kept;
    const char *name = step->sql && !self->pooled        ? step->sql->name
                       : db_kept_name(self, step, &kept) ? kept.text
                                                         : NULL;
    if (name ? PQsendQueryPrepared(self->conn, name, b.n, b.values, b.lengths, b.formats, 1)
             : PQsendQueryParams(self->conn, text_of(step), b.n, b.oids, b.values, b.lengths,
                                 b.formats, 1))
        return 0;
    return db_fail_lost(self, name_of(step), err);
}

/* ---- one statement, and what goes ahead of it */

void ab_db_drop_ahead(ab_db_t *self)
{
    self->n_ahead = 0;
}

int ab_db_ahead(ab_db_t *self, const struct ab_db_step *step, ab_arena_t *arena,
                struct ab_error *err)
{
    if (self->n_ahead == DB_MAX_AHEAD && ab_db_pipeline(self, NULL, 0, arena, err) < 0)
        return -1;
    self->ahead[self->n_ahead++] = *step;
    return 0;
}

int db_run_ahead(ab_db_t *self, struct ab_error *err)
{
    if (self->n_ahead == 0)
        return 0;
    ab_arena_t *arena = ab_arena_new();
    int rc = ab_db_pipeline(self, NULL, 0, arena, err);
    ab_arena_destroy(&arena);
    return rc;
}

static PGresult *run_step(ab_db_t *self, struct ab_db_step *step, const char *fault,
                          ab_arena_t *arena, struct ab_error *err)
{
    PGresult *r = NULL;
    if (db_ready(self, fault, err) < 0)
        return NULL;
    if (self->n_ahead > 0)
        return ab_db_pipeline(self, step, 1, arena, err) < 0 ? NULL : step->result;
    if (send_step(self, step, err) == 0)
        r = check(self, db_answer(self, err), name_of(step), text_of(step), arena, err);
    trim_params(self);
    return r;
}

PGresult *ab_db_run(ab_db_t *self, const struct ab_sql *sql, const struct ab_db_param *params,
                    size_t n, ab_arena_t *arena, struct ab_error *err)
{
    return run_step(self, &(struct ab_db_step){.sql = sql, .params = params, .n = n}, "db.run",
                    arena, err);
}

PGresult *ab_db_query(ab_db_t *self, const char *text, const struct ab_db_value *values,
                      const char *const *types, size_t n, ab_arena_t *arena, struct ab_error *err)
{
    return run_step(self,
                    &(struct ab_db_step){.text = text, .values = values, .types = types, .n = n},
                    "db.query", arena, err);
}

int ab_db_exec(ab_db_t *self, const char *text, struct ab_error *err)
{
    bool commit = strcmp(text, "COMMIT") == 0;
    char what[48];
    snprintf(what, sizeof(what), "%.40s", text);
    if (db_ready(self, commit ? "db.commit" : "db.exec", err) < 0 || db_run_ahead(self, err) < 0)
        return -1;
    if (!PQsendQuery(self->conn, text))
        return db_fail_lost(self, what, err);
    PGresult *r = db_answer(self, err);
    if (!r)
        return -1;
    ExecStatusType is = PQresultStatus(r);
    int rc = 0;
    if (is != PGRES_COMMAND_OK && is != PGRES_TUPLES_OK && is != PGRES_EMPTY_QUERY)
        rc = db_fail_result(self, r, what, err);
    else if (is_lost_commit(text, r))
        rc = fail_commit(err);
    PQclear(r);
    return rc;
}

/* ---- pipeline: the expected results mirror what was sent; any mismatch ends the connection */

static int out_of_step(ab_db_t *self, struct ab_error *err)
{
    self->broken = true;
    return ab_fail_kind(err, AB_EBUSY, "db_gone", "the database answered out of step");
}

/* One result and the NULL behind it. */
static PGresult *next_result(ab_db_t *self, struct ab_error *err)
{
    if (db_wait(self, err) < 0)
        return NULL;
    PGresult *r = PQgetResult(self->conn);
    if (!r) {
        out_of_step(self, err);
        return NULL;
    }
    if (PQresultStatus(r) == PGRES_PIPELINE_SYNC || PQstatus(self->conn) != CONNECTION_OK)
        return r;
    PGresult *end = db_wait(self, err) == 0 ? PQgetResult(self->conn) : r;
    if (!end)
        return r;
    if (end != r)
        PQclear(end);
    if (!self->broken)
        out_of_step(self, err);
    PQclear(r);
    return NULL;
}

/* Send from steps[0] up to the bounds of a chunk; how many, -1. */
static int send_chunk(ab_db_t *self, struct ab_db_step *steps, size_t n, struct ab_error *err)
{
    size_t i = 0, bytes = 0;
    while (i < n && i < CHUNK_STEPS && bytes < CHUNK_BYTES) {
        int rc = send_step(self, &steps[i], err);
        if (rc < 0)
            return -1;
        if (rc > 0)
            break;
        bytes += self->params.len + 64;
        i++;
    }
    if (i == 0)
        return -1;
    /* A step that cannot be bound ends the chunk: what was sent is read first, then the error
     * stands. */
    if (!PQpipelineSync(self->conn))
        return db_fail_lost(self, "pipeline", err);
    return (int)i;
}

/* Rows one at a time; the result of the whole is the last one, without rows. */
static PGresult *next_rows(ab_db_t *self, const struct ab_db_step *step, struct ab_error *err)
{
    bool wanted = true;
    if (!PQsetSingleRowMode(self->conn)) {
        out_of_step(self, err);
        return NULL;
    }
    while (db_wait(self, err) == 0) {
        PGresult *r = PQgetResult(self->conn), *end;
        if (!r)
            break;
        if (PQresultStatus(r) == PGRES_SINGLE_TUPLE) {
            wanted = wanted && step->row(step->arg, r);
            PQclear(r);
            continue;
        }
        if (PQresultStatus(r) == PGRES_PIPELINE_SYNC || PQstatus(self->conn) != CONNECTION_OK
            || (db_wait(self, err) == 0 && !(end = PQgetResult(self->conn))))
            return r;
        PQclear(r);
        break;
    }
    if (!self->broken)
        out_of_step(self, err);
    return NULL;
}

static int read_chunk(ab_db_t *self, struct ab_db_step *steps, size_t n, ab_arena_t *arena,
                      struct ab_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        struct ab_error *why = rc < 0 ? NULL : err;
        PGresult *r = steps[i].row ? next_rows(self, &steps[i], why) : next_result(self, why);
        if (!r)
            return -1;
        ExecStatusType is = PQresultStatus(r);
        if (is == PGRES_PIPELINE_SYNC) {
            PQclear(r);
            return out_of_step(self, err);
        }
        /* The first failure is the error; what follows it is only PIPELINE_ABORTED. */
        steps[i].result =
            check(self, r, name_of(&steps[i]), text_of(&steps[i]), arena, rc < 0 ? NULL : err);
        if (!steps[i].result)
            rc = -1;
        if (self->broken)
            return -1;
    }
    PGresult *sync = next_result(self, rc < 0 ? NULL : err);
    bool ok = sync && PQresultStatus(sync) == PGRES_PIPELINE_SYNC;
    PQclear(sync);
    if (!ok && !self->broken)
        return out_of_step(self, err);
    return ok ? rc : -1;
}

static int run_steps(ab_db_t *self, struct ab_db_step *steps, size_t n, ab_arena_t *arena,
                     struct ab_error *err)
{
    int rc = 0;
    if (!PQenterPipelineMode(self->conn))
        return db_fail_lost(self, "pipeline", err);
    for (size_t done = 0; done < n && rc == 0;) {
        int sent = send_chunk(self, steps + done, n - done, err);
        if (sent < 0)
            rc = -1;
        else
            rc = read_chunk(self, steps + done, (size_t)sent, arena, err);
        done += sent > 0 ? (size_t)sent : 0;
    }
    if (!PQexitPipelineMode(self->conn))
        self->broken = true;
    trim_params(self);
    return rc;
}

/* In pipeline mode nothing else can be asked: types that are not known yet are looked up before, and
 * texts that are to be kept prepared. */
static int know_steps(ab_db_t *self, const struct ab_db_step *steps, size_t n, struct ab_error *err)
{
    struct type type;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; !steps[i].sql && k < steps[i].n; k++)
            if (db_type_named(self, steps[i].types[k], &type, err) < 0)
                return -1;
        if (steps[i].keep && db_keep_text(self, &steps[i], err) < 0)
            return -1;
    }
    return 0;
}

int ab_db_pipeline(ab_db_t *self, struct ab_db_step *steps, size_t n, ab_arena_t *arena,
                   struct ab_error *err)
{
    size_t n_ahead = self->n_ahead;
    struct ab_db_step *all = steps;
    self->n_ahead = 0;
    if (n_ahead > 0) {
        all = ab_alloc(arena, n_ahead + n, sizeof(*all));
        memcpy(all, self->ahead, n_ahead * sizeof(*all));
        if (n > 0)
            memcpy(all + n_ahead, steps, n * sizeof(*all));
    }
    for (size_t i = 0; i < n_ahead + n; i++)
        all[i].result = NULL;
    int rc = -1;
    if (db_ready(self, "db.pipeline", err) == 0 && know_steps(self, all, n_ahead + n, err) == 0)
        rc = run_steps(self, all, n_ahead + n, arena, err);
    for (size_t i = 0; i < n; i++)
        steps[i].result = all[n_ahead + i].result;
    return rc;
}
