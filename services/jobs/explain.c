/* explain.c - GET /jobs/{id}/explain: why does the job not run, and what can be done?
 *
 * The job's state says what to look at. The first reason is the first thing in its way.
 */
#include "explain.h"

#include "explain.sql.h"
#include "reasons.h"
#include <inttypes.h>
#include <string.h>

struct view {
    struct ab_call *call;
    struct reasons out;
    const PGresult *job; /* one row of explain_job */
    int state;
    int64_t site_id;
    const char *site;
};

static int64_t number(const struct view *v, const char *column)
{
    return ab_col_int(v->job, 0, ab_col(v->job, column));
}

static double real(const struct view *v, const char *column)
{
    return ab_col_real(v->job, 0, ab_col(v->job, column));
}

static bool absent(const struct view *v, const char *column)
{
    return ab_col_null(v->job, 0, ab_col(v->job, column));
}

/* ---- parents */

static int add_parents(struct view *v, struct ab_error *err)
{
    struct ids going = {.call = v->call}, failed = {.call = v->call}, gone = {.call = v->call};
    PGresult *r = ab_run(v->call, &SQL_explain_parents, err);

    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        size_t len;
        int64_t id = ab_col_int(r, i, 0);
        if (ab_col_null(r, i, 1)) {
            ids_add(&gone, id);
            continue;
        }
        const char *state = ab_col_text(r, i, 1, &len);
        ids_add(len == 6 && memcmp(state, "FAILED", 6) == 0 ? &failed : &going, id);
    }
    if (failed.ids.n)
        reasons_add(&v->out, AB_WHY_PARENTS, &failed.ids,
                    "%zu of its parents have FAILED, and it waits for them for ever: repair them "
                    "(PUT /jobs/ID {\"state\": \"RESTART_READY\"}), or let this job go on without "
                    "them by setting its state to READY",
                    failed.ids.n);
    /* a parent that was deleted after it had finished is not waited for */
    if (gone.ids.n && number(v, "open_parents") > (int64_t)(going.ids.n + failed.ids.n))
        reasons_add(&v->out, AB_WHY_PARENTS, &gone.ids,
                    "some of its parents were deleted before they had finished: set this job's "
                    "state to READY to let it go on without them, or delete it");
    if (going.ids.n)
        reasons_add(&v->out, AB_WHY_PARENTS, &going.ids,
                    "waits for %zu parents to finish; explain each of them to see what it waits "
                    "for",
                    going.ids.n);
    if (v->out.n == 0)
        reasons_add(&v->out, AB_WHY_PARENTS, NULL,
                    "its state says that it waits for parents, but all have finished: set its "
                    "state to READY");
    return 0;
}

/* ---- files */

static int add_items(struct view *v, const char *direction, struct ab_error *err)
{
    struct ids open = {.call = v->call}, broken = {.call = v->call}, waiting = {.call = v->call};
    const char *error = "";
    double wait = 0;

    ab_bind_text(v->call, "direction", direction);
    PGresult *r = ab_run(v->call, &SQL_explain_items, err);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        size_t len;
        const char *state = ab_col_text(r, i, 1, &len);
        if (!ab_col_null(r, i, 3)) {
            double sec = ab_col_real(r, i, 3);
            wait = waiting.ids.n == 0 || sec < wait ? sec : wait;
            ids_add(&waiting, ab_col_int(r, i, 0));
        } else if (len == 5 && memcmp(state, "error", 5) == 0) {
            if (broken.ids.n == 0)
                error = reasons_quote(v->call, r, i, "error");
            ids_add(&broken, ab_col_int(r, i, 0));
        } else {
            ids_add(&open, ab_col_int(r, i, 0));
        }
    }
    if (broken.ids.n)
        reasons_add(&v->out, AB_WHY_TRANSFERS, &broken.ids,
                    "%zu transfers ended in error%s%s: remove the cause, then set them to pending "
                    "again (PUT /transfers/ID {\"state\": \"pending\"})",
                    broken.ids.n, *error ? ", the first with: " : "", error);
    if (waiting.ids.n)
        reasons_add(&v->out, AB_WHY_RETRY_WAIT, &waiting.ids,
                    "%zu transfers ended in error and are tried again by themselves, the next one "
                    "in %s",
                    waiting.ids.n, reasons_time(v->call, wait));
    if (open.ids.n)
        reasons_add(&v->out, AB_WHY_TRANSFERS, &open.ids,
                    "%zu files are still to be transferred %s by the transfer module of site %s",
                    open.ids.n, direction, v->site);
    if (v->out.n == 0)
        reasons_add(&v->out, AB_WHY_TRANSFERS, NULL,
                    "no transfer is open, but its state waits for one: set its state to %s again",
                    *direction == 'i' ? "READY" : "POSTPROCESSED");
    return 0;
}

