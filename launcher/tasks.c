/* tasks.c - see tasks.h
 *
 * A job with a retry policy is reported RUNNING, and the centre has answered, before its program
 * starts: it may take this node down at once, and that attempt has to count. Other jobs are
 * reported when they run; nobody counts their attempts.
 */
#include "tasks.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "report.h"

#include <stdlib.h>

enum {
    RETRY_MS = 1000, /* a job that could not be prepared now */
};

bool task_is_busy(const struct task *t)
{
    return t->claimed || t->running;
}

/* The task of a job that is on nodes. A job that was lost and leased again is there twice for a moment: the
 * old one until its process has gone, and the new one in the stash. */
static struct task **find_busy(struct tasks *self, int64_t job)
{
    for (struct task **at = &self->first; *at; at = &(*at)->next)
        if (task_is_busy(*at) && (*at)->job->id == job)
            return at;
    return NULL;
}

void task_drop(struct tasks *self, struct task **at)
{
    struct task *t = *at;
    *at = t->next;
    if (task_is_busy(t))
        self->n_busy--;
    else
        self->n_stash--;
    lease_drop(self->lease, t->job->id, t->job->lease);
    place_give(self->place, &t->placement);
    lease_batch_drop(t->batch);
    free(t);
}

static void kill_task(struct tasks *self, const struct task *t, int64_t grace_ms)
{
    if (self->crew)
        crew_kill(self->crew, t->job->id, grace_ms);
    else
        run_kill(self->runs, t->job->id, grace_ms);
}

static enum tally_end kind_of_end(const struct tasks *self, const struct task *t,
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

static void report_end(struct tasks *self, const struct task *t, const struct run_exit *e)
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

void tasks_on_exit(void *arg, const struct run_exit *e)
{
    struct tasks *self = arg;
    struct task **at = find_busy(self, e->job);
    if (!at || !(*at)->running)
        return;
    ab_log(AB_INFO, "job.ended", AB_KV("job", e->job), AB_KV("end", (int)e->end),
           AB_KV("code", e->code));
    self->tally.ended[kind_of_end(self, *at, e)]++;
    if (!(*at)->lost)
        report_end(self, *at, e);
    task_drop(self, at);
}

void tasks_on_room(void *arg, size_t node, size_t jobs)
{
    const struct tasks *self = arg;
    place_limit(self->place, node, jobs);
}

bool task_lose(struct tasks *self, struct task **at)
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
    task_drop(self, at);
    return true;
}

bool task_cancel(struct tasks *self, struct task **at)
{
    struct task *t = *at;
    if (t->cancelled || t->lost)
        return false;
    ab_log(AB_INFO, "job.cancelled", AB_KV("job", t->job->id));
    t->cancelled = true;
    if (t->running) {
        kill_task(self, t, TASK_GRACE_MS);
        return false;
    }
    report_text(self->status, t, AB_JOB_FAILED, "cancelled", NULL, NULL);
    task_drop(self, at);
    return true;
}

/* ---------------------------------------------------------------- starting */

static int start(struct tasks *self, struct task *t, struct ab_error *err)
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
    if (t->placement->n_nodes == 1 && slot->n_cpus < self->o->nodes[slot->node].n_cpus) {
        spec.cpus = slot->cpus;
        spec.n_cpus = slot->n_cpus;
    }
    if (self->crew)
        return crew_start(self->crew, slot->node, &spec, err);
    if (run_start(self->runs, &spec, err) == 0)
        return 0;
    if (err->code == AB_EBUSY) /* a full disk, no descriptors */
        return -1;
    /* The program cannot be started: that is the run's result, not the launcher's trouble. */
    int code = RUN_NEVER;
    report_text(self->status, t, AB_JOB_RUN_ERROR, NULL, &code, err->text);
    return 1;
}

static void enter(struct tasks *self, struct task *t)
{
    if (task_is_busy(t))
        return;
    self->n_busy++;
    self->n_stash--;
}

static void started(struct tasks *self, struct task *t)
{
    enter(self, t);
    t->running = true;
    self->tally.started++;
    if (!t->claimed)
        report_running(self->status, t, false);
    ab_log(AB_INFO, "job.started", AB_KV("job", t->job->id),
           AB_KV("node", t->placement->nodes[0].node));
}

static void later(struct tasks *self, struct task *t, const struct ab_error *err)
{
    self->tally.delayed++;
    ab_log(AB_WARN, "job.delayed", AB_KV("job", t->job->id), AB_KV("error", err->text));
    t->not_before_ms = ab_now_ms() + RETRY_MS;
}

static void refuse(struct tasks *self, struct task **at, const struct ab_error *err)
{
    self->tally.refused++;
    ab_log(AB_WARN, "job.refused", AB_KV("job", (*at)->job->id), AB_KV("error", err->text));
    report_text(self->status, *at, AB_JOB_FAILED, err->text, NULL, NULL);
    task_drop(self, at);
}

static bool counts_attempts(const struct job *job)
{
    return job->retry.n > 0 && *job->retry.p == '{';
}

/* Everything that can go wrong before a start does so before the attempt counts. */
static int claim(struct tasks *self, struct task *t, struct ab_error *err)
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
static bool launch(struct tasks *self, struct task **at)
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
            task_drop(self, at);
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
static bool try_start(struct tasks *self, struct task **at)
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

void tasks_start_accepted(struct tasks *self)
{
    int64_t now = ab_now_ms();
    struct task **at = &self->first;
    while (*at) {
        const struct task *t = *at;
        if (!t->accepted || t->running || now < t->not_before_ms || launch(self, at))
            at = &(*at)->next;
    }
}

void tasks_start_fitting(struct tasks *self)
{
    int64_t now = ab_now_ms();
    size_t most = self->o->serial ? SIZE_MAX : self->most;
    struct task **at = &self->first;
    while (*at && self->n_stash > 0 && self->n_busy < most) {
        if (place_free(self->place) < 1e-3)
            return;
        if (!task_is_busy(*at) && now >= (*at)->not_before_ms && !find_busy(self, (*at)->job->id)
            && !try_start(self, at))
            continue;
        at = &(*at)->next;
    }
}
