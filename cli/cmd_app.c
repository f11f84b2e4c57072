/* cmd_app.c - app sync, ls, rm: the centre's index of what sites can run */
#include "app/app.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Creates or updates one app; *word says which. */
static int sync_one(struct remote *r, const struct ab_app *app, const char **word, int64_t *id,
                    struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    const struct ab_value *found, *reply;
    ab_buf_str(&path, "/apps/");
    ab_api_query_int(&path, "site_id", r->here.id);
    ab_api_query(&path, "name", app->name);
    if (remote_list(r, path.data, &found, NULL, err) < 0)
        return -1;
    ab_app_json(app, r->here.id, &body);
    if (found->n == 0) {
        *word = "created";
        if (remote_call(r, "POST", "/apps/", &body, &reply, err) < 0)
            return -1;
    } else {
        const char *old = ab_value_text(ab_value_get(&found->items[0], "source_code"), "");
        *id = ab_value_int(ab_value_get(&found->items[0], "id"), 0);
        *word = strcmp(old, app->source) == 0 ? "unchanged" : "updated";
        if (remote_call(r, "PUT", ab_printf(r->arena, "/apps/%" PRId64, *id), &body, &reply, err)
            < 0)
            return -1;
    }
    *id = ab_value_int(ab_value_get(reply, "id"), *id);
    return 0;
}

struct sync {
    struct remote *remote;
    struct table table;
    struct ab_buf json;
    int argc;
    char **argv;
    size_t done, failed;
    char first_error[480];
};

static bool is_named(const struct sync *s, const char *name)
{
    for (int i = 0; i < s->argc; i++)
        if (strcmp(s->argv[i], name) == 0)
            return true;
    return s->argc == 0;
}

static void sync_each(void *arg, const char *name, const struct ab_app *app,
                      const struct ab_error *why)
{
    struct sync *s = arg;
    struct ab_error err = {0};
    const char *word = "wrong", *text = why ? why->text : "";
    int64_t id = 0;
    if (!is_named(s, name))
        return;
    if (app && sync_one(s->remote, app, &word, &id, &err) < 0) {
        word = "refused";
        text = err.text;
    }
    bool failed = !app || err.code;
    if (failed && s->failed++ == 0)
        snprintf(s->first_error, sizeof(s->first_error), "%.60s: %.400s", name, text);
    s->done += !failed;
    const char *cells[] = {id ? ab_printf(s->remote->arena, "%" PRId64, id) : "-", name, word,
                           failed ? text : app->description};
    table_add(&s->table, cells);
    ab_buf_str(&s->json, s->json.len ? ",{\"name\":" : "{\"name\":");
    ab_buf_json_str(&s->json, name, strlen(name));
    ab_buf_printf(&s->json, ",\"id\":%" PRId64 ",\"result\":\"%s\",\"error\":", id, word);
    if (failed)
        ab_buf_json_str(&s->json, text, strlen(text));
    else
        ab_buf_str(&s->json, "null");
    ab_buf_char(&s->json, '}');
}

int cmd_app_sync(int argc, char **argv, struct ab_error *err)
{
    static const char *const heads[] = {"ID", "NAME", "RESULT", "DESCRIPTION"};
    AB_AUTO(remote_close) struct remote r = {0};
    bool json = false;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies app sync", "[NAME...] [OPTIONS]",
                          "Tell the centre about the apps of this site.\n\nReads apps/NAME.yml of "
                          "the site that we are in (or ABIES_SITE_PATH) and "
                          "creates or updates what\nthe centre knows about them: names, "
                          "parameters, transfer slots. The files stay what is run.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (remote_open(&r, err) < 0)
        return -1;
    if (!r.here.path)
        return ab_fail(err, AB_EINVAL,
                       "this folder is in no site: go to one or set ABIES_SITE_PATH");
    struct sync s = {.remote = &r, .argc = argc, .argv = argv};
    table_begin(&s.table, r.arena, heads, AB_COUNT(heads));
    s.table.right = 1;
    ab_apps_t *apps = ab_apps_new(r.here.path);
    ab_apps_each(apps, sync_each, &s);
    ab_apps_destroy(&apps);
    if (s.done + s.failed == 0) {
        ab_buf_free(&s.json);
        return ab_fail(err, AB_ENOENT, "there is no file %s in %s/apps",
                       argc ? ab_printf(r.arena, "%s.yml", argv[0]) : "*.yml", r.here.path);
    }
    if (json)
        printf("[%s]\n", s.json.data);
    else
        table_print(&s.table, stdout, terminal_width());
    ab_buf_free(&s.json);
    return s.failed ? ab_fail(err, AB_EINVAL, "%zu of %zu apps failed; %s", s.failed,
                              s.done + s.failed, s.first_error)
                    : 0;
}

