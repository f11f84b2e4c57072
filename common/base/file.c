/* file.c - whole files, written so that a crash leaves the old or the new one */
#include "file.h"

#include "cleanup.h"
#include "rand.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_DEPTH 200 /* a descriptor is open for each level */

/* What passes by itself or with an administrator's help is AB_EBUSY. */
static int io_code(int number)
{
    return ab_errno_code(number) == AB_EBUSY ? AB_EBUSY : AB_EINTERNAL;
}

int ab_file_read(const char *path, size_t limit, struct ab_buf *out, struct ab_error *err)
{
    AB_AUTO(ab_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return ab_fail_errno(err, errno == ENOENT ? AB_ENOENT : io_code(errno), "cannot read `%s`",
                             path);
    size_t start = out->len;
    for (;;) {
        char *to = ab_buf_room(out, 16384);
        if (!to) /* near the buffer's own limit */
            return ab_fail(err, AB_ETOOBIG, "`%s` is larger than can be read", path);
        ssize_t n = read(fd, to, 16384);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ab_fail_errno(err, io_code(errno), "cannot read `%s`", path);
        out->len += (size_t)n;
        out->data[out->len] = '\0';
        if (out->len - start > limit)
            return ab_fail(err, AB_ETOOBIG, "`%s` is larger than %zu bytes", path, limit);
        if (n == 0)
            return 0;
    }
}

static int write_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The folder of a path: "" becomes ".", "/x" becomes "/". */
static int folder_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    size_t len = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (len >= size)
        return -1;
    memcpy(out, slash ? path : ".", len);
    out[len] = '\0';
    return 0;
}

static int sync_folder(const char *folder)
{
    AB_AUTO(ab_close) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    return fsync(fd) < 0 && errno != EINVAL ? -1 : 0; /* EINVAL: a file system that cannot */
}

int ab_file_write(const char *path, const void *bytes, size_t len, mode_t mode,
                  struct ab_error *err)
{
    char folder[PATH_MAX], temporary[PATH_MAX + 32];
    uint8_t id[6];
    char hex[13];
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strlen(path) >= PATH_MAX || folder_of(path, folder, sizeof(folder)) < 0)
        return ab_fail(err, AB_EINVAL, "the path of `%s` is too long", base);
    ab_random(id, sizeof(id));
    ab_hex(id, sizeof(id), hex);
    snprintf(temporary, sizeof(temporary), "%.*s.%s.tmp", (int)strlen(path), path, hex);

    AB_AUTO(ab_close) int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return ab_fail_errno(err, io_code(errno), "cannot write in folder `%s`", folder);
    if (write_all(fd, bytes, len) < 0 || fchmod(fd, mode) < 0 || fsync(fd) < 0
        || rename(temporary, path) < 0) {
        ab_fail_errno(err, io_code(errno), "cannot write `%s`", path);
        (void)unlink(temporary);
        return -1;
    }
    if (sync_folder(folder) < 0)
        return ab_fail_errno(err, io_code(errno), "cannot sync folder `%s`", folder);
    return 0;
}

int ab_mkdirs(const char *path, mode_t mode, struct ab_error *err)
{
    char copy[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(copy))
        return ab_fail(err, AB_EINVAL, "cannot make folder `%.60s`: the path is empty or too long",
                       path);
    memcpy(copy, path, len + 1);
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char kept = *p;
        *p = '\0';
        if (mkdir(copy, mode) < 0) {
            /* a read-only parent may say EROFS or EACCES for a folder that is there */
            int number = errno;
            struct stat st;
            if (stat(copy, &st) < 0 || !S_ISDIR(st.st_mode)) {
                errno = number == EEXIST ? ENOTDIR : number;
                return ab_fail_errno(err, io_code(errno), "cannot make folder `%s`", copy);
            }
        }
        *p = kept;
        if (!kept)
            return 0;
    }
}

static int remove_below(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        ab_close(&fd);
        return -1;
    }
    int rc = 0;
    struct dirent *e;
    while (rc == 0 && (errno = 0, e = readdir(dir))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        struct stat st;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = errno == ENOENT ? 0 : -1;
        } else if (!S_ISDIR(st.st_mode)) {
            rc = unlinkat(fd, e->d_name, 0) < 0 && errno != ENOENT ? -1 : 0;
        } else if (depth == TREE_DEPTH) {
            errno = ELOOP;
            rc = -1;
        } else {
            rc = remove_below(fd, e->d_name, depth + 1);
        }
    }
    int number = errno;
    if (rc == 0 && number)
        rc = -1;
    closedir(dir);
    errno = number;
    if (rc == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        rc = -1;
    return rc;
}

int ab_remove_tree(const char *path, struct ab_error *err)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : ab_fail_errno(err, io_code(errno), "cannot remove `%s`", path);
    int rc = S_ISDIR(st.st_mode) ? remove_below(AT_FDCWD, path, 0) : unlink(path);
    return rc < 0 ? ab_fail_errno(err, io_code(errno), "cannot remove `%s`", path) : 0;
}

int ab_file_private(const char *path, struct ab_error *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return ab_fail_errno(err, errno == ENOENT ? AB_ENOENT : AB_EINTERNAL, "cannot read `%s`",
                             path);
    if (st.st_uid != geteuid())
        return ab_fail(err, AB_EDENIED, "`%s` holds a secret but belongs to another user (uid %ld)",
                       path, (long)st.st_uid);
    if (st.st_mode & 077)
        return ab_fail(err, AB_EDENIED,
                       "`%s` holds a secret but others may read it (mode %04o): chmod 600 it", path,
                       (unsigned)(st.st_mode & 07777));
    return 0;
}
