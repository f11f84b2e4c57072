/* cmd_watch.c - watch: events as they happen */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli.h"
#include "client/events.h"
#include "output.h"
#include "pick.h"
#include "remote.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 500

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_no)
{
    (void)signal_no;
    interrupted = 1;
}

struct watch {
    struct pick pick;
    const char *since, *timeout;
    int64_t count;
    bool json;
};

static int add_list(const struct ab_opt_list *list, const char *name, struct ab_buf *query,
                    struct ab_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        int64_t id;
        if (parse_id(list->v[i], &id, err) < 0)
            return -1;
        ab_api_query_int(query, name, id);
    }
    return 0;
}

static int make_query(struct remote *r, const struct watch *o, struct ab_buf *query,
                      struct ab_error *err)
{
    struct sites sites = {.all = true};
    const char *state;
    /* without a selector: everything, also what happens at sites that wake up later */
    if (o->pick.site && remote_sites(r, o->pick.site, &sites, err) < 0)
        return -1;
    if (!sites_query(&sites, query))
        return ab_fail(err, AB_ENOENT,
                       "no site was active in the last two minutes: leave --site out");
    if (add_list(&o->pick.ids, "job_id", query, err) < 0
        || pairs_query(&o->pick.tags, "tag", "tags", query, err) < 0)
        return -1;
    if (o->pick.state) {
        if (parse_name(&ab_enum_job_state, "state", o->pick.state, &state, err) < 0)
            return -1;
        ab_api_query(query, "state", state);
    }
    if (o->pick.app) {
        const struct ab_value *app;
        if (remote_app(r, o->pick.app, 0, &app, err) < 0)
            return -1;
        ab_api_query_int(query, "app_id", ab_value_int(ab_value_get(app, "id"), 0));
    }
    return 0;
}

static void print_event(ab_arena_t *arena, const struct ab_value *e)
{
    const char *when = ab_value_text(ab_value_get(e, "timestamp"), "");
    AB_AUTO(ab_buf_free) struct ab_buf line = {0};
    const char *clock = strchr(when, 'T');
    ab_buf_printf(&line, "%-15.15s  job %-8" PRId64 " %-16s -> %-16s", clock ? clock + 1 : when,
                  ab_value_int(ab_value_get(e, "job_id"), 0),
                  ab_value_text(ab_value_get(e, "from_state"), "?"),
                  ab_value_text(ab_value_get(e, "to_state"), "?"));
    const char *notes = value_cell(arena, ab_value_get(e, "data"));
    if (*notes)
        ab_buf_printf(&line, " %s", notes);
    while (line.len > 0 && line.data[line.len - 1] == ' ')
        line.data[--line.len] = '\0';
    print_clean(stdout, line.data);
    putchar('\n');
}

/* How many were shown. */
static int64_t show_frame(const struct watch *o, const char *text, size_t len, int64_t shown)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *frame = ab_value_parse(arena, text, len, NULL),
                          *events = ab_value_get(frame, "events");
    int64_t n = 0;
    for (size_t i = 0; events && events->type == AB_V_LIST && i < events->n; i++) {
        if (o->count > 0 && shown + n >= o->count)
            break;
        if (o->json)
            print_value(&events->items[i]);
        else
            print_event(arena, &events->items[i]);
        n++;
    }
    fflush(stdout);
    return n;
}

static int follow(struct remote *r, const struct watch *o, int64_t timeout_ms, const char *query,
                  struct ab_error *err)
{
    AB_AUTO(ab_events_destroy) ab_events_t *events = ab_events_new(&r->file, query, o->since, err);
    int64_t until = ab_now_ms() + timeout_ms, shown = 0;
    struct sigaction action = {.sa_handler = on_signal};
    if (!events)
        return -1;
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    if (!o->json && isatty(STDERR_FILENO))
        fprintf(stderr, "waiting for events at %s; Ctrl-C ends\n", r->file.api_root);
    while (!interrupted && (o->count <= 0 || shown < o->count)) {
        const char *text;
        size_t len;
        int64_t left = until - ab_now_ms();
        if (left <= 0)
            return o->count > 0; /* the wanted ones have not come */
        int rc = ab_events_next(events, left < LOOK_MS ? left : LOOK_MS, &text, &len, err);
        if (rc < 0)
            return -1;
        if (rc > 0)
            shown += show_frame(o, text, len, shown);
    }
    return 0;
}

int cmd_watch(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf query = {0};
    struct watch o = {0};
    int64_t timeout_ms = INT64_MAX / 4;
    const struct ab_opt options[] = {
        {'t', "tag", "tag", AB_OPT_KIND_LIST, &o.pick.tags, "KEY=VALUE",
         "jobs with this tag (repeat: with all of them)"},
        AB_OPT_LIST('i', "id", &o.pick.ids, "ID", "this job (repeat)"),
        AB_OPT_TEXT('a', "app", &o.pick.app, "APP", "jobs of this app (name or id)"),
        AB_OPT_TEXT('s', "state", &o.pick.state, "STATE", "only changes to this state"),
        AB_OPT_TEXT(0, "site", &o.pick.site, "SITE",
                    "all, active, this, or ids and parts of paths by comma [all]"),
        AB_OPT_TEXT(0, "since", &o.since, "CURSOR", "begin after this place in the log [now]"),
        AB_OPT_INT('n', "count", &o.count, "N", "end after N events"),
        AB_OPT_TEXT(0, "timeout", &o.timeout, "TIME",
                    "end after 30s, 10m, 2h [never]; exit 1 if --count was not reached"),
        AB_OPT_FLAG('j', "json", &o.json, "print a JSON object for each event"),
        {0},
    };
    int rc = ab_opt_parse("abies watch", "[OPTIONS]",
                          "Show changes of jobs' states as they happen.\n\nComes back by itself "
                          "after a broken connection and misses nothing.\n\n"
                          "  abies watch --tag workflow=a\n  abies watch --state FAILED --json",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (o.timeout && ab_parse_duration(o.timeout, &timeout_ms) < 0)
        return ab_fail(err, AB_EINVAL, "--timeout takes a time such as 30s or 10m, not `%.40s`",
                       o.timeout);
    if (remote_open(&r, err) < 0 || make_query(&r, &o, &query, err) < 0)
        return -1;
    return follow(&r, &o, timeout_ms, query.data ? query.data + 1 : NULL, err);
}
