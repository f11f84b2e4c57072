/* head.c - one thread, one poll; HTTPS happens in the threads of lease.c and status.c */
#include "head.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "report.h"
#include "tasks.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    END_MARGIN_MS = 30000, /* before the wall clock ends: kill, report, give back */
    REPORT_MS = 15000,     /* for the last reports, then for giving back */
    HURRY_GRACE_MS = 2500, /* the same when told to end: a site stops within ten seconds */
    HURRY_REPORT_MS = 1500,
    SPARED_FILES = 12, /* mpi mode: for calls to the centre and what a start opens and closes */
};

struct head {
    struct tasks tasks;
    bool stop;
    int64_t started_ms, end_ms, idle_since_ms;
    int64_t grace_ms, report_ms; /* for the end */
};

/* ---------------------------------------------------------------- leasing */

static void take_batches(struct head *self)
{
    struct lease_batch *batch;
    struct task **last = &self->tasks.first;
    while (*last)
        last = &(*last)->next;
    while ((batch = lease_take(self->tasks.lease)) != NULL) {
        const struct job *jobs = batch->jobs.v;
        for (size_t i = 0; i < batch->jobs.n; i++) {
            struct task *t = calloc(1, sizeof(*t));
            if (!t)
                abort();
            t->batch = batch;
            t->job = &jobs[i];
            *last = t;
            last = &t->next;
            self->tasks.n_stash++;
        }
        lease_batch_drop(batch);
    }
}

/* Serial mode keeps a stash, so that a node never waits for the centre; mpi mode takes what fits
 * now. */
static void ask_for_more(struct head *self)
{
    int64_t minutes = (self->end_ms - ab_now_ms()) / 60000;
    if (self->tasks.ending || lease_asking(self->tasks.lease) || self->end_ms - ab_now_ms() < 5000)
        return;
    double free_nodes = place_free(self->tasks.place);
    struct lease_want want = {.max_aggregate_nodes = -1,
                              .max_minutes = minutes < 1 ? 1 : (int)minutes};
    if (self->tasks.o->serial) {
        int64_t depth = (int64_t)self->tasks.o->n_nodes
                        * self->tasks.o->settings->launcher.serial_mode_prefetch_per_rank;
        want.max_jobs = (int)(depth - (int64_t)self->tasks.n_stash);
        want.max_nodes = 1;
        if (want.max_jobs < (depth + 1) / 2)
            return; /* one call for many, not one for each */
    } else {
        if (self->tasks.n_stash > 0 || free_nodes < 0.01)
            return;
        want.max_jobs = (int)((int64_t)self->tasks.most - (int64_t)self->tasks.n_busy);
        if (!self->tasks.o->settings->launcher.mpirun_allows_node_packing
            && want.max_jobs > (int)free_nodes)
            want.max_jobs = (int)free_nodes;
        want.max_nodes = (int)place_empty_nodes(self->tasks.place);
        want.max_aggregate_nodes = free_nodes;
        if (want.max_nodes == 0)
            want.max_nodes = 1; /* 0 would mean no limit */
    }
    if (want.max_jobs > 2048)
        want.max_jobs = 2048;
    if (want.max_jobs > 0)
        lease_ask(self->tasks.lease, &want);
}

static void take_news(struct head *self)
{
    struct lease_news news;
    int64_t job = 0;
    int number = 0;
    while (lease_news(self->tasks.lease, &news)) {
        struct task **at = &self->tasks.first;
        while (*at) {
            bool meant = (*at)->job->id == news.job && (*at)->job->lease == news.lease;
            if (!meant
                || !(news.lost ? task_lose(&self->tasks, at) : task_cancel(&self->tasks, at)))
                at = &(*at)->next;
        }
    }
    while (status_refused(self->tasks.status, &job, &number)) {
        struct task **at = &self->tasks.first;
        while (*at)
            if ((*at)->job->id != job || (*at)->job->lease != number
                || !task_lose(&self->tasks, at))
                at = &(*at)->next;
    }
    while (status_accepted(self->tasks.status, &job, &number))
        for (struct task *t = self->tasks.first; t; t = t->next)
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
    return self->tasks.crew ? crew_step(self->tasks.crew, now) : runs_step(self->tasks.runs, now);
}

