/* head.c - one thread, one poll; HTTPS happens in the threads of lease.c and status.c
 *
 * A job is in one of three places: the stash (leased, waiting for room), on nodes, or over and
 * dropped. Every change of state carries the lease number, so that a report that comes too late
 * changes nothing.
 *
 * A job with a retry policy is reported RUNNING, and the centre has answered, before its program
 * starts: it may take this node down at once, and that attempt has to count. Other jobs are
 * reported when they run; nobody counts their attempts.
 */
#include "head.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "crew.h"
#include "prepare.h"
#include "report.h"
#include "run.h"
#include "tally.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GRACE_MS = 10000,      /* between SIGTERM and SIGKILL of a job */
    END_MARGIN_MS = 30000, /* before the wall clock ends: kill, report, give back */
    REPORT_MS = 15000,     /* for the last reports, then for giving back */
    HURRY_GRACE_MS = 2500, /* the same when told to end: a site stops within ten seconds */
    HURRY_REPORT_MS = 1500,
    RETRY_MS = 1000, /* a job that could not be prepared now */
};

struct head {
    struct head_options o;
    bool stop;
    int64_t started_ms, end_ms, idle_since_ms;
    place_t *place;
    prepare_t *prepare;
    lease_t *lease;
    status_t *status;
    runs_t *runs; /* mpi mode */
    crew_t *crew; /* serial mode */
    struct task *tasks;
    size_t n_stash, n_busy; /* busy: on nodes, running or about to */
    struct tally tally;
    bool ending;
    const char *why;
    int64_t grace_ms, report_ms; /* for the end */
};

/* ---------------------------------------------------------------- tasks */

static bool is_busy(const struct task *t)
{
    return t->claimed || t->running;
}

/* The task of a job that is on nodes. A job that was lost and leased again is there twice for a moment: the
 * old one until its process has gone, and the new one in the stash. */
static struct task **find_busy(struct head *self, int64_t job)
{
    for (struct task **at = &self->tasks; *at; at = &(*at)->next)
        if (is_busy(*at) && (*at)->job->id == job)
            return at;
    return NULL;
}

static void drop(struct head *self, struct task **at)
{
    struct task *t = *at;
    *at = t->next;
    if (is_busy(t))
        self->n_busy--;
    else
        self->n_stash--;
    lease_drop(self->lease, t->job->id, t->job->lease);
    place_give(self->place, &t->placement);
    lease_batch_drop(t->batch);
    free(t);
}

static void kill_task(struct head *self, const struct task *t, int64_t grace_ms)
{
    if (self->crew)
        crew_kill(self->crew, t->job->id, grace_ms);
    else
        run_kill(self->runs, t->job->id, grace_ms);
}

static enum tally_end kind_of_end(const struct head *self, const struct task *t,
                                  const struct run_exit *e)
{
    if (t->lost)
        return TALLY_LOST;
    if (t->cancelled)
        return TALLY_CANCELLED;
    if (e->end == RUN_KILLED)
        return self->ending ? TALLY_TIMEOUT : TALLY_NODE_LOSS;
    if (e->end == RUN_LIMIT)
        return TALLY_TIMEOUT;
    return e->code == 0 ? TALLY_DONE : TALLY_ERROR;
}

static void report_end(struct head *self, const struct task *t, const struct run_exit *e)
{
    if (t->cancelled)
        report_text(self->status, t, AB_JOB_FAILED, "cancelled", &e->code, e->tail);
    else if (e->end == RUN_LIMIT)
        report_text(self->status, t, AB_JOB_RUN_TIMEOUT, "killed: its wall_time_min is over", NULL,
                    NULL);
    else if (e->end == RUN_KILLED && self->ending)
        report_text(self->status, t, AB_JOB_RUN_TIMEOUT, self->why, NULL, NULL);
    else if (e->end == RUN_KILLED)
        report_node_loss(self->status, t, e->tail);
    else if (e->code == 0)
        report(self->status, t, AB_JOB_RUN_DONE, NULL, &e->code);
    else
        report_text(self->status, t, AB_JOB_RUN_ERROR, NULL, &e->code, e->tail);
}

