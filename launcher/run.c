/* run.c - one pidfd a job, all in one epoll */
#include "run.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/usage.h"
#include "guard.h"
#include "sitedir/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TAIL_BYTES = 4096,
    LIMIT_GRACE_MS = 10000,
    FILES_OF_A_RUN = 2 /* a pidfd and the output */
};

struct run {
    struct run *next;
    int64_t job;
    pid_t pid;
    int pidfd, output;
    int64_t limit_at_ms, kill_at_ms; /* 0: none */
    enum run_end end;
};

struct runs {
    struct run *first;
    size_t n;
    int epoll, tail_lines;
    run_exit_f *on_exit;
    void *arg;
    struct runs_figures figures;
};

runs_t *runs_new(int tail_lines, run_exit_f *on_exit, void *arg, struct ab_error *err)
{
    runs_t *self = calloc(1, sizeof(*self));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!self || epoll < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "cannot watch processes");
        free(self);
        ab_close(&epoll);
        return NULL;
    }
    self->epoll = epoll;
    self->tail_lines = tail_lines;
    self->on_exit = on_exit;
    self->arg = arg;
    return self;
}

/* Closing alone would leave the pidfd in the epoll for as long as a child that has just been forked
 * holds a copy of it: until its exec. */
static void unwatch(const runs_t *self, const struct run *r)
{
    if (r->pidfd >= 0)
        (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, r->pidfd, NULL);
}

static void run_free(struct run *r)
{
    ab_close(&r->pidfd);
    ab_close(&r->output);
    free(r);
}

void runs_destroy(runs_t **self)
{
    if (!self || !*self)
        return;
    while ((*self)->first) {
        struct run *r = (*self)->first;
        (*self)->first = r->next;
        kill(-r->pid, SIGKILL);
        (void)waitpid(r->pid, NULL, 0);
        guard_forget(r->pid);
        run_free(r);
    }
    ab_close(&(*self)->epoll);
    free(*self);
    *self = NULL;
}

/* The output of a run before this one is kept once. */
static int open_output(const char *path, struct ab_error *err)
{
    char previous[4200];
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        snprintf(previous, sizeof(previous), "%s.prev", path);
        (void)rename(path, previous);
    }
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        ab_fail_errno(err, ab_errno_code(errno), "cannot open the job's output file %s", path);
    return fd;
}

static int start(runs_t *self, const struct run_spec *spec, struct ab_error *err)
{
    if (ab_fault("run.start"))
        return ab_fail(err, AB_EINTERNAL, "start refused (injected)");
    AB_AUTO(ab_close) int output = open_output(spec->output, err);
    if (output < 0)
        return -1;
    struct run *r = calloc(1, sizeof(*r));
    if (!r)
        return ab_fail(err, AB_EBUSY, "no memory for one more process");
    r->pidfd = r->output = -1;
    struct ab_spawn what = {
        .argv = spec->argv,
        .env = spec->env,
        .cwd = spec->cwd,
        .in = -1,
        .out = output,
        .err = output,
        .new_group = true,
        .die_with_parent = true, /* besides the guard, who ends the whole group */
        .cpus = spec->cpus,
        .n_cpus = spec->n_cpus,
        .pidfd = &r->pidfd, /* with it or not at all: a job does not begin twice for want of one */
    };
    if (ab_spawn(&what, &r->pid, err) < 0) {
        run_free(r);
        return -1;
    }
    guard_watch(r->pid);
    r->job = spec->job;
    r->output = AB_TAKE_FD(output);
    r->limit_at_ms = spec->limit_ms > 0 ? ab_now_ms() + spec->limit_ms : 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = r};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, r->pidfd, &event) < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "cannot watch process %d", (int)r->pid);
        kill(-r->pid, SIGKILL);
        (void)waitpid(r->pid, NULL, 0);
        guard_forget(r->pid);
        run_free(r);
        return -1;
    }
    r->next = self->first;
    self->first = r;
    self->n++;
    return 0;
}

