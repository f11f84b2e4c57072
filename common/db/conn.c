/* conn.c - one connection: opening, losing it, getting it back, and never waiting without a bound
 *
 * The connection is non-blocking; every wait is a poll() with a limit, so a frozen server costs a
 * worker wait_ms and not its life.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/rand.h"
#include "inner.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAIT_MS = 40 * 1000, /* the roles' statement_timeout is 30 s: the server speaks first */
    BACKOFF_MS = 100,
    BACKOFF_CAP_MS = 2000,
};

static atomic_bool all_pooled;

void ab_db_pooled(bool pooled)
{
    atomic_store(&all_pooled, pooled);
}

static void disconnect(ab_db_t *self)
{
    if (self->conn)
        PQfinish(self->conn);
    self->conn = NULL;
    self->broken = false;
    self->n_ahead = 0;
    db_statements_forget(self);
    db_types_forget(self);
}

static void ignore_notice(void *arg, const PGresult *r)
{
    (void)arg;
    (void)r; /* "relation exists, skipping": library code does not log */
}

static int connect_once(ab_db_t *self, struct ab_error *err)
{
    /* What stands before dbname may be overridden by the URL, what stands behind it not. Of several
     * hosts only the one that takes changes will do: after a fail-over that is another. */
    const char *const keys[] = {"connect_timeout",  "tcp_user_timeout",
                                "keepalives_idle",  "keepalives_interval",
                                "keepalives_count", "target_session_attrs",
                                "dbname",           "application_name",
                                "client_encoding",  NULL};
    const char *const values[] = {"5",       "15000",           "10",   "5", "3", "primary",
                                  self->url, self->application, "UTF8", NULL};

    disconnect(self);
    self->conn = PQconnectdbParams(keys, values, 1);
    if (PQstatus(self->conn) != CONNECTION_OK || PQsetnonblocking(self->conn, 1) != 0) {
        db_fail_lost(self, "the database cannot be reached", err);
        disconnect(self);
        return -1;
    }
    PQsetNoticeReceiver(self->conn, ignore_notice, NULL);
    /* Behind a pooler it would be somebody else's next; our roles have it anyway. */
    return self->pooled ? 0 : ab_db_exec(self, "SET timezone = 'UTC'", err);
}

static int connect_and_prepare(ab_db_t *self, struct ab_error *err)
{
    if (connect_once(self, err) == 0 && db_prepare_all(self, err) == 0) {
        self->tries = 0;
        return 0;
    }
    disconnect(self);
    self->next_try_ms = ab_now_ms() + ab_backoff_ms(self->tries, BACKOFF_MS, BACKOFF_CAP_MS);
    if (self->tries < 16)
        self->tries++;
    return -1;
}

ab_db_t *ab_db_open(const char *url, const char *application, struct ab_error *err)
{
    ab_db_t *self = calloc(1, sizeof(*self));
    if (!self) {
        ab_fail(err, AB_EBUSY, "no memory for a database connection");
        return NULL;
    }
    self->wait_ms = WAIT_MS;
    self->pooled = atomic_load(&all_pooled);
    self->url = strdup(url ? url : "");
    self->application = strdup(application ? application : "abies");
    if (!self->url || !self->application) {
        ab_fail(err, AB_EBUSY, "no memory for a database connection");
        ab_db_close(&self);
    } else if (connect_once(self, err) < 0) {
        ab_db_close(&self);
    }
    return self;
}

void ab_db_close(ab_db_t **self)
{
    ab_db_t *db = *self;
    if (!db)
        return;
    disconnect(db);
    free(db->blocks);
    free(db->statements);
    free(db->types);
    free(db->named);
    free(db->url);
    free(db->application);
    ab_buf_free(&db->params);
    free(db);
    *self = NULL;
}

PGconn *ab_db_conn(ab_db_t *self)
{
    return self->conn;
}

void ab_db_limit(ab_db_t *self, int64_t ms)
{
    self->wait_ms = ms < 1 ? 1 : ms > 3600 * 1000 ? 3600 * 1000 : (int)ms;
}

/* A server that went away has told us so, or has closed: look before the next call is lost to it.
 */
