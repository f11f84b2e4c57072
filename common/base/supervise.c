/* supervise.c - keep a set of processes running
 *
 * One epoll holds a pidfd for each running ward and one timer for whatever comes next: a restart,
 * the end of somebody's patience, a look at the log files. When a ward's first process ends, what
 * it left in its process group is killed before its zombie is reaped: until then the number cannot
 * be reused.
 *
 * Log files are written by the wards themselves (O_APPEND), so that they live on when we do not;
 * they are rotated by copying and cutting.
 */
#include "supervise.h"

#include "cleanup.h"
#include "clock.h"
#include "log.h"
#include "spawn.h"
#include "wards.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_WAIT_MS 200
#define LONGEST_WAIT_MS 30000
#define GOOD_RUN_MS 60000 /* who ran for this long starts again at the first wait */
#define LOG_LOOK_MS 5000
#define NEVER INT64_MAX

enum ward_state {
    WAITING,
    RUNNING,
    STOPPING,
    ENDED
};

struct ward {
    struct ward *next;
    struct ward_plan plan;
    enum ward_state state;
    bool remove; /* forget it when it has ended */
    pid_t pid;
    int pidfd;
    int restarts, last_exit;
    int by_cause[AB_WARD_CAUSES];
    enum ab_ward_cause cause; /* of the next restart */
    int64_t started_ms, started_utc_us;
    int64_t wait_ms; /* before the next start */
    int64_t due_ms;  /* WAITING: start; STOPPING: kill */
};

struct ab_supervise {
    struct ward *wards; /* in the order they were added */
    int epoll_fd, timer_fd;
    bool stopping;
    int64_t logs_due_ms;
    void (*on_change)(void *, const char *);
    void *on_change_arg;
};

ab_supervise_t *ab_supervise_new(struct ab_error *err)
{
    ab_supervise_t *self = calloc(1, sizeof(*self));
    if (!self) {
        ab_fail(err, AB_EINTERNAL, "no memory for a supervisor");
        return NULL;
    }
    self->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    self->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN};
    if (self->epoll_fd < 0 || self->timer_fd < 0
        || epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, self->timer_fd, &e) < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "no descriptor for a supervisor");
        ab_supervise_destroy(&self);
        return NULL;
    }
    self->logs_due_ms = ab_now_ms() + LOG_LOOK_MS;
    return self;
}

static void ward_free(struct ward *w)
{
    ward_plan_free(&w->plan);
    ab_close(&w->pidfd);
    free(w);
}

void ab_supervise_destroy(ab_supervise_t **self_p)
{
    ab_supervise_t *self = *self_p;
    if (!self)
        return;
    while (self->wards) {
        struct ward *w = self->wards;
        self->wards = w->next;
        if (w->pid > 0) {
            (void)kill(-w->pid, SIGKILL);
            while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        }
        ward_free(w);
    }
    ab_close(&self->epoll_fd);
    ab_close(&self->timer_fd);
    free(self);
    *self_p = NULL;
}

/* One timer for the earliest of all that is due. */
static void set_timer(ab_supervise_t *self)
{
    int64_t due = NEVER;
    for (struct ward *w = self->wards; w; w = w->next) {
        if ((w->state == WAITING || w->state == STOPPING) && w->due_ms < due)
            due = w->due_ms;
        if (w->state == RUNNING && w->plan.log_path && self->logs_due_ms < due)
            due = self->logs_due_ms;
    }
    struct itimerspec t = {0};
    if (due != NEVER) {
        if (due <= 0)
            due = 1;
        t.it_value.tv_sec = due / 1000;
        t.it_value.tv_nsec = due % 1000 * 1000000;
    }
    (void)timerfd_settime(self->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void changed(ab_supervise_t *self, const struct ward *w)
{
    if (self->on_change)
        self->on_change(self->on_change_arg, w->plan.name);
}

static int start(ab_supervise_t *self, struct ward *w, struct ab_error *err)
{
    if (ward_plan_spawn(&w->plan, &w->pid, &w->pidfd, err) < 0)
        return -1;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = w};
    if (epoll_ctl(self->epoll_fd, EPOLL_CTL_ADD, w->pidfd, &e) < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "cannot watch process `%s`", w->plan.name);
        (void)kill(-w->pid, SIGKILL);
        (void)waitpid(w->pid, NULL, 0);
        ab_close(&w->pidfd);
        w->pid = 0;
        return -1;
    }
    w->state = RUNNING;
    w->started_ms = ab_now_ms();
    w->started_utc_us = ab_utc_us();
    ab_log(AB_INFO, "ward.started", AB_KV("name", (const char *)w->plan.name), AB_KV("pid", w->pid),
           AB_KV("restarts", w->restarts));
    return 0;
}

