/* centre.c - the folder of a centre and its centre.yml */
#include "centre.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "yaml/yaml.h"
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const centre_roles[ROLES] = {"auth", "jobs", "sessions", "transfers"};

static const char *const folders[] = {"secrets", "curve", "tls", "log", "run"};

/* What `up` decides itself: a setting of that name would be overruled without a word. */
static const char *const own_settings[] = {
    "listen",   "bus_listen", "hint_listen",   "gateways",     "curve_dir", "database_url",
    "run_file", "tls_cert",   "health_listen", "database_url", "tls_key",   "seal_key",
};

static const char *default_home(ab_arena_t *arena)
{
    const char *home = getenv("HOME");
    if (!home || !*home) {
        const struct passwd *pw = getpwuid(geteuid());
        home = pw ? pw->pw_dir : "/";
    }
    return ab_printf(arena, "%s/.abies/centre", home);
}

static const char *find_home(ab_arena_t *arena, const char *given, struct ab_error *err)
{
    const char *variable = getenv("ABIES_HOME");
    const char *home = given ? given : variable && *variable ? variable : default_home(arena);
    char cwd[PATH_MAX];
    if (*home != '/') {
        if (!getcwd(cwd, sizeof(cwd))) {
            ab_fail_errno(err, AB_EINTERNAL, "cannot tell where we are");
            return NULL;
        }
        home = ab_printf(arena, "%s/%s", cwd, home);
    }
    size_t len = strlen(home);
    while (len > 1 && home[len - 1] == '/')
        len--;
    if (len > 3000) {
        ab_fail(err, AB_EINVAL, "the path of the centre's folder (ABIES_HOME) is too long");
        return NULL;
    }
    return ab_strndup(arena, home, len);
}

const char *centre_path(const struct centre *self, const char *name)
{
    return ab_printf(self->arena, "%s/%s", self->home, name);
}

const char *centre_url(const struct centre *self)
{
    bool any = strcmp(self->host, "0.0.0.0") == 0 || strcmp(self->host, "::") == 0;
    return ab_printf(self->arena, "https://%s:%d", any ? "127.0.0.1" : self->host, self->port);
}

bool centre_exists(const struct centre *self)
{
    return access(centre_path(self, "centre.yml"), F_OK) == 0;
}

static int add_setting(struct centre *self, const char *name, const char *value,
                       struct ab_error *err)
{
    for (size_t i = 0; i < AB_COUNT(own_settings); i++)
        if (strcmp(name, own_settings[i]) == 0)
            return ab_fail(err, AB_EINVAL,
                           "setting `%s` is made by `abies up` itself; see its options --host, "
                           "--port, --gateways",
                           name);
    size_t at = 0;
    while (at < self->n_settings && strcmp(self->settings[at].name, name) != 0)
        at++;
    if (at < self->n_settings && strcmp(self->settings[at].value, value) == 0)
        return 0;
    if (at == self->n_settings && !*value)
        return 0;
    struct centre_setting *list = ab_alloc(self->arena, self->n_settings + 1, sizeof(*list));
    if (self->n_settings > 0)
        memcpy(list, self->settings, self->n_settings * sizeof(*list));
    list[at] = (struct centre_setting){ab_strdup(self->arena, name), ab_strdup(self->arena, value)};
    self->n_settings += at == self->n_settings;
    if (!*value) { /* forget it */
        memmove(list + at, list + at + 1, (self->n_settings - at - 1) * sizeof(*list));
        self->n_settings--;
    }
    self->settings = list;
    self->changed = true;
    return 0;
}

int centre_set(struct centre *self, const char *text, struct ab_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return ab_fail(err, AB_EINVAL, "--set takes NAME=VALUE, not `%.80s`", text);
    char *name = ab_strndup(self->arena, text, (size_t)(equals - text));
    for (char *p = name; *p; p++)
        if (*p == '-')
            *p = '_';
    return add_setting(self, name, equals + 1, err);
}

static int set_replicas_of(struct centre *self, const char *role, int64_t n, struct ab_error *err)
{
    for (int i = 0; i < ROLES; i++) {
        if (strcmp(role, centre_roles[i]) != 0)
            continue;
        if (n < 1 || n > REPLICAS_MAX)
            return ab_fail(err, AB_EINVAL, "replicas of %s: from 1 to %d are possible", role,
                           REPLICAS_MAX);
        self->changed |= self->replicas[i] != (int)n;
        self->replicas[i] = (int)n;
        return 0;
    }
    const char *near = ab_str_nearest(role, centre_roles, ROLES);
    return ab_fail(err, AB_EINVAL, "there is no service `%.40s`%s%s%s", role,
                   near ? "; did you mean `" : "",
                   near ? near : "; they are auth, jobs, sessions and transfers", near ? "`?" : "");
}

int centre_set_replicas(struct centre *self, const char *text, struct ab_error *err)
{
    char *rest = ab_strdup(self->arena, text), *word;
    while ((word = strsep(&rest, ","))) {
        char *equals = strchr(word, '=');
        int64_t n;
        if (!equals || ab_parse_i64(equals + 1, strlen(equals + 1), 0, 1000, &n) < 0)
            return ab_fail(err, AB_EINVAL, "--replicas takes SERVICE=NUMBER,..., not `%.80s`",
                           text);
        *equals = '\0';
        if (set_replicas_of(self, word, n, err) < 0)
            return -1;
    }
    return 0;
}

int centre_set_gateways(struct centre *self, int64_t n, struct ab_error *err)
{
    if (n < 1 || n > GATEWAYS_MAX)
        return ab_fail(err, AB_EINVAL, "--gateways: from 1 to %d are possible", GATEWAYS_MAX);
    self->changed |= self->gateways != (int)n;
    self->gateways = (int)n;
    return 0;
}