static size_t count_runs(const struct head *self)
{
    return self->tasks.crew ? crew_count(self->tasks.crew) : runs_count(self->tasks.runs);
}

static void sleep_until_something(struct head *self, int64_t most_ms)
{
    struct pollfd p[5] = {
        {.fd = self->stop ? -1 : self->tasks.o->signals, .events = POLLIN}, /* one is enough */
        {.fd = lease_fd(self->tasks.lease), .events = POLLIN},
        {.fd = status_fd(self->tasks.status), .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = -1, .events = POLLIN},
    };
    if (self->tasks.crew) {
        int fds[2];
        crew_fds(self->tasks.crew, fds);
        p[3].fd = fds[0];
        p[4].fd = fds[1];
    } else {
        p[3].fd = runs_fd(self->tasks.runs);
    }
    (void)poll(p, 5, (int)most_ms);
    if (p[0].revents && !self->stop) {
        self->stop = true;
        self->tasks.why = "the launcher was told to end";
        self->grace_ms = HURRY_GRACE_MS;
        self->report_ms = HURRY_REPORT_MS;
    }
    drain_event(lease_fd(self->tasks.lease));
    drain_event(status_fd(self->tasks.status));
}

static bool time_to_end(struct head *self, int64_t now)
{
    struct ab_error err;
    if (self->stop)
        return true;
    if (lease_refused(self->tasks.lease, &err)) {
        self->tasks.why = "the centre refuses the session";
        return true;
    }
    if (now >= self->end_ms) {
        self->tasks.why = "the batch job's wall time is over";
        return true;
    }
    if (self->tasks.n_busy + self->tasks.n_stash > 0)
        self->idle_since_ms = now;
    else if (now - self->idle_since_ms >= self->tasks.o->settings->launcher.idle_ttl_ms) {
        self->tasks.why = "nothing to run";
        return true;
    }
    return false;
}

static int64_t step_tally(struct head *self)
{
    struct tally_now now = {.running = self->tasks.n_busy,
                            .stash = self->tasks.n_stash,
                            .nodes = self->tasks.o->nodes,
                            .n_nodes = self->tasks.o->n_nodes,
                            .place = self->tasks.place,
                            .crew = self->tasks.crew,
                            .runs = self->tasks.runs};
    return tally_step(&self->tasks.tally, &now);
}

