/* local.c - locations on this machine's file systems: local://localhost/data, file://localhost/data
 */
#include "base/cleanup.h"
#include "copy.h"
#include "sitedir/workdir.h"
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(const struct transfer_url *url, struct ab_error *err)
{
    char name[256] = "";

    (void)gethostname(name, sizeof(name) - 1);
    if (*url->host && strcmp(url->host, "localhost") != 0 && strcmp(url->host, name) != 0)
        return ab_fail(err, AB_EINVAL, "%s://%s is not this machine; use rsync://%s%s", url->scheme,
                       url->host, url->host, url->path);
    return 0;
}

static int open_location(const struct transfer_task *task, struct ab_error *err)
{
    int fd = open(task->url.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? ab_fail_errno(err, AB_ENOENT, "the location's folder %s", task->url.path) : fd;
}

static int move_item(const struct transfer_task *task, struct transfer_item *item,
                     struct ab_error *err)
{
    const char *local, *remote = transfer_remote(item, err);
    AB_AUTO(ab_close) int workdir = remote ? transfer_local_end(task, item, &local, err) : -1;
    AB_AUTO(ab_close) int location = workdir < 0 ? -1 : open_location(task, err);

    if (location < 0)
        return -1;
    struct copy copy = {
        .from = task->out ? workdir : location,
        .to = task->out ? location : workdir,
        .recursive = item->recursive,
        .tag = item->id,
    };
    int rc =
        task->out ? copy_path(&copy, local, remote, err) : copy_path(&copy, remote, local, err);
    item->bytes = copy.bytes;
    return rc;
}

static void move(struct transfer_task *task)
{
    for (size_t i = 0; i < task->n; i++) {
        struct ab_error err = {0};
        task->items[i].done = move_item(task, &task->items[i], &err) == 0;
        if (!task->items[i].done)
            transfer_fail(task, &task->items[i], "%s", err.text);
    }
}

static const char *const schemes[] = {"local", "file", NULL};
const struct transfer_kind transfer_local = {"local", schemes, check, move};
