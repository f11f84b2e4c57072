/* request.c - begin, claim, replay, record, commit */
#include "request.h"

#include "base/clock.h"
#include "base/log.h"
#include "crypt/crypt.h"
#include "request.sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STATEMENT_MS = 30 * 1000,
    LOCK_MS = 5 * 1000,      /* below dead + beat: a frozen twin has ended by then */
    RECORD_BYTES = 8 * 1024, /* larger replies are rebuilt, if the verb can */
    STATUS_BYTES = 2,        /* in front of a recorded reply */
};

void request_identify(struct ab_worker *worker, const struct ask *ask)
{
    ab_hash(ask->body ? ask->body : "", ask->body_len, worker->body_hash,
            sizeof(worker->body_hash));
    if (ask->key)
        ab_hash(ask->key, strlen(ask->key), worker->key, sizeof(worker->key));
    else
        memcpy(worker->key, ask->uuid, sizeof(worker->key));
}

void request_leave_secrets_out(struct ab_call *call)
{
    const struct ab_schema *schema = call->route->body;
    uint64_t secrets = 0;
    for (int i = 0; schema && i < schema->n_fields; i++)
        if (schema->fields[i].flags & AB_SECRET_TEXT)
            secrets |= UINT64_C(1) << i;
    if (!secrets || call->req->body.n != 1)
        return;
    struct ab_head *copy = ab_memdup(call->arena, call->req->body.v, schema->size);
    copy->has &= ~secrets;
    struct ab_buf text = {0};
    ab_pack_item(&text, schema, call->route->role, copy);
    ab_hash(text.data ? text.data : "", text.len, call->worker->body_hash,
            sizeof(call->worker->body_hash));
    ab_buf_free(&text);
}

/* ---- begin */

static void bind_application(struct ab_call *call)
{
    ab_bind_text(call, "application",
                 ab_printf(call->arena, "%s %s", call->worker->service->name, call->trace));
}

int request_name_plain(struct ab_call *call, struct ab_error *err)
{
    bind_application(call);
    return ab_ahead(call, &SQL_call_name, err);
}

static void bind_limits(struct ab_call *call)
{
    int64_t left = call->deadline_ms - ab_now_ms();
    left = left < 1 ? 1 : left;
    ab_bind_text(call, "statement_ms",
                 ab_printf(call->arena, "%" PRId64, left < STATEMENT_MS ? left : STATEMENT_MS));
    ab_bind_text(call, "lock_ms",
                 ab_printf(call->arena, "%" PRId64, left < LOCK_MS ? left : LOCK_MS));
    bind_application(call);
}

static int recorded(struct ab_call *call, const PGresult *r, int col, struct ab_error *err)
{
    size_t len;
    const uint8_t *bytes = ab_col_bytes(r, 0, col, &len);
    if (len < STATUS_BYTES)
        return ab_fail(err, AB_EINTERNAL, "the record of this request is damaged");
    call->status = bytes[0] << 8 | bytes[1];
    ab_buf_add(&call->reply, bytes + STATUS_BYTES, len - STATUS_BYTES);
    return 1;
}

static int replay(struct ab_call *call, const PGresult *r, struct ab_error *err)
{
    const struct ab_verb *verb = worker_verb(call->worker->service, call->route->verb);
    int col = ab_col(r, "reply"), good = !ab_col_null(r, 0, col);
    struct ab_ids ids;
    ids.v = ab_col_int8s(r, 0, ab_col(r, "ids"), call->arena, &ids.n);
    if (good && verb && verb->still_true && (good = verb->still_true(call, &ids, err)) < 0)
        return -1;
    if (good)
        return recorded(call, r, col, err);
    if (!verb || !verb->replay)
        return ab_fail(err, AB_EINTERNAL, "the answer to this request was not recorded");
    return verb->replay(call, &ids, err) < 0 ? -1 : 1;
}

/* The claim gave no row: the same request was committed before. */
static int answer_again(struct ab_call *call, struct ab_error *err)
{
    size_t len;
    PGresult *r = ab_run(call, &SQL_request_reply, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0) /* forgotten between the two statements: the key is free again */
        return ab_fail_kind(err, AB_EBUSY, "db_conflict", "the request's record has just expired");
    const char *verb = ab_col_text(r, 0, ab_col(r, "verb"), &len);
    bool same = strlen(call->route->verb) == len && memcmp(verb, call->route->verb, len) == 0;
    int col = ab_col(r, "body_hash");
    if (same && !ab_col_null(r, 0, col)) {
        const uint8_t *hash = ab_col_bytes(r, 0, col, &len);
        same = len == sizeof(call->worker->body_hash)
               && memcmp(hash, call->worker->body_hash, len) == 0;
    }
    if (!same)
        return ab_fail_kind(
            err, AB_ESCHEMA, "key_reused",
            "this Idempotency-Key belongs to another request: take a new key for each "
            "request, and the same one only to repeat it unchanged");
    call->worker->replayed = true;
    return replay(call, r, err);
}

