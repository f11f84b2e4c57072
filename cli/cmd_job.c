/* cmd_job.c - job ls, rm, cancel, modify */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli.h"
#include "job_spec.h"
#include "output.h"
#include "pick.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 10000
#define APP_NAMES_MAX 500
#define COUNT_TRIES 5

struct job_ls {
    struct pick pick;
    int64_t limit;
    bool by_state, verbose, json;
};

/* ---- names of apps, because a number says little */

struct app_names {
    int64_t id[APP_NAMES_MAX];
    const char *name[APP_NAMES_MAX];
    size_t n;
};

static const char *app_name(const struct app_names *names, int64_t id)
{
    for (size_t i = 0; i < names->n; i++)
        if (names->id[i] == id && names->name[i])
            return names->name[i];
    return NULL;
}

static int load_app_names(struct remote *r, const struct ab_value *jobs, struct app_names *names,
                          struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *apps;
    ab_buf_str(&path, "/apps/");
    for (size_t i = 0; i < jobs->n && names->n < APP_NAMES_MAX; i++) {
        int64_t id = ab_value_int(ab_value_get(&jobs->items[i], "app_id"), 0);
        size_t k = 0;
        while (k < names->n && names->id[k] != id)
            k++;
        if (k < names->n)
            continue;
        names->id[names->n++] = id;
        ab_api_query_int(&path, "id", id);
    }
    if (names->n == 0)
        return 0;
    if (remote_list(r, path.data, &apps, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < apps->n; i++)
        for (size_t k = 0; k < names->n; k++)
            if (names->id[k] == ab_value_int(ab_value_get(&apps->items[i], "id"), 0))
                names->name[k] = ab_value_text(ab_value_get(&apps->items[i], "name"), NULL);
    return 0;
}

/* ---- ls */

static const char *cell(const struct remote *r, const struct ab_value *job, const char *field)
{
    return value_cell(r->arena, ab_value_get(job, field));
}

/* One job, in few or many columns. */
static void add_row(const struct remote *r, struct table *t, const struct ab_value *job,
                    const struct app_names *names, bool verbose)
{
    const char *app = app_name(names, ab_value_int(ab_value_get(job, "app_id"), 0));
    double ago = seconds_since(ab_value_get(job, "last_update"));
    const char *cells[] = {
        cell(r, job, "id"),
        app ? app : cell(r, job, "app_id"),
        cell(r, job, "workdir"),
        cell(r, job, "state"),
        ago >= 0 ? ab_printf(r->arena, "%s ago", short_time(r->arena, ago)) : "",
        cell(r, job, "tags"),
        verbose ? cell(r, job, "num_nodes") : NULL,
        verbose ? cell(r, job, "ranks_per_node") : NULL,
        verbose ? cell(r, job, "node_packing_count") : NULL,
        verbose ? cell(r, job, "batch_job_id") : NULL,
        verbose ? cell(r, job, "return_code") : NULL,
        verbose ? cell(r, job, "parameters") : NULL,
        verbose ? cell(r, job, "parent_ids") : NULL,
    };
    table_add(t, cells);
}

static void print_row_json(const struct ab_value *job, bool first)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_str(&out, first ? "" : ",\n");
    ab_value_write(&out, job);
    fwrite(out.data, 1, out.len, stdout);
}

/* The newest `limit` jobs, oldest of them first; all of them for 0. */
static int list_jobs(struct remote *r, const struct job_ls *o, const struct ab_buf *path,
                     struct ab_error *err)
{
    static const char *const heads[] = {"ID",   "APP",        "WORKDIR", "STATE",  "CHANGED",
                                        "TAGS", "NODES",      "RANKS",   "PACKED", "BATCH JOB",
                                        "EXIT", "PARAMETERS", "PARENTS"};
    struct table t;
    struct app_names names = {.n = 0};
    int64_t total = 0, shown = 0;
    table_begin(&t, r->arena, heads, o->verbose ? AB_COUNT(heads) : 6);
    t.right = 1;
    if (remote_count(r, path, &total, err) < 0)
        return -1;
    int64_t skip = o->limit > 0 && total > o->limit ? total - o->limit : 0;
    if (o->json)
        putchar('[');
    for (size_t got = 1; got > 0 && skip + shown < total; shown += (int64_t)got) {
        AB_AUTO(ab_buf_free) struct ab_buf page = {0};
        const struct ab_value *jobs;
        ab_buf_str(&page, path->data);
        ab_api_query(&page, "ordering", "id");
        ab_api_query_int(&page, "limit", PAGE);
        ab_api_query_int(&page, "offset", skip + shown);
        if (remote_list(r, page.data, &jobs, NULL, err) < 0
            || (!o->json && load_app_names(r, jobs, &names, err) < 0))
            return -1;
        got = jobs->n;
        for (size_t i = 0; i < got; i++) {
            if (o->json)
                print_row_json(&jobs->items[i], shown + (int64_t)i == 0);
            else
                add_row(r, &t, &jobs->items[i], &names, o->verbose);
        }
        progress("%" PRId64 " of %" PRId64 " jobs", shown + (int64_t)got, total - skip);
    }
    progress_end();
    if (o->json)
        printf("]\n");
    else
        table_print(&t, stdout, terminal_width());
    if (skip > 0)
        fprintf(stderr, "the last %" PRId64 " of %" PRId64 " jobs; --limit 0 shows all\n",
                total - skip, total);
    return 0;
}

