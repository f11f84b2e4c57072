/* parts.c - one launcher per slice of the nodes */
#include "parts.h"

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "http/metric.h"
#include "http/process.h"
#include "sitedir/figures.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct part {
    const char *mode, *tags; /* tags: "k=v:k=v" or "" */
    size_t nodes;
};

/* "serial:2:k=v:l=w" */
static int parse_part(ab_arena_t *arena, const char *text, struct part *out, struct ab_error *err)
{
    char *copy = ab_strdup(arena, text), *count = strchr(copy, ':'), *rest = NULL;
    int64_t n = 0;
    if (count) {
        *count++ = '\0';
        rest = strchr(count, ':');
        if (rest)
            *rest++ = '\0';
    }
    if (!count || (strcmp(copy, "serial") != 0 && strcmp(copy, "mpi") != 0)
        || ab_parse_i64(count, strlen(count), 1, 1000000, &n) < 0)
        return ab_fail(err, AB_EINVAL, "--part %s is not MODE:NODES[:KEY=VALUE]*", text);
    *out = (struct part){copy, rest ? rest : "", (size_t)n};
    return 0;
}

static const char **part_words(ab_arena_t *arena, const struct parts_options *o,
                               const struct part *p, size_t first)
{
    const char **w = ab_alloc(arena, strlen(p->tags) + 16, sizeof(char *));
    size_t n = 0;
    w[n++] = ab_find_program("abies-launcher");
    w[n++] = ab_printf(arena, "--job-mode=%s", p->mode);
    w[n++] = ab_printf(arena, "--wall-time-min=%" PRId64, o->minutes);
    w[n++] = ab_printf(arena, "--site=%s", o->site->path);
    w[n++] = ab_printf(arena, "--slice=%zu:%zu", first, p->nodes);
    for (const char *at = p->tags; *at;) {
        size_t len = strcspn(at, ":");
        w[n++] = ab_printf(arena, "--tag=%.*s", (int)len, at);
        at += len + (at[len] == ':');
    }
    return w;
}

struct parts {
    const struct parts_options *o;
    pid_t *pids;
    size_t started, ended, failed;
    ab_figures_t *figures;
    char labels[96];
};

static void one(const struct parts *self, struct ab_buf *out, const char *name, const char *type,
                const char *help, size_t value)
{
    ab_metric_type(out, name, type, help);
    ab_metric(out, name, self->labels, (double)value);
}

/* Ms until it wants to again. */
static int64_t write_figures(struct parts *self)
{
    int64_t now = ab_now_ms(), due = ab_figures_due(self->figures, now);
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    if (due > 0)
        return due;
    ab_process_self(&out, "launcher-parts", self->labels, true);
    one(self, &out, "abies_launcher_parts", "gauge", "partitions whose launcher runs",
        self->started - self->ended);
    one(self, &out, "abies_launcher_parts_failed_total", "counter",
        "partitions whose launcher ended with an error", self->failed);
    ab_figures_write(self->figures, &out, now);
    return AB_FIGURES_MS;
}

static void wait_for_all(struct parts *self)
{
    while (self->ended < self->started) {
        struct pollfd p = {.fd = self->o->signals, .events = POLLIN};
        struct signalfd_siginfo info;
        if (poll(&p, 1, (int)write_figures(self)) > 0
            && read(p.fd, &info, sizeof(info)) == (ssize_t)sizeof(info)
            && info.ssi_signo != SIGCHLD)
            for (size_t i = 0; i < self->started; i++)
                if (self->pids[i] > 0)
                    kill(self->pids[i], SIGTERM);
        int status = 0;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            for (size_t i = 0; i < self->started; i++)
                if (self->pids[i] == pid)
                    self->pids[i] = 0;
            self->ended++;
            self->failed += ab_exit_code(status) != 0;
        }
    }
}

int parts_run(const struct parts_options *o, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct parts self = {.o = o, .pids = ab_alloc(arena, o->n, sizeof(pid_t))};
    size_t first = 0;
    for (; self.started < o->n; self.started++) {
        struct part p;
        if (parse_part(arena, o->parts[self.started], &p, err) < 0)
            break;
        struct ab_spawn what = {.argv = part_words(arena, o, &p, first),
                                .in = -1,
                                .out = 1,
                                .err = 2,
                                .die_with_parent = true};
        if (ab_spawn(&what, &self.pids[self.started], err) < 0)
            break;
        first += p.nodes;
    }
    bool all = self.started == o->n;
    for (size_t i = 0; !all && i < self.started; i++)
        kill(self.pids[i], SIGTERM);
    snprintf(self.labels, sizeof(self.labels), "launcher=\"%s\"", o->instance);
    self.figures = ab_figures_new(o->site, o->instance);
    wait_for_all(&self);
    ab_figures_destroy(&self.figures);
    if (!all)
        return -1;
    return self.failed ? ab_fail(err, AB_EINTERNAL,
                                 "a partition ended with an error, see its log lines above")
                       : 0;
}
