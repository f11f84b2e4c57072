/* remote.c - the centre as commands see it */
#include "remote.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX ((size_t)512 << 20)
#define ACTIVE_US (INT64_C(120) * 1000000)

static int load_file(struct remote *self, struct ab_error *err)
{
    AB_AUTO(ab_client_file_free) struct ab_client_file of_site = {0};
    struct ab_error why = {0};
    const char *named = getenv("ABIES_CLIENT_PATH");
    bool mine = ab_client_file_load(&self->file, NULL, &why) == 0;
    if (!mine && (why.code != AB_ENOENT || !self->here.path))
        return ab_fail(err, why.code, "%s", why.text);
    if ((named && *named) || !self->here.path)
        return 0;
    char *path = ab_site_path(&self->here, "client.yml");
    bool there = ab_client_file_load_path(&of_site, path, &why) == 0;
    free(path);
    if (mine && (!there || strcmp(self->file.api_root, of_site.api_root) == 0))
        return 0;
    if (!there)
        return ab_fail(err, why.code, "%s", why.text);
    ab_client_file_free(&self->file);
    self->file = of_site;
    of_site = (struct ab_client_file){0};
    return 0;
}

int remote_open(struct remote *self, struct ab_error *err)
{
    struct ab_error none = {0};
    *self = (struct remote){.arena = ab_arena_new()};
    const char *named = getenv("ABIES_SITE_PATH");
    if (ab_site_find(&self->here, NULL, &none) < 0) {
        self->here = (struct ab_site){0};
        if (named && *named)
            return ab_fail(err, none.code, "ABIES_SITE_PATH: %s", none.text);
    }
    if (load_file(self, err) < 0)
        return -1;
    self->api = ab_api_new(&self->file, true, err);
    return self->api ? 0 : -1;
}

void remote_close(struct remote *self)
{
    ab_api_destroy(&self->api);
    ab_client_file_free(&self->file);
    ab_site_free(&self->here);
    ab_arena_destroy(&self->arena);
}

/* The remedy for the case that everybody meets first. */
static int unreached(const struct remote *self, struct ab_error *err)
{
    struct ab_error why = *err;
    bool local =
        strstr(self->file.api_root, "://127.0.0.1") || strstr(self->file.api_root, "://localhost");
    return local ? ab_fail(err, why.code,
                           "%s; `abies status` says whether the centre of this machine runs, "
                           "`abies up` starts it",
                           why.text)
                 : -1;
}

int remote_call(struct remote *self, const char *method, const char *path,
                const struct ab_buf *body, const struct ab_value **reply, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {.limit = REPLY_MAX};
    struct ab_api_options options = {.retries = 4, .trace = getenv("TRACEPARENT")};
    if (body && body->failed)
        return ab_fail(err, AB_EINTERNAL, "no memory for a request");
    if (reply)
        *reply = NULL;
    int status = ab_api_call(self->api, method, path, body ? body->data : NULL,
                             body ? body->len : 0, &options, &text, err);
    if (status < 0 && err->code == AB_EUPSTREAM)
        return unreached(self, err);
    if (status < 0 || status >= 400)
        return -1;
    if (!reply || text.len == 0)
        return 0;
    *reply = ab_value_parse(self->arena, text.data, text.len, err);
    return *reply ? 0 : ab_fail_within(err, "the answer to %s %.100s", method, path);
}

int remote_get(struct remote *self, const char *path, const struct ab_value **reply,
               struct ab_error *err)
{
    if (remote_call(self, "GET", path, NULL, reply, err) < 0)
        return -1;
    return *reply ? 0 : ab_fail(err, AB_EUPSTREAM, "the answer to GET %.200s is empty", path);
}

int remote_list(struct remote *self, const char *path, const struct ab_value **results,
                int64_t *count, struct ab_error *err)
{
    const struct ab_value *reply;
    if (remote_get(self, path, &reply, err) < 0)
        return -1;
    *results = ab_value_get(reply, "results");
    if (!*results || (*results)->type != AB_V_LIST)
        return ab_fail(err, AB_EUPSTREAM, "the answer to GET %.200s is no page of results", path);
    if (count)
        *count = ab_value_int(ab_value_get(reply, "count"), (int64_t)(*results)->n);
    return 0;
}

int remote_count(struct remote *self, const struct ab_buf *path, int64_t *count,
                 struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf full = {0};
    const struct ab_value *results;
    ab_buf_str(&full, path->data);
    ab_api_query_int(&full, "limit", 0);
    return remote_list(self, full.data, &results, count, err);
}

/* ---- sites */

double seconds_since(const struct ab_value *time)
{
    const char *text = ab_value_text(time, "");
    int64_t us;
    return ab_time_parse(text, strlen(text), &us) == 0 ? (double)(ab_utc_us() - us) / 1e6 : -1;
}

static void add_ids(struct remote *self, struct sites *out, const struct ab_value *list)
{
    int64_t *ids = ab_alloc(self->arena, out->n + list->n, sizeof(*ids));
    if (out->n > 0)
        memcpy(ids, out->ids, out->n * sizeof(*ids));
    for (size_t i = 0; i < list->n; i++)
        ids[out->n++] = ab_value_int(ab_value_get(&list->items[i], "id"), 0);
    out->ids = ids;
}