/* ---- the site, and who holds the job */

static void add_site(struct view *v)
{
    double silent = real(v, "silent_sec");

    if (silent * 1000 < (double)ab_conf_ms(v->call->conf, "site_silent"))
        return;
    reasons_add(&v->out, AB_WHY_SITE_DOWN, NULL,
                "site %s was not heard of for %s: see there whether its agent runs (abies site "
                "ls), and start it (abies site start)",
                v->site, reasons_time(v->call, silent));
}

static bool add_holder(struct view *v, const char *doing)
{
    int64_t session = 0;
    const struct ab_ids ids = {&session, 1};

    if (absent(v, "session_id"))
        return false;
    session = number(v, "session_id");
    const char *seen = absent(v, "held_sec") ? "never" : reasons_time(v->call, real(v, "held_sec"));
    if (absent(v, "held_in"))
        reasons_add(&v->out, AB_WHY_HELD, &ids,
                    "session %" PRId64 " of site %s has it, and %s; last sign of life %s ago",
                    session, v->site, doing, seen);
    else
        reasons_add(&v->out, AB_WHY_HELD, &ids,
                    "session %" PRId64 " in batch job %" PRId64 " of site %s has it, and %s; last "
                    "sign of life %s ago",
                    session, number(v, "held_in"), v->site, doing, seen);
    return true;
}

static void add_hook(struct view *v, const char *hook)
{
    if (add_holder(v, "its hook is at work"))
        return;
    add_site(v);
    reasons_add(&v->out, AB_WHY_QUEUED, NULL,
                "waits for the processing module of site %s, which comes to its %s hook next",
                v->site, hook);
}

static void add_running(struct view *v)
{
    if (ab_col_bool(v->job, 0, ab_col(v->job, "cancel")))
        reasons_add(&v->out, AB_WHY_CANCELLED, NULL,
                    "its cancellation was asked for; its launcher kills it at the next heartbeat, "
                    "and it becomes FAILED");
    if (!add_holder(
            v, ab_printf(v->call->arena, "runs it (attempt %" PRId64 ")", number(v, "attempts"))))
        reasons_add(&v->out, AB_WHY_HELD, NULL,
                    "its state says RUNNING, but no session has it, so nobody will report its end: "
                    "if it does not run, set its state to RESTART_READY");
}

/* ---- what a runnable job waits for */

/* True: no queue of the site would ever give what it needs. */
static int add_queues(struct view *v, bool *never, struct ab_error *err)
{
    PGresult *r = ab_run(v->call, &SQL_explain_queues, err);

    if (!r)
        return -1;
    *never = PQntuples(r) > 0 && !ab_col_bool(r, 0, ab_col(r, "fits"));
    if (*never)
        reasons_add(
            &v->out, AB_WHY_NO_FIT, NULL,
            "needs %" PRId64 " nodes for %" PRId64
            " min, and no queue of site %s gives that (at most %" PRId64 " nodes, at most %" PRId64
            " min): change num_nodes or wall_time_min, or the site's allowed_queues",
            number(v, "num_nodes"), number(v, "wall_time_min"), v->site,
            ab_col_int(r, 0, ab_col(r, "most_nodes")), ab_col_int(r, 0, ab_col(r, "most_minutes")));
    return 0;
}