static void on_exit_of(void *arg, const struct run_exit *e)
{
    struct head *self = arg;
    struct task **at = find_busy(self, e->job);
    if (!at || !(*at)->running)
        return;
    ab_log(AB_INFO, "job.ended", AB_KV("job", e->job), AB_KV("end", (int)e->end),
           AB_KV("code", e->code));
    self->tally.ended[kind_of_end(self, *at, e)]++;
    if (!(*at)->lost)
        report_end(self, *at, e);
    drop(self, at);
}

/* The job is not ours any more: its process must not go on, and nobody reports it. True: dropped.
 */
static bool lose(struct head *self, struct task **at)
{
    struct task *t = *at;
    if (t->lost)
        return false;
    ab_log(AB_WARN, "job.lost", AB_KV("job", t->job->id));
    t->lost = true;
    if (t->running) {
        kill_task(self, t, 1000);
        return false;
    }
    drop(self, at);
    return true;
}

static bool cancel(struct head *self, struct task **at)
{
    struct task *t = *at;
    if (t->cancelled || t->lost)
        return false;
    ab_log(AB_INFO, "job.cancelled", AB_KV("job", t->job->id));
    t->cancelled = true;
    if (t->running) {
        kill_task(self, t, GRACE_MS);
        return false;
    }
    report_text(self->status, t, AB_JOB_FAILED, "cancelled", NULL, NULL);
    drop(self, at);
    return true;
}

/* ---------------------------------------------------------------- starting */

static int start(struct head *self, struct task *t, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct job *job = t->job;
    struct prepared p = {0};
    if (prepare_job(self->prepare, job, t->placement, arena, &p, err) < 0)
        return -1;
    const struct place_slot *slot = &t->placement->nodes[0];
    struct run_spec spec = {
        .job = job->id,
        .argv = p.argv,
        .env = p.env,
        .cwd = p.cwd,
        .output = p.output,
        .limit_ms = job->wall_time_min * (int64_t)60000,
    };
    if (t->placement->n_nodes == 1 && slot->n_cpus < self->o.nodes[slot->node].n_cpus) {
        spec.cpus = slot->cpus;
        spec.n_cpus = slot->n_cpus;
    }
    if (self->crew)
        return crew_start(self->crew, slot->node, &spec, err);
    if (run_start(self->runs, &spec, err) == 0)
        return 0;
    if (err->code == AB_EBUSY) /* a full disk */
        return -1;
    /* The program cannot be started: that is the run's result, not the launcher's trouble. */
    int code = RUN_NEVER;
    report_text(self->status, t, AB_JOB_RUN_ERROR, NULL, &code, err->text);
    return 1;
}

static void enter(struct head *self, struct task *t)
{
    if (is_busy(t))
        return;
    self->n_busy++;
    self->n_stash--;
}

static void started(struct head *self, struct task *t)
{
    enter(self, t);
    t->running = true;
    self->tally.started++;
    if (!t->claimed)
        report_running(self->status, t, false);
    ab_log(AB_INFO, "job.started", AB_KV("job", t->job->id),
           AB_KV("node", t->placement->nodes[0].node));
}

static void later(struct head *self, struct task *t, const struct ab_error *err)
{
    self->tally.delayed++;
    ab_log(AB_WARN, "job.delayed", AB_KV("job", t->job->id), AB_KV("error", err->text));
    t->not_before_ms = ab_now_ms() + RETRY_MS;
}

static void refuse(struct head *self, struct task **at, const struct ab_error *err)
{
    self->tally.refused++;
    ab_log(AB_WARN, "job.refused", AB_KV("job", (*at)->job->id), AB_KV("error", err->text));
    report_text(self->status, *at, AB_JOB_FAILED, err->text, NULL, NULL);
    drop(self, at);
}

static bool counts_attempts(const struct job *job)
{
    return job->retry.n > 0 && *job->retry.p == '{';
}

/* Everything that can go wrong before a start does so before the attempt counts. */
static int claim(struct head *self, struct task *t, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct prepared p = {0};
    if (prepare_job(self->prepare, t->job, t->placement, arena, &p, err) < 0)
        return -1;
    enter(self, t);
    t->claimed = true;
    report_running(self->status, t, true);
    return 0;
}

/* Onto nodes that it has. False: the task has gone. */
static bool launch(struct head *self, struct task **at)
{
    struct task *t = *at;
    struct ab_error err = {0};
    if (counts_attempts(t->job) && !t->claimed) {
        if (claim(self, t, &err) == 0)
            return true;
    } else {
        int rc = start(self, t, &err);
        if (rc == 0)
            started(self, t);
        if (rc > 0)
            drop(self, at);
        if (rc >= 0)
            return rc == 0;
    }
    if (err.code == AB_EINVAL) {
        refuse(self, at, &err);
        return false;
    }
    later(self, t, &err); /* the centre or a full disk: not the job's fault */
    if (!t->claimed)
        place_give(self->place, &t->placement);
    return true;
}

