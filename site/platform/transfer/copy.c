/* copy.c - see copy.h */
#include "copy.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "beneath.h"
#include "sitedir/workdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 64
#define PIECE ((size_t)8 << 20)

static int open_source(const struct copy *self, const char *path, struct stat *st,
                       struct ab_error *err)
{
    /* NONBLOCK: a FIFO must not hold us */
    AB_AUTO(ab_close) int fd = beneath_open(self->from, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return ab_fail(err, AB_EDENIED, "%s is a link that leads out of its folder", path);
    if (fd < 0 || fstat(fd, st) < 0)
        return ab_fail_errno(err, errno == ENOENT ? AB_ENOENT : AB_EINVAL, "cannot read %s", path);
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return ab_fail(err, AB_EINVAL, "%s is neither a file nor a folder", path);
    return AB_TAKE_FD(fd);
}

/* ------------------------------------------------------------------ one file */

static int copy_by_hand(int in, int out)
{
    enum {
        SIZE = 1 << 18
    };
    AB_AUTO(ab_free) char *buf = malloc(SIZE);
    ssize_t n;

    while ((n = read(in, buf, SIZE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        for (ssize_t at = 0; at < n;) {
            ssize_t put = write(out, buf + at, (size_t)(n - at));
            if (put < 0 && errno != EINTR)
                return -1;
            at += put > 0 ? put : 0;
        }
    }
    return 0;
}

static int copy_data(int in, int out)
{
    for (;;) {
        ssize_t n = copy_file_range(in, NULL, out, NULL, PIECE, 0);
        if (n > 0 || (n < 0 && errno == EINTR))
            continue;
        /* 0 is the end of a file, or a file of /proc and the like that only read() can read; and
         * not every pair of file systems can do it. Both offsets stand where copying by hand goes
         * on. */
        return n == 0 || errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP
                   ? copy_by_hand(in, out)
                   : -1;
    }
}

static int copy_file(struct copy *self, int in, const struct stat *st, const char *target,
                     struct ab_error *err)
{
    const char *last;
    char part[64];
    AB_AUTO(ab_close) int folder = ab_open_parent(self->to, target, true, &last, err);

    if (folder < 0)
        return -1;
    snprintf(part, sizeof(part), ".abies-%" PRId64 "-%d.part", self->tag, (int)getpid());
    AB_AUTO(ab_close)
    int out = openat(folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return ab_fail_errno(err, AB_EINVAL, "cannot make %s", target);
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (copy_data(in, out) < 0 || fchmod(out, st->st_mode & 0777) < 0 || futimens(out, times) < 0
        || fsync(out) < 0 || renameat(folder, part, folder, last) < 0) {
        ab_fail_errno(err, AB_EINVAL, "cannot write %s", target);
        (void)unlinkat(folder, part, 0);
        return -1;
    }
    self->bytes += st->st_size;
    return 0;
}

/* ------------------------------------------------------------------ trees */

static int copy_any(struct copy *self, const char *source, const char *target, int depth,
                    struct ab_error *err);

static int copy_entry(struct copy *self, const char *source, const char *target, const char *name,
                      int depth, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf from = {0}, to = {0};

    ab_buf_printf(&from, "%s/%s", source, name);
    ab_buf_printf(&to, "%s/%s", target, name);
    return copy_any(self, from.data, to.data, depth + 1, err);
}

static void close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

static int copy_folder(struct copy *self, int fd, const char *source, const char *target, int depth,
                       struct ab_error *err)
{
    AB_AUTO(ab_close) int made = ab_open_below(self->to, target, true, err);
    AB_AUTO(close_dir) DIR *dir = made < 0 ? NULL : fdopendir(dup(fd));

    if (made < 0)
        return -1;
    if (!dir)
        return ab_fail_errno(err, AB_EINVAL, "cannot list %s", source);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (copy_entry(self, source, target, entry->d_name, depth, err) < 0)
            return -1;
    }
    return 0;
}

static int copy_any(struct copy *self, const char *source, const char *target, int depth,
                    struct ab_error *err)
{
    struct stat st;
    AB_AUTO(ab_close) int fd = open_source(self, source, &st, err);

    if (fd < 0)
        return -1;
    if (S_ISREG(st.st_mode))
        return copy_file(self, fd, &st, target, err);
    if (!self->recursive)
        return ab_fail(err, AB_EINVAL, "%s is a folder; the transfer slot needs `recursive: true`",
                       source);
    if (depth >= DEPTH_MAX)
        return ab_fail(err, AB_EINVAL,
                       "%s is nested deeper than %d folders, or a link leads round in a circle",
                       source, DEPTH_MAX);
    return copy_folder(self, fd, source, target, depth, err);
}

int copy_path(struct copy *self, const char *source, const char *target, struct ab_error *err)
{
    return copy_any(self, source, target, 0, err);
}
