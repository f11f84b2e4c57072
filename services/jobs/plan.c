/* plan.c - are these jobs possible, and what will they be at first?
 *
 * The order of the checks is the contract's: apps, parents, working directories, slots. Within one
 * check every job that fails it is named.
 */
#include "plan.h"

#include "schema/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct known_app {
    int64_t id, site_id;
    const struct ab_value *slots, *locations;
};

struct known_parent {
    int64_t id;
    bool finished;
};

static int by_first_id(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- 2. every app is there */

static const struct ab_value *parse(struct ab_call *call, const PGresult *r, int row,
                                    const char *column, struct ab_error *err)
{
    size_t len;
    const char *text = ab_col_text(r, row, ab_col(r, column), &len);
    return ab_value_parse(call->arena, text, len, err);
}

static int read_apps(struct ab_call *call, const struct plan *plan, struct known_app **out,
                     size_t *n_out, struct ab_error *err)
{
    int n = PQntuples(plan->apps), id = ab_col(plan->apps, "id"),
        site = ab_col(plan->apps, "site_id");
    struct known_app *apps = ab_alloc(call->arena, n ? (size_t)n : 1, sizeof(*apps));

    for (int i = 0; i < n; i++) {
        apps[i].id = ab_col_int(plan->apps, i, id);
        apps[i].site_id = ab_col_int(plan->apps, i, site);
        apps[i].slots = parse(call, plan->apps, i, "transfers", err);
        apps[i].locations = parse(call, plan->apps, i, "transfer_locations", err);
        if (!apps[i].slots || !apps[i].locations)
            return ab_fail_within(err, "app %" PRId64, apps[i].id);
    }
    *out = apps;
    *n_out = (size_t)n;
    return 0;
}

static int check_apps(struct ab_call *call, struct plan *plan, const struct known_app *apps,
                      size_t n_apps, const struct known_app **app_of, struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};

    for (size_t i = 0; i < plan_kinds(plan); i++) {
        struct planned *job = &plan->jobs[i];
        app_of[i] = bsearch(&job->req->app_id, apps, n_apps, sizeof(*apps), by_first_id);
        if (app_of[i] && ab_site_allowed(call, app_of[i]->site_id))
            job->site_id = app_of[i]->site_id;
        else
            bad_add(&bad, i, 0,
                    ab_printf(call->arena, "app %" PRId64 " does not exist or is not yours",
                              job->req->app_id));
    }
    if (bad.n == 0)
        return 0;
    int64_t first = plan->jobs[bad.items[0].index].req->app_id;
    return bad_fail(&bad, err, AB_ENOENT, "bad_reference",
                    "app %" PRId64 " does not exist or is not yours; no job was created", first);
}

/* ---- 3. every parent is there */

static struct ab_ids distinct(struct ab_call *call, const struct ab_ids *ids)
{
    struct ab_ids out = {ab_alloc(call->arena, ids->n ? ids->n : 1, sizeof(*out.v)), 0};
    if (ids->n == 0)
        return out;
    memcpy(out.v, ids->v, ids->n * sizeof(*out.v));
    qsort(out.v, ids->n, sizeof(*out.v), by_first_id);
    for (size_t i = 0; i < ids->n; i++)
        if (out.n == 0 || out.v[out.n - 1] != out.v[i])
            out.v[out.n++] = out.v[i];
    return out;
}

static int check_parents(struct ab_call *call, struct plan *plan, struct ab_error *err)
{
    size_t n = (size_t)PQntuples(plan->parents);
    int id = ab_col(plan->parents, "id"), site = ab_col(plan->parents, "site_id");
    int finished = ab_col(plan->parents, "finished");
    size_t n_known = 0;
    struct known_parent *known = ab_alloc(call->arena, n ? n : 1, sizeof(*known));
    struct bad bad = {call, NULL, 0, 0};
    const int64_t *first = NULL;

    for (size_t i = 0; i < n; i++)
        if (ab_site_allowed(call, ab_col_int(plan->parents, (int)i, site)))
            known[n_known++] = (struct known_parent){ab_col_int(plan->parents, (int)i, id),
                                                     ab_col_bool(plan->parents, (int)i, finished)};
    for (size_t i = 0; i < plan_kinds(plan); i++) {
        struct planned *job = &plan->jobs[i];
        job->parents = distinct(call, &job->req->parent_ids);
        const int64_t *missing = NULL;
        for (size_t k = 0; k < job->parents.n; k++) {
            const struct known_parent *p =
                bsearch(&job->parents.v[k], known, n_known, sizeof(*known), by_first_id);
            job->open_parents += p && !p->finished;
            if (!p && !missing)
                missing = &job->parents.v[k];
        }
        if (!missing)
            continue;
        if (!first)
            first = missing;
        bad_add(&bad, i, 0,
                ab_printf(call->arena, "parent job %" PRId64 " does not exist or is not yours",
                          *missing));
    }
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_ENOENT, "bad_reference",
                    "parent job %" PRId64 " does not exist or is not yours; no job was created",
                    *first);
}

/* ---- 4. every working directory once */

struct named {
    const char *workdir;
    size_t index;
};