/* False: the task has gone. */
static bool try_start(struct head *self, struct task **at)
{
    struct task *t = *at;
    struct ab_error err = {0};
    const struct job *job = t->job;
    struct place_want want = {
        .num_nodes = job->num_nodes,
        .ranks_per_node = job->ranks_per_node,
        .threads_per_rank = job->threads_per_rank,
        .threads_per_core = job->threads_per_core,
        .node_packing_count = job->node_packing_count,
        .gpus_per_rank = job->gpus_per_rank,
    };
    int rc = place_take(self->place, &want, &t->placement, &err);
    if (rc < 0) {
        refuse(self, at, &err);
        return false;
    }
    return rc > 0 || launch(self, at);
}

static void start_what_is_accepted(struct head *self)
{
    int64_t now = ab_now_ms();
    struct task **at = &self->tasks;
    while (*at) {
        const struct task *t = *at;
        if (!t->accepted || t->running || now < t->not_before_ms || launch(self, at))
            at = &(*at)->next;
    }
}

static void start_what_fits(struct head *self)
{
    int64_t now = ab_now_ms();
    int64_t most = self->o.serial ? INT32_MAX : self->o.settings->launcher.max_concurrent_mpiruns;
    struct task **at = &self->tasks;
    while (*at && self->n_stash > 0 && (int64_t)self->n_busy < most) {
        if (place_free(self->place) < 1e-3)
            return;
        if (!is_busy(*at) && now >= (*at)->not_before_ms && !find_busy(self, (*at)->job->id)
            && !try_start(self, at))
            continue;
        at = &(*at)->next;
    }
}

/* ---------------------------------------------------------------- leasing */

static void take_batches(struct head *self)
{
    struct lease_batch *batch;
    struct task **last = &self->tasks;
    while (*last)
        last = &(*last)->next;
    while ((batch = lease_take(self->lease)) != NULL) {
        const struct job *jobs = batch->jobs.v;
        for (size_t i = 0; i < batch->jobs.n; i++) {
            struct task *t = calloc(1, sizeof(*t));
            if (!t)
                abort();
            t->batch = batch;
            t->job = &jobs[i];
            *last = t;
            last = &t->next;
            self->n_stash++;
        }
        lease_batch_drop(batch);
    }
}

/* Serial mode keeps a stash, so that a node never waits for the centre; mpi mode takes what fits
 * now. */
static void ask_for_more(struct head *self)
{
    int64_t minutes = (self->end_ms - ab_now_ms()) / 60000;
    if (self->ending || lease_asking(self->lease) || self->end_ms - ab_now_ms() < 5000)
        return;
    double free_nodes = place_free(self->place);
    struct lease_want want = {.max_aggregate_nodes = -1,
                              .max_minutes = minutes < 1 ? 1 : (int)minutes};
    if (self->o.serial) {
        int64_t depth =
            (int64_t)self->o.n_nodes * self->o.settings->launcher.serial_mode_prefetch_per_rank;
        want.max_jobs = (int)(depth - (int64_t)self->n_stash);
        want.max_nodes = 1;
        if (want.max_jobs < (depth + 1) / 2)
            return; /* one call for many, not one for each */
    } else {
        if (self->n_stash > 0 || free_nodes < 0.01)
            return;
        want.max_jobs =
            (int)(self->o.settings->launcher.max_concurrent_mpiruns - (int64_t)self->n_busy);
        if (!self->o.settings->launcher.mpirun_allows_node_packing
            && want.max_jobs > (int)free_nodes)
            want.max_jobs = (int)free_nodes;
        want.max_nodes = (int)place_empty_nodes(self->place);
        want.max_aggregate_nodes = free_nodes;
        if (want.max_nodes == 0)
            want.max_nodes = 1; /* 0 would mean no limit */
    }
    if (want.max_jobs > 2048)
        want.max_jobs = 2048;
    if (want.max_jobs > 0)
        lease_ask(self->lease, &want);
}