struct state_counts {
    int64_t of[32], sum;
};

/* One small request for each state: none of them reads a row. */
static int count_states(struct remote *r, const struct ab_buf *path, struct state_counts *out,
                        struct ab_error *err)
{
    out->sum = 0;
    for (int s = 0; s < ab_enum_job_state.n && s < (int)AB_COUNT(out->of); s++) {
        AB_AUTO(ab_buf_free) struct ab_buf with = {0};
        ab_buf_str(&with, path->data);
        ab_api_query(&with, "state", ab_enum_job_state.names[s]);
        if (remote_count(r, &with, &out->of[s], err) < 0)
            return -1;
        out->sum += out->of[s];
    }
    return 0;
}

/* Jobs move on between two questions: asked again until the counts add up, but not for ever. */
static int list_by_state(struct remote *r, const struct job_ls *o, const struct ab_buf *path,
                         struct ab_error *err)
{
    static const char *const heads[] = {"STATE", "JOBS"};
    struct state_counts counts = {.sum = -1};
    struct table t;
    int64_t total = 0;
    bool first = true;
    for (int i = 0; i < COUNT_TRIES && counts.sum != total; i++)
        if (count_states(r, path, &counts, err) < 0 || remote_count(r, path, &total, err) < 0)
            return -1;
    table_begin(&t, r->arena, heads, AB_COUNT(heads));
    t.right = 2;
    if (o->json)
        putchar('{');
    for (int s = 0; s < ab_enum_job_state.n; s++) {
        const char *name = ab_enum_job_state.names[s];
        if (counts.of[s] == 0 && !o->verbose)
            continue;
        const char *cells[] = {name, ab_printf(r->arena, "%" PRId64, counts.of[s])};
        table_add(&t, cells);
        if (o->json)
            printf("%s\"%s\":%" PRId64, first ? "" : ",", name, counts.of[s]);
        first = false;
    }
    if (o->json)
        printf("}\n");
    else
        table_print(&t, stdout, terminal_width());
    return 0;
}