static int active_sites(struct remote *self, struct sites *out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *list;
    char since[AB_TIME_TEXT];
    ab_time_format(ab_utc_us() - ACTIVE_US, false, since);
    ab_buf_str(&path, "/sites/");
    ab_api_query(&path, "last_refresh_after", since);
    if (remote_list(self, path.data, &list, NULL, err) < 0)
        return -1;
    add_ids(self, out, list);
    return 0;
}

static int this_site(struct remote *self, struct sites *out, struct ab_error *err)
{
    if (!self->here.path)
        return ab_fail(
            err, AB_EINVAL,
            "this folder is in no site: go to one, set ABIES_SITE_PATH, or give --site ID");
    out->ids = ab_alloc(self->arena, 1, sizeof(*out->ids));
    out->ids[out->n++] = self->here.id;
    return 0;
}

/* Sites whose name is this, else whose path holds it. */
static int sites_like(struct remote *self, const char *word, struct sites *out,
                      struct ab_error *err)
{
    static const char *const filters[] = {"name", "path"};
    for (size_t i = 0; i < AB_COUNT(filters); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0};
        const struct ab_value *list;
        ab_buf_str(&path, "/sites/");
        ab_api_query(&path, filters[i], word);
        if (remote_list(self, path.data, &list, NULL, err) < 0)
            return -1;
        if (list->n > 0) {
            add_ids(self, out, list);
            return 0;
        }
    }
    return ab_fail(err, AB_ENOENT,
                   "no site has the name or path `%.100s`; `abies site ls` shows them", word);
}

/* An id that is none would look like a site without anything. */
static int all_there(struct remote *self, const struct sites *sites, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *list;
    ab_buf_str(&path, "/sites/");
    for (size_t i = 0; i < sites->n; i++)
        ab_api_query_int(&path, "id", sites->ids[i]);
    if (remote_list(self, path.data, &list, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < sites->n; i++) {
        size_t k = 0;
        while (k < list->n && ab_value_int(ab_value_get(&list->items[k], "id"), 0) != sites->ids[i])
            k++;
        if (k == list->n)
            return ab_fail(err, AB_ENOENT,
                           "there is no site %" PRId64 "; `abies site ls` shows them",
                           sites->ids[i]);
    }
    return 0;
}

int remote_sites(struct remote *self, const char *selector, struct sites *out, struct ab_error *err)
{
    *out = (struct sites){0};
    if (!selector || !*selector)
        return self->here.path ? this_site(self, out, err) : active_sites(self, out, err);
    if (strcmp(selector, "all") == 0) {
        out->all = true;
        return 0;
    }
    if (strcmp(selector, "active") == 0)
        return active_sites(self, out, err);
    if (strcmp(selector, "this") == 0)
        return this_site(self, out, err);
    char *rest = ab_strdup(self->arena, selector), *word;
    while ((word = strsep(&rest, ","))) {
        int64_t *id = ab_alloc(self->arena, out->n + 1, sizeof(*id));
        if (!*word)
            continue;
        if (ab_parse_i64(word, strlen(word), 1, INT64_MAX, &id[out->n]) == 0) {
            if (out->n > 0)
                memcpy(id, out->ids, out->n * sizeof(*id));
            out->ids = id;
            out->n++;
        } else if (sites_like(self, word, out, err) < 0) {
            return -1;
        }
    }
    return out->n > 0 ? all_there(self, out, err) : 0;
}

int remote_one_site(struct remote *self, const char *selector, int64_t *id, struct ab_error *err)
{
    struct sites found;
    if ((!selector || !*selector) && !self->here.path)
        return ab_fail(err, AB_EINVAL,
                       "which site? Go to its folder, set ABIES_SITE_PATH, or give --site ID");
    if (remote_sites(self, selector, &found, err) < 0)
        return -1;
    if (found.all || found.n != 1)
        return ab_fail(err, AB_EINVAL,
                       "`%s` stands for %s, but one is needed: give its id (`abies site ls`)",
                       selector ? selector : "",
                       found.all ? "all sites"
                       : found.n ? "several sites"
                                 : "no site");
    *id = found.ids[0];
    return 0;
}

bool sites_query(const struct sites *self, struct ab_buf *path)
{
    for (size_t i = 0; !self->all && i < self->n; i++)
        ab_api_query_int(path, "site_id", self->ids[i]);
    return self->all || self->n > 0;
}

int remote_app(struct remote *self, const char *app, int64_t site_id, const struct ab_value **out,
               struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const struct ab_value *list;
    int64_t id;
    ab_buf_str(&path, "/apps/");
    bool by_id = ab_parse_i64(app, strlen(app), 1, INT64_MAX, &id) == 0;
    if (by_id)
        ab_api_query_int(&path, "id", id);
    else
        ab_api_query(&path, "name", app);
    if (!by_id && site_id)
        ab_api_query_int(&path, "site_id", site_id);
    if (remote_list(self, path.data, &list, NULL, err) < 0)
        return -1;
    if (list->n != 1)
        return ab_fail(err, AB_ENOENT,
                       list->n ? "app `%.100s` is at several sites: give --site or its id"
                               : "there is no app `%.100s`%s: write apps/NAME.yml and run `abies "
                                 "app sync`, or see "
                                 "`abies app ls`",
                       app, site_id ? " at this site" : "");
    *out = &list->items[0];
    return 0;
}
