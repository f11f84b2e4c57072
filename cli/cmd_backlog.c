/* cmd_backlog.c - site backlog: what waits and runs at a site, and the nodes for it */
#include "base/cleanup.h"
#include "base/opt.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>

static const char *field(const struct remote *r, const struct ab_value *v, const char *name)
{
    return value_cell(r->arena, ab_value_get(v, name));
}

static void print_jobs(const struct remote *r, const struct ab_value *backlog)
{
    static const char *const heads[] = {"JOBS", "COUNT"};
    const struct ab_value *jobs = ab_value_get(backlog, "jobs");
    struct table t;
    table_begin(&t, r->arena, heads, AB_COUNT(heads));
    t.right = 2;
    for (size_t i = 0; jobs && jobs->type == AB_V_MAP && i < jobs->n; i++) {
        const char *cells[] = {jobs->keys[i], value_cell(r->arena, &jobs->items[i])};
        table_add(&t, cells);
    }
    if (t.rows == 1) {
        printf("no jobs\n");
        return;
    }
    table_print(&t, stdout, terminal_width());
    const struct ab_value *runnable = ab_value_get(backlog, "runnable"),
                          *running = ab_value_get(backlog, "running");
    printf("\nrunnable: %s jobs for %s nodes; running: %s jobs on %s nodes\n",
           field(r, runnable, "jobs"), field(r, runnable, "nodes"), field(r, running, "jobs"),
           field(r, running, "nodes"));
}

static void print_batch_jobs(const struct remote *r, const struct ab_value *backlog)
{
    static const char *const heads[] = {"BATCH JOBS", "COUNT", "NODES"};
    const struct ab_value *states = ab_value_get(backlog, "batch_jobs");
    struct table t;
    table_begin(&t, r->arena, heads, AB_COUNT(heads));
    t.right = 6;
    for (size_t i = 0; states && states->type == AB_V_MAP && i < states->n; i++) {
        const char *cells[] = {states->keys[i], field(r, &states->items[i], "count"),
                               field(r, &states->items[i], "nodes")};
        table_add(&t, cells);
    }
    printf(t.rows == 1 ? "no batch jobs that wait or run\n" : "\n");
    if (t.rows > 1)
        table_print(&t, stdout, terminal_width());
}

int cmd_site_backlog(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    const struct ab_value *backlog;
    bool json = false;
    int64_t id;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse(
        "abies site backlog", "[SITE] [OPTIONS]",
        "Show what waits and runs at a site: jobs, batch jobs, and their nodes.\n\nSITE is an id, "
        "or "
        "a part of its path [this site]. A job that waits for its next attempt is not runnable "
        "yet.",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc > 1)
        return ab_fail(err, AB_EINVAL, "one site at a time, not `%.100s`", argv[1]);
    if (remote_open(&r, err) < 0 || remote_one_site(&r, argc == 1 ? argv[0] : NULL, &id, err) < 0
        || remote_get(&r, ab_printf(r.arena, "/sites/%" PRId64 "/backlog", id), &backlog, err) < 0)
        return -1;
    if (json) {
        print_value(backlog);
        return 0;
    }
    print_jobs(&r, backlog);
    print_batch_jobs(&r, backlog);
    return 0;
}
