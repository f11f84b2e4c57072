/* beneath.c - see beneath.h */
#include "beneath.h"
#include "sitedir/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_without_links(int folder, const char *path, int flags)
{
    const char *last;
    int parent = ab_open_parent(folder, path, false, &last, NULL);
    if (parent < 0)
        return -1;
    int fd = openat(parent, last, flags | O_NOFOLLOW);
    int why = errno;
    close(parent);
    errno = why;
    return fd;
}

int beneath_open(int folder, const char *path, int flags)
{
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };

    for (;;) {
        long fd = syscall(SYS_openat2, folder, path, &how, sizeof(how));
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS
            || errno == EPERM) /* old kernel, or a sandbox that does not know the call */
            return open_without_links(folder, path, flags | O_CLOEXEC);
        if (errno != EAGAIN && errno != EINTR) /* EAGAIN: a rename somewhere raced with it */
            return -1;
    }
}