static void wait_for_restart(struct ward *w)
{
    w->state = WAITING;
    w->due_ms = ab_now_ms() + w->wait_ms;
    w->wait_ms = w->wait_ms * 2 < LONGEST_WAIT_MS ? w->wait_ms * 2 : LONGEST_WAIT_MS;
}

static void restart(ab_supervise_t *self, struct ward *w)
{
    struct ab_error err = {0};
    w->restarts++;
    w->by_cause[w->cause]++;
    if (start(self, w, &err) < 0) {
        ab_log(AB_ERROR, "ward.start_failed", AB_KV("name", (const char *)w->plan.name),
               AB_KV("error", (const char *)err.text));
        w->last_exit = 127;
        w->cause = AB_WARD_NOT_STARTED;
        wait_for_restart(w);
    }
    changed(self, w);
}

/* Its first process has ended; 0 if it has not after all. */
static int reap(ab_supervise_t *self, struct ward *w)
{
    siginfo_t info = {0};
    int status = 0;
    if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
        return 0;
    (void)kill(-w->pid, SIGKILL);
    if (waitpid(w->pid, &status, 0) == w->pid)
        w->last_exit = ab_exit_code(status);
    w->cause = w->last_exit < 0 ? AB_WARD_SIGNAL : w->last_exit > 0 ? AB_WARD_ERROR : AB_WARD_EXIT;
    ab_log(w->state == STOPPING ? AB_INFO : AB_WARN, "ward.ended",
           AB_KV("name", (const char *)w->plan.name), AB_KV("pid", w->pid),
           AB_KV("exit", w->last_exit));
    (void)epoll_ctl(self->epoll_fd, EPOLL_CTL_DEL, w->pidfd, NULL);
    ab_close(&w->pidfd);
    w->pid = 0;
    if (w->state == STOPPING || self->stopping) {
        w->state = ENDED;
    } else {
        if (ab_now_ms() - w->started_ms > GOOD_RUN_MS)
            w->wait_ms = FIRST_WAIT_MS;
        wait_for_restart(w);
    }
    return 1;
}

static struct ward *find(const ab_supervise_t *self, const char *name)
{
    for (struct ward *w = self->wards; w; w = w->next)
        if (strcmp(w->plan.name, name) == 0)
            return w;
    return NULL;
}

int ab_supervise_add(ab_supervise_t *self, const struct ab_ward *ward, struct ab_error *err)
{
    if (self->stopping)
        return ab_fail(err, AB_ECONFLICT, "cannot start `%s`: everything is being stopped",
                       ward->name);
    if (find(self, ward->name))
        return ab_fail(err, AB_ECONFLICT, "there is a process `%s` already", ward->name);
    struct ward *w = calloc(1, sizeof(*w));
    if (!w)
        return ab_fail(err, AB_EINTERNAL, "no memory for process `%s`", ward->name);
    w->pidfd = -1;
    w->wait_ms = FIRST_WAIT_MS;
    if (ward_plan_copy(&w->plan, ward, err) < 0 || start(self, w, err) < 0) {
        ward_free(w);
        return -1;
    }
    struct ward **last = &self->wards;
    while (*last)
        last = &(*last)->next;
    *last = w;
    set_timer(self);
    changed(self, w);
    return 0;
}

