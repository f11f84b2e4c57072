/* cluster.c - the private PostgreSQL of a centre */
#include "cluster.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include "secrets.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INITDB_LIMIT_MS 120000
#define SOCKET_DIR_MAX                                                                             \
    88 /* a socket's name has 107 bytes: this, "/.s.PGSQL.5432.lock", and some air */
#define DEBIAN_ROOT "/usr/lib/postgresql"

static unsigned hash(const char *text)
{
    unsigned h = 2166136261u; /* FNV-1a: only to tell folders apart */
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

/* "15" of <data>/PG_VERSION; "" if there is none. */
static const char *data_version(const struct centre *self, const char *data)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *path = ab_printf(self->arena, "%s/PG_VERSION", data);
    if (ab_file_read(path, 64, &text, NULL) < 0 || text.len == 0)
        return "";
    return ab_strndup(self->arena, text.data, strcspn(text.data, "\r\n"));
}

static bool has_programs(const struct centre *self, const char *dir)
{
    return access(ab_printf(self->arena, "%s/postgres", dir), X_OK) == 0
           && access(ab_printf(self->arena, "%s/initdb", dir), X_OK) == 0;
}

static const char *newest_debian(const struct centre *self)
{
    int64_t best = 0, n;
    DIR *dir = opendir(DEBIAN_ROOT);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (ab_parse_i64(e->d_name, strlen(e->d_name), 12, 1000, &n) == 0 && n > best
            && has_programs(self, ab_printf(self->arena, DEBIAN_ROOT "/%s/bin", e->d_name)))
            best = n;
    if (dir)
        closedir(dir);
    return best ? ab_printf(self->arena, DEBIAN_ROOT "/%d/bin", (int)best) : NULL;
}

static const char *in_path(const struct centre *self)
{
    char *rest = ab_strdup(self->arena, getenv("PATH") ? getenv("PATH") : ""), *dir;
    while ((dir = strsep(&rest, ":")))
        if (*dir == '/' && has_programs(self, dir))
            return dir;
    return NULL;
}

/* The version that made the data, else the newest. */
static const char *find_programs(const struct centre *self, const char *data, struct ab_error *err)
{
    const char *version = data_version(self, data);
    const char *bin = *version ? ab_printf(self->arena, DEBIAN_ROOT "/%s/bin", version) : NULL;
    if (bin && has_programs(self, bin))
        return bin;
    bin = newest_debian(self);
    if (!bin)
        bin = in_path(self);
    if (!bin)
        ab_fail(err, AB_ENOENT,
                "no PostgreSQL server found (postgres and initdb): install package postgresql");
    else if (*version && !strstr(bin, version)) {
        ab_fail(err, AB_EINVAL,
                "`%s` was made by PostgreSQL %s, which is not installed: install postgresql-%s",
                data, version, version);
        return NULL;
    }
    return bin;
}

static bool works(const char *const *argv)
{
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1};
    int status = -1;
    return ab_run_command(&what, 10000, NULL, &status, NULL) == 0 && ab_exit_code(status) == 0;
}

/* As root: a namespace in which we have the number of a user that is in passwd (initdb looks). */
static int choose_user(const struct centre *self, struct cluster *out, struct ab_error *err)
{
    if (geteuid() != 0)
        return 0;
    const struct passwd *pw = getpwnam("postgres");
    if (!pw)
        pw = getpwnam("nobody");
    if (!pw)
        return ab_fail(err, AB_ENOENT,
                       "PostgreSQL refuses root, and there is no user `postgres` to run it as");
    const char *map = ab_printf(self->arena, "--map-user=%ld", (long)pw->pw_uid);
    const char *uid = ab_printf(self->arena, "--reuid=%ld", (long)pw->pw_uid);
    const char *gid = ab_printf(self->arena, "--regid=%ld", (long)pw->pw_gid);
    const char *test[] = {"unshare", "--user", map, "--", "true", NULL};
    if (works(test)) {
        memcpy(out->prefix, (const char *[]){"unshare", "--user", map, "--", NULL},
               5 * sizeof(char *));
        return 0;
    }
    memcpy(out->prefix, (const char *[]){"setpriv", uid, gid, "--clear-groups", "--", NULL},
           6 * sizeof(char *));
    out->elsewhere = true;
    out->uid = pw->pw_uid;
    out->gid = pw->pw_gid;
    const char *root = ab_printf(self->arena, "/var/tmp/abies-%08x", hash(self->home));
    struct stat st;
    if (mkdir(root, 0700) < 0 && errno != EEXIST)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make folder `%s`", root);
    if (lstat(root, &st) < 0 || !S_ISDIR(st.st_mode) || (st.st_uid != 0 && st.st_uid != pw->pw_uid))
        return ab_fail(err, AB_EDENIED, "`%s` belongs to somebody else", root);
    if (chown(root, pw->pw_uid, pw->pw_gid) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot give `%s` to user %s", root, pw->pw_name);
    out->data = ab_printf(self->arena, "%s/pg", root);
    out->socket_dir = root;
    (void)symlink(out->data,
                  centre_path(self, "pg")); /* so that the folder shows where its data is */
    return 0;
}

/* A folder for the socket that is ours and nobody else's. */
static int private_dir(const char *path, struct ab_error *err)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make folder `%s`", path);
    if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()
        || (st.st_mode & 077))
        return ab_fail(err, AB_EDENIED, "`%s` is not a private folder of ours: remove it", path);
    return 0;
}

