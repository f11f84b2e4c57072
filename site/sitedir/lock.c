/* lock.c - one agent per site, across the machines that share its folder
 *
 * Two guards. On one machine: flock on a file in the node-local runtime folder, which the kernel
 * gives back with the process. Across machines: run/lock, made by link(2) from a finished file so
 * that nobody reads half of it; taken over by renaming it away, which only one of two can do for
 * the same file.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include "site.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define UNTOUCHED_SEC 120
#define TRIES 5
#define DYING_MS 3000
#define FLOCK_MS 1000

struct ab_site_lock {
    char *path;
    char text[320]; /* what we wrote into it */
    int guard;
};

static void here(char host[256])
{
    if (gethostname(host, 256) < 0)
        snprintf(host, 256, "localhost");
    host[255] = '\0';
}

static int parse_owner(const char *text, size_t len, struct ab_site_owner *out)
{
    const char *host_end = memchr(text, '\n', len);
    if (!host_end || host_end == text || (size_t)(host_end - text) >= sizeof(out->host))
        return -1;
    const char *pid = host_end + 1, *end = text + len;
    const char *pid_end = memchr(pid, '\n', (size_t)(end - pid));
    if (!pid_end)
        return -1;
    const char *start = pid_end + 1, *start_end = memchr(start, '\n', (size_t)(end - start));
    int64_t number, ticks;
    if (!start_end || ab_parse_i64(pid, (size_t)(pid_end - pid), 1, INT32_MAX, &number) < 0
        || ab_parse_i64(start, (size_t)(start_end - start), 0, INT64_MAX, &ticks) < 0)
        return -1;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)(host_end - text), text);
    out->pid = (pid_t)number;
    out->start = (uint64_t)ticks;
    return 0;
}

/* What the file system takes for now: its server may have another clock than we, and so may the
 * owner of the lock, whose touch is the server's time as well. */