static void stop_ward(struct ward *w)
{
    if (w->state == RUNNING) {
        (void)kill(w->pid, w->plan.stop_signal);
        /* one that was stopped (SIGSTOP, a fault point) must wake up to hear it */
        (void)kill(w->pid, SIGCONT);
        w->state = STOPPING;
        w->due_ms = ab_now_ms() + w->plan.stop_ms;
    } else if (w->state == WAITING) {
        w->state = ENDED;
    }
}

static void forget_removed(ab_supervise_t *self)
{
    for (struct ward **p = &self->wards; *p;) {
        struct ward *w = *p;
        if (w->remove && w->state == ENDED) {
            *p = w->next;
            ward_free(w);
        } else {
            p = &w->next;
        }
    }
}

int ab_supervise_remove(ab_supervise_t *self, const char *name)
{
    struct ward *w = find(self, name);
    if (!w)
        return -1;
    w->remove = true;
    stop_ward(w);
    if (w->state == ENDED)
        forget_removed(self);
    set_timer(self);
    return 0;
}

void ab_supervise_stop(ab_supervise_t *self)
{
    self->stopping = true;
    for (struct ward *w = self->wards; w; w = w->next)
        stop_ward(w);
    set_timer(self);
}

size_t ab_supervise_running(const ab_supervise_t *self)
{
    size_t n = 0;
    for (struct ward *w = self->wards; w; w = w->next)
        n += w->pid > 0;
    return n;
}

int ab_supervise_fd(const ab_supervise_t *self)
{
    return self->epoll_fd;
}

static void do_what_is_due(ab_supervise_t *self)
{
    int64_t now = ab_now_ms();
    for (struct ward *w = self->wards; w; w = w->next) {
        if (w->state == WAITING && w->due_ms <= now) {
            restart(self, w);
        } else if (w->state == STOPPING && w->due_ms <= now) {
            ab_log(AB_WARN, "ward.killed", AB_KV("name", (const char *)w->plan.name),
                   AB_KV("pid", w->pid));
            (void)kill(-w->pid, SIGKILL);
            w->due_ms = NEVER;
        }
    }
    if (self->logs_due_ms <= now) {
        self->logs_due_ms = now + LOG_LOOK_MS;
        for (struct ward *w = self->wards; w; w = w->next)
            if (w->plan.log_path)
                ward_log_rotate(w->plan.log_path);
    }
}

void ab_supervise_step(ab_supervise_t *self)
{
    struct epoll_event events[32];
    uint64_t ticks;
    int n = epoll_wait(self->epoll_fd, events, (int)AB_COUNT(events), 0);
    for (int i = 0; i < n; i++) {
        struct ward *w = events[i].data.ptr;
        if (!w)
            (void)!read(self->timer_fd, &ticks, sizeof(ticks));
        else if (reap(self, w))
            changed(self, w);
    }
    do_what_is_due(self);
    forget_removed(self);
    set_timer(self);
}

bool ab_supervise_status(const ab_supervise_t *self, size_t i, struct ab_ward_status *out)
{
    struct ward *w = self->wards;
    while (w && i-- > 0)
        w = w->next;
    if (!w)
        return false;
    int64_t now = ab_now_ms();
    *out = (struct ab_ward_status){
        .name = w->plan.name,
        .pid = w->pid,
        .restarts = w->restarts,
        .last_exit = w->last_exit,
        .started_utc_us = w->started_utc_us,
        .up_ms = w->pid ? now - w->started_ms : 0,
        .backoff_ms = w->state == WAITING && w->due_ms > now ? w->due_ms - now : 0,
    };
    memcpy(out->by_cause, w->by_cause, sizeof(out->by_cause));
    return true;
}

void ab_supervise_on_change(ab_supervise_t *self, void (*fn)(void *arg, const char *name),
                            void *arg)
{
    self->on_change = fn;
    self->on_change_arg = arg;
}