static int choose_socket_dir(const struct centre *self, struct cluster *out, struct ab_error *err)
{
    if (out->socket_dir)
        return 0;
    out->socket_dir = centre_path(self, "run");
    if (strlen(out->socket_dir) <= SOCKET_DIR_MAX)
        return 0;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!runtime || *runtime != '/' || strlen(runtime) + 20 > SOCKET_DIR_MAX
        || access(runtime, W_OK) < 0)
        runtime = "/tmp";
    out->socket_dir =
        ab_printf(self->arena, "%s/abies-%ld-%08x", runtime, (long)geteuid(), hash(self->home));
    return private_dir(out->socket_dir, err);
}

int cluster_find(const struct centre *self, struct cluster *out, struct ab_error *err)
{
    *out = (struct cluster){.data = centre_path(self, "pg")};
    if (choose_user(self, out, err) < 0 || choose_socket_dir(self, out, err) < 0)
        return -1;
    out->bin = find_programs(self, out->data, err);
    return out->bin ? 0 : -1;
}

static const char **with_prefix(const struct centre *self, const struct cluster *cluster,
                                const char *const *words)
{
    size_t n = 0, total = 1;
    for (const char *const *p = cluster->prefix; *p; p++)
        total++;
    for (const char *const *p = words; *p; p++)
        total++;
    const char **argv = ab_alloc(self->arena, total, sizeof(*argv));
    for (const char *const *p = cluster->prefix; *p; p++)
        argv[n++] = *p;
    for (const char *const *p = words; *p; p++)
        argv[n++] = *p;
    return argv;
}

/* One of PostgreSQL's programs to its end; `in` is its standard input or -1. */
static int run(const struct centre *self, const struct cluster *cluster, const char *const *words,
               int in, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 16384};
    struct ab_spawn what = {
        .argv = with_prefix(self, cluster, words), .cwd = "/", .in = in, .out = -1, .err = -1};
    int status = 0;
    if (ab_run_command(&what, INITDB_LIMIT_MS, &output, &status, err) < 0)
        return ab_fail_within(err, "%s", words[0]);
    if (ab_exit_code(status) == 0)
        return 0;
    /* the cause stands at the end */
    const char *text = output.data ? output.data : "";
    size_t len = strlen(text);
    return ab_fail(err, AB_EINTERNAL, "%s failed: %s", words[0],
                   len > 300 ? text + len - 300 : text);
}

/* A pipe's end from which the cluster's user can read `text`. */
static int pipe_with(const struct cluster *cluster, const char *text, struct ab_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "no pipe");
    ssize_t n = write(ends[1], text, strlen(text)); /* short: fits into the pipe */
    ab_close(&ends[1]);
    if (n == (ssize_t)strlen(text)
        && (!cluster->elsewhere || fchown(ends[0], cluster->uid, cluster->gid) == 0))
        return ends[0];
    ab_close(&ends[0]);
    return ab_fail(err, AB_EINTERNAL, "cannot write to a pipe");
}

int cluster_make(const struct centre *self, const struct cluster *cluster, struct ab_error *err)
{
    if (*data_version(self, cluster->data))
        return 0;
    const char *fresh = ab_printf(self->arena, "%s.new", cluster->data);
    const char *initdb = ab_printf(self->arena, "%s/initdb", cluster->bin);
    const char *postgres = ab_printf(self->arena, "%s/postgres", cluster->bin);
    /* the password comes by standard input: the file is ours alone, and the program may be another
     * user */
    const char *password = secret_read(self, "db-abies", err);
    if (!password || ab_remove_tree(fresh, err) < 0)
        return -1;
    AB_AUTO(ab_close) int in = pipe_with(cluster, ab_printf(self->arena, "%s\n", password), err);
    const char *init[] = {initdb,
                          "-D",
                          fresh,
                          "-U",
                          "abies",
                          "-A",
                          "scram-sha-256",
                          "--pwfile=/dev/stdin",
                          "-E",
                          "UTF8",
                          "--locale=C.UTF-8",
                          NULL};
    if (in < 0 || run(self, cluster, init, in, err) < 0)
        return -1;
    AB_AUTO(ab_close) int sql = pipe_with(cluster, "CREATE DATABASE abies;\n", err);
    const char *single[] = {postgres, "--single", "-D", fresh, "postgres", NULL};
    if (sql < 0 || run(self, cluster, single, sql, err) < 0)
        return -1;
    if (rename(fresh, cluster->data) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot put `%s` in place", cluster->data);
    return 0;
}

static int64_t memory_mb(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) >> 20;
}

