/* fail.c - what PostgreSQL says, in the words of struct ab_error
 *
 * The kinds of AB_EBUSY tell the skeleton what to do: db_conflict = run the whole transaction
 * again, db_timeout = it took too long, db_gone = ensure the connection first, db_full = no room.
 */
#include "inner.h"
#include <string.h>

struct state {
    const char *prefix; /* of the SQLSTATE */
    int code;
    const char *kind;
};

static const struct state states[] = {
    {"40001", AB_EBUSY, "db_conflict"}, /* serialization */
    {"40P01", AB_EBUSY, "db_conflict"}, /* deadlock */
    {"55P03", AB_EBUSY, "db_timeout"},  /* lock_timeout */
    {"57014", AB_EBUSY, "db_timeout"},  /* statement_timeout, cancelled */
    {"25P03", AB_EBUSY, "db_timeout"},  /* idle in transaction */
    {"57P", AB_EBUSY, "db_gone"},       /* shut down, starting up, terminated */
    {"08", AB_EBUSY, "db_gone"},        {"53", AB_EBUSY, "db_full"}, /* connections, memory, disk */
    {"23505", AB_EINVAL, NULL}, /* unique: the constraint is the kind */
    {"23514", AB_EINVAL, NULL},         {"23503", AB_EINVAL, NULL},     {"23502", AB_EINVAL, NULL},
    {"23P01", AB_EINVAL, NULL},         {"22", AB_EINVAL, "bad_value"}, /* out of range, bad UTF-8,
                                                                           \u0000 in jsonb */
    {"25006", AB_EBUSY, "db_gone"}, /* read only: a standby that took the address */
};

static const char *field(const PGresult *r, int code)
{
    const char *text = PQresultErrorField(r, code);
    return text ? text : "";
}

/* libpq ends its messages with a newline, and puts hints on further lines. */
static int first_line(const char *text)
{
    return (int)strcspn(text, "\n");
}

int db_fail_lost(ab_db_t *self, const char *what, struct ab_error *err)
{
    const char *text = self->conn ? PQerrorMessage(self->conn) : "";
    int n = first_line(text);
    self->broken = true;
    return ab_fail_kind(err, AB_EBUSY, "db_gone", n ? "%s: %.*s" : "%s%.*s", what, n, text);
}

int db_fail_result(ab_db_t *self, const PGresult *r, const char *what, struct ab_error *err)
{
    const char *state = field(r, PG_DIAG_SQLSTATE);
    const char *text = field(r, PG_DIAG_MESSAGE_PRIMARY);
    const char *name = field(r, PG_DIAG_CONSTRAINT_NAME);

    if (PQresultStatus(r) == PGRES_PIPELINE_ABORTED)
        return ab_fail(err, AB_EINTERNAL, "%s: not run, an earlier statement failed", what);
    if (!*state) /* made by libpq, not by the server */
        return db_fail_lost(self, what, err);
    if (PQstatus(self->conn) != CONNECTION_OK)
        self->broken = true;
    /* A migration changed a table under our statements: a fresh connection prepares them again. */
    if (strcmp(state, "0A000") == 0 && strstr(text, "cached plan")) {
        self->broken = true;
        return ab_fail_kind(err, AB_EBUSY, "db_conflict", "%s: the tables have changed", what);
    }
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (strncmp(state, states[i].prefix, strlen(states[i].prefix)) != 0)
            continue;
        /* Also where libpq sees nothing wrong: a standby answers, but will never take a change. */
        self->broken |= states[i].kind && strcmp(states[i].kind, "db_gone") == 0;
        if (states[i].kind)
            return ab_fail_kind(err, states[i].code, states[i].kind, "%s: %s", what, text);
        if (!*name)
            name = field(r, PG_DIAG_COLUMN_NAME);
        return ab_fail_kind(err, states[i].code, *name ? name : "constraint", "%s: %s", what, text);
    }
    return ab_fail(err, AB_EINTERNAL, "%s: %s (SQLSTATE %s)", what, text, state);
}