static void loop(struct head *self)
{
    for (;;) {
        int64_t now = ab_now_ms();
        if (time_to_end(self, now))
            return;
        take_news(self); /* first: they are older than the batches */
        take_batches(self);
        tasks_start_accepted(&self->tasks);
        tasks_start_fitting(&self->tasks);
        status_hurry(self->tasks.status);
        ask_for_more(self);
        int64_t wait = step_runs(self, ab_now_ms()), tally = step_tally(self);
        wait = wait < tally ? wait : tally;
        int64_t idle_left =
            self->idle_since_ms + self->tasks.o->settings->launcher.idle_ttl_ms - now;
        if (wait > self->tasks.o->settings->launcher.delay_ms)
            wait = self->tasks.o->settings->launcher.delay_ms;
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
    self->tasks.ending = true;
    ab_log(AB_INFO, "launcher.ending", AB_KV("why", self->tasks.why),
           AB_KV("running", self->tasks.n_busy), AB_KV("stash", self->tasks.n_stash));
    if (self->tasks.crew)
        crew_kill_all(self->tasks.crew, self->grace_ms);
    else
        runs_kill_all(self->tasks.runs, self->grace_ms);
    while (count_runs(self) > 0 && ab_now_ms() < until) {
        int64_t wait = step_runs(self, ab_now_ms());
        if (count_runs(self) > 0)
            sleep_until_something(self, wait < 200 ? wait : 200);
    }
    for (struct task *t = self->tasks.first; t; t = t->next)
        if (task_is_busy(t) && !t->lost)
            report_text(self->tasks.status, t, AB_JOB_RUN_TIMEOUT,
                        t->running ? self->tasks.why
                                   : "its program was not started: the launcher ended",
                        NULL, NULL);
    size_t unsent = status_end(&self->tasks.status, self->report_ms);
    if (unsent)
        ab_log(AB_ERROR, "status.unsent", AB_KV("updates", unsent));
}

/* mpi mode: how many starters at a time. */
static int find_most(struct tasks *self, struct ab_error *err)
{
    size_t most = (size_t)self->o->settings->launcher.max_concurrent_mpiruns;
    size_t room = self->runs ? runs_room(self->runs, SPARED_FILES) : most;
    self->most = room < most ? room : most;
    if (self->most < most && room < self->o->n_nodes)
        ab_log(AB_WARN, "launcher.few_files", AB_KV("jobs", self->most));
    if (self->most > 0)
        return 0;
    return ab_fail(err, AB_EINTERNAL,
                   "this process may open too few files to run a job; raise `ulimit -n` where the "
                   "launcher starts");
}

static int begin(struct head *self, struct ab_error *err)
{
    const struct head_options *o = self->tasks.o;
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
    self->tasks.place = place_new(o->nodes, o->n_nodes,
                                  o->serial || o->settings->launcher.mpirun_allows_node_packing);
    if (!o->serial && !(self->tasks.runs = runs_new(tail, tasks_on_exit, &self->tasks, err)))
        return -1;
    if (o->serial) {
        AB_AUTO(ab_free)
        char *run_dir = ab_site_path(o->site, "run"), *log_dir = ab_site_path(o->site, "log");
        struct crew_options crew = {run_dir, log_dir,       o->nodes,      o->n_nodes,  mpi,
                                    tail,    tasks_on_exit, tasks_on_room, &self->tasks};
        for (size_t i = 0; i < o->n_nodes; i++)
            place_limit(self->tasks.place, i, 0); /* until its worker is there */
        if (!(self->tasks.crew = crew_new(&crew, err)))
            return -1;
    }
    if (!(self->tasks.prepare = prepare_new(&prepare, err))
        || !(self->tasks.status = status_new(o->file, err)))
        return -1;
    self->tasks.lease = lease_new(&lease, err);
    return self->tasks.lease ? find_most(&self->tasks, err) : -1;
}

int head_run(const struct head_options *options, struct ab_error *err)
{
    struct head self = {.tasks.o = options, .grace_ms = TASK_GRACE_MS, .report_ms = REPORT_MS};
    int64_t margin =
        options->wall_time_ms / 10 < END_MARGIN_MS ? options->wall_time_ms / 10 : END_MARGIN_MS;
    self.started_ms = self.idle_since_ms = ab_now_ms();
    self.end_ms = self.started_ms + options->wall_time_ms - margin;
    int rc = begin(&self, err);
    tally_open(&self.tasks.tally, options->site, options->instance, options->batch_job_id);
    if (rc == 0) {
        ab_log(AB_INFO, "launcher.ready", AB_KV("nodes", options->n_nodes),
               AB_KV("cpus", options->nodes[0].n_cpus),
               AB_KV("mode", options->serial ? "serial" : "mpi"));
        loop(&self);
        wind_up(&self);
        if (lease_refused(self.tasks.lease, err))
            rc = ab_fail_within(err, "no session at the centre");
    }
    (void)status_end(&self.tasks.status, 0);
    if (self.tasks.lease)
        while (self.tasks.first)
            task_drop(&self.tasks, &self.tasks.first);
    lease_end(&self.tasks.lease, self.report_ms);
    tally_close(&self.tasks.tally);
    crew_destroy(&self.tasks.crew);
    runs_destroy(&self.tasks.runs);
    prepare_destroy(&self.tasks.prepare);
    place_destroy(&self.tasks.place);
    return rc;
}