static int read_maps(struct centre *self, const char *file, const struct ab_yaml *y,
                     struct ab_error *err)
{
    const struct ab_yaml *replicas = ab_yaml_get(y, "replicas"),
                         *settings = ab_yaml_get(y, "settings");
    const struct ab_yaml *ports = ab_yaml_get(y, "bus_ports");
    int64_t n;
    if (ab_yaml_only(file, replicas, centre_roles, ROLES, err) < 0)
        return -1;
    for (int i = 0; i < ROLES; i++) {
        if (ab_yaml_int(file, ab_yaml_get(replicas, centre_roles[i]), 1, REPLICAS_MAX, 1, &n, err)
            < 0)
            return -1;
        self->replicas[i] = (int)n;
    }
    for (size_t i = 0; ports && ports->type == AB_Y_LIST && i < ports->n && i < GATEWAYS_MAX; i++) {
        if (ab_yaml_int(file, &ports->items[i], 0, 65534, 0, &n, err) < 0)
            return -1;
        self->bus_ports[i] = (int)n;
    }
    if (settings && settings->type != AB_Y_MAP && settings->type != AB_Y_NULL)
        return ab_fail(err, AB_EINVAL, "%s:%d: settings is a map of NAME: VALUE", file,
                       settings->line);
    for (size_t i = 0; settings && i < settings->n; i++) {
        const char *value;
        if (ab_yaml_text(file, &settings->items[i], "", &value, err) < 0
            || add_setting(self, settings->keys[i], value, err) < 0)
            return -1;
    }
    return 0;
}

static int read_file(struct centre *self, struct ab_error *err)
{
    static const char *const keys[] = {"host",      "port",     "gateways",
                                       "bus_ports", "replicas", "settings"};
    const char *file = "centre.yml";
    const struct ab_yaml *y = ab_yaml_load(self->arena, centre_path(self, file), err);
    int64_t port, gateways;
    if (!y || ab_yaml_only(file, y, keys, AB_COUNT(keys), err) < 0
        || ab_yaml_text(file, ab_yaml_get(y, "host"), self->host, &self->host, err) < 0
        || ab_yaml_int(file, ab_yaml_get(y, "port"), 0, 65535, self->port, &port, err) < 0
        || ab_yaml_int(file, ab_yaml_get(y, "gateways"), 1, GATEWAYS_MAX, 1, &gateways, err) < 0
        || read_maps(self, file, y, err) < 0)
        return ab_fail_within(err, "%s", self->home);
    self->port = (int)port;
    self->gateways = (int)gateways;
    self->changed = false;
    return 0;
}

struct centre *centre_load(const char *home, struct ab_error *err)
{
    ab_arena_t *arena = ab_arena_new();
    struct centre *self = ab_alloc(arena, 1, sizeof(*self));
    *self = (struct centre){
        .arena = arena, .host = "127.0.0.1", .port = 8443, .gateways = 1, .bus_ports = {7440}};
    for (int i = 0; i < ROLES; i++)
        self->replicas[i] = 1;
    self->home = find_home(arena, home, err);
    if (!self->home || (centre_exists(self) && read_file(self, err) < 0))
        centre_destroy(&self);
    return self;
}

void centre_destroy(struct centre **self_p)
{
    if (!*self_p)
        return;
    ab_arena_t *arena = (*self_p)->arena; /* the struct lies in it */
    ab_arena_destroy(&arena);
    *self_p = NULL;
}

int centre_make_folders(struct centre *self, struct ab_error *err)
{
    struct stat st;
    if (ab_mkdirs(self->home, 0700, err) < 0)
        return -1;
    if (stat(self->home, &st) < 0 || st.st_uid != geteuid())
        return ab_fail(err, AB_EDENIED,
                       "`%s` belongs to another user: set ABIES_HOME to a folder of your own",
                       self->home);
    if ((st.st_mode & 077) && chmod(self->home, 0700) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make `%s` private", self->home);
    for (size_t i = 0; i < AB_COUNT(folders); i++)
        if (ab_mkdirs(centre_path(self, folders[i]), 0700, err) < 0)
            return -1;
    return 0;
}

int centre_save(struct centre *self, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_str(
        &out,
        "# A centre on this machine. `abies up` rewrites this file when it is told something new\n"
        "# (--host, --port, --gateways, --replicas, --set) or when a port was taken.\nhost: ");
    ab_yaml_scalar(&out, self->host);
    ab_buf_printf(&out, "\nport: %d\ngateways: %d\nbus_ports: [", self->port, self->gateways);
    for (int i = 0; i < self->gateways; i++)
        ab_buf_printf(&out, "%s%d", i ? ", " : "", self->bus_ports[i]);
    ab_buf_str(&out, "]\nreplicas: {");
    for (int i = 0; i < ROLES; i++)
        ab_buf_printf(&out, "%s%s: %d", i ? ", " : "", centre_roles[i], self->replicas[i]);
    ab_buf_str(&out, "}\nsettings:\n");
    for (size_t i = 0; i < self->n_settings; i++) {
        ab_buf_str(&out, "  ");
        ab_yaml_scalar(&out, self->settings[i].name);
        ab_buf_str(&out, ": ");
        ab_yaml_scalar(&out, self->settings[i].value);
        ab_buf_char(&out, '\n');
    }
    if (out.failed)
        return ab_fail(err, AB_EINTERNAL, "no memory to write centre.yml");
    if (ab_file_write(centre_path(self, "centre.yml"), out.data, out.len, 0600, err) < 0)
        return -1;
    self->changed = false;
    return 0;
}