static time_t now_beside(const char *path)
{
    AB_AUTO(ab_buf_free) struct ab_buf name = {0};
    struct stat st;

    ab_buf_printf(&name, "%s.now.%d", path, (int)getpid());
    AB_AUTO(ab_close)
    int fd = open(name.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return time(NULL); /* somebody who may only read */
    bool known = futimens(fd, NULL) == 0 && fstat(fd, &st) == 0;
    (void)unlink(name.data);
    return known ? st.st_mtime : time(NULL);
}

static bool touched(const char *path, const struct stat *st)
{
    return now_beside(path) - st->st_mtime < UNTOUCHED_SEC;
}

/* Reads run/lock; `text` gets the bytes that were judged. 1, 0, -1 as ab_site_owner. */
static int look(const char *path, struct ab_site_owner *out, struct ab_buf *text,
                struct ab_error *err)
{
    struct stat st;
    char host[256];

    *out = (struct ab_site_owner){0};
    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : ab_fail_errno(err, AB_EINTERNAL, "cannot look at %s", path);
    ab_buf_clear(text);
    struct ab_error why = {0};
    if (ab_file_read(path, 1024, text, &why) < 0) {
        if (access(path, F_OK) < 0)
            return 0;
        if (err)
            *err = why;
        return -1;
    }
    if (!text->len || parse_owner(text->data, text->len, out) < 0) {
        out->alive = touched(path, &st); /* of a kind we do not know: leave it its two minutes */
        return 1;
    }
    here(host);
    out->here = strcmp(host, out->host) == 0;
    out->alive = out->here ? ab_process_runs(out->pid, out->start) : touched(path, &st);
    return 1;
}

int ab_site_owner(const struct ab_site *self, struct ab_site_owner *out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(ab_free) char *path = ab_site_path(self, "run/lock");
    return look(path, out, &text, err);
}

static void drop_guard(ab_site_lock_t **self)
{
    if (!*self)
        return;
    if ((*self)->guard >= 0)
        close((*self)->guard);
    free((*self)->path);
    free(*self);
    *self = NULL;
}

static int lock_here(ab_site_lock_t *self, const struct ab_site *site, struct ab_error *err)
{
    AB_AUTO(ab_free) char *folder = ab_site_runtime_dir(site, err);
    AB_AUTO(ab_buf_free) struct ab_buf name = {0};

    if (!folder)
        return -1;
    ab_buf_printf(&name, "%s/lock", folder);
    self->guard = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (self->guard < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot open %s", name.data);
    /* a process that was just killed takes a moment to let go */
    for (int64_t end = ab_now_ms() + FLOCK_MS; flock(self->guard, LOCK_EX | LOCK_NB) < 0;) {
        if (errno != EWOULDBLOCK) /* a file system without locks: run/lock has to do */
            break;
        if (ab_now_ms() > end)
            return ab_fail(err, AB_ECONFLICT, "site %s already runs on this machine", site->path);
        (void)poll(NULL, 0, 50);
    }
    return 0;
}

static int write_mine(const ab_site_lock_t *self, const char *path, struct ab_error *err)
{
    return ab_file_write(path, self->text, strlen(self->text), 0644, err);
}

/* Move a dead owner's lock away. Between our look and the rename another starter may have put its
 * own there: then what we hold is not what we judged, and it goes back. */
static void move_away(const ab_site_lock_t *self, const struct ab_buf *judged)
{
    AB_AUTO(ab_buf_free) struct ab_buf aside = {0}, text = {0};

    ab_buf_printf(&aside, "%s.old.%d", self->path, (int)getpid());
    if (rename(self->path, aside.data) < 0)
        return;
    bool same = ab_file_read(aside.data, 1024, &text, NULL) == 0 && text.len == judged->len
                && memcmp(text.data, judged->data, text.len) == 0;
    if (!same)
        (void)!link(aside.data, self->path);
    (void)unlink(aside.data);
}

/* We have the kernel's lock of this machine, so an owner here is on its way out: a killed process
 * takes a moment to be gone. */
static void wait_for_end(const struct ab_site_owner *owner)
{
    AB_AUTO(ab_close) int fd = owner->here ? ab_pidfd(owner->pid) : -1;
    struct pollfd ended = {.fd = fd, .events = POLLIN};

    if (fd >= 0)
        (void)poll(&ended, 1, DYING_MS);
}

static int take(ab_site_lock_t *self, const struct ab_site *site, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf mine = {0}, text = {0};
    struct ab_site_owner owner;

    ab_buf_printf(&mine, "%s.new.%d", self->path, (int)getpid());
    if (write_mine(self, mine.data, err) < 0)
        return -1;
    int rc = -1;
    for (int i = 0; i < TRIES; i++) {
        if (link(mine.data, self->path) == 0) {
            rc = 0;
            break;
        }
        if (errno != EEXIST) {
            ab_fail_errno(err, AB_EINTERNAL, "cannot make %s", self->path);
            break;
        }
        int held = look(self->path, &owner, &text, err);
        if (held < 0)
            break;
        if (held && owner.alive && owner.here && i == 0) {
            wait_for_end(&owner);
            continue;
        }
        if (held && owner.alive) {
            ab_fail(err, AB_ECONFLICT,
                    "site %s already runs on %s (pid %d); stop it there with `abies site stop`",
                    site->path, owner.host, (int)owner.pid);
            break;
        }
        if (held)
            move_away(self, &text);
    }
    (void)unlink(mine.data);
    if (rc < 0 && err && !err->code)
        ab_fail(err, AB_ECONFLICT, "site %s is being started by somebody else", site->path);
    return rc;
}

ab_site_lock_t *ab_site_lock(const struct ab_site *site, struct ab_error *err)
{
    AB_AUTO(drop_guard) ab_site_lock_t *self = calloc(1, sizeof(*self));
    AB_AUTO(ab_free) char *run = ab_site_path(site, "run");
    char host[256];

    self->guard = -1;
    self->path = ab_site_path(site, "run/lock");
    here(host);
    snprintf(self->text, sizeof(self->text), "%s\n%d\n%" PRIu64 "\n", host, (int)getpid(),
             ab_pid_start_time(getpid()));
    if (ab_mkdirs(run, 0700, err) < 0 || lock_here(self, site, err) < 0
        || take(self, site, err) < 0)
        return NULL;
    return AB_TAKE(self);
}

static bool is_ours(const ab_site_lock_t *self)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    return ab_file_read(self->path, 1024, &text, NULL) == 0 && text.len == strlen(self->text)
           && memcmp(text.data, self->text, text.len) == 0;
}

int ab_site_lock_touch(ab_site_lock_t *self, struct ab_error *err)
{
    if (!is_ours(self))
        return ab_fail(err, AB_ECONFLICT, "the lock %s is not ours any more", self->path);
    if (utimes(self->path, NULL) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot touch %s", self->path);
    return 0;
}

void ab_site_unlock(ab_site_lock_t **self)
{
    if (!*self)
        return;
    if (is_ours(*self))
        (void)unlink((*self)->path);
    drop_guard(self);
}
