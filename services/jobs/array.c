/* array.c - POST /jobs/array: one request, a job for each combination of parameters
 *
 * The jobs share the template; their own are the folder, the parameters and, where the template's
 * transfers have patterns, the remote paths. From there on they are planned jobs like any others.
 */
#include "array.h"

#include "base/cleanup.h"
#include "create.h"
#include "grid.h"
#include "notice.h"
#include <inttypes.h>
#include <string.h>

enum {
    AT_MOST = 100000,
    ROWS_MOST = 500000,            /* transfer items, or edges to parents */
    BYTES_MOST = 64 * 1024 * 1024, /* as much as a list of jobs may have */
    PARAMETERS_MOST = 1000,
};

/* A template has the fields of AB_JOB_WISH, and so has a job. */
static void to_job(const struct job_template *from, struct job *to) /* NOLINT: rows, not thoughts */
{
    *to = (struct job){0};
#define F(of, kind, name, ...)                                                                     \
    to->name = from->name;                                                                         \
    if (AB_HAS(of, from, name))                                                                    \
        AB_SET(job, to, name);                                                                     \
    if (AB_IS_NULL(of, from, name))                                                                \
        AB_SET_NULL(job, to, name);
    AB_JOB_WISH(job_template)
#undef F
}

/* ---- parameters */

/* The template's parameters that the grid does not replace, as the begin of an object. */
static int shared_parameters(struct ab_call *call, const struct grid *grid,
                             struct ab_bytes parameters, struct ab_buf *out, struct ab_error *err)
{
    const struct ab_value *all = ab_value_parse(call->arena, parameters.p, parameters.n, err);
    size_t n = 0;

    if (!all)
        return -1;
    ab_buf_char(out, '{');
    for (size_t i = 0; all->type == AB_V_MAP && i < all->n; i++) {
        if (ab_value_get(grid->lists, all->keys[i]))
            continue;
        ab_buf_json_str(out, all->keys[i], strlen(all->keys[i]));
        ab_buf_char(out, ':');
        ab_value_write(out, &all->items[i]);
        ab_buf_char(out, ',');
        n++;
    }
    if (n + grid->lists->n > PARAMETERS_MOST)
        return ab_fail(err, AB_ESCHEMA, "a job has at most %d parameters", PARAMETERS_MOST);
    return 0;
}

static struct ab_bytes parameters_of(struct ab_call *call, const struct grid *grid,
                                     const struct ab_buf *shared, size_t i)
{
    struct ab_buf text = {0};

    ab_buf_add(&text, shared->data, shared->len);
    for (size_t k = 0; k < grid->lists->n; k++) {
        const char *name = grid->lists->keys[k];
        if (k > 0)
            ab_buf_char(&text, ',');
        ab_buf_json_str(&text, name, strlen(name));
        ab_buf_char(&text, ':');
        ab_value_write(&text, grid_value(grid, k, i));
    }
    ab_buf_char(&text, '}');
    struct ab_bytes out = {ab_memdup(call->arena, text.data, text.len), text.len};
    ab_buf_free(&text);
    return out;
}

/* ---- limits */

static int check_size(const struct job *job, size_t n, struct ab_error *err)
{
    size_t each = strlen(job->serialized_parameters) + job->data.n + job->tags.n
                  + job->launch_params.n + job->retry.n + job->parent_ids.n * sizeof(int64_t);

    if (each > BYTES_MOST / n)
        return ab_fail(err, AB_ETOOBIG,
                       "the template has %zu bytes, and %zu jobs of it are too many for one "
                       "request: put what they share into a file, or send parts",
                       each, n);
    if (job->parent_ids.n > ROWS_MOST / n)
        return ab_fail(err, AB_ESCHEMA,
                       "%zu jobs with %zu parents each are more than %d edges: let one job wait "
                       "for the parents, and the array for that one",
                       n, job->parent_ids.n, ROWS_MOST);
    if (job->transfers.n > ROWS_MOST / n)
        return ab_fail(err, AB_ESCHEMA,
                       "%zu jobs with %zu files each are more than %d transfers: send parts, or "
                       "transfer folders",
                       n, job->transfers.n, ROWS_MOST);
    return 0;
}

