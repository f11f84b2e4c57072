/* crew.c - workers are wards of base/supervise, jobs are looked up by id */
#include "crew.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/usage.h"
#include "bus/curve.h"
#include "bus/local.h"
#include "order.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BEAT_MS = 1000,
    DEAD_MS = 25000, /* a worker that hears nothing has ended its jobs by then */
    AGAIN_MS = 200,  /* a kill that could not be sent */
    LEAVE_MS = 2000,
    FILES_OF_A_NODE = 2,
    SPARED_FILES = 30 /* for the bus, calls to the centre, files that come and go */
};

struct errand {
    struct errand *next;
    int64_t job;
    uint64_t serial; /* what worker and head call this run: a job may run twice */
    size_t node;
    struct ab_buf waiting; /* the order, until the worker is there */
    bool over;             /* killed before the worker got it */
    int64_t kill_ms;       /* a grace that the worker has not been told of yet; -1: none */
};

struct crew {
    struct crew_options o;
    ab_hub_t *hub;
    ab_supervise_t *wards;
    char *keys_path;
    bool *here; /* of each node: its worker is connected */
    struct order_figures *figures;
    struct ab_histogram spawns;
    struct errand *first;
    size_t n;
    uint64_t serials;
};

static size_t node_of(const struct crew *self, const char *link)
{
    char *end = NULL;
    unsigned long i = strtoul(link, &end, 10);
    return *link && end && *end == '\0' ? (size_t)i : self->o.n_nodes;
}

static bool is_here(const struct node_info *node)
{
    return strcmp(node->id, "localhost") == 0;
}

/* ---------------------------------------------------------------- start and end */

static int open_hub(crew_t *self, struct ab_error *err)
{
    struct order_keys keys = {0};
    char hub_secret[41], host[256] = "127.0.0.1";
    bool local = true;
    for (size_t i = 0; i < self->o.n_nodes; i++)
        local = local && is_here(&self->o.nodes[i]);
    ab_curve_pair(keys.server, hub_secret);
    ab_curve_pair(keys.public_key, keys.secret_key);
    struct ab_local_options options = {
        .endpoint = local ? "tcp://127.0.0.1:*" : "tcp://0.0.0.0:*",
        .public_key = keys.server,
        .secret_key = hub_secret,
        .allow = keys.public_key,
        .beat_ms = BEAT_MS,
        .dead_ms = DEAD_MS,
    };
    self->hub = ab_hub_new(&options, err);
    memset(hub_secret, 0, sizeof(hub_secret));
    if (!self->hub)
        return -1;
    const char *port = strrchr(ab_hub_endpoint(self->hub), ':');
    if (!local && gethostname(host, sizeof(host) - 1) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "this machine does not tell its name");
    snprintf(keys.endpoint, sizeof(keys.endpoint), "tcp://%.200s%s", host, port);
    char path[4200], random[9];
    uint32_t bits;
    /* launchers of several machines share the folder, and may have the same pid */
    ab_random(&bits, sizeof(bits));
    ab_hex(&bits, sizeof(bits), random);
    snprintf(path, sizeof(path), "%s/launcher-%d-%s.keys", self->o.run_dir, (int)getpid(), random);
    self->keys_path = strdup(path);
    return order_keys_write(path, &keys, err);
}

static int start_worker(crew_t *self, size_t i, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *program = ab_find_program("abies-launcher");
    const char *id = self->o.nodes[i].id, **words = NULL;
    if (!program)
        return ab_fail(err, AB_EINTERNAL, "abies-launcher does not find its own program file");
    struct apprun_spec spec = {
        .nodes = &id, .n_nodes = 1, .ranks_per_node = 1, .threads_per_rank = 1, .cpus_per_rank = 1};
    words = is_here(&self->o.nodes[i]) ? ab_alloc(arena, 1, sizeof(char *))
                                       : self->o.starter->words(arena, &spec, err);
    if (!words)
        return -1;
    size_t n = 0;
    while (words[n])
        n++;
    const char **argv = ab_alloc(arena, n + 8, sizeof(char *));
    memcpy(argv, words, n * sizeof(char *));
    argv[n++] = program;
    argv[n++] = "worker";
    argv[n++] = ab_printf(arena, "--keys=%s", self->keys_path);
    argv[n++] = ab_printf(arena, "--node=%zu", i);
    argv[n++] = ab_printf(arena, "--tail=%d", self->o.tail_lines);
    struct ab_ward ward = {
        .name = ab_printf(arena, "worker-%zu", i),
        .argv = argv,
        .log_path = ab_printf(arena, "%s/launcher-worker-%zu.log", self->o.log_dir, i),
        .stop_ms = LEAVE_MS,
        .die_with_parent = true,
    };
    return ab_supervise_add(self->wards, &ward, err);
}