static bool is_alive(ab_db_t *self)
{
    if (self->broken || !self->conn || PQstatus(self->conn) != CONNECTION_OK)
        return false;
    for (int i = 0; i < 16; i++) { /* notices, changed settings, last words */
        struct pollfd p = {.fd = PQsocket(self->conn), .events = POLLIN};
        if (poll(&p, 1, 0) == 0)
            return true;
        if (!PQconsumeInput(self->conn) || PQisBusy(self->conn)
            || PQstatus(self->conn) != CONNECTION_OK)
            return false;
    }
    return false;
}

int ab_db_ensure(ab_db_t *self, struct ab_error *err)
{
    if (is_alive(self))
        return 0;
    if (ab_now_ms() < self->next_try_ms)
        return ab_fail_kind(err, AB_EBUSY, "db_gone",
                            "the database cannot be reached; trying again soon");
    return connect_and_prepare(self, err);
}

int db_ready(ab_db_t *self, const char *fault, struct ab_error *err)
{
    if (ab_fault(fault))
        return ab_fail_kind(err, AB_EBUSY, "db_gone", "%s failed (injected)", fault);
    if (!self->conn || self->broken || PQstatus(self->conn) != CONNECTION_OK)
        return ab_fail_kind(err, AB_EBUSY, "db_gone", "the connection to the database is lost");
    assert(PQtransactionStatus(self->conn) != PQTRANS_ACTIVE);
    return 0;
}

/* One poll until `until`: 0 something happened, -1 too late or out of order. */
static int wait_once(ab_db_t *self, bool unsent, int64_t until, struct ab_error *err)
{
    int64_t left = until - ab_now_ms();
    struct pollfd p = {.fd = PQsocket(self->conn),
                       .events = (short)(POLLIN | (unsent ? POLLOUT : 0))};
    int n = left > 0 ? poll(&p, 1, (int)left) : 0;
    if (n == 0) {
        self->broken = true;
        return ab_fail_kind(err, AB_EBUSY, "db_gone", "the database has not answered for %d ms",
                            self->wait_ms);
    }
    if (n < 0 && errno != EINTR) {
        self->broken = true;
        return ab_fail_errno(err, AB_EINTERNAL, "cannot wait for the database");
    }
    /* The server may be unable to read because we do not: always take what is there. */
    if (n > 0 && (p.revents & ~POLLOUT) && !PQconsumeInput(self->conn))
        return 1; /* lost; its last words, if any, are there for PQgetResult */
    return 0;
}

int db_flush(ab_db_t *self, struct ab_error *err)
{
    int64_t until = ab_now_ms() + self->wait_ms;
    for (;;) {
        int unsent = PQflush(self->conn);
        if (unsent == 0)
            return 0;
        if (unsent < 0)
            return db_fail_lost(self, "the connection to the database is lost", err);
        int rc = wait_once(self, true, until, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
}

int db_wait(ab_db_t *self, struct ab_error *err)
{
    int64_t until = ab_now_ms() + self->wait_ms;
    for (;;) {
        int unsent = PQflush(self->conn);
        if (unsent < 0)
            return db_fail_lost(self, "the connection to the database is lost", err);
        if (unsent == 0 && !PQisBusy(self->conn))
            return 0;
        int rc = wait_once(self, unsent > 0, until, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
}

PGresult *db_answer(ab_db_t *self, struct ab_error *err)
{
    PGresult *kept = NULL;
    for (;;) {
        if (db_wait(self, err) < 0) {
            PQclear(kept);
            return NULL;
        }
        PGresult *r = PQgetResult(self->conn);
        if (!r)
            break;
        bool bad = kept && PQresultStatus(kept) == PGRES_FATAL_ERROR;
        PQclear(bad ? r : kept);
        kept = bad ? kept : r;
        ExecStatusType is = PQresultStatus(kept);
        if (is == PGRES_COPY_IN || is == PGRES_COPY_OUT || is == PGRES_COPY_BOTH)
            return kept; /* the command goes on */
        if (is == PGRES_FATAL_ERROR && PQstatus(self->conn) != CONNECTION_OK)
            break;
    }
    if (!kept)
        db_fail_lost(self, "the connection to the database is lost", err);
    return kept;
}
