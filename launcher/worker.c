/* worker.c - a link to the head, and run.c behind it */
#include "worker.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/usage.h"
#include "bus/curve.h"
#include "bus/local.h"
#include "guard.h"
#include "order.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    BEAT_MS = 1000,
    DEAD_MS = 15000,
    GRACE_MS = 5000,
    AGAIN_MS = 500,    /* an order that could not be carried out now */
    FIGURES_MS = 5000, /* what the head is told of us */
    SPARED_FILES = 10  /* for what a start opens and closes, and for the link when it reconnects */
};

/* An order that waits for descriptors, a process or room on the disk. */
struct order {
    struct order *next;
    int64_t job;
    struct ab_buf body;
};

struct worker {
    ab_link_t *link;
    runs_t *runs;
    struct order *first; /* oldest first */
    int64_t again_ms, figures_ms, complain_ms;
    int64_t waiting, sent, unheard;
    uint64_t spawn[AB_HISTOGRAM_BUCKETS], spawn_us; /* that the head knows of */
    bool leaving;
};

static int send(struct worker *self, const char *kind, uint64_t number, const struct ab_buf *body)
{
    int rc = ab_link_send(self->link, kind, number, body->data, body->len);
    self->sent += rc == 0;
    self->unheard += rc < 0;
    return rc;
}

static void on_exit_of(void *arg, const struct run_exit *e)
{
    struct worker *self = arg;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    order_pack_exit(&body, e);
    self->again_ms = 0; /* there is room */
    if (send(self, "exit", (uint64_t)e->job, &body) < 0)
        ab_log(AB_ERROR, "worker.unheard", AB_KV("job", e->job));
}

/* ---------------------------------------------------------------- orders */

static int64_t start(struct worker *self, int64_t job, const void *body, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    struct run_spec spec;
    if (order_unpack_run(body, len, job, arena, &spec, &err) == 0
        && run_start(self->runs, &spec, &err) == 0)
        return 0;
    if (err.code == AB_EBUSY) {
        int64_t now = ab_now_ms();
        if (now >= self->complain_ms)
            ab_log(AB_WARN, "worker.order_waits", AB_KV("order", job), AB_KV("why", err.text));
        self->complain_ms = now + 10 * AGAIN_MS;
        return -1;
    }
    struct run_exit e = {job, RUN_ENDED, RUN_NEVER, err.text};
    on_exit_of(self, &e);
    return 0;
}

static void order_drop(struct worker *self, struct order **at)
{
    struct order *o = *at;
    *at = o->next;
    self->waiting--;
    ab_buf_free(&o->body);
    free(o);
}

static void keep(struct worker *self, const struct ab_message *m)
{
    struct order *o = calloc(1, sizeof(*o)), **last = &self->first;
    if (!o)
        abort();
    o->job = (int64_t)m->number;
    ab_buf_add(&o->body, m->body, m->len);
    while (*last)
        last = &(*last)->next;
    *last = o;
    self->waiting++;
    self->again_ms = ab_now_ms() + AGAIN_MS;
}

/* Ms until it wants to again. */
static int64_t start_what_waits(struct worker *self, int64_t now)
{
    if (!self->first)
        return FIGURES_MS;
    while (self->first && now >= self->again_ms) {
        struct order *o = self->first;
        if (start(self, o->job, o->body.data, o->body.len) < 0)
            self->again_ms = now + AGAIN_MS;
        else
            order_drop(self, &self->first);
    }
    return self->again_ms > now ? self->again_ms - now : 0;
}

/* job -1: all, and nobody is told. */
static void kill_what_waits(struct worker *self, int64_t job)
{
    for (struct order **at = &self->first; *at;) {
        if (job >= 0 && (*at)->job != job) {
            at = &(*at)->next;
            continue;
        }
        if (job >= 0) {
            struct run_exit e = {job, RUN_KILLED, 0, "killed before it was started"};
            on_exit_of(self, &e);
        }
        order_drop(self, at);
    }
}

/* ---------------------------------------------------------------- figures */

static int64_t tell_figures(struct worker *self, int64_t now)
{
    struct runs_figures *runs = runs_figures(self->runs);
    struct order_figures f = {0};
    struct ab_usage usage;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    if (now < self->figures_ms)
        return self->figures_ms - now;
    ab_usage(&usage);
    f.v[FIGURE_ROOM] = (int64_t)runs_room(self->runs, SPARED_FILES);
    f.v[FIGURE_RUNNING] = (int64_t)runs_count(self->runs);
    f.v[FIGURE_WAITING] = self->waiting;
    f.v[FIGURE_STARTED] = (int64_t)runs->started;
    f.v[FIGURE_NOT_STARTED] = (int64_t)runs->not_started;
    f.v[FIGURE_SENT] = self->sent;
    f.v[FIGURE_UNHEARD] = self->unheard;
    f.v[FIGURE_PID] = usage.pid;
    f.v[FIGURE_BEGAN_US] = usage.started_utc_us;
    f.v[FIGURE_RESIDENT] = usage.resident_bytes;
    f.v[FIGURE_CPU_US] = usage.cpu_us;
    f.v[FIGURE_FILES] = usage.files;
    f.v[FIGURE_FILES_MAX] = usage.files_max;
    f.v[FIGURE_SPAWN_US] = (int64_t)(runs->spawn.us - self->spawn_us);
    for (size_t i = 0; i < AB_HISTOGRAM_BUCKETS; i++)
        f.v[FIGURE_SPAWN + i] = (int64_t)(runs->spawn.by_time[i] - self->spawn[i]);
    order_pack_figures(&body, &f);
    self->figures_ms = now + FIGURES_MS;
    if (send(self, "figures", 0, &body) < 0)
        return FIGURES_MS;
    self->spawn_us = runs->spawn.us;
    for (size_t i = 0; i < AB_HISTOGRAM_BUCKETS; i++)
        self->spawn[i] = runs->spawn.by_time[i];
    return FIGURES_MS;
}

