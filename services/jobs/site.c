/* site.c - sites: create, list, read, update, delete, and what waits at one */
#include "site.h"

#include "app.h"
#include "count.sql.h"
#include "notice.h"
#include "quota.h"
#include "site.sql.h"
#include <inttypes.h>
#include <string.h>

static void bind_site(struct ab_call *call, int64_t id)
{
    ab_bind_int(call, "site_id", id);
    ab_bind_int(call, "token_site", call->token_site);
}

int site_list(struct ab_call *call, struct ab_error *err)
{
    const char *from = "sites site";
    if (call->token_site)
        from = ab_printf(call->arena, "(SELECT * FROM sites WHERE id = %" PRId64 ") AS site",
                         call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_site,
        .query = call->req->route->query,
        .from = from,
        .owner = "site.owner_id",
        .id = "site.id",
    };
    return ab_list_handler(call, &spec, err);
}

int site_get(struct ab_call *call, struct ab_error *err)
{
    bind_site(call, call->req->id);
    return ab_reply_one(call, &ab_schema_site, ab_run(call, &SQL_site_read, err), err);
}

int site_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    bind_site(call, ids->v[0]);
    return ab_reply_one(call, &ab_schema_site, ab_run(call, &SQL_site_read, err), err);
}

/* The unique constraint decides, not a look beforehand: two may come at once. */
static int name_taken(const struct site *req, struct ab_error *err)
{
    if (err && err->code == AB_EINVAL && strcmp(err->kind, "sites_owner_id_name_key") == 0)
        return ab_fail_kind(
            err, AB_EINVAL, "duplicate",
            "you already have a site named %s; choose another name, or update that one", req->name);
    return -1;
}

int site_create(struct ab_call *call, struct ab_error *err)
{
    const struct site *req = call->req->body.v;

    if (call->token_site)
        return ab_fail(err, AB_EDENIED, "a site's token cannot create sites; use your own");
    if (quota_check_site(call, err) < 0)
        return -1;
    PGresult *made = ab_run(call, &SQL_site_create, err);
    if (!made)
        return name_taken(req, err);
    if (ab_reply_one(call, &ab_schema_site, made, err) < 0)
        return -1;
    notice_reply(call, "create", "site");
    return 0;
}

int site_update(struct ab_call *call, struct ab_error *err)
{
    const struct site *req = call->req->body.v;

    bind_site(call, call->req->id);
    ab_bind_bool(call, "set_globus_endpoint_id", AB_HAS(site, req, globus_endpoint_id));
    PGresult *stored = ab_run(call, &SQL_site_update, err);
    if (!stored)
        return name_taken(req, err);
    if (ab_reply_one(call, &ab_schema_site, stored, err) < 0)
        return -1;
    notice_changes(call, "site", &ab_schema_site, req, call->req->id);
    return 0;
}

/* Sessions first, then the jobs of each app, then the rest by foreign key: the order of all locks.
 */
int site_delete(struct ab_call *call, struct ab_error *err)
{
    struct ab_piece piece;

    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    bind_site(call, call->req->id);
    PGresult *locked = ab_run(call, &SQL_site_lock, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    if (!ab_run(call, &SQL_site_sessions_lock, err))
        return -1;
    PGresult *apps = ab_run(call, &SQL_site_apps_lock, err);
    if (!apps)
        return -1;
    for (int i = 0; i < PQntuples(apps); i++) {
        int gone = app_delete_jobs(call, ab_col_int(apps, i, 0), &piece, err);
        if (gone < 0)
            return -1;
        if (!gone)
            return ab_piece_more(&piece, call);
    }
    if (!ab_run(call, &SQL_site_delete, err))
        return -1;
    notice_id(call, "delete", "site", call->req->id);
    return 0;
}

/* ---- backlog */

struct sum {
    int64_t jobs;
    double nodes;
};

static void pack_sum(struct ab_buf *out, const char *name, const char *unit, struct sum sum)
{
    ab_pack_str(out, name);
    ab_pack_map(out, 2);
    ab_pack_str(out, unit);
    ab_pack_int(out, sum.jobs);
    ab_pack_str(out, "nodes");
    ab_pack_real(out, sum.nodes);
}

static void pack_backlog(struct ab_call *call, const PGresult *jobs, const PGresult *waiting,
                         const PGresult *batch_jobs)
{
    struct ab_buf *out = &call->reply;
    int state = ab_col(jobs, "state"), n = ab_col(jobs, "jobs"), nodes = ab_col(jobs, "nodes");
    struct sum runnable = {0}, running = {0};

    ab_pack_map(out, 5);
    ab_pack_str(out, "site_id");
    ab_pack_int(out, call->req->id);
    ab_pack_str(out, "jobs");
    ab_pack_map(out, (uint32_t)PQntuples(jobs));
    for (int i = 0; i < PQntuples(jobs); i++) {
        size_t len;
        const char *name = ab_col_text(jobs, i, state, &len);
        int which = ab_enum_find(&ab_enum_job_state, name, len);
        struct sum sum = {ab_col_int(jobs, i, n), ab_col_real(jobs, i, nodes)};
        ab_pack_strn(out, name, len);
        ab_pack_int(out, sum.jobs);
        if (which == AB_JOB_PREPROCESSED || which == AB_JOB_RESTART_READY) {
            runnable.jobs += sum.jobs;
            runnable.nodes += sum.nodes;
        } else if (which == AB_JOB_RUNNING) {
            running = sum;
        }
    }
    runnable.jobs -= ab_col_int(waiting, 0, 0);
    runnable.nodes -= ab_col_real(waiting, 0, 1);
    runnable.nodes = runnable.jobs > 0 && runnable.nodes > 0 ? runnable.nodes : 0;
    pack_sum(out, "runnable", "jobs", runnable);
    pack_sum(out, "running", "jobs", running);

    ab_pack_str(out, "batch_jobs");
    ab_pack_map(out, (uint32_t)PQntuples(batch_jobs));
    for (int i = 0; i < PQntuples(batch_jobs); i++) {
        size_t len;
        const char *name = ab_col_text(batch_jobs, i, ab_col(batch_jobs, "state"), &len);
        struct sum sum = {ab_col_int(batch_jobs, i, ab_col(batch_jobs, "count")),
                          ab_col_real(batch_jobs, i, ab_col(batch_jobs, "nodes"))};
        pack_sum(out, ab_strndup(call->arena, name, len), "count", sum);
    }
}

int site_backlog(struct ab_call *call, struct ab_error *err)
{
    bind_site(call, call->req->id);
    PGresult *site = ab_run(call, &SQL_site_read, err);
    if (!site)
        return -1;
    if (PQntuples(site) == 0)
        return ab_not_found(call, err);
    PGresult *jobs = ab_run(call, &SQL_site_backlog, err);
    PGresult *waiting = jobs ? ab_run(call, &SQL_site_waiting, err) : NULL;
    PGresult *batch_jobs = waiting ? ab_run(call, &SQL_site_batch_jobs, err) : NULL;
    if (!batch_jobs)
        return -1;
    pack_backlog(call, jobs, waiting, batch_jobs);
    return 0;
}