/* A pidfd of the process that starts a worker, and the worker's connection. */
static int check_room(const crew_t *self, struct ab_error *err)
{
    size_t room = ab_usage_files_left(SPARED_FILES) / FILES_OF_A_NODE;
    if (room >= self->o.n_nodes)
        return 0;
    return ab_fail(err, AB_EINTERNAL,
                   "%zu nodes need %zu open files and this process may open %zu more only; raise "
                   "`ulimit -n` where the launcher starts",
                   self->o.n_nodes, self->o.n_nodes * FILES_OF_A_NODE + SPARED_FILES,
                   ab_usage_files_left(0));
}

crew_t *crew_new(const struct crew_options *options, struct ab_error *err)
{
    crew_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    self->o = *options;
    self->here = calloc(options->n_nodes + 1, sizeof(bool));
    self->figures = calloc(options->n_nodes + 1, sizeof(struct order_figures));
    if (!self->here || !self->figures)
        abort();
    self->wards = ab_supervise_new(err);
    int rc = self->wards && check_room(self, err) == 0 ? open_hub(self, err) : -1;
    for (size_t i = 0; rc == 0 && i < options->n_nodes; i++)
        rc = start_worker(self, i, err);
    if (rc < 0)
        crew_destroy(&self);
    return self;
}

static void errand_free(struct errand *e)
{
    ab_buf_free(&e->waiting);
    free(e);
}

void crew_destroy(crew_t **self_p)
{
    crew_t *self = *self_p;
    if (!self)
        return;
    if (self->hub && self->wards && self->here) {
        char link[24];
        for (size_t i = 0; i < self->o.n_nodes; i++) {
            snprintf(link, sizeof(link), "%zu", i);
            if (self->here[i])
                (void)ab_hub_send(self->hub, link, "leave", 0, NULL, 0);
        }
        ab_supervise_stop(self->wards);
        int fd = ab_supervise_fd(self->wards);
        int64_t until = ab_now_ms() + LEAVE_MS + 1000;
        while (ab_supervise_running(self->wards) > 0 && ab_now_ms() < until) {
            (void)ab_hub_wait(self->hub, &fd, 1, 100);
            struct ab_message m;
            while (ab_hub_receive(self->hub, &m) == 1)
                ;
            ab_supervise_step(self->wards);
        }
    }
    ab_supervise_destroy(&self->wards);
    ab_hub_destroy(&self->hub);
    while (self->first) {
        struct errand *e = self->first;
        self->first = e->next;
        errand_free(e);
    }
    if (self->keys_path)
        (void)unlink(self->keys_path);
    free(self->keys_path);
    free(self->here);
    free(self->figures);
    free(self);
    *self_p = NULL;
}

/* ---------------------------------------------------------------- orders */

int crew_start(crew_t *self, size_t node, const struct run_spec *spec, struct ab_error *err)
{
    char link[24];
    struct errand *e = calloc(1, sizeof(*e));
    if (!e)
        abort();
    e->job = spec->job;
    e->serial = ++self->serials;
    e->kill_ms = -1;
    e->node = node;
    order_pack_run(&e->waiting, spec);
    snprintf(link, sizeof(link), "%zu", node);
    if (self->here[node]) {
        if (ab_hub_send(self->hub, link, "run", e->serial, e->waiting.data, e->waiting.len) < 0) {
            errand_free(e);
            return ab_fail(err, AB_EBUSY, "the worker of node %zu does not take another job now",
                           node);
        }
        ab_buf_free(&e->waiting);
    }
    e->next = self->first;
    self->first = e;
    self->n++;
    return 0;
}

static void send_kill(crew_t *self, struct errand *e)
{
    char link[24], text[24];
    snprintf(link, sizeof(link), "%zu", e->node);
    int n = snprintf(text, sizeof(text), "%" PRId64, e->kill_ms);
    if (ab_hub_send(self->hub, link, "kill", e->serial, text, (size_t)n) == 0)
        e->kill_ms = -1;
}

/* Reported by the next crew_step: who kills does not expect to be called back. */
static void end_errand(crew_t *self, struct errand *e, int64_t grace_ms)
{
    e->kill_ms = grace_ms;
    if (e->waiting.len > 0)
        e->over = true;
    else
        send_kill(self, e);
}

void crew_kill(crew_t *self, int64_t job, int64_t grace_ms)
{
    for (struct errand *e = self->first; e; e = e->next)
        if (e->job == job)
            end_errand(self, e, grace_ms);
}

void crew_kill_all(crew_t *self, int64_t grace_ms)
{
    for (struct errand *e = self->first; e; e = e->next)
        end_errand(self, e, grace_ms);
}

size_t crew_count(const crew_t *self)
{
    return self->n;
}

bool crew_figures(const crew_t *self, size_t node, struct order_figures *out)
{
    *out = self->figures[node];
    return self->here[node] && out->v[FIGURE_PID] > 0;
}

struct ab_histogram *crew_spawns(crew_t *self)
{
    return &self->spawns;
}

const ab_supervise_t *crew_wards(const crew_t *self)
{
    return self->wards;
}

/* ---------------------------------------------------------------- what workers say */