static void take_news(struct head *self)
{
    struct lease_news news;
    int64_t job = 0;
    int number = 0;
    while (lease_news(self->lease, &news)) {
        struct task **at = &self->tasks;
        while (*at) {
            bool meant = (*at)->job->id == news.job && (*at)->job->lease == news.lease;
            if (!meant || !(news.lost ? lose(self, at) : cancel(self, at)))
                at = &(*at)->next;
        }
    }
    while (status_refused(self->status, &job, &number)) {
        struct task **at = &self->tasks;
        while (*at)
            if ((*at)->job->id != job || (*at)->job->lease != number || !lose(self, at))
                at = &(*at)->next;
    }
    while (status_accepted(self->status, &job, &number))
        for (struct task *t = self->tasks; t; t = t->next)
            if (t->claimed && t->job->id == job && t->job->lease == number)
                t->accepted = true;
}

/* ---------------------------------------------------------------- the loop */

static void drain_event(int fd)
{
    uint64_t n = 0;
    (void)!read(fd, &n, sizeof(n));
}

static int64_t step_runs(struct head *self, int64_t now)
{
    return self->crew ? crew_step(self->crew, now) : runs_step(self->runs, now);
}

static size_t count_runs(const struct head *self)
{
    return self->crew ? crew_count(self->crew) : runs_count(self->runs);
}

static void sleep_until_something(struct head *self, int64_t most_ms)
{
    struct pollfd p[5] = {
        {.fd = self->stop ? -1 : self->o.signals, .events = POLLIN}, /* one is enough */
        {.fd = lease_fd(self->lease), .events = POLLIN},
        {.fd = status_fd(self->status), .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = -1, .events = POLLIN},
    };
    if (self->crew) {
        int fds[2];
        crew_fds(self->crew, fds);
        p[3].fd = fds[0];
        p[4].fd = fds[1];
    } else {
        p[3].fd = runs_fd(self->runs);
    }
    (void)poll(p, 5, (int)most_ms);
    if (p[0].revents && !self->stop) {
        self->stop = true;
        self->why = "the launcher was told to end";
        self->grace_ms = HURRY_GRACE_MS;
        self->report_ms = HURRY_REPORT_MS;
    }
    drain_event(lease_fd(self->lease));
    drain_event(status_fd(self->status));
}

static bool time_to_end(struct head *self, int64_t now)
{
    struct ab_error err;
    if (self->stop)
        return true;
    if (lease_refused(self->lease, &err)) {
        self->why = "the centre refuses the session";
        return true;
    }
    if (now >= self->end_ms) {
        self->why = "the batch job's wall time is over";
        return true;
    }
    if (self->n_busy + self->n_stash > 0)
        self->idle_since_ms = now;
    else if (now - self->idle_since_ms >= self->o.settings->launcher.idle_ttl_ms) {
        self->why = "nothing to run";
        return true;
    }
    return false;
}

static int64_t step_tally(struct head *self)
{
    struct tally_now now = {.running = self->n_busy,
                            .stash = self->n_stash,
                            .nodes = self->o.n_nodes,
                            .free_nodes = place_free(self->place)};
    return tally_step(&self->tally, &now);
}

static void loop(struct head *self)
{
    for (;;) {
        int64_t now = ab_now_ms();
        if (time_to_end(self, now))
            return;
        take_news(self); /* first: they are older than the batches */
        take_batches(self);
        start_what_is_accepted(self);
        start_what_fits(self);
        status_hurry(self->status);
        ask_for_more(self);
        int64_t wait = step_runs(self, ab_now_ms()), tally = step_tally(self);
        wait = wait < tally ? wait : tally;
        int64_t idle_left = self->idle_since_ms + self->o.settings->launcher.idle_ttl_ms - now;
        if (wait > self->o.settings->launcher.delay_ms)
            wait = self->o.settings->launcher.delay_ms;
        if (wait > self->end_ms - now)
            wait = self->end_ms - now;
        if (wait > idle_left)
            wait = idle_left;
        sleep_until_something(self, wait < 0 ? 0 : wait);
    }
}

/* Kill what runs, report it, then give the rest back: in this order, so that no other launcher
 * starts a job that still runs here. */