static int by_workdir_then_place(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->workdir, y->workdir);
    if (order)
        return order;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int check_workdirs(struct ab_call *call, const struct plan *plan, struct ab_error *err)
{
    struct named *names = ab_alloc(call->arena, plan->n, sizeof(*names));
    struct bad bad = {call, NULL, 0, 0};

    for (size_t i = 0; i < plan->n; i++)
        names[i] = (struct named){plan->jobs[i].workdir, i};
    qsort(names, plan->n, sizeof(*names), by_workdir_then_place);
    for (size_t i = 1; i < plan->n; i++)
        if (strcmp(names[i].workdir, names[i - 1].workdir) == 0)
            bad_add(&bad, names[i].index, 0, "its workdir is that of another job of this request");
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_EINVAL, "duplicate",
                    "workdir %s occurs more than once in this request; each job needs its own",
                    plan->jobs[bad.items[0].index].workdir);
}

/* ---- 5. every slot and location is there; required slots may stay empty, but for require_slots */

static const char *empty_slot(struct ab_call *call, const struct job *req,
                              const struct known_app *app)
{
    for (size_t i = 0; app->slots->type == AB_V_MAP && i < app->slots->n; i++) {
        const struct job_transfer *wish = req->transfers.v;
        size_t k = 0;
        if (!ab_value_bool(ab_value_get(&app->slots->items[i], "required"), false))
            continue;
        while (k < req->transfers.n && strcmp(wish[k].key, app->slots->keys[i]) != 0)
            k++;
        if (k == req->transfers.n)
            return ab_printf(call->arena, "transfer slot %s of app %" PRId64 " must be filled",
                             app->slots->keys[i], app->id);
    }
    return NULL;
}

static const char *plan_item(struct ab_call *call, struct planned *job, const struct known_app *app,
                             size_t nth)
{
    const struct job_transfer *wish = (const struct job_transfer *)job->req->transfers.v + nth;
    const struct ab_value *slot = ab_value_get(app->slots, wish->key);
    struct slot_item *item = &job->items[job->n_items];

    if (!slot)
        return ab_printf(call->arena, "app %" PRId64 " has no transfer slot %s", app->id,
                         wish->key);
    if (!ab_value_get(app->locations, wish->location_alias))
        return ab_printf(call->arena, "the app's site has no transfer location %s (slot %s)",
                         wish->location_alias, wish->key);
    item->wish = wish;
    item->direction = ab_value_text(ab_value_get(slot, "direction"), "in");
    item->local_path = ab_value_text(ab_value_get(slot, "local_path"), ".");
    item->remote_path = job->paths ? job->paths[nth] : wish->path;
    item->recursive = ab_value_bool(ab_value_get(slot, "recursive"), false);
    if (strcmp(item->direction, "out") == 0)
        job->open_out++;
    else
        job->open_in++;
    job->n_items++;
    return NULL;
}

static int check_slots(struct ab_call *call, struct plan *plan,
                       const struct known_app *const *app_of, struct ab_error *err)
{
    struct bad bad = {call, NULL, 0, 0};
    bool strict = ab_conf_bool(call->conf, "require_slots");

    for (size_t i = 0; i < (plan->jobs[0].paths ? plan->n : plan_kinds(plan)); i++) {
        struct planned *job = &plan->jobs[i];
        const struct known_app *app = app_of[plan->alike ? 0 : i];
        const char *reason = strict ? empty_slot(call, job->req, app) : NULL;
        if (job->req->transfers.n > 0)
            job->items = ab_alloc(call->arena, job->req->transfers.n, sizeof(*job->items));
        for (size_t k = 0; k < job->req->transfers.n && !reason; k++)
            reason = plan_item(call, job, app, k);
        if (reason)
            bad_add(&bad, i, 0, reason);
    }
    if (bad.n == 0)
        return 0;
    return bad_fail(&bad, err, AB_EINVAL, "bad_reference",
                    "job %" PRId64 " of the request: %s; no job was created", bad.items[0].index,
                    bad.items[0].reason);
}

/* What was looked at for the first job of an array holds for all of them. */
static void copy_findings(struct planned *job, const struct planned *first)
{
    job->site_id = first->site_id;
    job->parents = first->parents;
    job->open_parents = first->open_parents;
    if (job->paths)
        return;
    job->items = first->items;
    job->n_items = first->n_items;
    job->open_in = first->open_in;
    job->open_out = first->open_out;
}

int plan_check(struct ab_call *call, struct plan *plan, struct ab_error *err)
{
    const struct known_app **app_of = ab_alloc(call->arena, plan->n, sizeof(*app_of));
    struct known_app *apps;
    size_t n_apps;

    if (read_apps(call, plan, &apps, &n_apps, err) < 0
        || check_apps(call, plan, apps, n_apps, app_of, err) < 0
        || check_parents(call, plan, err) < 0 || check_workdirs(call, plan, err) < 0
        || check_slots(call, plan, app_of, err) < 0)
        return -1;
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *job = &plan->jobs[i];
        if (plan->alike && i > 0)
            copy_findings(job, &plan->jobs[0]);
        job->state = job->open_parents ? AB_JOB_AWAITING_PARENTS
                     : job->open_in    ? AB_JOB_READY
                                       : AB_JOB_STAGED_IN;
    }
    return 0;
}
