/* rsync.c - locations reached by ssh: rsync://user@host:port/base, where host may be an alias of
 * ssh_config
 *
 * Files of a task go in one rsync with a list. Coming in, they land in the task's spool folder
 * under their remote names and are then moved to their places; going out, the spool folder holds
 * them under their remote names (hard links, or copies). Folders take an rsync each. Argument
 * vectors throughout, and
 * --protect-args: no name is seen by a shell, here or there.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rand.h"
#include "base/spawn.h"
#include "base/str.h"
#include "beneath.h"
#include "copy.h"
#include "sitedir/workdir.h"
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IO_TIMEOUT_SEC 120
#define TIME_LIMIT_MS (INT64_C(24) * 3600 * 1000)
#define OUTPUT_MAX ((size_t)64 << 10)
#define WAIT_BASE_MS 1000
#define WAIT_CAP_MS 30000
#define ARGS_MAX 32

enum {
    PARTIAL = 23,
    VANISHED = 24
}; /* exit codes of rsync: some files */

struct run {
    struct transfer_task *task;
    char *stage;         /* <task>/stage, empty at the start */
    struct ab_buf shell; /* -e */
    struct ab_buf base;  /* [user@]host:path/ */
};

static int check(const struct transfer_url *url, struct ab_error *err)
{
    if (!*url->host)
        return ab_fail(err, AB_EINVAL, "an rsync location needs a host: rsync://user@host/path");
    return 0;
}

/* ------------------------------------------------------------------ running rsync */

/* rsync splits this at blanks: the file name of ssh_config must have none. */
static int set_shell(struct run *run, struct ab_error *err)
{
    const struct transfer_task *task = run->task;

    ab_buf_str(&run->shell, "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15");
    if (task->ssh_config && strpbrk(task->ssh_config, " \t\n\"'"))
        return ab_fail(err, AB_EINVAL,
                       "transfers.ssh_config: a name without blanks or quotes, please");
    if (task->ssh_config)
        ab_buf_printf(&run->shell, " -F %s", task->ssh_config);
    if (task->url.port)
        ab_buf_printf(&run->shell, " -p %d", task->url.port);
    if (task->url.user)
        ab_buf_printf(&run->base, "%s@", task->url.user);
    ab_buf_printf(&run->base, "%s:%s", task->url.host, task->url.path);
    if (!ab_str_ends(task->url.path, "/"))
        ab_buf_char(&run->base, '/');
    return 0;
}

/* The last lines of what it said, without our own noise. */
static void say_why(const struct ab_buf *output, int code, struct ab_error *err)
{
    const char *text = output->data ? output->data : "";
    size_t len = output->len;

    while (len > 0 && strchr(" \r\n", text[len - 1]))
        len--;
    size_t from = len > 300 ? len - 300 : 0;
    ab_fail(err, AB_EUPSTREAM, "rsync ended with status %d: %.*s", code, (int)(len - from),
            text + from);
}

static bool worth_another(int code)
{
    static const int codes[] = {5,  10, 12,
                                30, 35, 255}; /* connection, protocol stream, time, ssh */
    for (size_t i = 0; i < AB_COUNT(codes); i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* Exit code (0, 23, 24 are for the caller), or -1 when it cannot work. */
static int rsync(struct run *run, const char *const *more, const char *from, const char *to,
                 struct ab_error *err)
{
    char timeout[32];
    const char *argv[ARGS_MAX] = {
        "rsync", "-rtp", "--protect-args", "--copy-unsafe-links", "--no-owner", "--no-group"};
    size_t n = 6;

    snprintf(timeout, sizeof(timeout), "--timeout=%d", IO_TIMEOUT_SEC);
    argv[n++] = timeout;
    argv[n++] = "-e";
    argv[n++] = run->shell.data;
    for (; more && *more; more++)
        argv[n++] = *more;
    argv[n++] = "--";
    argv[n++] = from;
    argv[n++] = to;
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1, .die_with_parent = true};
    for (int attempt = 0;; attempt++) {
        AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = OUTPUT_MAX};
        int status;
        if (ab_run_command(&what, TIME_LIMIT_MS, &output, &status, err) < 0)
            return -1;
        int code = ab_exit_code(status);
        if (code == 0)
            return 0;
        say_why(&output, code, err);
        if (code == PARTIAL || code == VANISHED)
            return code;
        if (!worth_another(code) || attempt >= run->task->retries)
            return -1;
        (void)poll(NULL, 0, (int)ab_backoff_ms(attempt, WAIT_BASE_MS, WAIT_CAP_MS));
    }
}

/* ------------------------------------------------------------------ one item by itself */

/* The local end as a path: checked step by step just before, and data/ is ours. */
static char *local_path(const struct transfer_task *task, const struct transfer_item *item,
                        const char *name)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/data/%s/%s", task->site->path, item->workdir, name);
    return ab_buf_take(&path);
}

static char *remote_path(const struct run *run, const char *remote)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s%s", run->base.data, remote);
    return ab_buf_take(&path);
}

