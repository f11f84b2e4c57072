/* session.c - create, list, heartbeat and end of sessions
 *
 * The sweep is not here: it runs from a timer (sweep.c), never as a side effect of a request.
 */
#include "session.h"

#include "base/cleanup.h"
#include "lifecycle/lifecycle.h"
#include "session.sql.h"
#include "sweep.sql.h"
#include <inttypes.h>

/* The contract wants 400, not 404, for a site or batch job that is not there. */
int session_create(struct ab_call *call, struct ab_error *err)
{
    const struct session *req = call->req->body.v;

    PGresult *site = ab_run(call, &SQL_session_site, err);
    if (!site)
        return -1;
    if (PQntuples(site) == 0 || !ab_site_allowed(call, req->site_id))
        return ab_fail_kind(err, AB_EINVAL, "bad_reference",
                            "site %" PRId64 " does not exist or is not yours", req->site_id);
    if (AB_HAS(session, req, batch_job_id) && !AB_IS_NULL(session, req, batch_job_id)
        && ab_col_null(site, 0, ab_col(site, "batch_job_id")))
        return ab_fail_kind(err, AB_EINVAL, "bad_reference",
                            "batch job %" PRId64 " does not exist at site %" PRId64,
                            req->batch_job_id, req->site_id);

    PGresult *made = ab_run(call, &SQL_session_create, err);
    if (!made)
        return -1;
    ab_reply_row(call, &ab_schema_session, made, 0);
    return 0;
}

int session_list(struct ab_call *call, struct ab_error *err)
{
    const char *from = "(SELECT * FROM sessions WHERE ended IS NULL) AS s";
    if (call->token_site)
        from =
            ab_printf(call->arena,
                      "(SELECT * FROM sessions WHERE site_id = %" PRId64 " AND ended IS NULL) AS s",
                      call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_session,
        .query = call->req->route->query,
        .from = from,
        .owner = "s.owner_id",
        .id = "s.id",
        .no_paging = true,
    };
    return ab_list_handler(call, &spec, err);
}

static int touch(struct ab_call *call, struct ab_error *err)
{
    ab_bind_int(call, "session_id", call->req->id);
    PGresult *alive = ab_run(call, &SQL_session_touch, err);
    if (!alive)
        return -1;
    if (PQntuples(alive) == 0 || !ab_site_allowed(call, ab_col_int(alive, 0, 0)))
        return ab_not_found(call, err);
    return 0;
}

/* PUT of old clients: they raise on an empty body, so the reply is null. */
int session_touch(struct ab_call *call, struct ab_error *err)
{
    return touch(call, err);
}

static void pack_ids(struct ab_call *call, const char *name, const PGresult *r)
{
    int n = r ? PQntuples(r) : 0;
    ab_pack_str(&call->reply, name);
    ab_pack_array(&call->reply, (uint32_t)n);
    for (int i = 0; i < n; i++)
        ab_pack_int(&call->reply, ab_col_int(r, i, 0));
}

/* Our launchers' heartbeat: what to kill, what is no longer theirs, and how long the lease lasts.
 */
int session_heartbeat(struct ab_call *call, struct ab_error *err)
{
    const struct heartbeat *req = call->req->body.n ? call->req->body.v : NULL;

    if (touch(call, err) < 0)
        return -1;
    PGresult *cancelled = ab_run(call, &SQL_session_cancelled, err);
    if (!cancelled)
        return -1;
    PGresult *lost = NULL;
    if (req && req->jobs.n > 0) {
        ab_bind_ids(call, "jobs", req->jobs.v, req->jobs.n);
        lost = ab_run(call, &SQL_session_lost, err);
        if (!lost)
            return -1;
    }

    ab_pack_map(&call->reply, 3);
    ab_pack_str(&call->reply, "expires_in_sec");
    ab_pack_real(&call->reply, (double)ab_conf_ms(call->conf, "session_ttl") / 1000);
    pack_ids(call, "cancel", cancelled);
    pack_ids(call, "lost", lost);
    return 0;
}

/* RUNNING jobs become RUN_TIMEOUT, the others are only given back. */
int session_delete(struct ab_call *call, struct ab_error *err)
{
    int64_t id = call->req->id;
    struct ab_session_end end = {0};
    struct ab_piece piece;

    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    end.at_most = piece.may ? AB_SESSION_PIECE : 0;
    ab_bind_int(call, "session_id", id);
    ab_bind_bool(call, "going", !piece.first);
    PGresult *locked = ab_run(call, &SQL_session_lock, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0 && !piece.first)
        return 0; /* the sweeper had the rest of it */
    if (PQntuples(locked) == 0 || !ab_site_allowed(call, ab_col_int(locked, 0, 1)))
        return ab_not_found(call, err);
    if (ab_session_end(call, &id, 1, &end, err) < 0)
        return -1;
    if (end.more)
        return ab_piece_more(&piece, call);

    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_pack_map(&data, 1);
    ab_pack_str(&data, "id");
    ab_pack_int(&data, id);
    ab_notice(call, "delete", "session", &data);
    return 0;
}
