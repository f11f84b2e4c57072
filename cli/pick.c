/* pick.c - which jobs */
#include "pick.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include <stdlib.h>
#include <string.h>

/* "1,2,3" */
static int add_ids(const char *list, const char *name, struct ab_buf *path, struct ab_error *err)
{
    AB_AUTO(ab_free) char *copy = strdup(list);
    char *rest = copy, *word;
    while ((word = strsep(&rest, ","))) {
        int64_t id;
        if (parse_id(word, &id, err) < 0)
            return -1;
        ab_api_query_int(path, name, id);
    }
    return 0;
}

static int ids_query(const struct pick *p, int argc, char **argv, const char *name,
                     struct ab_buf *path, struct ab_error *err)
{
    for (size_t i = 0; i < p->ids.n; i++)
        if (add_ids(p->ids.v[i], name, path, err) < 0)
            return -1;
    for (int i = 0; i < argc; i++)
        if (add_ids(argv[i], name, path, err) < 0)
            return -1;
    return 0;
}

bool pick_is_some(const struct pick *p, int argc)
{
    return p->tags.n || p->ids.n || argc > 0 || p->state || p->not_state || p->workdir || p->app;
}

static int state_query(const char *option, const char *text, const char *name, struct ab_buf *path,
                       struct ab_error *err)
{
    const char *state;
    if (!text)
        return 0;
    if (parse_name(&ab_enum_job_state, option, text, &state, err) < 0)
        return -1;
    ab_api_query(path, name, state);
    return 0;
}

int pick_query(struct remote *r, const struct pick *p, int argc, char **argv, struct ab_buf *path,
               struct ab_error *err)
{
    struct sites sites = {.all = true};
    bool by_id = p->ids.n || argc > 0;
    /* numbers and tags say enough by themselves: a tag of yesterday's workflow must find it though
     * no site is active now */
    bool any_site = !p->site && (by_id || (p->tags.n && !r->here.path));
    ab_buf_str(path, "/jobs/");
    if (!any_site && remote_sites(r, p->site, &sites, err) < 0)
        return -1;
    if (!sites_query(&sites, path))
        return ab_fail(
            err, AB_ENOENT,
            "none of your sites was active in the last two minutes: use --site all, or see "
            "`abies site ls`");
    if (ids_query(p, argc, argv, "id", path, err) < 0
        || pairs_query(&p->tags, "tag", "tags", path, err) < 0
        || state_query("state", p->state, "state", path, err) < 0
        || state_query("exclude-state", p->not_state, "state__ne", path, err) < 0)
        return -1;
    if (p->workdir)
        ab_api_query(path, "workdir__contains", p->workdir);
    if (p->app) {
        const struct ab_value *app;
        if (remote_app(r, p->app, !sites.all && sites.n == 1 ? sites.ids[0] : 0, &app, err) < 0)
            return -1;
        ab_api_query_int(path, "app_id", ab_value_int(ab_value_get(app, "id"), 0));
    }
    return path->failed ? ab_fail(err, AB_EINTERNAL, "no memory for a request") : 0;
}

int pick_events_query(const struct pick *p, int argc, char **argv, struct ab_buf *path,
                      struct ab_error *err)
{
    ab_buf_str(path, "/events/");
    return ids_query(p, argc, argv, "job_id", path, err) < 0
               ? -1
               : pairs_query(&p->tags, "tag", "tags", path, err);
}