/* Make the folder that an item lands in, and see that no link stands in its way. */
static int prepare_local(int workdir, const char *name, bool folder, struct ab_error *err)
{
    const char *last;
    AB_AUTO(ab_close)
    int fd = folder ? ab_open_below(workdir, name, true, err)
                    : ab_open_parent(workdir, name, true, &last, err);
    return fd < 0 ? -1 : 0;
}

static int move_folder(struct run *run, struct transfer_item *item, struct ab_error *err)
{
    const char *name, *remote = transfer_remote(item, err);
    AB_AUTO(ab_close) int workdir = remote ? transfer_local_end(run->task, item, &name, err) : -1;

    if (workdir < 0)
        return -1;
    AB_AUTO(ab_free) char *here = local_path(run->task, item, name);
    AB_AUTO(ab_free) char *there = remote_path(run, remote);
    AB_AUTO(ab_buf_free) struct ab_buf from = {0}, to = {0};
    static const char *const more[] = {"--mkpath", NULL};
    struct stat st;
    if (run->task->out) {
        AB_AUTO(ab_close) int source = beneath_open(workdir, name, O_RDONLY | O_NONBLOCK);
        if (source < 0 || fstat(source, &st) < 0)
            return ab_fail_errno(err, AB_ENOENT, "cannot read %s", name);
        /* "folder/" means what is in it; a single file keeps its name as it is */
        ab_buf_printf(&from, "%s%s", here, S_ISDIR(st.st_mode) ? "/" : "");
        ab_buf_printf(&to, "%s%s", there, S_ISDIR(st.st_mode) ? "/" : "");
    } else {
        if (prepare_local(workdir, name, true, err) < 0)
            return -1;
        ab_buf_printf(&from, "%s/", there);
        ab_buf_printf(&to, "%s/", here);
    }
    return rsync(run, more, from.data, to.data, err) == 0 ? 0 : -1;
}

/* ------------------------------------------------------------------ files, all at once */

static int fresh_stage(struct run *run, struct ab_error *err)
{
    if (ab_remove_tree(run->stage, err) < 0)
        return -1;
    return ab_mkdirs(run->stage, 0700, err);
}

/* One name a line; those that cannot be in a list were refused before. */
static int write_list(const struct run *run, char **path, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf list = {0}, name = {0};

    for (size_t i = 0; i < run->task->n; i++) {
        const struct transfer_item *item = &run->task->items[i];
        if (!item->recursive && !item->error) {
            ab_buf_str(&list, transfer_remote(item, NULL));
            ab_buf_char(&list, '\n');
        }
    }
    ab_buf_printf(&name, "--files-from=%s/list", run->task->dir);
    *path = ab_buf_take(&name);
    return ab_file_write(*path + strlen("--files-from="), list.data ? list.data : "", list.len,
                         0600, err);
}

/* From the stage to the place where the job looks for it. */
static int place_file(struct run *run, struct transfer_item *item, int stage, const char *why,
                      struct ab_error *err)
{
    const char *name, *remote = transfer_remote(item, err), *last, *landed;
    AB_AUTO(ab_close) int workdir = remote ? transfer_local_end(run->task, item, &name, err) : -1;
    struct stat st;