static void report(crew_t *self, struct errand **at, const struct run_exit *e)
{
    struct errand *done = *at;
    *at = done->next;
    self->n--;
    errand_free(done);
    self->o.on_exit(self->o.arg, e);
}

static void job_ended(crew_t *self, const struct ab_message *m)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct run_exit e;
    if (order_unpack_exit(m->body, m->len, (int64_t)m->number, arena, &e) < 0) {
        ab_log(AB_WARN, "worker.unreadable", AB_KV("node", m->link));
        return;
    }
    for (struct errand **at = &self->first; *at; at = &(*at)->next)
        if ((*at)->serial == m->number) {
            e.job = (*at)->job;
            report(self, at, &e);
            return;
        }
}

static void tell_room(const crew_t *self, size_t node)
{
    if (self->o.on_room)
        self->o.on_room(self->o.arg, node, (size_t)self->figures[node].v[FIGURE_ROOM]);
}

static void worker_said(crew_t *self, size_t node, const struct ab_message *m)
{
    struct order_figures f;
    if (!self->here[node] || order_unpack_figures(m->body, m->len, &f) < 0) {
        ab_log(AB_WARN, "worker.unreadable", AB_KV("node", m->link));
        return;
    }
    self->figures[node] = f;
    self->spawns.us += (uint64_t)f.v[FIGURE_SPAWN_US];
    for (size_t i = 0; i < AB_HISTOGRAM_BUCKETS; i++)
        self->spawns.by_time[i] += (uint64_t)f.v[FIGURE_SPAWN + i];
    tell_room(self, node);
}

/* What it may still run, if it was silent and not dead, was reported as lost. */
static void worker_came(crew_t *self, size_t node, const char *link)
{
    ab_log(AB_INFO, "worker.here", AB_KV("node", link));
    self->here[node] = true;
    (void)ab_hub_send(self->hub, link, "clear", 0, NULL, 0);
    for (struct errand *e = self->first; e; e = e->next)
        if (e->node == node && e->waiting.len > 0 && !e->over
            && ab_hub_send(self->hub, link, "run", e->serial, e->waiting.data, e->waiting.len) == 0)
            ab_buf_free(&e->waiting);
}

/* Its jobs died with it: its guard sees to that. Those that it never got wait for the next one. */
static void worker_went(crew_t *self, size_t node, const char *link)
{
    ab_log(AB_WARN, "worker.gone", AB_KV("node", link));
    self->here[node] = false;
    self->figures[node] = (struct order_figures){0};
    tell_room(self, node);
    struct errand **at = &self->first;
    while (*at) {
        if ((*at)->node != node || (*at)->waiting.len > 0) {
            at = &(*at)->next;
            continue;
        }
        struct run_exit e = {(*at)->job, RUN_KILLED, 0, "the worker process of its node died"};
        report(self, at, &e);
        at = &self->first; /* the callback may have started another job */
    }
}

/* Kills: of what no worker has, and those that could not be sent. True: some are left. */
static bool see_to_kills(crew_t *self)
{
    bool left = false;
    struct errand **at = &self->first;
    while (*at) {
        if ((*at)->over) {
            struct run_exit e = {(*at)->job, RUN_KILLED, 0, "killed before it was started"};
            report(self, at, &e);
            at = &self->first; /* the callback may have started another job */
            left = false;
            continue;
        }
        if ((*at)->kill_ms >= 0 && self->here[(*at)->node])
            send_kill(self, *at);
        left = left || (*at)->kill_ms >= 0;
        at = &(*at)->next;
    }
    return left;
}

static void take(crew_t *self, const struct ab_message *m)
{
    size_t node = node_of(self, m->link);
    if (node >= self->o.n_nodes)
        return;
    if (strcmp(m->kind, "exit") == 0) {
        job_ended(self, m);
        return;
    }
    if (strcmp(m->kind, "figures") == 0) {
        worker_said(self, node, m);
        return;
    }
    char link[64];
    snprintf(link, sizeof(link), "%s", m->link);
    if (strcmp(m->kind, "+") == 0) {
        if (self->here[node])
            worker_went(self, node, link); /* restarted before its silence was noticed */
        worker_came(self, node, link);
    } else if (strcmp(m->kind, "-") == 0) {
        worker_went(self, node, link);
    }
}

void crew_fds(const crew_t *self, int fds[2])
{
    fds[0] = ab_hub_fd(self->hub);
    fds[1] = ab_supervise_fd(self->wards);
}

int64_t crew_step(crew_t *self, int64_t now_ms)
{
    struct ab_message m;
    ab_supervise_step(self->wards);
    while (ab_hub_receive(self->hub, &m) == 1)
        take(self, &m);
    int64_t next = ab_hub_tick(self->hub, now_ms);
    while (ab_hub_receive(self->hub, &m) == 1)
        take(self, &m);
    return see_to_kills(self) && next > AGAIN_MS ? AGAIN_MS : next;
}