static int connections(const struct centre *self)
{
    int replicas = 0, workers = 4;
    int64_t n;
    for (size_t i = 0; i < self->n_settings; i++)
        if (strcmp(self->settings[i].name, "workers") == 0
            && ab_parse_i64(self->settings[i].value, strlen(self->settings[i].value), 1, 1000, &n)
                   == 0)
            workers = (int)n;
    for (int i = 0; i < ROLES; i++)
        replicas += self->replicas[i];
    /* twice: while a replica restarts the server may not have noticed yet that its connections are
     * gone */
    return 20 + 2 * replicas * (workers + 1);
}

int cluster_configure(const struct centre *self, const struct cluster *cluster,
                      struct ab_error *err)
{
    static const char include[] = "include_if_exists = 'abies.conf'\n";
    AB_AUTO(ab_buf_free) struct ab_buf main_file = {0};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const char *main_path = ab_printf(self->arena, "%s/postgresql.conf", cluster->data);
    const char *own_path = ab_printf(self->arena, "%s/abies.conf", cluster->data);
    if (ab_file_read(main_path, 1 << 20, &main_file, err) < 0)
        return -1;
    int64_t buffers = memory_mb() / 16;
    buffers = buffers < 64 ? 64 : buffers > 1024 ? 1024 : buffers;
    ab_buf_printf(
        &out, "# Written by `abies up` at each start; own changes belong into postgresql.conf, "
              "below the include.\n"
              "listen_addresses = ''\nunix_socket_permissions = 0700\nunix_socket_directories = '");
    for (const char *p = cluster->socket_dir; *p; p++)
        ab_buf_printf(&out, *p == '\'' ? "''" : "%c", *p);
    ab_buf_printf(
        &out,
        "'\ncluster_name = 'abies'\nmax_connections = %d\nshared_buffers = %dMB\nwork_mem = 8MB\n"
        "maintenance_work_mem = 64MB\nmax_wal_size = 2GB\ncheckpoint_timeout = 15min\n"
        "password_encryption = scram-sha-256\ntimezone = 'UTC'\nlog_timezone = 'UTC'\n"
        "logging_collector = off\nlog_destination = stderr\nlog_line_prefix = '%%m [%%p] %%a '\n"
        "log_min_duration_statement = 1s\nautovacuum_naptime = 10s\njit = off\n",
        connections(self), (int)buffers);
    if (out.failed)
        return ab_fail(err, AB_EINTERNAL, "no memory to configure PostgreSQL");
    /* written in place by O_TRUNC would lose its owner: these files may belong to user postgres */
    struct stat st;
    if (stat(main_path, &st) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot read `%s`", main_path);
    if (ab_file_write(own_path, out.data, out.len, 0600, err) < 0)
        return -1;
    if (!strstr(main_file.data, include)) {
        ab_buf_printf(&main_file, "\n%s", include);
        if (ab_file_write(main_path, main_file.data, main_file.len, 0600, err) < 0)
            return -1;
    }
    if (chown(own_path, st.st_uid, st.st_gid) < 0 || chown(main_path, st.st_uid, st.st_gid) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot give `%s` to PostgreSQL's user", own_path);
    return 0;
}

const char **cluster_argv(const struct centre *self, const struct cluster *cluster)
{
    const char *words[] = {ab_printf(self->arena, "%s/postgres", cluster->bin), "-D", cluster->data,
                           NULL};
    return with_prefix(self, cluster, words);
}

pid_t cluster_pid(const struct centre *self, bool *ready)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    int64_t pid = 0;
    *ready = false;
    if (ab_file_read(centre_path(self, "pg/postmaster.pid"), 8192, &text, NULL) < 0)
        return 0;
    char *rest = text.data, *line;
    for (int i = 1; (line = strsep(&rest, "\n")); i++) {
        if (i == 1 && ab_parse_i64(line, strlen(line), 2, INT32_MAX, &pid) < 0)
            return 0;
        if (i == 8)
            *ready = ab_str_starts(line, "ready");
    }
    return ab_pid_start_time((pid_t)pid) ? (pid_t)pid : 0;
}