static void wind_up(struct head *self)
{
    int64_t until = ab_now_ms() + self->grace_ms + 1000;
    self->ending = true;
    ab_log(AB_INFO, "launcher.ending", AB_KV("why", self->why), AB_KV("running", self->n_busy),
           AB_KV("stash", self->n_stash));
    if (self->crew)
        crew_kill_all(self->crew, self->grace_ms);
    else
        runs_kill_all(self->runs, self->grace_ms);
    while (count_runs(self) > 0 && ab_now_ms() < until) {
        int64_t wait = step_runs(self, ab_now_ms());
        if (count_runs(self) > 0)
            sleep_until_something(self, wait < 200 ? wait : 200);
    }
    for (struct task *t = self->tasks; t; t = t->next)
        if (is_busy(t) && !t->lost)
            report_text(self->status, t, AB_JOB_RUN_TIMEOUT,
                        t->running ? self->why : "its program was not started: the launcher ended",
                        NULL, NULL);
    size_t unsent = status_end(&self->status, self->report_ms);
    if (unsent)
        ab_log(AB_ERROR, "status.unsent", AB_KV("updates", unsent));
}

static int begin(struct head *self, struct ab_error *err)
{
    const struct head_options *o = &self->o;
    const char *starter_name = o->serial ? o->settings->launcher.local_app_launcher
                                         : o->settings->launcher.mpi_app_launcher;
    const struct apprun *starter = apprun_find(starter_name, err), *mpi = NULL;
    if (!starter || !(mpi = apprun_find(o->settings->launcher.mpi_app_launcher, err)))
        return -1;
    struct prepare_options prepare = {
        .site = o->site,
        .file = o->file,
        .platform = o->platform,
        .nodes = o->nodes,
        .n_nodes = o->n_nodes,
        .starter = starter,
        .job_mode = o->serial ? "serial" : "mpi",
    };
    struct lease_options lease = {
        .file = o->file,
        .site_id = o->site->id,
        .batch_job_id = o->batch_job_id,
        .filter_tags = o->filter_tags,
        .sort_by = o->settings->launcher.sort_by,
        .serial_only = o->serial,
        .heartbeat_ms =
            o->settings->launcher.heartbeat_ms > 0 ? o->settings->launcher.heartbeat_ms : 60000,
    };
    int tail = (int)o->settings->launcher.error_tail_num_lines;
    self->place = place_new(o->nodes, o->n_nodes,
                            o->serial || o->settings->launcher.mpirun_allows_node_packing);
    if (!o->serial && !(self->runs = runs_new(tail, on_exit_of, self, err)))
        return -1;
    if (o->serial) {
        AB_AUTO(ab_free)
        char *run_dir = ab_site_path(o->site, "run"), *log_dir = ab_site_path(o->site, "log");
        struct crew_options crew = {run_dir, log_dir, o->nodes,   o->n_nodes,
                                    mpi,     tail,    on_exit_of, self};
        if (!(self->crew = crew_new(&crew, err)))
            return -1;
    }
    if (!(self->prepare = prepare_new(&prepare, err)) || !(self->status = status_new(o->file, err)))
        return -1;
    self->lease = lease_new(&lease, err);
    return self->lease ? 0 : -1;
}

int head_run(const struct head_options *options, struct ab_error *err)
{
    struct head self = {.o = *options, .grace_ms = GRACE_MS, .report_ms = REPORT_MS};
    int64_t margin =
        options->wall_time_ms / 10 < END_MARGIN_MS ? options->wall_time_ms / 10 : END_MARGIN_MS;
    self.started_ms = self.idle_since_ms = ab_now_ms();
    self.end_ms = self.started_ms + options->wall_time_ms - margin;
    int rc = begin(&self, err);
    tally_open(&self.tally, options->site, options->instance, options->batch_job_id);
    if (rc == 0) {
        ab_log(AB_INFO, "launcher.ready", AB_KV("nodes", options->n_nodes),
               AB_KV("cpus", options->nodes[0].n_cpus),
               AB_KV("mode", options->serial ? "serial" : "mpi"));
        loop(&self);
        wind_up(&self);
        if (lease_refused(self.lease, err))
            rc = ab_fail_within(err, "no session at the centre");
    }
    (void)status_end(&self.status, 0);
    if (self.lease)
        while (self.tasks)
            drop(&self, &self.tasks);
    lease_end(&self.lease, self.report_ms);
    tally_close(&self.tally);
    crew_destroy(&self.crew);
    runs_destroy(&self.runs);
    prepare_destroy(&self.prepare);
    place_destroy(&self.place);
    return rc;
}
