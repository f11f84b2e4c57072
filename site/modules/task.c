/* task.c - see task.h */
#include "task.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPOOL "run/spool/transfer"
#define TASK_MAX ((size_t)16 << 20)
#define KILL_MS 1000

static char *path_of(const struct ab_site *site, const char *id, const char *name)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/" SPOOL "/%s%s%s", site->path, id, *name ? "/" : "", name);
    return ab_buf_take(&path);
}

static struct task *alloc_task(const struct ab_site *site)
{
    struct task *self = calloc(1, sizeof(*self));
    self->data.arena = ab_arena_new();
    self->data.site = site;
    self->fd = -1;
    return self;
}

void task_destroy(struct task **self)
{
    if (!*self)
        return;
    ab_close(&(*self)->fd);
    ab_arena_destroy(&(*self)->data.arena);
    free(*self);
    *self = NULL;
}

struct task *task_load(const struct ab_site *site, const char *id, struct ab_error *err)
{
    AB_AUTO(task_destroy) struct task *self = alloc_task(site);
    AB_AUTO(ab_free) char *file = path_of(site, id, "task.json");
    AB_AUTO(ab_free) char *dir = path_of(site, id, "");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    if (ab_file_read(file, TASK_MAX, &text, err) < 0
        || transfer_task_read(&self->data, text.data ? text.data : "", text.len, err) < 0)
        return NULL;
    self->data.dir = ab_strdup(self->data.arena, dir);
    self->kind = transfer_of(self->data.url.scheme);
    if (!self->kind || strcmp(self->data.id, id) != 0) {
        ab_fail(err, AB_EINVAL, "%s is no task of ours", file);
        return NULL;
    }
    return AB_TAKE(self);
}

/* Through its file: what runs later is what was written. */
struct task *task_new(const struct ab_site *site, const struct transfer_task *what,
                      struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    uint8_t uuid[16];
    char id[AB_UUID_TEXT];
    struct transfer_task copy = *what;

    ab_uuid7(uuid);
    ab_uuid_text(uuid, id);
    copy.id = id;
    transfer_task_json(&copy, &json);
    AB_AUTO(ab_free) char *dir = path_of(site, id, "");
    AB_AUTO(ab_free) char *file = path_of(site, id, "task.json");
    if (ab_mkdirs(dir, 0700, err) < 0 || ab_file_write(file, json.data, json.len, 0600, err) < 0)
        return NULL;
    return task_load(site, id, err);
}

/* ------------------------------------------------------------------ its worker */

int task_start(struct task *self, struct ab_error *err)
{
    const char *program = ab_find_program("abies-module-transfer");
    const char *argv[] = {program, "run", self->data.site->path, self->data.id, NULL};
    struct ab_spawn what = {
        .argv = argv, .in = -1, .out = 2, .err = 2, .new_group = true, .pidfd = &self->fd};

    if (!program)
        return ab_fail(err, AB_ENOENT, "abies-module-transfer is not where it was");
    if (ab_spawn(&what, &self->pid, err) < 0) {
        self->pid = 0;
        return -1;
    }
    self->starts++;
    self->child = true;
    return 0;
}

static bool read_pid(const char *file, pid_t *pid, uint64_t *start)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    int number;

    if (ab_file_read(file, 64, &text, NULL) < 0)
        return false;
    ab_buf_char(&text, '\0');
    if (sscanf(text.data, "%d %" SCNu64, &number, start) != 2 || number <= 1)
        return false;
    *pid = number;
    return true;
}

bool task_adopt(struct task *self)
{
    AB_AUTO(ab_free) char *file = path_of(self->data.site, self->data.id, "pid");
    uint64_t start;
    pid_t pid;

    if (!read_pid(file, &pid, &start) || !ab_process_runs(pid, start))
        return false;
    self->fd = ab_pidfd(pid);
    if (self->fd < 0)
        return false;
    self->pid = pid;
    self->child = false;
    return true;
}

