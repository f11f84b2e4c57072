/* workdir.c - folders below data/, opened step by step without following links */
#include "workdir.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/* One step down. A folder that another process makes at the same moment is as good. */
static int step(int folder, const char *name, bool create, const char *whole, struct ab_error *err)
{
    int fd = openat(folder, name, FOLDER);
    if (fd < 0 && errno == ENOENT && create) {
        if (mkdirat(folder, name, 0755) < 0 && errno != EEXIST)
            return ab_fail_errno(err, ab_errno_code(errno), "cannot make folder %s of %s", name,
                                 whole);
        fd = openat(folder, name, FOLDER);
    }
    if (fd >= 0)
        return fd;
    if (errno == ELOOP || errno == ENOTDIR)
        return ab_fail(err, AB_EDENIED,
                       "%s: %s is a symbolic link or no folder; links are not followed below data/",
                       whole, name);
    return ab_fail_errno(err, errno == ENOENT ? AB_ENOENT : ab_errno_code(errno),
                         "cannot open %s of %s", name, whole);
}

int ab_open_below(int folder, const char *name, bool create, struct ab_error *err)
{
    char part[NAME_MAX + 1];

    if (!ab_path_stays_below(name))
        return ab_fail(err, AB_EINVAL, "%s leaves its folder: it must be relative, without `..`",
                       name);
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    if (at < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot open %s", name);
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "/");
        if (n > NAME_MAX) {
            close(at);
            return ab_fail(err, AB_EINVAL, "a part of %s is longer than %d bytes", name, NAME_MAX);
        }
        if (n > 0 && !(n == 1 && *p == '.')) {
            memcpy(part, p, n);
            part[n] = '\0';
            int next = step(at, part, create, name, err);
            close(at);
            if (next < 0)
                return -1;
            at = next;
        }
        p += n + (p[n] == '/');
    }
    return at;
}

int ab_open_parent(int folder, const char *name, bool create, const char **last,
                   struct ab_error *err)
{
    size_t len = strlen(name);

    while (len > 0 && name[len - 1] == '/')
        len--;
    const char *slash = memrchr(name, '/', len);
    *last = slash ? slash + 1 : name;
    if (!ab_path_stays_below(name) || name[len] || strcmp(*last, ".") == 0)
        return ab_fail(err, AB_EINVAL, "%s is not the name of a file below its folder", name);
    AB_AUTO(ab_free) char *parent = slash ? strndup(name, (size_t)(slash - name)) : strdup(".");
    return ab_open_below(folder, parent, create, err);
}

int ab_workdir_open(const struct ab_site *site, const char *workdir, bool create, char **path,
                    struct ab_error *err)
{
    AB_AUTO(ab_free) char *data = ab_site_path(site, "data");

    if (strspn(workdir, "./") == strlen(workdir))
        return ab_fail(err, AB_EINVAL, "the work directory `%s` is not a folder of its own",
                       workdir);
    if (create && mkdir(data, 0755) < 0 && errno != EEXIST)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make %s", data);
    /* data itself may be a link to scratch: it is the user's own, and not named by the API */
    AB_AUTO(ab_close) int root = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot open %s", data);
    int fd = ab_open_below(root, workdir, create, err);
    if (fd < 0)
        return ab_fail_within(err, "work directory");
    if (path) {
        struct ab_buf text = {0};
        ab_buf_printf(&text, "%s/%s", data, workdir);
        *path = ab_buf_take(&text);
    }
    return fd;
}
