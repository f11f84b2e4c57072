/* cmd_token.c - the tokens that speak for a user: listed, made for scripts, revoked */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/opt.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cmd_token_ls(int argc, char **argv, struct ab_error *err)
{
    static const char *const heads[] = {"ID",      "NAME",      "SCOPE",  "SITE",
                                        "CREATED", "LAST USED", "ENDS IN"};
    AB_AUTO(remote_close) struct remote r = {0};
    const struct ab_value *list;
    bool json = false;
    struct table t;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies token ls", "[OPTIONS]",
                          "List your tokens: log-ins, sites and scripts.\n\nA token that is used "
                          "renews itself; one that was not used for 30 days is gone. Log-ins of "
                          "old\nclients cannot be renewed: they end by themselves.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0 || remote_open(&r, err) < 0
        || remote_get(&r, "/auth/tokens", &list, err) < 0)
        return -1;
    if (json) {
        print_value(list);
        return 0;
    }
    table_begin(&t, r.arena, heads, AB_COUNT(heads));
    t.right = 1;
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        const struct ab_value *v = &list->items[i];
        double made = seconds_since(ab_value_get(v, "created")),
               used = seconds_since(ab_value_get(v, "last_used")),
               over = seconds_since(ab_value_get(v, "expiration"));
        const char *cells[] = {
            value_cell(r.arena, ab_value_get(v, "id")),
            value_cell(r.arena, ab_value_get(v, "name")),
            value_cell(r.arena, ab_value_get(v, "scope")),
            value_cell(r.arena, ab_value_get(v, "site_id")),
            ab_printf(r.arena, "%s ago", short_time(r.arena, made)),
            used >= 0 ? ab_printf(r.arena, "%s ago", short_time(r.arena, used)) : "-",
            ab_value_text(ab_value_get(v, "expiration"), NULL) ? short_time(r.arena, -over) : "-",
        };
        table_add(&t, cells);
    }
    table_print(&t, stdout, terminal_width());
    return 0;
}

int cmd_token_rm(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    bool json = false;
    int64_t id;
    const struct ab_opt options[] = {AB_OPT_FLAG('j', "json", &json, "print JSON"), {0}};
    int rc = ab_opt_parse("abies token rm", "[OPTIONS] ID...",
                          "Revoke tokens.\n\nWhoever uses them has no access any more, within "
                          "seconds. A site's agent stops working with its token.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc == 0)
        return ab_fail(err, AB_EINVAL, "which tokens? Give their ids from `abies token ls`");
    if (remote_open(&r, err) < 0)
        return -1;
    for (int i = 0; i < argc; i++) {
        const struct ab_value *none;
        if (parse_id(argv[i], &id, err) < 0
            || remote_call(&r, "DELETE", ab_printf(r.arena, "/auth/tokens/%" PRId64, id), NULL,
                           &none, err)
                   < 0)
            return ab_fail_within(err, "token %.40s", argv[i]);
    }
    printf(json ? "{\"revoked\":%d}\n" : "%d revoked\n", argc);
    return 0;
}

struct making {
    const char *name, *scope, *file;
    int64_t site;
    bool json;
};

static int ask_for(struct remote *r, const struct making *o, const struct ab_value **made,
                   struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    ab_buf_str(&body, "{\"name\":");
    ab_buf_json_str(&body, o->name, strlen(o->name));
    ab_buf_str(&body, ",\"scope\":");
    ab_buf_json_str(&body, o->scope, strlen(o->scope));
    if (o->site > 0)
        ab_buf_printf(&body, ",\"site_id\":%" PRId64, o->site);
    ab_buf_str(&body, "}");
    return remote_call(r, "POST", "/auth/tokens", &body, made, err);
}

static char *text_of(const struct ab_value *made, const char *name)
{
    const char *text = ab_value_text(ab_value_get(made, name), NULL);
    return text ? strdup(text) : NULL;
}

/* A client file of its own, with the addresses of ours. */
static int write_file(const struct remote *r, const char *path, const struct ab_value *made,
                      struct ab_error *err)
{
    const char *end = ab_value_text(ab_value_get(made, "expiration"), "");
    struct ab_client_file file = r->file;
    file.path = (char *)path;
    file.token = text_of(made, "access_token");
    file.refresh_token = text_of(made, "refresh_token");
    file.token_expiry_us = 0;
    (void)ab_time_parse(end, strlen(end), &file.token_expiry_us);
    int rc = ab_client_file_save(&file, err);
    free(file.token);
    free(file.refresh_token);
    return rc;
}

int cmd_token_create(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    struct making o = {.scope = "read"};
    const struct ab_value *made;
    const struct ab_opt options[] = {
        AB_OPT_TEXT(
            's', "scope", &o.scope, "SCOPE",
            "what it may do: read (look, change nothing), user (all that you may), site [read]"),
        AB_OPT_INT(0, "site", &o.site, "ID", "the one site that a token of scope site speaks for"),
        AB_OPT_TEXT('f', "file", &o.file, "FILE", "the client file to write; must not exist"),
        AB_OPT_FLAG('j', "json", &o.json, "print it as JSON instead, secrets included"),
        {0},
    };
    int rc =
        ab_opt_parse("abies token create", "[OPTIONS] NAME",
                     "Make a token for a script.\n\nIt goes into a client file of its own, "
                     "readable by you alone; "
                     "programs use it with ABIES_CLIENT_PATH=FILE and\nrenew it by themselves.",
                     options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc != 1)
        return ab_fail(err, AB_EINVAL, "give it one name: what is it for?");
    if (!o.file == !o.json)
        return ab_fail(err, AB_EINVAL, "where to put it? --file FILE or --json");
    if (o.file && access(o.file, F_OK) == 0)
        return ab_fail(err, AB_ECONFLICT, "%s exists already", o.file);
    o.name = argv[0];
    if (remote_open(&r, err) < 0 || ask_for(&r, &o, &made, err) < 0)
        return -1;
    if (o.json) {
        print_value(made);
        return 0;
    }
    if (write_file(&r, o.file, made, err) < 0)
        return -1;
    printf("token %" PRId64 " is in %s\n", ab_value_int(ab_value_get(made, "id"), 0), o.file);
    return 0;
}