/* "matrix*, mode": what a job gives by name; * means that it must. */
static const char *names_cell(ab_arena_t *arena, const struct ab_value *map)
{
    const char *text = "";
    for (size_t i = 0; map && map->type == AB_V_MAP && i < map->n; i++) {
        const struct ab_value *v = &map->items[i];
        const char *direction = ab_value_text(ab_value_get(v, "direction"), NULL);
        const char *standard = ab_value_text(ab_value_get(v, "default"), NULL);
        text = ab_printf(arena, "%s%s%s%s%s%s%s%s", text, i ? ", " : "", map->keys[i],
                         ab_value_bool(ab_value_get(v, "required"), false) ? "*" : "",
                         direction ? " " : "", direction ? direction : "", standard ? "=" : "",
                         standard ? standard : "");
    }
    return text;
}

int cmd_app_ls(int argc, char **argv, struct ab_error *err)
{
    static const char *const heads[] = {"ID", "SITE", "NAME", "DESCRIPTION", "PARAMETERS", "FILES"};
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const char *site = NULL;
    bool json = false, more = false;
    const struct ab_value *list;
    struct sites sites;
    struct table t;
    const struct ab_opt options[] = {
        AB_OPT_TEXT('s', "site", &site, "SITE",
                    "all, active, this, or ids and parts of paths by comma [this, else active]"),
        AB_OPT_FLAG('v', "verbose", &more,
                    "also parameters and transfer slots; those with * must be given"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies app ls", "[OPTIONS]", "List the apps that the centre knows.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (remote_open(&r, err) < 0 || remote_sites(&r, site, &sites, err) < 0)
        return -1;
    ab_buf_str(&path, "/apps/");
    if (!sites_query(&sites, &path))
        return ab_fail(
            err, AB_ENOENT,
            "none of your sites was active in the last two minutes: use --site all, or see "
            "`abies site ls`");
    if (remote_list(&r, path.data, &list, NULL, err) < 0)
        return -1;
    if (json) {
        print_value(list);
        return 0;
    }
    table_begin(&t, r.arena, heads, more ? 6 : 4);
    t.right = 3;
    for (size_t i = 0; i < list->n; i++) {
        const struct ab_value *v = &list->items[i];
        const char *cells[] = {
            value_cell(r.arena, ab_value_get(v, "id")),
            value_cell(r.arena, ab_value_get(v, "site_id")),
            value_cell(r.arena, ab_value_get(v, "name")),
            value_cell(r.arena, ab_value_get(v, "description")),
            names_cell(r.arena, ab_value_get(v, "parameters")),
            names_cell(r.arena, ab_value_get(v, "transfers")),
        };
        table_add(&t, cells);
    }
    table_print(&t, stdout, terminal_width());
    return 0;
}

int cmd_app_rm(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const char *site = NULL;
    bool json = false, yes = false;
    const struct ab_opt options[] = {
        AB_OPT_TEXT('s', "site", &site, "SITE", "the site, if the app is given by name [this]"),
        AB_OPT_FLAG('y', "yes", &yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies app rm", "APP [OPTIONS]",
                          "Delete an app and all its jobs from the centre.\n\nAPP is its name or "
                          "id. The site's file apps/NAME.yml stays.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc != 1)
        return ab_fail(err, AB_EINVAL, "give one app, by name or id; see --help");
    const struct ab_value *app;
    int64_t site_id = 0, jobs;
    if (remote_open(&r, err) < 0
        || ((site || r.here.path) && remote_one_site(&r, site, &site_id, err) < 0)
        || remote_app(&r, argv[0], site_id, &app, err) < 0)
        return -1;
    int64_t id = ab_value_int(ab_value_get(app, "id"), 0);
    ab_buf_str(&path, "/jobs/");
    ab_api_query_int(&path, "app_id", id);
    if (remote_count(&r, &path, &jobs, err) < 0)
        return -1;
    if (!yes
        && ask_yes(err, "Delete app %s (id %" PRId64 ") and its %" PRId64 " %s?", argv[0], id, jobs,
                   JOBS(jobs))
               < 0)
        return -1;
    if (remote_call(&r, "DELETE", ab_printf(r.arena, "/apps/%" PRId64, id), NULL, NULL, err) < 0)
        return -1;
    if (json)
        printf("{\"deleted\":%" PRId64 ",\"jobs\":%" PRId64 "}\n", id, jobs);
    else
        printf("deleted app %" PRId64 " and %" PRId64 " %s\n", id, jobs, JOBS(jobs));
    return 0;
}