int run_start(runs_t *self, const struct run_spec *spec, struct ab_error *err)
{
    int64_t from_us = ab_now_us();
    int rc = start(self, spec, err);
    self->figures.started += rc == 0;
    self->figures.not_started += rc < 0;
    if (rc == 0)
        ab_histogram_add(&self->figures.spawn, ab_now_us() - from_us);
    return rc;
}

static void kill_gently(struct run *r, enum run_end why, int64_t grace_ms)
{
    if (r->end != RUN_ENDED)
        return;
    r->end = why;
    kill(-r->pid, SIGTERM);
    r->kill_at_ms = ab_now_ms() + grace_ms;
}

void run_kill(runs_t *self, int64_t job, int64_t grace_ms)
{
    for (struct run *r = self->first; r; r = r->next)
        if (r->job == job)
            kill_gently(r, RUN_KILLED, grace_ms);
}

void runs_kill_all(runs_t *self, int64_t grace_ms)
{
    for (struct run *r = self->first; r; r = r->next) {
        kill_gently(r, RUN_KILLED, grace_ms);
        int64_t at = ab_now_ms() + grace_ms;
        if (r->kill_at_ms > at)
            r->kill_at_ms = at;
    }
}

int runs_fd(const runs_t *self)
{
    return self->epoll;
}

size_t runs_count(const runs_t *self)
{
    return self->n;
}

size_t runs_room(const runs_t *self, size_t spared)
{
    return self->n + ab_usage_files_left(spared) / FILES_OF_A_RUN;
}

struct runs_figures *runs_figures(runs_t *self)
{
    return &self->figures;
}

/* The last lines, read backwards from the end of the file; what is no UTF-8 becomes '?'. */
static void read_tail(const struct run *r, int lines, char out[TAIL_BYTES + 1])
{
    off_t size = lseek(r->output, 0, SEEK_END);
    off_t from = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    ssize_t n = pread(r->output, out, TAIL_BYTES, from);
    if (n < 0)
        n = 0;
    ssize_t start = n;
    if (start > 0 && out[start - 1] == '\n')
        start--;
    for (int seen = 0; start > 0; start--)
        if (out[start - 1] == '\n' && ++seen == lines)
            break;
    memmove(out, out + start, (size_t)(n - start));
    n -= start;
    out[n] = '\0';
    if (!ab_utf8_ok(out, (size_t)n) || memchr(out, '\0', (size_t)n))
        for (ssize_t i = 0; i < n; i++)
            if ((unsigned char)out[i] >= 0x80 || out[i] == '\0')
                out[i] = '?';
}

static void reap(runs_t *self, struct run *r)
{
    int status = 0;
    char tail[TAIL_BYTES + 1];
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0
        || info.si_pid != r->pid)
        return;
    kill(-r->pid,
         SIGKILL); /* what it left behind in its group, while the group's number is still ours */
    (void)waitpid(r->pid, &status, 0);
    guard_forget(r->pid);
    unwatch(self, r);
    struct run **link = &self->first;
    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    self->n--;
    read_tail(r, self->tail_lines, tail);
    struct run_exit e = {r->job, r->end, ab_exit_code(status), tail};
    self->on_exit(self->arg, &e);
    run_free(r);
}

static void earlier(int64_t *next, int64_t at, int64_t now)
{
    int64_t in = at > now ? at - now : 0;
    if (in < *next)
        *next = in;
}

int64_t runs_step(runs_t *self, int64_t now_ms)
{
    struct epoll_event events[64];
    int64_t next = 60000;
    int n;
    while ((n = epoll_wait(self->epoll, events, 64, 0)) > 0)
        for (int i = 0; i < n; i++)
            reap(self, events[i].data.ptr);
    for (struct run *r = self->first; r; r = r->next) {
        if (r->limit_at_ms && r->limit_at_ms <= now_ms)
            kill_gently(r, RUN_LIMIT, LIMIT_GRACE_MS);
        if (r->kill_at_ms && r->kill_at_ms <= now_ms) {
            kill(-r->pid, SIGKILL);
            r->kill_at_ms = 0;
        }
        if (r->limit_at_ms && r->end == RUN_ENDED)
            earlier(&next, r->limit_at_ms, now_ms);
        if (r->kill_at_ms)
            earlier(&next, r->kill_at_ms, now_ms);
    }
    return next;
}
