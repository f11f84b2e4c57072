/* cmd_site.c - site init, start, stop, ls, rm */
#include "agent.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/opt.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include "site_make.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACTIVE_SEC 120

int cmd_site_init(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    struct site_wish wish = {0};
    bool json = false;
    char host[256] = "site";
    const struct ab_opt options[] = {
        AB_OPT_TEXT('n', "name", &wish.name, "NAME", "its name [this machine's]"),
        AB_OPT_LIST('l', "location", &wish.locations, "ALIAS=URL",
                    "a place that jobs may stage from and to (repeat)"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse(
        "abies site init", "FOLDER [OPTIONS]",
        "Make a site: a folder where jobs run.\n\nThe folder must be new. It gets settings.yml, "
        "job-template.sh, and places for apps and data; "
        "the centre gets\na record of it, and the folder a token for this site alone.\n\n"
        "  abies site init --name cluster --location beamline=local://localhost/data/beamline "
        "~/site",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc != 1)
        return ab_fail(err, AB_EINVAL, "where? Give a new folder; see --help");
    if (wish.name && !*wish.name)
        return ab_fail(err, AB_EINVAL, "a site needs a name: --name NAME");
    (void)gethostname(host, sizeof(host) - 1);
    wish.path = argv[0];
    wish.name = wish.name ? wish.name : host;
    unsetenv("ABIES_SITE_PATH"); /* of another site: the new one has nothing to do with it */
    const char *path;
    int64_t id;
    if (remote_open(&r, err) < 0 || site_make(&r, &wish, &path, &id, err) < 0)
        return -1;
    if (json) {
        AB_AUTO(ab_buf_free) struct ab_buf out = {0};
        ab_buf_json_str(&out, path, strlen(path));
        printf("{\"id\":%" PRId64 ",\"path\":%s}\n", id, out.data);
        return 0;
    }
    printf("site %" PRId64 " in %s\n\nNext: put apps into %s/apps, look at its settings.yml, "
           "then\n  cd %s\n  abies site start\n  abies app sync\n",
           id, path, path, path);
    return 0;
}

/* The site that the argument, ABIES_SITE_PATH or this folder stands for. */
static int find_site(int argc, char **argv, struct ab_site *site, struct ab_error *err)
{
    if (argc > 1)
        return ab_fail(err, AB_EINVAL, "one site at a time, not `%s`", argv[1]);
    return ab_site_find(site, argc == 1 ? argv[0] : NULL, err);
}

int cmd_site_start(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    struct agent_state agent;
    bool json = false;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies site start", "[FOLDER] [OPTIONS]",
                          "Start the agent of a site in the background.\n\nIt moves files, runs "
                          "hooks, and submits batch jobs. Running it again is harmless. What it "
                          "writes is in log/.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (find_site(argc, argv, &site, err) < 0)
        return -1;
    rc = agent_start(&site, &agent, err);
    progress_end();
    if (rc < 0)
        return -1;
    if (json) {
        AB_AUTO(ab_buf_free) struct ab_buf why = {0};
        ab_buf_json_str(&why, agent.why, strlen(agent.why));
        printf("{\"site_id\":%" PRId64
               ",\"pid\":%d,\"was_running\":%s,\"reached\":%s,\"settings\":%s,"
               "\"why\":%s}\n",
               site.id, (int)agent.pid, rc ? "true" : "false", agent.reached ? "true" : "false",
               agent.known ? "true" : "false", why.data);
        return 0;
    }
    printf("site %" PRId64 ": the agent %s (pid %d)%s\n", site.id, rc ? "runs already" : "runs",
           (int)agent.pid,
           agent.reached ? "" : "; it has not reached the centre yet and goes on trying");
    if (*agent.why) {
        fprintf(stderr, "the centre does not take what %s/settings.yml says: ", site.path);
        print_clean(stderr, agent.why);
        fprintf(stderr, "; mend it, then `abies site stop` and `start`\n");
    }
    return 0;
}

int cmd_site_stop(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    bool json = false;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies site stop", "[FOLDER] [OPTIONS]",
                          "Stop the agent of a site. Batch jobs that run go on.", options, &argc,
                          &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (find_site(argc, argv, &site, err) < 0)
        return -1;
    rc = agent_stop(&site, err);
    progress_end();
    if (rc < 0)
        return -1;
    if (json)
        printf("{\"site_id\":%" PRId64 ",\"stopped\":%s}\n", site.id, rc ? "false" : "true");
    else
        printf("site %" PRId64 ": the agent %s\n", site.id, rc ? "does not run" : "has stopped");
    return 0;
}

/* What can be said from here: the lock if the folder is on this machine, else when the centre last
 * heard of it. */
static const char *activity(const struct remote *r, const struct ab_value *v)
{
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    struct ab_site_owner owner;
    const char *path = ab_value_text(ab_value_get(v, "path"), "");
    int64_t id = ab_value_int(ab_value_get(v, "id"), 0);
    if (access(ab_printf(r->arena, "%s/%s", path, AB_SITE_FILE), R_OK) == 0
        && ab_site_find(&site, path, NULL) == 0 && site.id == id) {
        if (ab_site_owner(&site, &owner, NULL) == 1 && owner.alive)
            return owner.here ? "runs here" : ab_printf(r->arena, "runs on %s", owner.host);
        return "stopped";
    }
    double ago = seconds_since(ab_value_get(v, "last_refresh"));
    return ago >= 0 && ago < ACTIVE_SEC ? "active" : "-";
}

int cmd_site_ls(int argc, char **argv, struct ab_error *err)
{
    static const char *const heads[] = {"ID",   "NAME",   "AGENT",    "HEARD OF",
                                        "PATH", "QUEUES", "LOCATIONS"};
    AB_AUTO(remote_close) struct remote r = {0};
    bool json = false, more = false;
    const struct ab_value *list;
    struct table t;
    const struct ab_opt options[] = {
        AB_OPT_FLAG('v', "verbose", &more, "also queues and transfer locations"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc =
        ab_opt_parse("abies site ls", "[OPTIONS]", "List your sites.", options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (remote_open(&r, err) < 0 || remote_list(&r, "/sites/", &list, NULL, err) < 0)
        return -1;
    if (json) {
        print_value(list);
        return 0;
    }
    table_begin(&t, r.arena, heads, more ? AB_COUNT(heads) : 5);
    t.right = 1;
    for (size_t i = 0; i < list->n; i++) {
        const struct ab_value *v = &list->items[i];
        double ago = seconds_since(ab_value_get(v, "last_refresh"));
        const char *cells[] = {
            value_cell(r.arena, ab_value_get(v, "id")),
            value_cell(r.arena, ab_value_get(v, "name")),
            activity(&r, v),
            ago >= 0 ? ab_printf(r.arena, "%s ago", short_time(r.arena, ago)) : "never",
            value_cell(r.arena, ab_value_get(v, "path")),
            value_cell(r.arena, ab_value_get(v, "allowed_queues")),
            value_cell(r.arena, ab_value_get(v, "transfer_locations")),
        };
        table_add(&t, cells);
    }
    table_print(&t, stdout, terminal_width());
    return 0;
}

struct removal {
    const char *path; /* NULL: its folder is not here */
    int64_t id, jobs;
    bool yes, keep, json;
};

/* What stands for the site: its folder, or its number when the folder is lost or elsewhere. */
static int pick_removal(struct remote *r, struct removal *o, const char *arg, struct ab_site *site,
                        struct ab_error *err)
{
    struct ab_site_owner owner;
    const struct ab_value *record;
    bool by_id = access(arg, F_OK) < 0 && parse_id(arg, &o->id, NULL) == 0;
    if (by_id) {
        if (remote_get(r, ab_printf(r->arena, "/sites/%" PRId64, o->id), &record, err) < 0)
            return err->code == AB_ENOENT
                       ? ab_fail(err, AB_ENOENT,
                                 "there is no site %" PRId64 "; `abies site ls` shows them", o->id)
                       : -1;
        arg = ab_value_text(ab_value_get(record, "path"), "");
        if (ab_site_find(site, arg, NULL) < 0)
            return 0;
        if (site->id != o->id) { /* a later site has its place */
            ab_site_free(site);
            return 0;
        }
    } else if (ab_site_find(site, arg, err) < 0) {
        return ab_fail_within(err, "which site? Give its folder, or its id from `abies site ls`");
    }
    o->id = site->id;
    o->path = site->path;
    if (ab_site_owner(site, &owner, NULL) == 1 && owner.alive)
        return ab_fail(err, AB_ECONFLICT, "its agent runs on %s: `abies site stop %s` first",
                       owner.host, site->path);
    return 0;
}

static int ask_removal(const struct removal *o, struct ab_error *err)
{
    bool folder = o->path && !o->keep;
    if (o->yes)
        return 0;
    return ask_yes(err, "Delete site %" PRId64 " with its %" PRId64 " %s%s%s?", o->id, o->jobs,
                   JOBS(o->jobs),
                   folder    ? " and the folder "
                   : o->path ? ""
                             : " (its folder is not on this machine)",
                   folder ? o->path : "");
}

int cmd_site_rm(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct removal o = {0};
    const struct ab_opt options[] = {
        AB_OPT_FLAG('k', "keep-files", &o.keep, "leave the folder as it is"),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse(
        "abies site rm", "FOLDER|ID [OPTIONS]",
        "Delete a site: its record at the centre with all jobs and apps, and its folder.\n\nAn ID "
        "serves when the folder is lost or on another machine: what is there is left alone then.",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc != 1)
        return ab_fail(err, AB_EINVAL, "which site? Give its folder, or its id");
    if (remote_open(&r, err) < 0 || pick_removal(&r, &o, argv[0], &site, err) < 0)
        return -1;
    ab_buf_str(&path, "/jobs/");
    ab_api_query_int(&path, "site_id", o.id);
    if (remote_count(&r, &path, &o.jobs, err) < 0 || ask_removal(&o, err) < 0)
        return -1;
    if (remote_call(&r, "DELETE", ab_printf(r.arena, "/sites/%" PRId64, o.id), NULL, NULL, err) < 0
        && err->code != AB_ENOENT)
        return -1;
    if (o.path && !o.keep && ab_remove_tree(o.path, err) < 0)
        return -1;
    if (o.json)
        printf("{\"deleted\":%" PRId64 ",\"jobs\":%" PRId64 "}\n", o.id, o.jobs);
    else
        printf("deleted site %" PRId64 " and %" PRId64 " %s\n", o.id, o.jobs, JOBS(o.jobs));
    return 0;
}