/* Two values of a parameter that the pattern does not name would share a folder. */
static int check_names(const struct grid *grid, const struct grid_pattern *workdir,
                       struct ab_error *err)
{
    for (size_t k = 0; !grid->zip && k < grid->lists->n; k++)
        if (grid->lists->items[k].n > 1 && !(workdir->lists >> k & 1))
            return ab_fail(err, AB_ESCHEMA,
                           "workdir does not name {{%.60s}}: the jobs of its %zu values would "
                           "share a folder",
                           grid->lists->keys[k], grid->lists->items[k].n);
    if (grid->count > 1 && workdir->lists == 0)
        return ab_fail(err, AB_ESCHEMA,
                       "workdir names no parameter, e.g. {{%.60s}}: all jobs would share a folder",
                       grid->lists->keys[0]);
    return 0;
}

/* ---- transfers */

/* The patterns of the transfers' paths; NULL when there are none, and then all jobs have the same
 * files. */
static int path_patterns(struct ab_call *call, const struct grid *grid, const struct job *job,
                         struct grid_pattern **out, struct ab_error *err)
{
    const struct job_transfer *transfers = job->transfers.v;
    size_t n = job->transfers.n;
    uint64_t named = 0;

    *out = ab_alloc(call->arena, n ? n : 1, sizeof(**out));
    for (size_t i = 0; i < n; i++) {
        const char *what = ab_printf(call->arena, "path of transfer %.60s", transfers[i].key);
        if (grid_pattern(grid, what, transfers[i].path, &(*out)[i], err) < 0)
            return -1;
        named |= (*out)[i].lists;
    }
    if (named == 0)
        *out = NULL;
    return 0;
}

static int write_paths(struct ab_call *call, const struct grid *grid,
                       const struct grid_pattern *patterns, size_t n, size_t i, struct planned *job,
                       struct ab_error *err)
{
    const char **paths = ab_alloc(call->arena, n, sizeof(*paths));

    for (size_t k = 0; k < n; k++)
        if (grid_text(grid, &patterns[k], i, &paths[k], err) < 0)
            return -1;
    job->paths = paths;
    return 0;
}

/* ---- the call */

static int plan_jobs(struct ab_call *call, const struct grid *grid, const struct job *job,
                     const struct grid_pattern *workdir, struct plan *plan, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf shared = {0};
    struct grid_pattern *paths;
    size_t bytes = 0;

    if (shared_parameters(call, grid, job->parameters, &shared, err) < 0
        || path_patterns(call, grid, job, &paths, err) < 0)
        return -1;
    plan->jobs = ab_alloc(call->arena, plan->n, sizeof(*plan->jobs));
    for (size_t i = 0; i < plan->n; i++) {
        struct planned *one = &plan->jobs[i];
        one->req = job;
        one->parameters = parameters_of(call, grid, &shared, i);
        bytes += one->parameters.n;
        if (bytes > BYTES_MOST)
            return ab_fail(err, AB_ETOOBIG,
                           "the parameters of these %zu jobs are too large for one request: put "
                           "large values into files",
                           plan->n);
        if (grid_text(grid, workdir, i, &one->workdir, err) < 0
            || (paths && write_paths(call, grid, paths, job->transfers.n, i, one, err) < 0))
            return -1;
    }
    return 0;
}

static void reply(struct ab_call *call, const struct ab_ids *ids)
{
    struct job_array_made made = {.has = UINT64_MAX, .count = (int64_t)ids->n, .ids = *ids};
    ab_pack_item(&call->reply, &ab_schema_job_array_made, AB_OUT, &made);
}

int job_array(struct ab_call *call, struct ab_error *err)
{
    const struct job_array *req = call->req->body.v;
    struct plan plan = {.alike = true};
    struct grid grid;
    struct grid_pattern workdir;
    struct job job;

    to_job(req->template, &job);
    if (grid_open(&grid, call->arena, req->parameters, req->combine == AB_SWEEP_ZIP, AT_MOST, err)
            < 0
        || grid_pattern(&grid, "workdir", req->workdir, &workdir, err) < 0
        || check_names(&grid, &workdir, err) < 0 || check_size(&job, grid.count, err) < 0)
        return -1;
    plan.n = grid.count;
    if (plan_jobs(call, &grid, &job, &workdir, &plan, err) < 0
        || create_planned(call, &plan, err) < 0)
        return -1;
    reply(call, &(struct ab_ids){plan.ids, plan.n});
    notice_created(call, plan.ids, plan.n, false);
    return 0;
}

int array_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    (void)err;
    reply(call, ids);
    return 0;
}
