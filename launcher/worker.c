/* worker.c - a link to the head, and run.c behind it */
#include "worker.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/opt.h"
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
    GRACE_MS = 5000
};

struct worker {
    ab_link_t *link;
    runs_t *runs;
    bool leaving;
};

static void on_exit_of(void *arg, const struct run_exit *e)
{
    struct worker *self = arg;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    order_pack_exit(&body, e);
    if (ab_link_send(self->link, "exit", (uint64_t)e->job, body.data, body.len) < 0)
        ab_log(AB_ERROR, "worker.unheard", AB_KV("job", e->job));
}

static void start(struct worker *self, const struct ab_message *m)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    struct run_spec spec;
    if (order_unpack_run(m->body, m->len, (int64_t)m->number, arena, &spec, &err) < 0
        || run_start(self->runs, &spec, &err) < 0) {
        struct run_exit e = {(int64_t)m->number, RUN_ENDED, RUN_NEVER, err.text};
        on_exit_of(self, &e);
    }
}

static void obey(struct worker *self, const struct ab_message *m)
{
    if (strcmp(m->kind, "run") == 0) {
        start(self, m);
    } else if (strcmp(m->kind, "kill") == 0) {
        char text[24] = "";
        snprintf(text, sizeof(text), "%.*s", (int)(m->len < 20 ? m->len : 20),
                 (const char *)m->body);
        run_kill(self->runs, (int64_t)m->number, strtol(text, NULL, 10));
    } else if (strcmp(m->kind, "clear") == 0) {
        runs_kill_all(self->runs, 0); /* the head gave them up while it did not hear of us */
    } else if (strcmp(m->kind, "leave") == 0) {
        self->leaving = true;
    }
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
        int64_t wait = ab_link_tick(self->link, now), next = runs_step(self->runs, now);
        if (!self->leaving)
            (void)ab_link_wait(self->link, fds, 2, next < wait ? next : wait);
    }
    return 0;
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
    rc = self.runs ? live(&self, signals) : -1;
    if (rc < 0)
        ab_log(AB_ERROR, "worker.stopped", AB_KV("error", err.text));
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
