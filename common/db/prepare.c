/* prepare.c - every block prepared at start and again after a reconnect, its parameter types read
 * back
 *
 * So a misspelt column, or a parameter whose type the database sees differently than we do, stops a
 * service at its start and not in the middle of somebody's call.
 */
#include "inner.h"
#include <stdlib.h>
#include <string.h>

static size_t slot_of(const ab_db_t *self, const struct ab_sql *sql)
{
    size_t i = ((uintptr_t)sql >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (i &= self->n_slots - 1; self->statements[i].sql && self->statements[i].sql != sql;)
        i = (i + 1) & (self->n_slots - 1);
    return i;
}

const struct statement *db_statement(const ab_db_t *self, const struct ab_sql *sql)
{
    const struct statement *s = self->n_slots ? &self->statements[slot_of(self, sql)] : NULL;
    return s && s->sql ? s : NULL;
}

void db_statements_forget(ab_db_t *self)
{
    for (size_t i = 0; i < self->n_slots; i++)
        free(self->statements[i].types);
    if (self->n_slots)
        memset(self->statements, 0, self->n_slots * sizeof(*self->statements));
    while (self->n_kept > 0)
        free(self->kept[--self->n_kept].text);
}

/* ---- texts that come again */

static size_t kept_at(const ab_db_t *self, const char *text)
{
    size_t i = 0, len = strlen(text);
    while (i < self->n_kept
           && (self->kept[i].len != len || memcmp(self->kept[i].text, text, len) != 0))
        i++;
    return i;
}

static void name_kept(struct kept_name *out, size_t i)
{
    snprintf(out->text, sizeof(out->text), "kept_%zu", i);
}

bool db_kept_name(const ab_db_t *self, const struct ab_db_step *step, struct kept_name *out)
{
    size_t i = step->keep ? kept_at(self, step->text) : self->n_kept;
    if (i == self->n_kept)
        return false;
    name_kept(out, i);
    return true;
}

int db_keep_text(ab_db_t *self, const struct ab_db_step *step, struct ab_error *err)
{
    Oid oids[DB_MAX_PARAMS];
    struct kept_name name;
    size_t i = kept_at(self, step->text);
    if (self->pooled || i < self->n_kept || i == DB_MAX_KEPT || step->n > DB_MAX_PARAMS)
        return 0;
    for (size_t k = 0; k < step->n; k++) {
        struct type type;
        if (db_type_named(self, step->types[k], &type, err) < 0)
            return -1;
        oids[k] = type.oid;
    }
    name_kept(&name, i);
    if (!PQsendPrepare(self->conn, name.text, step->text, (int)step->n, oids))
        return db_fail_lost(self, "query", err);
    PGresult *r = db_answer(self, err);
    if (!r)
        return -1;
    bool done = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (!done)
        db_fail_result(self, r, "query", err);
    PQclear(r);
    char *text = done ? strdup(step->text) : NULL;
    if (done && !text) /* the name is taken there, and we do not know by what */
        self->broken = true;
    if (!text)
        return done ? ab_fail(err, AB_EBUSY, "no memory for prepared statements") : -1;
    self->kept[self->n_kept++] = (struct kept){text, strlen(text)};
    return 0;
}

/* ---- blocks */

/* Sent and answered; the result is COMMAND_OK or gone. */
static PGresult *ask(ab_db_t *self, int sent, const struct ab_sql *sql, struct ab_error *err)
{
    PGresult *r = NULL;
    if (!sent)
        db_fail_lost(self, sql->name, err);
    else if ((r = db_answer(self, err)) && PQresultStatus(r) != PGRES_COMMAND_OK) {
        db_fail_result(self, r, sql->name, err);
        PQclear(r);
        r = NULL;
    }
    if (!r)
        ab_fail_within(err, "%s", sql->file);
    return r;
}

static int read_types(ab_db_t *self, struct statement *s, const PGresult *described,
                      struct ab_error *err)
{
    int named = 0;
    while (s->sql->params[named])
        named++;
    s->n = PQnparams(described);
    if (s->n != named || s->n > DB_MAX_PARAMS)
        return ab_fail(err, AB_EINTERNAL, "%s has %d parameters, the database sees %d",
                       s->sql->name, named, s->n);
    s->types = calloc((size_t)s->n + 1, sizeof(*s->types));
    if (!s->types)
        return ab_fail(err, AB_EBUSY, "no memory for prepared statements");
    for (int i = 0; i < s->n; i++)
        if (db_type_find(self, PQparamtype(described, i), &s->types[i], err) < 0)
            return ab_fail_within(err, "%s: %s: parameter :%s", s->sql->file, s->sql->name,
                                  s->sql->params[i]);
    return 0;
}

static int prepare_one(ab_db_t *self, const struct ab_sql *sql, struct ab_error *err)
{
    const char *name = self->pooled ? "" : sql->name; /* only for its types */
    PGresult *r = ask(self, PQsendPrepare(self->conn, name, sql->text, 0, NULL), sql, err);
    if (!r)
        return -1;
    PQclear(r);
    r = ask(self, PQsendDescribePrepared(self->conn, name), sql, err);
    if (!r)
        return -1;
    struct statement *s = &self->statements[slot_of(self, sql)];
    s->sql = sql;
    int rc = read_types(self, s, r, err);
    PQclear(r);
    return rc;
}

/* COPY cannot be prepared; its columns can be asked for. */
static int check_copy(ab_db_t *self, const struct ab_sql *sql, struct ab_error *err)
{
    struct ab_buf text = {0};
    ab_buf_str(&text, "SELECT ");
    for (int i = 0; sql->copy_columns[i]; i++)
        ab_buf_printf(&text, "%s%s", i ? ", " : "", sql->copy_columns[i]);
    ab_buf_printf(&text, " FROM %s", sql->copy_table);
    PGresult *r = NULL;
    if (text.failed)
        ab_fail(err, AB_EBUSY, "no memory for %s", sql->name);
    else
        r = ask(self, PQsendPrepare(self->conn, "", text.data, 0, NULL), sql, err);
    ab_buf_free(&text);
    PQclear(r);
    return r ? 0 : -1;
}

static int make_slots(ab_db_t *self, struct ab_error *err)
{
    size_t n = 64;
    while (n < self->n_blocks * 2)
        n *= 2;
    if (n <= self->n_slots)
        return 0;
    free(self->statements);
    self->n_slots = 0;
    self->statements = calloc(n, sizeof(*self->statements));
    if (!self->statements)
        return ab_fail(err, AB_EBUSY, "no memory for prepared statements");
    self->n_slots = n;
    return 0;
}

static int prepare_blocks(ab_db_t *self, struct ab_error *err)
{
    for (size_t i = 0; i < self->n_blocks; i++) {
        const struct ab_sql *sql = self->blocks[i];
        if ((sql->copy_columns ? check_copy : prepare_one)(self, sql, err) < 0)
            return -1;
    }
    return 0;
}

/* A pooler keeps the server connection for a transaction: what is asked is answered by who was told. */
int db_prepare_all(ab_db_t *self, struct ab_error *err)
{
    db_statements_forget(self);
    if (make_slots(self, err) < 0 || (self->pooled && ab_db_exec(self, "BEGIN", err) < 0))
        return -1;
    int rc = prepare_blocks(self, err);
    if (self->pooled && ab_db_exec(self, "ROLLBACK", rc < 0 ? NULL : err) < 0)
        return -1;
    return rc;
}

static bool has_block(const ab_db_t *self, const struct ab_sql *sql)
{
    for (size_t i = 0; i < self->n_blocks; i++)
        if (self->blocks[i] == sql)
            return true;
    return false;
}

static int add_block(ab_db_t *self, const struct ab_sql *sql, struct ab_error *err)
{
    for (size_t i = 0; i < self->n_blocks; i++)
        if (strcmp(self->blocks[i]->name, sql->name) == 0 && self->blocks[i] != sql)
            return ab_fail(err, AB_EINTERNAL, "%s and %s both have a block named %s",
                           self->blocks[i]->file, sql->file, sql->name);
    const struct ab_sql **more = realloc(self->blocks, (self->n_blocks + 1) * sizeof(*more));
    if (!more)
        return ab_fail(err, AB_EBUSY, "no memory for prepared statements");
    self->blocks = more;
    self->blocks[self->n_blocks++] = sql;
    return 0;
}

int ab_db_prepare(ab_db_t *self, const struct ab_sql *const *const *lists, struct ab_error *err)
{
    size_t before = self->n_blocks;
    for (; *lists; lists++)
        for (const struct ab_sql *const *sql = *lists; *sql; sql++)
            if (!has_block(self, *sql) && add_block(self, *sql, err) < 0)
                return -1;
    if (self->n_blocks == before)
        return 0;
    if (db_ready(self, "db.prepare", err) < 0)
        return -1;
    /* Statements of an earlier call are prepared already, and a name can be prepared only once. */
    if ((before > 0 || self->n_kept > 0) && !self->pooled
        && ab_db_exec(self, "DEALLOCATE ALL", err) < 0)
        return -1;
    return db_prepare_all(self, err);
}