static int add_place(struct view *v, const struct ab_ids *running, struct ab_error *err)
{
    PGresult *r = ab_run(v->call, &SQL_explain_place, err);

    if (!r)
        return -1;
    const char *ahead = PQntuples(r) == 0
                            ? "1000 or more"
                            : ab_printf(v->call->arena, "%" PRId64, ab_col_int(r, 0, 0));
    reasons_add(&v->out, AB_WHY_QUEUED, running,
                "%zu running batch jobs can take it as soon as they have free nodes; %s runnable "
                "jobs come before it (priority, then size)",
                running->n, ahead);
    return 0;
}

static void add_misfits(struct view *v, const struct ab_ids *tags, const struct ab_ids *nodes,
                        const struct ab_ids *minutes)
{
    if (tags->n)
        reasons_add(&v->out, AB_WHY_NO_FIT, tags,
                    "%zu batch jobs take only jobs with other tags than this one's", tags->n);
    if (nodes->n)
        reasons_add(&v->out, AB_WHY_NO_FIT, nodes,
                    "%zu batch jobs are too small for it (%" PRId64 " nodes), or of serial mode",
                    nodes->n, number(v, "num_nodes"));
    if (minutes->n)
        reasons_add(&v->out, AB_WHY_NO_FIT, minutes,
                    "%zu batch jobs end too soon for its wall_time_min of %" PRId64, minutes->n,
                    number(v, "wall_time_min"));
    if (tags->n + nodes->n + minutes->n == 0)
        reasons_add(&v->out, AB_WHY_NO_ALLOCATION, NULL,
                    "site %s has no batch job queued or running: submit one (abies queue submit), "
                    "or switch on its elastic queue",
                    v->site);
    else
        reasons_add(&v->out, AB_WHY_NO_ALLOCATION, NULL,
                    "site %s has no batch job that would take it: submit one that fits (abies "
                    "queue submit)",
                    v->site);
}

static int add_allocations(struct view *v, struct ab_error *err)
{
    struct ids running = {.call = v->call}, queued = {.call = v->call}, tags = {.call = v->call},
               nodes = {.call = v->call}, minutes = {.call = v->call};

    ab_bind_bool(v->call, "serial",
                 number(v, "num_nodes") == 1 && number(v, "ranks_per_node") == 1);
    PGresult *r = ab_run(v->call, &SQL_explain_allocations, err);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        size_t len;
        const char *state = ab_col_text(r, i, ab_col(r, "state"), &len);
        bool runs = len == 7 && memcmp(state, "running", 7) == 0;
        struct ids *into = !ab_col_bool(r, i, ab_col(r, "tags"))      ? &tags
                           : !ab_col_bool(r, i, ab_col(r, "nodes"))   ? &nodes
                           : !ab_col_bool(r, i, ab_col(r, "minutes")) ? &minutes
                           : runs                                     ? &running
                                                                      : &queued;
        ids_add(into, ab_col_int(r, i, 0));
    }
    if (running.ids.n)
        return add_place(v, &running.ids, err);
    if (queued.ids.n)
        reasons_add(&v->out, AB_WHY_QUEUED, &queued.ids,
                    "%zu batch jobs can take it as soon as the batch system starts one of them",
                    queued.ids.n);
    add_site(v); /* without it nothing new is submitted */
    if (queued.ids.n == 0)
        add_misfits(v, &tags.ids, &nodes.ids, &minutes.ids);
    return 0;
}

static int add_runnable(struct view *v, struct ab_error *err)
{
    bool never;

    if (!absent(v, "wait_sec"))
        reasons_add(&v->out, AB_WHY_RETRY_WAIT, NULL,
                    "its last run failed (attempt %" PRId64 " of %" PRId64
                    "), and the next one begins in %s at the earliest; to run it now set its state "
                    "to PREPROCESSED",
                    number(v, "attempts"),
                    absent(v, "max_attempts") ? 0 : number(v, "max_attempts"),
                    reasons_time(v->call, real(v, "wait_sec")));
    if (add_holder(v, "starts it as soon as it has room"))
        return 0;
    if (add_queues(v, &never, err) < 0)
        return -1;
    return never ? 0 : add_allocations(v, err);
}

/* ---- its end */