int cmd_job_ls(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct job_ls o = {.limit = 100};
    const struct ab_opt options[] = {
        PICK_OPTIONS(o.pick),
        PICK_STATES(o.pick),
        PICK_MORE(o.pick),
        AB_OPT_FLAG(0, "by-state", &o.by_state,
                    "count them by state (with --verbose also the states without jobs)"),
        AB_OPT_INT('n', "limit", &o.limit, "N", "at most the last N jobs [100]; 0 for all"),
        AB_OPT_FLAG('v', "verbose", &o.verbose, "more columns"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies job ls", "[ID...] [OPTIONS]",
                          "List jobs, or count them by state.\n\n  abies job ls --site all "
                          "--by-state\n  abies job ls --tag workflow=a --state FAILED",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (o.by_state && o.pick.state)
        return ab_fail(err, AB_EINVAL, "--by-state counts all states: leave --state out");
    if (remote_open(&r, err) < 0 || pick_query(&r, &o.pick, argc, argv, &path, err) < 0)
        return -1;
    return o.by_state ? list_by_state(&r, &o, &path, err) : list_jobs(&r, &o, &path, err);
}

/* ---- rm, cancel, modify: count, ask, do it in one request */

struct change {
    struct pick pick;
    bool yes, json;
    const char *reason;
};

static int count_and_ask(struct remote *r, struct change *o, const struct ab_buf *path,
                         const char *what, int64_t *n, struct ab_error *err)
{
    if (remote_count(r, path, n, err) < 0)
        return -1;
    if (*n == 0)
        return ab_fail(err, AB_ENOENT,
                       "no job matches; `abies job ls` with the same options shows what does");
    return o->yes ? 0 : ask_yes(err, "%s %" PRId64 " %s?", what, *n, JOBS(*n));
}

int cmd_job_rm(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct change o = {0};
    int64_t n;
    const struct ab_opt options[] = {
        PICK_OPTIONS(o.pick),
        PICK_STATES(o.pick),
        PICK_MORE(o.pick),
        AB_OPT_FLAG(0, "all", &o.pick.all, "all jobs at the site"),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies job rm", "[ID...] [OPTIONS]",
                          "Delete jobs and their history. Files at the site stay.", options, &argc,
                          &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!pick_is_some(&o.pick, argc) && !o.pick.all)
        return ab_fail(err, AB_EINVAL, "which jobs? Give ids, --tag, --state ..., or --all");
    if (remote_open(&r, err) < 0 || pick_query(&r, &o.pick, argc, argv, &path, err) < 0
        || count_and_ask(&r, &o, &path, "Delete", &n, err) < 0
        || remote_call(&r, "DELETE", path.data, NULL, NULL, err) < 0)
        return -1;
    if (o.json)
        printf("{\"deleted\":%" PRId64 "}\n", n);
    else
        printf("deleted %" PRId64 " %s\n", n, JOBS(n));
    return 0;
}

int cmd_job_cancel(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct change o = {.reason = ""};
    const struct ab_value *reply;
    int64_t n;
    const struct ab_opt options[] = {
        PICK_OPTIONS(o.pick),
        PICK_STATES(o.pick),
        PICK_MORE(o.pick),
        AB_OPT_TEXT(0, "reason", &o.reason, "TEXT", "kept in the history of the jobs"),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies job cancel", "[ID...] [OPTIONS]",
                          "Cancel jobs.\n\nThose that do not run become FAILED at once; for "
                          "running ones their launcher is asked to kill them.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!pick_is_some(&o.pick, argc))
        return ab_fail(err, AB_EINVAL, "which jobs? Give ids, --tag, --state ...");
    if (remote_open(&r, err) < 0 || pick_query(&r, &o.pick, argc, argv, &path, err) < 0
        || count_and_ask(&r, &o, &path, "Cancel", &n, err) < 0)
        return -1;
    ab_buf_str(&body, "{\"reason\":");
    ab_buf_json_str(&body, o.reason, strlen(o.reason));
    ab_buf_str(&body, "}");
    const char *url = ab_printf(r.arena, "/jobs/cancel%s", path.data + strlen("/jobs/"));
    if (remote_call(&r, "POST", url, &body, &reply, err) < 0)
        return -1;
    if (o.json)
        print_value(reply);
    else
        printf("%" PRId64 " cancelled, %" PRId64 " running ones are asked to stop\n",
               ab_value_int(ab_value_get(reply, "cancelled"), 0),
               ab_value_int(ab_value_get(reply, "requested"), 0));
    return 0;
}

struct wish {
    const char *state, *priority;
    struct retry_spec retry;
};

static void add_field(struct ab_buf *json, struct ab_buf *said, const char *name, const char *value,
                      const char *text)
{
    ab_buf_printf(json, "%s\"%s\":%s", json->len ? "," : "{", name, value);
    ab_buf_printf(said, "%s%s %s", said->len ? ", " : "", name, text);
}

/* The fields that were given, as JSON and in words. */
static int wish_json(const struct wish *wish, struct ab_buf *out, struct ab_buf *said,
                     struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf retry = {0};
    AB_AUTO(ab_buf_free) struct ab_buf quoted = {0};
    const char *state = NULL;
    int64_t priority = 0;
    if (wish->state && parse_name(&ab_enum_job_state, "state", wish->state, &state, err) < 0)
        return -1;
    if (wish->priority
        && ab_parse_i64(wish->priority, strlen(wish->priority), -1000, 1000, &priority) < 0)
        return ab_fail(err, AB_EINVAL, "--priority takes a number from -1000 to 1000, not `%.40s`",
                       wish->priority);
    int has_retry = retry_spec_json(&wish->retry, &retry, err);
    if (has_retry < 0)
        return -1;
    if (state) {
        ab_buf_json_str(&quoted, state, strlen(state));
        add_field(out, said, "state", quoted.data, state);
    }
    if (wish->priority)
        add_field(out, said, "priority", wish->priority, wish->priority);
    if (has_retry)
        add_field(out, said, "retry", retry.data, retry.data);
    ab_buf_char(out, '}');
    return said->len > 0 ? 0
                         : ab_fail(err, AB_EINVAL,
                                   "what shall change? Give --state, --priority or --max-attempts");
}

int cmd_job_modify(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    struct change o = {0};
    AB_AUTO(ab_buf_free) struct ab_buf said = {0};
    struct wish wish = {0};
    int64_t n;
    const struct ab_opt options[] = {
        PICK_OPTIONS(o.pick),
        PICK_MORE(o.pick),
        AB_OPT_TEXT('s', "state", &wish.state, "STATE", "the state that they get"),
        AB_OPT_TEXT(0, "priority", &wish.priority, "N",
                    "from -1000 to 1000: higher ones run first"),
        RETRY_OPTIONS(wish.retry),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON"),
        {0},
    };
    int rc =
        ab_opt_parse("abies job modify", "[ID...] [OPTIONS]",
                     "Set the state, the priority, or what follows a failure, of jobs.\n\n  "
                     "abies job modify --id 12 --state RESTART_READY     run it again\n  abies "
                     "job modify --tag workflow=a --priority 10      before the others",
                     options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (wish_json(&wish, &body, &said, err) < 0)
        return -1;
    if (!pick_is_some(&o.pick, argc))
        return ab_fail(err, AB_EINVAL, "which jobs? Give ids or --tag");
    if (remote_open(&r, err) < 0 || pick_query(&r, &o.pick, argc, argv, &path, err) < 0
        || count_and_ask(&r, &o, &path, ab_printf(r.arena, "Set %s of", said.data), &n, err) < 0
        || remote_call(&r, "PUT", path.data, &body, NULL, err) < 0)
        return -1;
    if (o.json)
        printf("{\"modified\":%" PRId64 "}\n", n);
    else
        printf("%" PRId64 " %s modified\n", n, JOBS(n));
    return 0;
}
