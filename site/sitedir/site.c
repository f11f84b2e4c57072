/* site.c - find a site's folder, and the folder of its sockets */
#include "site.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOCKET_NAME_MAX                                                                            \
    60 /* left for the folder of 107 bytes: room for "/broker.sock" and more                       \
        */

static char *join(const char *folder, const char *name)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/%s", folder, name);
    return ab_buf_take(&path);
}

char *ab_site_path(const struct ab_site *self, const char *name)
{
    return join(self->path, name);
}

bool ab_process_runs(pid_t pid, uint64_t start)
{
    AB_AUTO(ab_close) int fd = ab_pidfd(pid);
    struct pollfd ended = {.fd = fd, .events = POLLIN};

    if (!start || ab_pid_start_time(pid) != start)
        return false;
    return fd < 0 || poll(&ended, 1, 0) == 0; /* a pidfd is readable from the zombie on */
}

static bool is_site(const char *folder)
{
    AB_AUTO(ab_free) char *file = join(folder, AB_SITE_FILE);
    return access(file, F_OK) == 0;
}

/* The nearest folder upwards; NULL if none. */
static char *search_upwards(void)
{
    char folder[PATH_MAX];

    if (!getcwd(folder, sizeof(folder)))
        return NULL;
    for (;;) {
        if (is_site(*folder ? folder : "/"))
            return strdup(*folder ? folder : "/");
        char *slash = strrchr(folder, '/');
        if (!slash)
            return NULL;
        *slash = '\0';
    }
}

static int read_id(struct ab_site *self, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(ab_free) char *file = join(self->path, AB_SITE_FILE);

    if (ab_file_read(file, 64, &text, err) < 0)
        return -1;
    size_t n = text.len;
    while (n > 0 && strchr(" \t\r\n", text.data[n - 1]))
        n--;
    if (ab_parse_i64(text.data ? text.data : "", n, 1, INT64_MAX, &self->id) < 0)
        return ab_fail(err, AB_EINVAL,
                       "%s does not hold a site id; was it made by `abies site init`?", file);
    return 0;
}

int ab_site_find(struct ab_site *out, const char *given, struct ab_error *err)
{
    const char *named = given ? given : getenv("ABIES_SITE_PATH");
    AB_AUTO(ab_free) char *found = named && *named ? strdup(named) : search_upwards();

    *out = (struct ab_site){0};
    if (!found)
        return ab_fail(err, AB_ENOENT,
                       "no site here or above; go into a site's folder, pass --site PATH, set "
                       "ABIES_SITE_PATH, or make one with `abies site init PATH`");
    out->path = realpath(found, NULL);
    if (!out->path)
        return ab_fail_errno(err, AB_ENOENT, "site folder %s", found);
    if (!is_site(out->path)) {
        ab_site_free(out);
        return ab_fail(err, AB_ENOENT,
                       "%s is not a site: it has no %s; make one with `abies site init`", found,
                       AB_SITE_FILE);
    }
    if (read_id(out, err) < 0) {
        ab_site_free(out);
        return -1;
    }
    return 0;
}

void ab_site_free(struct ab_site *self)
{
    free(self->path);
    *self = (struct ab_site){0};
}

/* /tmp is everybody's: the folder counts only if it is a real one, ours, and closed to others. */
static int private_dir(const char *path, struct ab_error *err)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make %s", path);
    if (lstat(path, &st) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot look at %s", path);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
        return ab_fail(err, AB_EDENIED,
                       "%s must be a folder of your own with mode 0700; remove it or set "
                       "XDG_RUNTIME_DIR to a private folder",
                       path);
    return 0;
}

static uint64_t name_of(const char *path)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: two centres may both have a site 1 */
    for (; *path; path++)
        hash = (hash ^ (unsigned char)*path) * UINT64_C(0x100000001b3);
    return hash;
}

char *ab_site_runtime_dir(const struct ab_site *self, struct ab_error *err)
{
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    AB_AUTO(ab_buf_free) struct ab_buf base = {0}, path = {0};

    if (xdg && xdg[0] == '/' && strlen(xdg) < SOCKET_NAME_MAX && access(xdg, W_OK | X_OK) == 0)
        ab_buf_printf(&base, "%s/abies", xdg);
    else
        ab_buf_printf(&base, "/tmp/abies-%ju", (uintmax_t)geteuid());
    ab_buf_printf(&path, "%s/%" PRId64 "-%08" PRIx64, base.data, self->id,
                  name_of(self->path) & 0xffffffff);
    if (private_dir(base.data, err) < 0 || private_dir(path.data, err) < 0)
        return NULL;
    return ab_buf_take(&path);
}
