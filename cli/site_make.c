/* site_make.c - a new site: record, token, folder
 *
 * The site's own token goes into its client.yml: it speaks for this site only, and the agent renews
 * it. The user's token never leaves the user's folder.
 */
#include "site_make.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include "settings/settings.h"
#include "transfer/transfer.h"
#include "yaml/yaml.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *below(struct remote *r, const char *path, const char *name)
{
    return ab_printf(r->arena, "%s/%s", path, name);
}

/* Whether it can be reached is seen when it is used; here, whether anything could ever move files.
 */
static int check_location(const char *url, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_url parsed;
    if (transfer_url_parse(url, arena, &parsed, err) < 0)
        return -1;
    const struct transfer_kind *kind = transfer_of(parsed.scheme);
    if (!kind)
        return ab_fail(err, AB_EINVAL,
                       "nothing here moves files by %.40s://; local:// and rsync:// work",
                       parsed.scheme);
    return kind->check(&parsed, err);
}

static int check_locations(const struct ab_opt_list *locations, struct ab_error *err)
{
    for (size_t i = 0; i < locations->n; i++) {
        const char *text = locations->v[i], *equals = strchr(text, '='),
                   *scheme = equals ? strstr(equals, "://") : NULL;
        if (!scheme || equals == text || scheme == equals + 1)
            return ab_fail(err, AB_EINVAL,
                           "--location takes ALIAS=SCHEME://HOST/PATH, e.g. "
                           "beamline=local://localhost/data, not `%.100s`",
                           text);
        if (check_location(equals + 1, err) < 0)
            return ab_fail_within(err, "--location %.100s", text);
    }
    return 0;
}

/* The shipped settings.yml with these transfer locations. */
static int settings_text(const struct site_wish *wish, struct ab_buf *out, struct ab_error *err)
{
    static const char line[] = "  transfer_locations: {}\n";
    AB_AUTO(ab_buf_free) struct ab_buf shipped = {0};
    const char *file = ab_find_share("settings.yml");
    if (!file)
        return ab_fail(
            err, AB_ENOENT,
            "the shipped settings.yml is missing: install Abies with its share/abies folder");
    if (ab_file_read(file, 1 << 20, &shipped, err) < 0)
        return -1;
    const char *at = strstr(shipped.data, line);
    if (!at && wish->locations.n > 0)
        return ab_fail(err, AB_EINTERNAL, "the shipped settings.yml (%s) has no line `%.26s`", file,
                       line);
    if (!at || wish->locations.n == 0) {
        ab_buf_str(out, shipped.data);
        return 0;
    }
    ab_buf_add(out, shipped.data, (size_t)(at - shipped.data));
    ab_buf_str(out, "  transfer_locations:\n");
    for (size_t i = 0; i < wish->locations.n; i++) {
        AB_AUTO(ab_free) char *alias = strdup(wish->locations.v[i]);
        char *equals = strchr(alias, '=');
        *equals = '\0';
        ab_buf_str(out, "    ");
        ab_yaml_scalar(out, alias);
        ab_buf_str(out, ": ");
        ab_yaml_scalar(out, equals + 1);
        ab_buf_char(out, '\n');
    }
    ab_buf_str(out, at + sizeof(line) - 1);
    return 0;
}

static int write_settings(struct remote *r, const struct site_wish *wish, const char *path,
                          struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *file = below(r, path, "settings.yml");
    if (settings_text(wish, &text, err) < 0
        || ab_file_write(file, text.data, text.len, 0600, err) < 0)
        return -1;
    struct ab_settings *settings = ab_settings_load(file, err); /* as the agent will */
    if (!settings)
        return -1;
    ab_settings_destroy(&settings);
    return 0;
}

static int copy_template(struct remote *r, const char *path, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *file = ab_find_share("job-template.sh");
    if (!file)
        return ab_fail(
            err, AB_ENOENT,
            "the shipped job-template.sh is missing: install Abies with its share/abies folder");
    if (ab_file_read(file, 1 << 20, &text, err) < 0)
        return -1;
    return ab_file_write(below(r, path, "job-template.sh"), text.data, text.len, 0700, err);
}

static int create_record(struct remote *r, const struct site_wish *wish, const char *path,
                         int64_t *id, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    const struct ab_value *made;
    ab_buf_str(&body, "{\"name\":");
    ab_buf_json_str(&body, wish->name, strlen(wish->name));
    ab_buf_str(&body, ",\"path\":");
    ab_buf_json_str(&body, path, strlen(path));
    ab_buf_str(&body, ",\"transfer_locations\":"); /* as the agent will say when it starts */
    pairs_json(&wish->locations, &body);
    ab_buf_str(&body, "}");
    if (remote_call(r, "POST", "/sites/", &body, &made, err) < 0)
        return -1;
    *id = ab_value_int(ab_value_get(made, "id"), 0);
    return *id > 0 ? 0 : ab_fail(err, AB_EUPSTREAM, "the centre made a site without an id");
}