void task_collect(struct task *self)
{
    if (self->pid > 0) {
        (void)kill(-self->pid, SIGKILL); /* an rsync that it left */
        if (self->child)
            (void)waitpid(self->pid, NULL, 0);
    }
    self->pid = 0;
    ab_close(&self->fd);
    self->fd = -1;
}

void task_kill(struct task *self)
{
    struct pollfd ended = {.fd = self->fd, .events = POLLIN};

    if (self->pid <= 0)
        return;
    (void)kill(-self->pid, SIGTERM);
    if (poll(&ended, 1, KILL_MS) <= 0)
        (void)kill(-self->pid, SIGKILL);
    task_collect(self);
}

/* ------------------------------------------------------------------ its end */

int task_result(struct task *self, struct ab_error *err)
{
    AB_AUTO(ab_free) char *file = path_of(self->data.site, self->data.id, "result.json");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    if (access(file, F_OK) < 0)
        return 0;
    if (ab_file_read(file, TASK_MAX, &text, err) < 0
        || transfer_result_read(&self->data, text.data ? text.data : "", text.len, err) < 0)
        return -1;
    return 1;
}

void task_remove(struct task *self)
{
    struct ab_error err = {0};
    if (ab_remove_tree(self->data.dir, &err) < 0)
        ab_log(AB_WARN, "spool.left", AB_KV("task", self->data.id), AB_KV("why", err.text));
}

static int is_id(const struct dirent *file)
{
    uint8_t uuid[16];
    return ab_uuid_parse(file->d_name, strlen(file->d_name), uuid) == 0;
}

size_t task_list(const struct ab_site *site, char ***ids)
{
    AB_AUTO(ab_free) char *folder = ab_site_path(site, SPOOL);
    struct dirent **files = NULL;
    int n = scandir(folder, &files, is_id, alphasort); /* by age: version 7 */

    *ids = calloc((size_t)(n > 0 ? n : 1), sizeof(char *));
    for (int i = 0; i < n; i++) {
        (*ids)[i] = strdup(files[i]->d_name);
        free(files[i]);
    }
    free(files);
    return n > 0 ? (size_t)n : 0;
}

/* ------------------------------------------------------------------ the worker process */

/* Two workers of one task would be two writers of its files: the second one leaves. */
static int claim(const struct task *self)
{
    AB_AUTO(ab_free) char *file = path_of(self->data.site, self->data.id, "pid");
    char text[64];
    pid_t pid;
    uint64_t start;

    for (int i = 0; i < 2; i++) {
        AB_AUTO(ab_close) int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            int n = snprintf(text, sizeof(text), "%d %" PRIu64 "\n", (int)getpid(),
                             ab_pid_start_time(getpid()));
            return write(fd, text, (size_t)n) == n ? 0 : -1;
        }
        if (read_pid(file, &pid, &start) && ab_process_runs(pid, start))
            return -1;
        (void)unlink(file);
    }
    return -1;
}

int task_work(const char *site_path, const char *id)
{
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    struct ab_error err = {0};

    ab_log_open("site", "transfer.worker", AB_INFO);
    AB_AUTO(task_destroy)
    struct task *self =
        ab_site_find(&site, site_path, &err) < 0 ? NULL : task_load(&site, id, &err);
    if (!self) {
        ab_log(AB_ERROR, "task.unreadable", AB_KV("task", id), AB_KV("why", err.text));
        return 1;
    }
    if (claim(self) < 0)
        return 2;
    int64_t start = ab_now_us();
    self->kind->move(&self->data);
    transfer_result_json(&self->data, (double)(ab_now_us() - start) / 1e6, &json);
    AB_AUTO(ab_free) char *file = path_of(&site, id, "result.json");
    if (ab_file_write(file, json.data, json.len, 0600, &err) < 0) {
        ab_log(AB_ERROR, "result.unwritten", AB_KV("task", id), AB_KV("why", err.text));
        return 1;
    }
    return 0;
}
