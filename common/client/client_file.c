/* client_file.c - client.yml: where the centre is and what proves who we are
 *
 * Written by rename with mode 0600, read only if nobody else may read it.
 */
#include "api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "yaml/yaml.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 10000
#define READ_TIMEOUT_MS 120000
#define RETRY_COUNT 10
#define RETRY_MAX 100

static const char *const known_keys[] = {
    "api_root",      "ca_file",         "proxy",        "token",       "token_expiry",
    "refresh_token", "connect_timeout", "read_timeout", "retry_count",
};

static char *path_below(const char *folder, const char *name)
{
    struct ab_buf path = {0};
    ab_buf_str(&path, folder);
    ab_buf_str(&path, "/");
    ab_buf_str(&path, name);
    return ab_buf_take(&path);
}

static const char *home_folder(void)
{
    const char *home = getenv("HOME");
    if (home && *home)
        return home;
    const struct passwd *user = getpwuid(getuid()); /* before any thread starts */
    return user && user->pw_dir ? user->pw_dir : "/";
}

static char *find_file(const char *site)
{
    const char *named = getenv("ABIES_CLIENT_PATH");
    if (named && *named)
        return strdup(named);
    if (site) {
        char *path = path_below(site, "client.yml");
        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return path_below(home_folder(), ".abies/client.yml");
}

/* A ca_file without a leading '/' lies beside the client file: a site folder can be moved. */
static char *beside(const char *file, const char *name)
{
    if (!name || !*name)
        return NULL;
    const char *slash = strrchr(file, '/');
    if (name[0] == '/' || !slash)
        return strdup(name);
    struct ab_buf path = {0};
    ab_buf_add(&path, file, (size_t)(slash - file) + 1);
    ab_buf_str(&path, name);
    return ab_buf_take(&path);
}

/* https everywhere; plain http only where the packets do not leave the machine. */
static int check_root(const char *path, const char *root, struct ab_error *err)
{
    static const char *const loopback[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

    if (!root)
        return ab_fail(err, AB_EINVAL,
                       "%s: api_root is missing; run `abies login --url https://HOST:8443`", path);
    if (ab_str_starts(root, "https://") && root[8])
        return 0;
    for (size_t i = 0; i < AB_COUNT(loopback); i++) {
        size_t n = strlen(loopback[i]);
        if (ab_str_starts(root, loopback[i]) && strchr(":/", root[n])) /* NUL is found as well */
            return 0;
    }
    return ab_fail(err, AB_EINVAL,
                   "%s: api_root %s must start with https:// (http:// only for this machine)", path,
                   root);
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static int read_texts(struct ab_client_file *out, const struct ab_yaml *map, struct ab_error *err)
{
    const char *root, *ca, *proxy, *token, *refresh, *expiry;

    if (ab_yaml_text(out->path, ab_yaml_get(map, "api_root"), NULL, &root, err) < 0
        || ab_yaml_text(out->path, ab_yaml_get(map, "ca_file"), NULL, &ca, err) < 0
        || ab_yaml_text(out->path, ab_yaml_get(map, "proxy"), NULL, &proxy, err) < 0
        || ab_yaml_text(out->path, ab_yaml_get(map, "token"), NULL, &token, err) < 0
        || ab_yaml_text(out->path, ab_yaml_get(map, "refresh_token"), NULL, &refresh, err) < 0
        || ab_yaml_text(out->path, ab_yaml_get(map, "token_expiry"), NULL, &expiry, err) < 0)
        return -1;
    if (check_root(out->path, root, err) < 0)
        return -1;
    if (expiry && *expiry && ab_time_parse(expiry, strlen(expiry), &out->token_expiry_us) < 0)
        return ab_fail(err, AB_EINVAL, "%s: token_expiry %s is not a time like 2031-05-04T09:18:00",
                       out->path, expiry);
    out->api_root = copy(root);
    for (size_t n = strlen(out->api_root); n > 0 && out->api_root[n - 1] == '/'; n--)
        out->api_root[n - 1] = '\0';
    out->ca_file = beside(out->path, ca);
    out->proxy = copy(proxy);
    out->token = copy(token);
    out->refresh_token = copy(refresh);
    return 0;
}

static int read_numbers(struct ab_client_file *out, const struct ab_yaml *map, struct ab_error *err)
{
    int64_t retries;

    if (ab_yaml_duration(out->path, ab_yaml_get(map, "connect_timeout"), 1000, CONNECT_TIMEOUT_MS,
                         &out->connect_timeout_ms, err)
            < 0
        || ab_yaml_duration(out->path, ab_yaml_get(map, "read_timeout"), 1000, READ_TIMEOUT_MS,
                            &out->read_timeout_ms, err)
               < 0
        || ab_yaml_int(out->path, ab_yaml_get(map, "retry_count"), 0, RETRY_MAX, RETRY_COUNT,
                       &retries, err)
               < 0)
        return -1;
    if (out->connect_timeout_ms <= 0 || out->read_timeout_ms <= 0)
        return ab_fail(err, AB_EINVAL, "%s: connect_timeout and read_timeout must be above zero",
                       out->path);
    out->retry_count = (int)retries;
    return 0;
}

static int load(struct ab_client_file *out, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();

    if (access(out->path, F_OK) < 0)
        return ab_fail(err, AB_ENOENT,
                       "there is no client file %s; run `abies up` for a centre on this machine "
                       "or `abies login` for another",
                       out->path);
    if (ab_file_private(out->path, err) < 0)
        return -1;
    const struct ab_yaml *map = ab_yaml_load(arena, out->path, err);
    if (!map || ab_yaml_only(out->path, map, known_keys, AB_COUNT(known_keys), err) < 0)
        return -1;
    return read_texts(out, map, err) < 0 ? -1 : read_numbers(out, map, err);
}

int ab_client_file_load_path(struct ab_client_file *out, const char *path, struct ab_error *err)
{
    *out = (struct ab_client_file){.path = strdup(path)};
    if (load(out, err) < 0) {
        ab_client_file_free(out);
        return -1;
    }
    return 0;
}

int ab_client_file_load(struct ab_client_file *out, const char *site, struct ab_error *err)
{
    AB_AUTO(ab_free) char *path = find_file(site);
    return ab_client_file_load_path(out, path, err);
}

static void add_text(struct ab_buf *out, const char *key, const char *value)
{
    if (!value)
        return;
    ab_buf_printf(out, "%s: ", key);
    ab_yaml_scalar(out, value);
    ab_buf_str(out, "\n");
}

int ab_client_file_save(const struct ab_client_file *file, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    add_text(&text, "api_root", file->api_root);
    add_text(&text, "ca_file", file->ca_file);
    add_text(&text, "proxy", file->proxy);
    add_text(&text, "token", file->token);
    if (file->token_expiry_us) {
        char when[AB_TIME_TEXT];
        ab_time_format(file->token_expiry_us, false, when);
        add_text(&text, "token_expiry", when);
    }
    add_text(&text, "refresh_token", file->refresh_token);
    ab_buf_printf(&text, "connect_timeout: %gs\nread_timeout: %gs\nretry_count: %d\n",
                  (double)file->connect_timeout_ms / 1e3, (double)file->read_timeout_ms / 1e3,
                  file->retry_count);
    if (text.failed)
        return ab_fail(err, AB_EINTERNAL, "%s: no memory to write it", file->path);
    return ab_file_write(file->path, text.data, text.len, 0600, err);
}

void ab_client_file_free(struct ab_client_file *file)
{
    free(file->path);
    free(file->api_root);
    free(file->ca_file);
    free(file->proxy);
    free(file->token);
    free(file->refresh_token);
    *file = (struct ab_client_file){0};
}