/* ---------------------------------------------------------------- the loop */

static void obey(struct worker *self, const struct ab_message *m)
{
    if (strcmp(m->kind, "run") == 0) {
        if (self->first || start(self, (int64_t)m->number, m->body, m->len) < 0)
            keep(self, m);
    } else if (strcmp(m->kind, "kill") == 0) {
        char text[24] = "";
        snprintf(text, sizeof(text), "%.*s", (int)(m->len < 20 ? m->len : 20),
                 (const char *)m->body);
        kill_what_waits(self, (int64_t)m->number);
        run_kill(self->runs, (int64_t)m->number, strtol(text, NULL, 10));
    } else if (strcmp(m->kind, "clear") == 0) {
        kill_what_waits(self, -1);
        runs_kill_all(self->runs, 0); /* the head gave them up while it did not hear of us */
        self->figures_ms = 0;         /* it may be another head's first word to us */
    } else if (strcmp(m->kind, "leave") == 0) {
        self->leaving = true;
    }
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int live(struct worker *self, int signals)
{
    int fds[2] = {signals, runs_fd(self->runs)};
    struct signalfd_siginfo info;
    struct ab_message m;
    while (!self->leaving) {
        int got;
        while ((got = ab_link_receive(self->link, &m)) == 1)
            obey(self, &m);
        if (got < 0) {
            ab_log(AB_WARN, "head.gone");
            return 1;
        }
        if (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
            return 0;
        int64_t now = ab_now_ms();
        int64_t wait = ab_link_tick(self->link, now);
        wait = sooner(wait, runs_step(self->runs, now));
        wait = sooner(wait, start_what_waits(self, now));
        wait = sooner(wait, tell_figures(self, now));
        if (!self->leaving)
            (void)ab_link_wait(self->link, fds, 2, wait);
    }
    return 0;
}

static int has_room(const runs_t *runs, struct ab_error *err)
{
    if (runs_room(runs, SPARED_FILES) > 0)
        return 0;
    return ab_fail(err, AB_EINTERNAL,
                   "this process may open too few files to run a job; raise `ulimit -n`");
}

int worker_main(int argc, char **argv)
{
    const char *keys_path = NULL, *node = NULL;
    int64_t tail = 10;
    struct ab_error err = {0};
    const struct ab_opt options[] = {
        AB_OPT_TEXT(0, "keys", &keys_path, "FILE", "where the head is, and the keys to it"),
        AB_OPT_TEXT(0, "node", &node, "N", "which node of the launcher this is"),
        AB_OPT_INT(0, "tail", &tail, "LINES", "lines of output kept when a job fails"),
        {0},
    };
    int rc = ab_opt_parse("abies-launcher worker", "--keys FILE --node N",
                          "Run jobs on one node; started by the launcher, not by hand", options,
                          &argc, &argv, &err);
    if (rc > 0)
        return 0;
    ab_log_open("launcher-worker", node ? node : "?", AB_INFO);
    ab_fault_init();
    struct order_keys keys;
    if (rc < 0 || !keys_path || !node || order_keys_read(keys_path, &keys, &err) < 0
        || guard_start(&err) < 0) {
        fprintf(stderr, "abies-launcher worker: %s\n",
                err.text[0] ? err.text : "--keys and --node are needed");
        return 2;
    }
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    AB_AUTO(ab_close) int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    ab_bus_init();

    struct worker self = {0};
    struct ab_local_options local = {
        .endpoint = keys.endpoint,
        .name = node,
        .public_key = keys.public_key,
        .secret_key = keys.secret_key,
        .server_key = keys.server,
        .beat_ms = BEAT_MS,
        .dead_ms = DEAD_MS,
    };
    self.link = ab_link_new(&local, &err);
    self.runs = self.link ? runs_new((int)tail, on_exit_of, &self, &err) : NULL;
    rc = self.runs ? has_room(self.runs, &err) : -1;
    rc = rc == 0 ? live(&self, signals) : -1;
    if (rc < 0)
        ab_log(AB_ERROR, "worker.stopped", AB_KV("error", err.text));
    kill_what_waits(&self, -1);
    if (self.runs) {
        int64_t until = ab_now_ms() + GRACE_MS;
        int fd = runs_fd(self.runs);
        runs_kill_all(self.runs, GRACE_MS / 2);
        while (runs_count(self.runs) > 0 && ab_now_ms() < until) {
            int64_t next = runs_step(self.runs, ab_now_ms());
            (void)ab_link_wait(self.link, &fd, 1, next < 100 ? next : 100);
        }
    }
    runs_destroy(&self.runs);
    ab_link_destroy(&self.link);
    guard_stop();
    return rc != 0;
}
