/* types.c - which encoder a parameter of which PostgreSQL type gets */
#include "inner.h"
#include <stdlib.h>
#include <string.h>

/* Type numbers of PostgreSQL that never change (pg_type.dat). */
static const struct type built_in[] = {
    {16, 0, ENC_BOOL, 0, "bool"},
    {17, 0, ENC_BYTEA, 0, "bytea"},
    {19, 0, ENC_TEXT, 0, "name"},
    {20, 0, ENC_INT8, 0, "int8"},
    {21, 0, ENC_INT2, 0, "int2"},
    {23, 0, ENC_INT4, 0, "int4"},
    {25, 0, ENC_TEXT, 0, "text"},
    {114, 0, ENC_TEXT, 0, "json"},
    {700, 0, ENC_FLOAT4, 0, "float4"},
    {701, 0, ENC_FLOAT8, 0, "float8"},
    {1042, 0, ENC_TEXT, 0, "bpchar"},
    {1043, 0, ENC_TEXT, 0, "varchar"},
    {1184, 0, ENC_TIME, 0, "timestamptz"},
    {1186, 0, ENC_WORDS, 0, "interval"},
    {1700, 0, ENC_WORDS, 0, "numeric"},
    {2950, 0, ENC_UUID, 0, "uuid"},
    {3802, 0, ENC_JSONB, 0, "jsonb"},
    {5069, 0, ENC_INT8, 0, "xid8"},
    {199, 114, ENC_ARRAY, ENC_TEXT, "json[]"},
    {1000, 16, ENC_ARRAY, ENC_BOOL, "bool[]"},
    {1001, 17, ENC_ARRAY, ENC_BYTEA, "bytea[]"},
    {1005, 21, ENC_ARRAY, ENC_INT2, "int2[]"},
    {1007, 23, ENC_ARRAY, ENC_INT4, "int4[]"},
    {1009, 25, ENC_ARRAY, ENC_TEXT, "text[]"},
    {1015, 1043, ENC_ARRAY, ENC_TEXT, "varchar[]"},
    {1016, 20, ENC_ARRAY, ENC_INT8, "int8[]"},
    {1021, 700, ENC_ARRAY, ENC_FLOAT4, "float4[]"},
    {1022, 701, ENC_ARRAY, ENC_FLOAT8, "float8[]"},
    {1185, 1184, ENC_ARRAY, ENC_TIME, "timestamptz[]"},
    {2951, 2950, ENC_ARRAY, ENC_UUID, "uuid[]"},
    {3807, 3802, ENC_ARRAY, ENC_JSONB, "jsonb[]"},
};

static const struct type *known(const ab_db_t *self, Oid oid)
{
    for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
        if (built_in[i].oid == oid)
            return &built_in[i];
    for (size_t i = 0; i < self->n_types; i++)
        if (self->types[i].oid == oid)
            return &self->types[i];
    return NULL;
}

static void remember(ab_db_t *self, const struct type *type)
{
    struct type *more = realloc(self->types, (self->n_types + 1) * sizeof(*more));
    if (!more)
        return; /* asked again next time */
    self->types = more;
    self->types[self->n_types++] = *type;
}

static PGresult *ask(ab_db_t *self, const char *query, const char *word, struct ab_error *err)
{
    const char *values[] = {word};
    if (db_ready(self, "db.type", err) < 0)
        return NULL;
    if (!PQsendQueryParams(self->conn, query, 1, NULL, values, NULL, NULL, 0)) {
        db_fail_lost(self, "looking up a type", err);
        return NULL;
    }
    PGresult *r = db_answer(self, err);
    if (r && PQresultStatus(r) != PGRES_TUPLES_OK) {
        db_fail_result(self, r, "looking up a type", err);
        PQclear(r);
        return NULL;
    }
    return r;
}

/* Enums are their label; the arrays of enums carry the number of the item's type. */
static int fetch(ab_db_t *self, Oid oid, struct type *out, struct ab_error *err)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", oid);
    PGresult *r = ask(self,
                      "SELECT typtype, CASE typcategory WHEN 'A' THEN typelem ELSE 0 END,"
                      " format_type(oid, NULL) FROM pg_type WHERE oid = $1::oid",
                      number, err);
    if (!r)
        return -1;
    if (PQntuples(r) != 1) {
        PQclear(r);
        return ab_fail(err, AB_EINTERNAL, "the database has no type %u", oid);
    }
    *out = (struct type){.oid = oid, .item = (Oid)strtoul(PQgetvalue(r, 0, 1), NULL, 10)};
    out->encoding = out->item ? ENC_ARRAY : *PQgetvalue(r, 0, 0) == 'e' ? ENC_TEXT : ENC_WORDS;
    snprintf(out->name, sizeof(out->name), "%s", PQgetvalue(r, 0, 2));
    PQclear(r);
    return 0;
}

int db_type_find(ab_db_t *self, Oid oid, struct type *out, struct ab_error *err)
{
    const struct type *found = known(self, oid);
    struct type item;
    if (found) {
        *out = *found;
        return 0;
    }
    if (fetch(self, oid, out, err) < 0)
        return -1;
    if (out->encoding == ENC_ARRAY) {
        if (db_type_find(self, out->item, &item, err) < 0)
            return -1;
        if (item.encoding == ENC_WORDS || item.encoding == ENC_ARRAY)
            return ab_fail(
                err, AB_EINTERNAL,
                "there is no encoder for %s: pass text[] and cast the items in the statement",
                out->name);
        out->item_encoding = item.encoding;
    }
    remember(self, out);
    return 0;
}

int db_type_named(ab_db_t *self, const char *name, struct type *out, struct ab_error *err)
{
    for (size_t i = 0; i < self->n_named; i++)
        if (strcmp(self->named[i].name, name) == 0) {
            *out = self->named[i].type;
            return 0;
        }
    PGresult *r = ask(self, "SELECT to_regtype($1)::oid", name, err);
    if (!r)
        return -1;
    bool there = PQntuples(r) == 1 && !PQgetisnull(r, 0, 0);
    Oid oid = there ? (Oid)strtoul(PQgetvalue(r, 0, 0), NULL, 10) : 0;
    PQclear(r);
    if (!oid || strlen(name) >= sizeof(self->named->name))
        return ab_fail(err, AB_EINTERNAL, "the database has no type \"%s\"", name);
    if (db_type_find(self, oid, out, err) < 0)
        return -1;
    struct named_type *more = realloc(self->named, (self->n_named + 1) * sizeof(*more));
    if (more) {
        self->named = more;
        memcpy(more[self->n_named].name, name, strlen(name) + 1);
        more[self->n_named++].type = *out;
    }
    return 0;
}

void db_types_forget(ab_db_t *self)
{
    self->n_types = 0;
    self->n_named = 0;
}