static bool only_reads(const struct ab_call *call)
{
    if (!call->route || call->route->mutates)
        return false;
    const struct ab_verb *verb = worker_verb(call->worker->service, call->route->verb);
    return !verb || !verb->writes;
}

/* What a call that changes nothing reads is answered before its transaction ends. */
static int begin(struct ab_call *call, struct ab_error *err)
{
    const char *text = ab_printf(call->arena, "/*trace=%s*/ BEGIN%s", call->trace,
                                 only_reads(call) ? " READ ONLY" : "");
    return ab_db_ahead(call->db, &(struct ab_db_step){.text = text}, call->arena, err);
}

int request_begin(struct ab_call *call, struct ab_error *err)
{
    PGresult *claim;
    bind_limits(call);
    if (begin(call, err) < 0 || ab_ahead(call, &SQL_tx_limits, err) < 0)
        return -1;
    if (!call->route || !call->route->mutates)
        return 0;
    ab_bind_bytes(call, "body_hash", call->worker->body_hash, sizeof(call->worker->body_hash));
    if (!(claim = ab_run(call, &SQL_request_claim, err)))
        return -1;
    return PQntuples(claim) == 0 ? answer_again(call, err) : 0;
}

/* ---- commit */

static void bind_record(struct ab_call *call)
{
    struct ab_worker *worker = call->worker;
    const struct ab_verb *verb = worker_verb(worker->service, call->route->verb);
    bool rebuild = verb && verb->replay && (verb->secret || call->reply.len > RECORD_BYTES);
    if (rebuild) {
        ab_bind_null(call, "reply");
    } else {
        uint8_t *record = ab_alloc(call->arena, call->reply.len + STATUS_BYTES, 1);
        record[0] = (uint8_t)(call->status >> 8);
        record[1] = (uint8_t)call->status;
        if (call->reply.len)
            memcpy(record + STATUS_BYTES, call->reply.data, call->reply.len);
        ab_bind_bytes(call, "reply", record, call->reply.len + STATUS_BYTES);
    }
    ab_bind_ids(call, "ids", worker->recorded.v, worker->recorded.n);
}

static int nothing_committed(struct ab_error *err)
{
    return ab_fail(err, AB_EINTERNAL,
                   "nothing was committed: a statement had failed and the handler went on");
}

int request_commit(struct ab_call *call, struct ab_error *err)
{
    static const struct ab_sql *const blocks[] = {&SQL_request_done, &SQL_tx_commit};
    PGresult *results[2] = {NULL, NULL};
    bool record = call->route && call->route->mutates;
    if (only_reads(call)) /* request_end_read, behind the answer */
        return PQtransactionStatus(ab_db_conn(call->db)) == PQTRANS_INERROR ? nothing_committed(err)
                                                                            : 0;
    if (record)
        bind_record(call);
    if (ab_run_many(call, blocks + !record, record ? 2 : 1, results + !record, err) < 0)
        return -1;
    /* COMMIT of a transaction in which something failed says ROLLBACK, and calls it a success. */
    if (strcmp(PQcmdStatus(results[1]), "COMMIT") != 0)
        return nothing_committed(err);
    return 0;
}

void request_end_read(struct ab_call *call)
{
    PGconn *conn = ab_db_conn(call->db);
    ab_db_drop_ahead(call->db);
    if (conn && PQtransactionStatus(conn) == PQTRANS_INTRANS)
        (void)ab_db_exec(call->db, "COMMIT", NULL); /* if that fails, the next call begins afresh */
}

void request_rollback(struct ab_call *call)
{
    ab_db_drop_ahead(call->db);
    PGconn *conn = ab_db_conn(call->db);
    if (!conn || PQstatus(conn) != CONNECTION_OK)
        return;
    PGTransactionStatusType is = PQtransactionStatus(conn);
    if (is == PQTRANS_INTRANS || is == PQTRANS_INERROR)
        (void)ab_db_exec(call->db, "ROLLBACK", NULL); /* if that fails, ensure starts afresh */
}

void ab_record_ids(struct ab_call *call, const int64_t *ids, size_t n)
{
    call->worker->recorded = (struct ab_ids){ab_memdup(call->arena, ids, n * sizeof(*ids)), n};
}