static void add_end(struct view *v)
{
    const char *message = reasons_quote(v->call, v->job, 0, "message");
    const char *more = reasons_quote(v->call, v->job, 0, "more");
    const char *colon = *more ? ": " : "";

    if (v->state == AB_JOB_JOB_FINISHED)
        reasons_add(&v->out, AB_WHY_DONE, NULL, "has finished");
    else if (strcmp(message, "cancelled") == 0)
        reasons_add(&v->out, AB_WHY_CANCELLED, NULL,
                    "was cancelled%s%s; to run it after all set its state to RESTART_READY", colon,
                    more);
    else
        reasons_add(&v->out, AB_WHY_DONE, NULL,
                    "has FAILED (%s%s%s); to run it again set its state to RESTART_READY",
                    *message || *more ? message : "the event does not say why", colon, more);
}

/* It holds no job back that is there, but it explains why no more can be made. */
static int add_quota(struct view *v, struct ab_error *err)
{
    ab_bind_int(v->call, "max_jobs", ab_conf_int(v->call->conf, "max_jobs"));
    PGresult *r = ab_run(v->call, &SQL_explain_quota, err);
    if (!r)
        return -1;
    int64_t most = ab_col_int(r, 0, 0), used = ab_col_int(r, 0, 1);
    if (most > 0 && used >= most)
        reasons_add(&v->out, AB_WHY_QUOTA, NULL,
                    "you have %" PRId64 " jobs that have not ended, and may have %" PRId64
                    " (max_jobs): this one stays, but new ones are refused until some have ended",
                    used, most);
    return 0;
}

static int explain(struct view *v, struct ab_error *err)
{
    switch (v->state) {
    case AB_JOB_AWAITING_PARENTS:
        return add_parents(v, err);
    case AB_JOB_READY:
        add_site(v);
        return add_items(v, "in", err);
    case AB_JOB_POSTPROCESSED:
        add_site(v);
        return add_items(v, "out", err);
    case AB_JOB_PREPROCESSED:
    case AB_JOB_RESTART_READY:
        return add_runnable(v, err);
    case AB_JOB_STAGED_IN:
        add_hook(v, "preprocess");
        return 0;
    case AB_JOB_RUN_DONE:
        add_hook(v, "postprocess");
        return 0;
    case AB_JOB_RUN_ERROR:
        add_hook(v, "handle_error");
        return 0;
    case AB_JOB_RUN_TIMEOUT:
        add_hook(v, "handle_timeout");
        return 0;
    case AB_JOB_RUNNING:
        add_running(v);
        return 0;
    case AB_JOB_FAILED:
    case AB_JOB_JOB_FINISHED:
        add_end(v);
        return 0;
    default: /* only a client puts a job there */
        reasons_add(&v->out, AB_WHY_HELD, NULL,
                    "nobody takes a job out of the state %s: set another one",
                    ab_enum_job_state.names[v->state]);
        return 0;
    }
}

int job_explain(struct ab_call *call, struct ab_error *err)
{
    struct view v = {.call = call, .out = {.call = call}};
    size_t len;

    ab_bind_int(call, "token_site", call->token_site);
    PGresult *r = ab_run(call, &SQL_explain_job, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_not_found(call, err);
    v.job = r;
    const char *state = ab_col_text(r, 0, ab_col(r, "state"), &len);
    v.state = ab_enum_find(&ab_enum_job_state, state, len);
    v.site_id = number(&v, "site_id");
    v.site = reasons_quote(call, r, 0, "site_name");
    ab_bind_int(call, "site_id", v.site_id);
    ab_bind_int(call, "num_nodes", number(&v, "num_nodes"));
    ab_bind_int(call, "wall_time_min", number(&v, "wall_time_min"));
    if (explain(&v, err) < 0)
        return -1;
    if (v.state != AB_JOB_FAILED && v.state != AB_JOB_JOB_FINISHED && add_quota(&v, err) < 0)
        return -1;
    struct explanation out = {.has = UINT64_MAX, .id = call->req->id, .state = v.state};
    out.reasons = (struct ab_list){v.out.list, v.out.n};
    ab_pack_item(&call->reply, &ab_schema_explanation, AB_OUT, &out);
    return 0;
}
