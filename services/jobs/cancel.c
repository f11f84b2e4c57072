/* cancel.c - cancellation
 *
 * There is no state of its own for it (old clients know a closed list): a job that does not run is
 * FAILED at once; of one that runs the launcher is asked to kill it, and reports FAILED.
 */
#include "cancel.h"

#include "bad.h"
#include "job.sql.h"
#include "lifecycle/lifecycle.h"
#include "match.h"
#include "notice.h"
#include "walk.h"
#include <string.h>

struct done {
    int64_t cancelled, requested;
};

static void set_state(struct job *item, int64_t id, struct ab_bytes data)
{
    item->id = id;
    AB_SET(job, item, id);
    item->state = AB_JOB_FAILED;
    AB_SET(job, item, state);
    item->state_data = data;
    AB_SET(job, item, state_data);
}

/* The data of the events: {"message": "cancelled", "reason": ...} */
static struct ab_bytes event_data(struct ab_call *call)
{
    const struct cancel *req = call->req->body.n ? call->req->body.v : NULL;
    const char *reason = req && req->reason ? req->reason : "";
    struct ab_buf text = {0};

    ab_buf_str(&text, "{\"message\":\"cancelled\",\"reason\":");
    ab_buf_json_str(&text, reason, strlen(reason));
    ab_buf_char(&text, '}');
    struct ab_bytes data = {ab_memdup(call->arena, text.data, text.len), text.len};
    ab_buf_free(&text);
    return data;
}

static void tell(struct ab_call *call, const struct job *ended, size_t n_ended,
                 const int64_t *asked, size_t n_asked)
{
    size_t n = n_ended + n_asked;
    int64_t *ids = ab_alloc(call->arena, n ? n : 1, sizeof(*ids));
    for (size_t i = 0; i < n_ended; i++)
        ids[i] = ended[i].id;
    if (n_asked)
        memcpy(ids + n_ended, asked, n_asked * sizeof(*ids));
    notice_many(call, "bulk-update", ids, n, (int64_t)n);
}

/* Rows of cancel_lock: what is locked and not yet at its end. `keep` NULL: all of them. */
static int cancel_locked(struct ab_call *call, const PGresult *r, const struct ab_ids *keep,
                         struct done *done, struct ab_error *err)
{
    size_t n = (size_t)PQntuples(r), n_ended = 0, n_asked = 0, k = 0;
    struct job *ended = ab_alloc(call->arena, n ? n : 1, sizeof(*ended));
    int64_t *asked = ab_alloc(call->arena, n ? n : 1, sizeof(*asked));
    struct ab_bytes data = event_data(call);
    struct ab_step_result step = {0};

    for (size_t i = 0; i < n; i++) {
        int64_t id = ab_col_int(r, (int)i, 0);
        while (keep && k < keep->n && keep->v[k] < id)
            k++;
        if (keep && (k == keep->n || keep->v[k] != id))
            continue;
        if (ab_col_bool(r, (int)i, 1))
            asked[n_asked++] = id;
        else
            set_state(&ended[n_ended++], id, data);
    }
    if (n_ended > 0 && ab_job_step(call, ended, n_ended, &step, err) < 0)
        return -1;
    if (n_asked > 0) {
        ab_bind_ids(call, "ids", asked, n_asked);
        if (!ab_run(call, &SQL_cancel_request, err))
            return -1;
    }
    done->cancelled += step.moved;
    done->requested += (int64_t)n_asked;
    tell(call, ended, n_ended, asked, n_asked);
    return 0;
}

static void reply(struct ab_call *call, const struct done *done)
{
    struct cancelled out = {
        .has = UINT64_MAX, .cancelled = done->cancelled, .requested = done->requested};
    ab_pack_item(&call->reply, &ab_schema_cancelled, AB_OUT, &out);
}

int job_cancel(struct ab_call *call, struct ab_error *err)
{
    struct done done = {0};

    ab_bind_ids(call, "ids", &call->req->id, 1);
    ab_bind_int(call, "token_site", call->token_site);
    PGresult *absent = ab_run(call, &SQL_job_absent, err);
    if (!absent)
        return -1;
    if (PQntuples(absent) > 0)
        return ab_not_found(call, err);
    PGresult *locked = ab_run(call, &SQL_cancel_lock, err);
    if (!locked || cancel_locked(call, locked, NULL, &done, err) < 0)
        return -1;
    reply(call, &done);
    return 0;
}

/* A part of the matches. */
static int cancel_part(struct ab_call *call, const struct ab_ids *found, void *arg,
                       struct ab_error *err)
{
    struct ab_ids still;

    ab_bind_ids(call, "ids", found->v, found->n);
    PGresult *locked = ab_run(call, &SQL_cancel_lock, err);
    if (!locked || match_again(call, found, &still, err) < 0)
        return -1;
    return cancel_locked(call, locked, &still, arg, err);
}

/* The sums of the pieces before this one. */
enum {
    CANCELLED = 2,
    REQUESTED
};

int job_cancel_where(struct ab_call *call, struct ab_error *err)
{
    struct ab_piece piece;
    struct done done;

    if (!match_has_filter(call))
        return ab_fail(err, AB_ESCHEMA,
                       "without a filter this would cancel all your jobs; say which ones");
    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    done = (struct done){piece.v[CANCELLED], piece.v[REQUESTED]};
    int ended = walk_matches(call, &piece, false, cancel_part, &done, err);
    if (ended < 0)
        return -1;
    piece.v[CANCELLED] = done.cancelled;
    piece.v[REQUESTED] = done.requested;
    if (!ended)
        return ab_piece_more(&piece, call);
    reply(call, &done);
    return 0;
}