static char *text_of(const struct ab_value *v, const char *name)
{
    const char *text = ab_value_text(ab_value_get(v, name), NULL);
    return text ? strdup(text) : NULL;
}

static int write_client_file(struct remote *r, const struct site_wish *wish, const char *path,
                             int64_t id, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    const struct ab_value *token;
    ab_buf_str(&body, "{\"name\":");
    const char *name = ab_printf(r->arena, "site %.80s", wish->name);
    ab_buf_json_str(&body, name, strlen(name));
    ab_buf_printf(&body, ",\"scope\":\"site\",\"site_id\":%" PRId64 "}", id);
    if (remote_call(r, "POST", "/auth/tokens", &body, &token, err) < 0)
        return ab_fail_within(err, "no token for the site");
    AB_AUTO(ab_client_file_free)
    struct ab_client_file file = {
        .path = strdup(below(r, path, "client.yml")),
        .api_root = strdup(r->file.api_root),
        .ca_file = r->file.ca_file ? strdup(r->file.ca_file) : NULL,
        .proxy = r->file.proxy ? strdup(r->file.proxy) : NULL,
        .token = text_of(token, "access_token"),
        .refresh_token = text_of(token, "refresh_token"),
        .connect_timeout_ms = r->file.connect_timeout_ms,
        .read_timeout_ms = r->file.read_timeout_ms,
        .retry_count = r->file.retry_count,
    };
    const char *expiry = ab_value_text(ab_value_get(token, "expiration"), "");
    (void)ab_time_parse(expiry, strlen(expiry), &file.token_expiry_us);
    if (!file.token)
        return ab_fail(err, AB_EUPSTREAM, "the centre gave no token for the site");
    return ab_client_file_save(&file, err);
}

static int fill(struct remote *r, const struct site_wish *wish, const char *path, int64_t *id,
                struct ab_error *err)
{
    static const char *const folders[] = {"apps", "data", "log"}, *const private_folders[] = {
                                                                      "qsubmit", "run"};
    for (size_t i = 0; i < AB_COUNT(folders); i++)
        if (ab_mkdirs(below(r, path, folders[i]), 0755, err) < 0)
            return -1;
    for (size_t i = 0; i < AB_COUNT(private_folders); i++)
        if (ab_mkdirs(below(r, path, private_folders[i]), 0700, err) < 0)
            return -1;
    if (write_settings(r, wish, path, err) < 0 || copy_template(r, path, err) < 0
        || create_record(r, wish, path, id, err) < 0
        || write_client_file(r, wish, path, *id, err) < 0)
        return -1;
    /* last: a folder with this file is a site */
    const char *text = ab_printf(r->arena, "%" PRId64 "\n", *id);
    return ab_file_write(below(r, path, AB_SITE_FILE), text, strlen(text), 0440, err);
}

static void undo(struct remote *r, const char *path, int64_t id)
{
    struct ab_error ignored = {0};
    if (id)
        (void)remote_call(r, "DELETE", ab_printf(r->arena, "/sites/%" PRId64, id), NULL, NULL,
                          &ignored);
    (void)ab_remove_tree(path, &ignored);
}

int site_make(struct remote *r, const struct site_wish *wish, const char **path, int64_t *id,
              struct ab_error *err)
{
    char real[PATH_MAX];
    char *copy = ab_strdup(r->arena, wish->path), *slash;
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    slash = strrchr(copy, '/');
    if (check_locations(&wish->locations, err) < 0)
        return -1;
    if (slash && slash != copy
        && ab_mkdirs(ab_strndup(r->arena, copy, (size_t)(slash - copy)), 0755, err) < 0)
        return -1;
    if (mkdir(copy, 0755) < 0)
        return errno == EEXIST ? ab_fail(err, AB_ECONFLICT,
                                         "`%s` exists already: a site begins in a new folder", copy)
                               : ab_fail_errno(err, AB_EINTERNAL, "cannot make folder `%s`", copy);
    *id = 0;
    *path = realpath(copy, real) ? ab_strdup(r->arena, real) : NULL;
    if (!*path)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot resolve `%s`", copy);
    if (fill(r, wish, *path, id, err) == 0)
        return 0;
    struct ab_error kept = *err;
    undo(r, *path, *id);
    *err = kept;
    return -1;
}
