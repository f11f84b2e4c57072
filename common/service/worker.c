/* worker.c - one call, from the deadline to COMMIT, and the threads that make them
 *
 *   check -> [before] -> BEGIN + claim -> handler -> record + COMMIT -> reply -> hints
 *                            ^------ conflict, lost connection: all of it again ------'
 */
#include "skeleton.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/trace.h"
#include "bus/server.h"
#include "hold.h"
#include "request.h"
#include "request.sql.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TRIES = 6, /* one, and five more */
    RETRY_BASE_MS = 10,
    RETRY_CAP_MS = 250,
    TIMER_LOCKS = 0xAB1E5, /* class of the advisory locks */
};

const struct ab_verb *worker_verb(const struct ab_service *service, const char *name)
{
    for (const struct ab_verb *verb = service->verbs; verb && verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

int ab_gateways(const struct ab_call *call)
{
    struct ab_replica_stats bus;
    if (!call->worker->replica)
        return -1;
    ab_replica_stats(call->worker->replica, &bus);
    return bus.gateways;
}

/* ---- the skeleton's own verbs */

static int ping(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    ab_pack_nil(&call->reply);
    return 0;
}

static int info(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    ab_pack_map(&call->reply, 2);
    ab_pack_str(&call->reply, "service");
    ab_pack_str(&call->reply, call->worker->service->name);
    ab_pack_str(&call->reply, "version");
    ab_pack_str(&call->reply, AB_VERSION);
    return 0;
}

static int stats(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    if (call->worker->stats)
        stats_pack(call->worker->stats, &call->reply);
    else
        ab_pack_map(&call->reply, 0);
    return 0;
}

static const struct ab_verb own_verbs[] = {
    {.name = "ping", .handler = ping, .no_transaction = true},
    {.name = "info", .handler = info, .no_transaction = true},
    {.name = "stats", .handler = stats, .no_transaction = true},
    {0},
};
static const struct ab_service own = {.name = "skeleton", .verbs = own_verbs};

/* ---- before the transaction */

static bool has_fault(const struct ab_call *call, const char *place)
{
    char name[96];
    snprintf(name, sizeof(name), "%s.%s", call->route ? call->route->verb : "timer", place);
    (void)name;
    return ab_fault(name);
}

static int check_caller(const struct ask *ask, const struct ab_route *route, struct ab_error *err)
{
    if (route->scopes & AB_SCOPE_PUBLIC)
        return 0;
    if (ask->owner_id == 0)
        return ab_fail(err, AB_EAUTH, "Not authenticated");
    if (!(route->scopes & ask->scopes))
        return ab_fail(err, AB_EDENIED,
                       "this token may not do that: make one with the scope that `%s` needs",
                       route->verb);
    return 0;
}

static int check_time(const struct ab_call *call, struct ab_error *err)
{
    if (ab_now_ms() < call->deadline_ms)
        return 0;
    return ab_fail(err, AB_ETIMEOUT, "the request had waited too long before its turn came");
}

/* What came, checked: `req` is filled. */
static int accept_call(struct ab_call *call, const struct ask *ask, struct ab_error *err)
{
    if (check_caller(ask, call->route, err) < 0 || check_time(call, err) < 0)
        return -1;
    struct ab_request *req = ab_alloc(call->arena, 1, sizeof(*req));
    if (ab_unpack_request(call->route, ask->body, ask->body_len, call->arena, req, err) < 0)
        return -1;
    call->req = req;
    request_leave_secrets_out(call);
    return 0;
}

/* ---- one attempt */

static void start_attempt(struct ab_call *call)
{
    struct ab_worker *worker = call->worker;
    ab_buf_clear(&call->reply);
    call->status = call->route ? call->route->status : 200;
    call->events = false;
    call->event_owners = (struct ab_ids){0};
    call->hold_ms = 0;
    worker->recorded = (struct ab_ids){0};
    worker->hints = NULL;
    worker->last_hint = &worker->hints;
    worker->replayed = false;
    bind_reset(worker);
}

static int check_reply(struct ab_call *call, struct ab_error *err)
{
    if (call->reply.failed)
        return ab_fail(err, AB_EINTERNAL, "the reply is too large");
    return 0;
}

/* In its transaction. */
static int attempt(struct ab_call *call, ab_handler_f *handler, struct ab_error *err)
{
    start_attempt(call);
    if (has_fault(call, "before_begin"))
        return ab_fail(err, AB_EBUSY, "injected in front of BEGIN");
    int rc = request_begin(call, err);
    if (rc > 0) { /* answered before; nothing to commit */
        request_rollback(call);
        return 0;
    }
    int more = 0;
    if (rc == 0)
        rc = more = handler(call, err);
    if (rc >= 0)
        rc = check_reply(call, err);
    if (rc == 0 && has_fault(call, "before_commit"))
        rc = ab_fail(err, AB_EBUSY, "injected in front of COMMIT");
    if (rc == 0)
        rc = request_commit(call, err);
    if (rc < 0) {
        request_rollback(call);
        call->worker->hints = NULL;
        return -1;
    }
    (void)has_fault(call, "after_commit"); /* kill and stop: the reply is lost */
    return more;
}

static bool is_kind(const struct ab_error *err, const char *kind)
{
    return err->code == AB_EBUSY && strcmp(err->kind, kind) == 0;
}

static void wait_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Is it worth another attempt? After a conflict with jitter, so that two that collided do not do so
 * again. */
static bool again(struct ab_call *call, int tries, const struct ab_error *err)
{
    bool conflict = is_kind(err, "db_conflict"), lost = is_kind(err, "db_gone");
    if ((!conflict && !lost) || tries >= TRIES || ab_now_ms() >= call->deadline_ms)
        return false;
    if (call->worker->stats)
        stats_retry(call->worker->stats);
    if (conflict)
        wait_ms(ab_backoff_ms(tries, RETRY_BASE_MS, RETRY_CAP_MS));
    return true;
}

/* Connected, and in no transaction: a ROLLBACK may have been lost too. */
static int make_ready(struct ab_call *call, struct ab_error *err)
{
    if (ab_db_ensure(call->db, err) < 0)
        return -1;
    if (PQtransactionStatus(ab_db_conn(call->db)) == PQTRANS_IDLE)
        return 0;
    return ab_db_exec(call->db, "ROLLBACK", err);
}

/* A lost COMMIT may have happened or not: the claim of the next attempt tells. */
static int run_transaction(struct ab_call *call, ab_handler_f *handler, struct ab_error *err)
{
    for (int tries = 1;; tries++) {
        *err = (struct ab_error){0};
        if (make_ready(call, err) < 0)
            return -1;
        int rc = attempt(call, handler, err);
        if (rc >= 0 || !again(call, tries, err))
            return rc;
    }
}

static int attempt_plain(struct ab_call *call, const struct ab_verb *verb, struct ab_error *err)
{
    start_attempt(call);
    if (has_fault(call, "before_begin"))
        return ab_fail(err, AB_EBUSY, "injected in front of the handler");
    if (call->route && request_name_plain(call, err) < 0)
        return -1;
    int rc = verb->handler(call, err);
    if (rc >= 0)
        (void)has_fault(call, "after_commit"); /* of its last statement; the reply is lost */
    return rc < 0 ? -1 : check_reply(call, err);
}

/* Each statement is its own transaction. A handler that lost its connection on the way runs again:
 * it is written so that twice is harmless, because the gateway may send a request twice as well. */
static int run_plain(struct ab_call *call, const struct ab_verb *verb, struct ab_error *err)
{
    for (int tries = 1;; tries++) {
        *err = (struct ab_error){0};
        if (make_ready(call, err) < 0)
            return -1;
        int rc = attempt_plain(call, verb, err);
        request_rollback(call); /* a transaction that the handler left open */
        if (rc >= 0 || !again(call, tries, err))
            return rc;
    }
}

static int run_verb(struct ab_call *call, const struct ab_verb *verb, struct ab_error *err)
{
    if (verb->no_transaction)
        return run_plain(call, verb, err);
    if (verb->before) {
        start_attempt(call);
        if (make_ready(call, err) < 0 || verb->before(call, err) < 0)
            return -1;
    }
    return run_transaction(call, verb->handler, err);
}

/* ---- a call */

/* One line for each failed call; what is our own fault is told to the log and not to the caller. */
static void tell(struct ab_call *call, const char *verb, struct ab_error *err)
{
    if (err->code == 0)
        ab_fail(err, AB_EINTERNAL, "%s failed and did not say why", verb);
    if (is_kind(err, "db_timeout") && ab_now_ms() >= call->deadline_ms)
        err->code = AB_ETIMEOUT;
    enum ab_level level = err->code == AB_EINTERNAL ? AB_ERROR
                          : err->code >= 500        ? AB_WARN
                                                    : AB_INFO;
    ab_log(level, "call.failed", AB_KV("verb", verb), AB_KV("owner", call->owner_id),
           AB_KV("code", err->code), AB_KV("kind", (const char *)err->kind),
           AB_KV("text", (const char *)err->text));
    if (err->code == AB_EINTERNAL)
        ab_fail(
            err, AB_EINTERNAL,
            "something went wrong on our side; the log of the `%s` service has it under request %s",
            call->worker->service->name, call->request_id);
    else if (is_kind(err, "db_gone"))
        ab_fail(err, AB_EBUSY, "the database is not to be reached now: try again in a moment");
    else if (is_kind(err, "db_full"))
        ab_fail(err, AB_EBUSY,
                "the database has no room now (disk, memory or connections): try again later");
}

static void fail_call(struct ab_call *call, const char *verb, struct ab_error *err)
{
    tell(call, verb, err);
    ab_buf_free(&call->reply);
    call->reply = (struct ab_buf){0};
    call->status = err->code;
    call->events = false;
    call->event_owners = (struct ab_ids){0};
    /* hints of a verb without a transaction stay: what they tell has happened */
    ab_bus_error_pack(&call->reply, err);
}

static void open_call(struct ab_worker *self, const struct ask *ask, struct ab_call *call)
{
    *call = (struct ab_call){
        .arena = self->arena,
        .db = self->db,
        .conf = self->conf,
        .owner_id = ask->owner_id,
        .username = ask->username,
        .scopes = ask->scopes,
        .token_site = ask->token_site,
        .key = ask->key,
        .peer = ask->peer,
        .host = ask->host,
        .deadline_ms = ask->deadline_ms,
        .status = 200,
        .worker = self,
    };
    char *id = ab_alloc(self->arena, AB_UUID_TEXT, 1);
    ab_uuid_text(ask->uuid, id);
    call->request_id = id;
    char *trace = ab_alloc(self->arena, AB_TRACE_ID, 1);
    if (!ask->trace || !ab_trace_read(ask->trace, strlen(ask->trace), trace))
        ab_trace_of(ask->uuid, trace);
    call->trace = trace;
    ab_log_request(id);
    ab_log_trace(trace);
    self->db_us = 0;
    request_identify(self, ask);
}

static int dispatch(struct ab_call *call, const struct ask *ask, struct ab_error *err)
{
    struct ab_worker *self = call->worker;
    const struct ab_verb *verb = worker_verb(&own, ask->verb);
    if (verb)
        return attempt_plain(call, verb, err);
    verb = worker_verb(self->service, ask->verb);
    call->route = verb ? ab_route_of_verb(ask->verb) : NULL;
    if (!call->route)
        return ab_fail(err, AB_ENOENT,
                       "the `%s` service knows no `%s`: is it older than the gateway?",
                       self->service->name, ask->verb);
    if (accept_call(call, ask, err) < 0)
        return -1;
    return run_verb(call, verb, err);
}

int worker_call(struct ab_worker *self, const struct ask *ask, struct ab_call *call)
{
    struct ab_error err = {0};
    int64_t from = ab_now_us();
    open_call(self, ask, call);
    start_attempt(call);
    if (dispatch(call, ask, &err) < 0)
        fail_call(call, ask->verb, &err);
    if (self->stats) {
        stats_call(self->stats, ask->verb, call->status, ab_now_us() - from, self->db_us);
        if (self->replayed)
            stats_replay(self->stats);
    }
    ab_log_request(NULL);
    ab_log_trace(NULL);
    return call->status;
}

void worker_answered(struct ab_worker *self, struct ab_call *call, worker_hint_f *send, void *arg)
{
    request_end_read(call);
    worker_hints(self, call, send, arg);
}

/* ---- timers */

static int run_timer(struct ab_call *call, struct ab_error *err)
{
    struct ab_worker *self = call->worker;
    if (self->timer->one_replica) {
        ab_bind_int(call, "class", TIMER_LOCKS);
        ab_bind_text(call, "lock_name",
                     ab_printf(call->arena, "%s.%s", self->service->name, self->timer->name));
        PGresult *r = ab_run(call, &SQL_timer_lock, err);
        if (!r)
            return -1;
        if (!ab_col_bool(r, 0, 0))
            return 0; /* another replica is at it */
    }
    return self->timer->run(call, err);
}

int worker_tick(struct ab_worker *self, const struct ab_timer *timer, struct ab_call *call,
                struct ab_error *err)
{
    uint8_t uuid[16];
    ab_uuid7(uuid);
    open_call(self, &(struct ask){.uuid = uuid, .deadline_ms = ab_now_ms() + 30 * 1000}, call);
    self->timer = timer;
    int rc = run_transaction(call, run_timer, err);
    self->timer = NULL;
    ab_log_request(NULL);
    ab_log_trace(NULL);
    return rc;
}

/* ---- threads */

static void send_hint(void *arg, char topic, int64_t owner, const void *body, size_t len)
{
    ab_replica_hint(arg, topic, owner, body, len);
}

static void serve(struct ab_worker *self, ab_task_t *task)
{
    const struct ab_task_info *in = ab_task_info(task);
    struct ab_call call;
    struct ask ask = {
        .verb = in->verb,
        .owner_id = in->user,
        .username = in->username,
        .scopes = in->scopes,
        .token_site = in->token_site,
        .key = in->key,
        .peer = in->peer,
        .host = in->host,
        .trace = in->trace,
        .uuid = in->uuid,
        .deadline_ms = in->deadline_ms,
        .body = in->body,
        .body_len = in->body_len,
    };
    int status = worker_call(self, &ask, &call);
    if (self->replayed && status < 300)
        status += AB_BUS_REPLAYED; /* the gateway tells the client */
    size_t len = call.reply.len;
    void *body = ab_buf_take(&call.reply);
    if (call.hold_ms > 0)
        hold_reply(self->hold, &task, status, body, len, call.hold_ms);
    else
        ab_replica_reply(self->replica, &task, status, body, len, true);
    worker_answered(self, &call, send_hint, self->replica);
    ab_arena_reset(self->arena);
}

void *worker_main(void *worker)
{
    struct ab_worker *self = worker;
    for (ab_task_t *task; (task = ab_replica_take(self->replica)) != NULL;)
        serve(self, task);
    return NULL;
}
