/* sweep.c - housekeeping, in one replica of the deployment
 *
 * Sessions without a heartbeat and sessions of finished batch jobs are ended: what they hold is
 * given back. Small batches, each in a transaction of its own: one huge statement would hold its
 * locks for seconds, and hold up the readers of events as long. Silence counts only from when heartbeats could come: after an hour without
 * services, gateways or database all sessions are old, and their launchers well.
 */
#include "sweep.h"

#include "base/clock.h"
#include "base/log.h"
#include "figures.h"
#include "lifecycle/lifecycle.h"
#include "sweep.sql.h"
#include <inttypes.h>
#include <stdlib.h>

enum {
    SESSIONS_A_BATCH = 20,
    REQUESTS_A_BATCH = 5000,
    EVENTS_A_BATCH = 10000,
    JOBS_A_BATCH = 1000,
};

void sweep_clock(struct sweep_watch *self, int64_t now_ms, int64_t database_ms, int64_t ttl_ms)
{
    int64_t jump_ms = database_ms - now_ms - self->ahead_ms;

    if (self->seen_ms != 0 && llabs(jump_ms) > ttl_ms / 3) {
        ab_log(AB_WARN, "sweep.clock_jump", AB_KV("ms", jump_ms));
        self->since_ms = now_ms;
    }
    self->ahead_ms = database_ms - now_ms;
}

bool sweep_watch(struct sweep_watch *self, int64_t now_ms, bool reachable, int64_t ttl_ms,
                 int64_t period_ms)
{
    /* Launchers beat three times in a ttl: after a gap of a third none is too old yet. */
    int64_t gap_ms = ttl_ms / 3 > 3 * period_ms ? ttl_ms / 3 : 3 * period_ms;
    if (!reachable)
        return false;
    if (self->seen_ms == 0 || now_ms - self->seen_ms > gap_ms) {
        if (self->seen_ms != 0)
            ab_log(AB_WARN, "sweep.patient", AB_KV("away_ms", now_ms - self->seen_ms));
        self->since_ms = now_ms;
    }
    self->seen_ms = now_ms;
    return now_ms - self->since_ms >= ttl_ms;
}

/* A setting as an interval. */
static void bind_ms(struct ab_call *call, const char *name, const char *setting)
{
    ab_bind_text(
        call, name,
        ab_printf(call->arena, "%" PRId64 " milliseconds", ab_conf_ms(call->conf, setting)));
}

/* The owners' subscribers get a hint after COMMIT. Each owner once. */
static void add_owner(struct ab_call *call, int64_t owner, size_t room)
{
    struct ab_ids *owners = &call->event_owners;
    for (size_t i = 0; i < owners->n; i++)
        if (owners->v[i] == owner)
            return;
    if (!owners->v)
        owners->v = ab_alloc(call->arena, room, sizeof(*owners->v));
    if (owners->n < room)
        owners->v[owners->n++] = owner;
}

/* A piece of them. 1: there is more. */
static int end_batch(struct ab_call *call, const PGresult *stale, struct ab_error *err)
{
    int64_t ids[SESSIONS_A_BATCH];
    struct ab_session_end end = {.at_most = AB_SESSION_PIECE};
    int n = PQntuples(stale), id = ab_col(stale, "id"), owner = ab_col(stale, "owner_id");

    for (int i = 0; i < n; i++) {
        ids[i] = ab_col_int(stale, i, id);
        add_owner(call, ab_col_int(stale, i, owner), SESSIONS_A_BATCH);
    }
    if (ab_session_end(call, ids, (size_t)n, &end, err) < 0)
        return -1;
    figures_swept(end.ended, end.freed, end.timed_out);
    ab_log(AB_INFO, "session.swept", AB_KV("sessions", end.ended), AB_KV("freed", end.freed),
           AB_KV("timed_out", end.timed_out));
    return end.more || n == SESSIONS_A_BATCH;
}

/* One timer thread a process: it has the watch to itself. -1: the database failed. */
static int silence_counts(struct ab_call *call, struct ab_error *err)
{
    static struct sweep_watch watch;
    int gateways = ab_gateways(call);
    int64_t ttl_ms = ab_conf_ms(call->conf, "session_ttl");

    PGresult *clock = ab_run(call, &SQL_session_clock, err);
    if (!clock)
        return -1;
    if (gateways < 0)
        return true;
    int64_t now_ms = ab_now_ms();
    sweep_clock(&watch, now_ms, ab_col_int(clock, 0, 0), ttl_ms);
    return sweep_watch(&watch, now_ms, gateways > 0, ttl_ms,
                       ab_conf_ms(call->conf, "sweep_period"));
}

int sweep_sessions(struct ab_call *call, struct ab_error *err)
{
    bind_ms(call, "ttl", "session_ttl");
    int by_age = silence_counts(call, err);
    if (by_age < 0)
        return -1;
    ab_bind_bool(call, "by_age", by_age > 0);
    ab_bind_int(call, "batch", SESSIONS_A_BATCH);
    PGresult *stale = ab_run(call, &SQL_session_stale, err);
    if (!stale)
        return -1;
    return PQntuples(stale) == 0 ? 0 : end_batch(call, stale, err);
}

/* Jobs that waited for their next attempt are put into the queues. */
int sweep_waiting(struct ab_call *call, struct ab_error *err)
{
    int64_t n = ab_job_wake(call, JOBS_A_BATCH, err);
    return n < 0 ? -1 : n == JOBS_A_BATCH;
}

int sweep_requests(struct ab_call *call, struct ab_error *err)
{
    bind_ms(call, "keep", "request_keep");
    ab_bind_int(call, "batch", REQUESTS_A_BATCH);
    PGresult *r = ab_run(call, &SQL_request_expire, err);
    if (!r)
        return -1;
    return strtol(PQcmdTuples(r), NULL, 10) == REQUESTS_A_BATCH;
}

int sweep_room(struct ab_call *call, struct ab_error *err)
{
    PGresult *made = ab_run(call, &SQL_event_room, err);
    if (!made)
        return -1;
    if (ab_col_int(made, 0, 0) > 0)
        ab_log(AB_INFO, "event.room_made", AB_KV("partitions", ab_col_int(made, 0, 0)));
    return 0;
}

static int drop_partition(struct ab_call *call, struct ab_error *err)
{
    PGresult *dropped = ab_run(call, &SQL_event_drop, err);
    if (!dropped)
        return -1;
    if (ab_col_null(dropped, 0, 0))
        return 0;
    ab_log(AB_INFO, "event.partition_dropped", AB_KV("nth", ab_col_int(dropped, 0, 0)));
    return 1;
}

int sweep_events(struct ab_call *call, struct ab_error *err)
{
    if (ab_conf_ms(call->conf, "event_keep") == 0)
        return 0;
    bind_ms(call, "keep", "event_keep");
    ab_bind_int(call, "batch", EVENTS_A_BATCH);
    PGresult *r = ab_run(call, &SQL_event_forget, err);
    if (!r)
        return -1;
    if (ab_col_int(r, 0, ab_col(r, "gone")) > 0)
        ab_log(AB_DEBUG, "event.forgotten", AB_KV("events", ab_col_int(r, 0, ab_col(r, "gone"))));
    if (ab_col_bool(r, 0, ab_col(r, "more")))
        return 1;
    return drop_partition(call, err);
}