    if (workdir < 0)
        return -1;
    if (fstatat(stage, remote, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return ab_fail(err, AB_ENOENT, "%s did not arrive%s%s", item->remote_path, *why ? ": " : "",
                       why);
    if (!S_ISREG(st.st_mode))
        return ab_fail(err, AB_EINVAL,
                       "%s is no file; folders need `recursive: true` in the transfer slot",
                       item->remote_path);
    AB_AUTO(ab_close) int to = ab_open_parent(workdir, name, true, &last, err);
    AB_AUTO(ab_close) int from = to < 0 ? -1 : ab_open_parent(stage, remote, false, &landed, err);
    if (from < 0)
        return -1;
    item->bytes = st.st_size;
    if (renameat(from, landed, to, last) == 0)
        return 0;
    if (errno != EXDEV)
        return ab_fail_errno(err, AB_EINVAL, "cannot write %s", name);
    struct copy copy = {.from = stage, .to = workdir, .tag = item->id};
    return copy_path(&copy, remote, name, err);
}

/* To the stage, under the remote name: a hard link if it can be, else a copy. */
static int stage_file(struct run *run, struct transfer_item *item, int stage, struct ab_error *err)
{
    const char *name, *remote = transfer_remote(item, err), *last;
    AB_AUTO(ab_close) int workdir = remote ? transfer_local_end(run->task, item, &name, err) : -1;
    AB_AUTO(ab_close)
    int source = workdir < 0 ? -1 : beneath_open(workdir, name, O_RDONLY | O_NONBLOCK);
    struct stat st;

    if (workdir < 0)
        return -1;
    if (source < 0 || fstat(source, &st) < 0)
        return ab_fail_errno(err, AB_ENOENT, "cannot read %s", name);
    if (!S_ISREG(st.st_mode))
        return ab_fail(err, AB_EINVAL,
                       "%s is no file; folders need `recursive: true` in the transfer slot", name);
    AB_AUTO(ab_close) int to = ab_open_parent(stage, remote, true, &last, err);
    if (to < 0)
        return -1;
    item->bytes = st.st_size;
    char proc[64];
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", source);
    if (linkat(AT_FDCWD, proc, to, last, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    struct copy copy = {.from = workdir, .to = stage, .tag = item->id};
    return copy_path(&copy, name, remote, err);
}

static void for_files(struct run *run, int stage, const char *why,
                      int (*fn)(struct run *run, struct transfer_item *item, int stage,
                                const char *why, struct ab_error *err))
{
    for (size_t i = 0; i < run->task->n; i++) {
        struct transfer_item *item = &run->task->items[i];
        struct ab_error err = {0};
        if (!item->recursive && !item->error && fn(run, item, stage, why, &err) < 0)
            transfer_fail(run->task, item, "%s", err.text);
    }
}

static int check_file(struct run *run, struct transfer_item *item, int stage, const char *why,
                      struct ab_error *err)
{
    (void)run, (void)stage, (void)why;
    return transfer_remote(item, err) ? 0 : -1;
}

static int stage_one(struct run *run, struct transfer_item *item, int stage, const char *why,
                     struct ab_error *err)
{
    (void)why;
    return stage_file(run, item, stage, err);
}

/* After a task in which some files failed: each by itself, to know which. */
static int send_one(struct run *run, struct transfer_item *item, int stage, const char *why,
                    struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf from = {0};
    AB_AUTO(ab_free) char *there = remote_path(run, transfer_remote(item, NULL));
    static const char *const more[] = {"--mkpath", NULL};

    (void)stage, (void)why;
    ab_buf_printf(&from, "%s/%s", run->stage, transfer_remote(item, NULL));
    return rsync(run, more, from.data, there, err) == 0 ? 0 : -1;
}

static int fail_one(struct run *run, struct transfer_item *item, int stage, const char *why,
                    struct ab_error *err)
{
    (void)run, (void)item, (void)stage;
    return ab_fail(err, AB_EUPSTREAM, "%s", why);
}

static size_t files_left(const struct transfer_task *task)
{
    size_t n = 0;
    for (size_t i = 0; i < task->n; i++)
        n += !task->items[i].recursive && !task->items[i].error;
    return n;
}

static int move_files(struct run *run, struct ab_error *err)
{
    AB_AUTO(ab_free) char *list = NULL, *stage_path = NULL;
    struct ab_buf path = {0};

    for_files(run, -1, "", check_file);
    if (fresh_stage(run, err) < 0)
        return -1;
    AB_AUTO(ab_close) int stage = open(run->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->task->out)
        for_files(run, stage, "", stage_one);
    if (!files_left(run->task))
        return 0;
    if (write_list(run, &list, err) < 0)
        return -1;
    ab_buf_printf(&path, "%s/", run->stage);
    stage_path = ab_buf_take(&path);
    const char *more[] = {list, run->task->out ? "--mkpath" : "--copy-links", NULL};
    struct ab_error why = {0};
    int code = run->task->out ? rsync(run, more, stage_path, run->base.data, &why)
                              : rsync(run, more, run->base.data, stage_path, &why);
    if (code < 0)
        for_files(run, stage, why.text, fail_one);
    else if (!run->task->out)
        for_files(run, stage, code ? why.text : "", place_file);
    else if (code > 0)
        for_files(run, stage, why.text, send_one);
    return 0;
}

/* ------------------------------------------------------------------ */

static void run_all(struct run *run, struct ab_error *err)
{
    struct transfer_task *task = run->task;

    if (set_shell(run, err) < 0 || move_files(run, err) < 0) {
        for (size_t i = 0; i < task->n; i++)
            transfer_fail(task, &task->items[i], "%s", err->text);
        return;
    }
    for (size_t i = 0; i < task->n; i++) {
        struct ab_error why = {0};
        if (task->items[i].recursive && move_folder(run, &task->items[i], &why) < 0)
            transfer_fail(task, &task->items[i], "%s", why.text);
        task->items[i].done = !task->items[i].error;
    }
}

static void move(struct transfer_task *task)
{
    struct run run = {.task = task};
    struct ab_buf stage = {0};
    struct ab_error err = {0};

    for (size_t i = 0; i < task->n; i++)
        task->items[i].error = NULL;
    ab_buf_printf(&stage, "%s/stage", task->dir);
    run.stage = ab_buf_take(&stage);
    run_all(&run, &err);
    (void)ab_remove_tree(run.stage, NULL);
    free(run.stage);
    ab_buf_free(&run.shell);
    ab_buf_free(&run.base);
}

static const char *const schemes[] = {"rsync", NULL};
const struct transfer_kind transfer_rsync = {"rsync", schemes, check, move};
