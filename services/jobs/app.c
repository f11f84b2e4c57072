/* app.c - apps of a site
 *
 * An app is an index entry: what runs is the definition that lies at the site. A job belongs to a
 * site through its app only, so an app that moves takes its jobs along, and one that goes takes
 * them with it, running or not.
 */
#include "app.h"

#include "app.sql.h"
#include "bad.h"
#include "notice.h"
#include <inttypes.h>
#include <string.h>

static void bind_app(struct ab_call *call, int64_t id)
{
    ab_bind_int(call, "app_id", id);
    ab_bind_int(call, "token_site", call->token_site);
}

int app_list(struct ab_call *call, struct ab_error *err)
{
    const char *from = "apps app";
    if (call->token_site)
        from = ab_printf(call->arena, "(SELECT * FROM apps WHERE site_id = %" PRId64 ") AS app",
                         call->token_site);
    const struct ab_list_spec spec = {
        .out = &ab_schema_app,
        .query = call->req->route->query,
        .from = from,
        .owner = "app.owner_id",
        .id = "app.id",
    };
    return ab_list_handler(call, &spec, err);
}

int app_get(struct ab_call *call, struct ab_error *err)
{
    bind_app(call, call->req->id);
    return ab_reply_one(call, &ab_schema_app, ab_run(call, &SQL_app_read, err), err);
}

int app_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    bind_app(call, ids->v[0]);
    return ab_reply_one(call, &ab_schema_app, ab_run(call, &SQL_app_read, err), err);
}

static int name_taken(const struct app *req, struct ab_error *err)
{
    if (err && err->code == AB_EINVAL && strcmp(err->kind, "apps_site_id_name_key") == 0)
        return ab_fail_kind(
            err, AB_EINVAL, "duplicate",
            "the site already has an app named %s; choose another name, or update that one",
            req->name ? req->name : "so");
    return -1;
}

int app_create(struct ab_call *call, struct ab_error *err)
{
    const struct app *req = call->req->body.v;

    if (!ab_site_allowed(call, req->site_id))
        return ab_not_found(call, err);
    PGresult *made = ab_run(call, &SQL_app_create, err);
    if (!made)
        return name_taken(req, err);
    if (ab_reply_one(call, &ab_schema_app, made, err) < 0)
        return -1;
    notice_reply(call, "create", "app");
    return 0;
}

/* The app is locked. Its jobs, their items and their counts go to the new site. */
static int move(struct ab_call *call, int64_t site_id, struct ab_error *err)
{
    ab_bind_int(call, "site_id", site_id);
    PGresult *site = ab_run(call, &SQL_app_site, err);
    if (!site)
        return -1;
    if (PQntuples(site) == 0 || !ab_site_allowed(call, site_id))
        return ab_not_found(call, err);
    return ab_run(call, &SQL_app_jobs_lock, err) && ab_run(call, &SQL_app_move, err) ? 0 : -1;
}

int app_update(struct ab_call *call, struct ab_error *err)
{
    const struct app *req = call->req->body.v;

    bind_app(call, call->req->id);
    PGresult *locked = ab_run(call, &SQL_app_lock, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    if (AB_HAS(app, req, site_id)
        && req->site_id != ab_col_int(locked, 0, ab_col(locked, "site_id"))
        && move(call, req->site_id, err) < 0)
        return -1;
    PGresult *stored = ab_run(call, &SQL_app_update, err);
    if (!stored)
        return name_taken(req, err);
    if (ab_reply_one(call, &ab_schema_app, stored, err) < 0)
        return -1;
    notice_changes(call, "app", &ab_schema_app, req, call->req->id);
    return 0;
}

enum {
    APP,
    LAST
}; /* of piece->v: the last job of this app that was deleted */

int app_delete_jobs(struct ab_call *call, int64_t app_id, struct ab_piece *piece,
                    struct ab_error *err)
{
    if (piece->v[APP] != app_id)
        piece->v[LAST] = 0;
    piece->v[APP] = app_id;
    ab_bind_int(call, "app_id", app_id);
    for (;;) {
        if (check_time(call, err) < 0)
            return -1;
        ab_bind_int(call, "after", piece->v[LAST]);
        PGresult *r = ab_run(call, &SQL_app_jobs_delete, err);
        if (!r)
            return -1;
        if (ab_col_int(r, 0, ab_col(r, "deleted")) > 0)
            piece->v[LAST] = ab_col_int(r, 0, ab_col(r, "last"));
        else if (piece->v[LAST] == 0)
            return 1;
        else /* once more from the beginning: ids are drawn before the app is locked */
            piece->v[LAST] = 0;
        if (piece->v[LAST] > 0 && ab_piece_full(piece))
            return 0;
    }
}

int app_delete(struct ab_call *call, struct ab_error *err)
{
    struct ab_piece piece;

    if (ab_piece_open(&piece, call, err) < 0)
        return -1;
    bind_app(call, call->req->id);
    PGresult *locked = ab_run(call, &SQL_app_lock, err);
    if (!locked)
        return -1;
    if (PQntuples(locked) == 0)
        return ab_not_found(call, err);
    int gone = app_delete_jobs(call, call->req->id, &piece, err);
    if (gone < 0)
        return -1;
    if (!gone)
        return ab_piece_more(&piece, call);
    if (!ab_run(call, &SQL_app_delete, err))
        return -1;
    notice_id(call, "delete", "app", call->req->id);
    return 0;
}
