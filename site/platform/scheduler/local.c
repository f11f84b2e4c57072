/* local.c - batch jobs on this machine, without a batch system: one process group each
 *
 * The scheduler id is the batch job's own number. A job's process (localjob.c) is started in a
 * session of its own and outlives this module; what it is up to stands in its record.
 */
#include "record.h"
#include "scheduler.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A record without a process is given this long until it counts as dead. */
#define START_US (INT64_C(10) * 1000000)

/* The intermediate process ends at once, so that the job is nobody's child and no zombie of ours.
 * The job inherits its lock: it counts as alive from now on, however long it takes to start. */
static int start_process(const char *folder, int64_t id, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *program = ab_find_program("abies-module-scheduler");
    if (!program)
        return ab_fail(err, AB_EINTERNAL,
                       "abies-module-scheduler does not find its own program file");
    const char *output = ab_printf(arena, "%s/job-%05" PRId64 ".output", folder, id);
    AB_AUTO(ab_close)
    int fd = open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return ab_fail_errno(err, AB_EBUSY, "cannot open %s", output);
    AB_AUTO(ab_close) int lock = record_lock(folder, id);
    if (lock < 0 && record_alive(folder, id))
        return 0; /* it runs */
    const char *argv[] = {program, "job", folder, ab_printf(arena, "%" PRId64, id), NULL};
    struct ab_spawn what = {
        .argv = argv, .cwd = folder, .in = lock, .out = fd, .err = fd, .new_group = true};
    pid_t pid = 0;
    int status = 0;
    if (ab_spawn(&what, &pid, err) < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

static int submit(const char *folder, const struct scheduler_submit *job, int64_t *id,
                  struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct record r = {
        .id = job->batch_job_id,
        .script = job->script,
        .project = job->project,
        .queue = job->queue,
        .num_nodes = job->num_nodes,
        .wall_time_min = job->wall_time_min,
        .submitted_us = ab_utc_us(),
    };
    *id = job->batch_job_id;
    int rc = record_make(folder, arena, &r, err);
    if (rc < 0)
        return -1;
    if (ab_fault("scheduler.submit.recorded"))
        return ab_fail(err, AB_EBUSY, "submit interrupted (injected)");
    if (rc == 1 && (r.ended_us || r.started_us || record_alive(folder, r.id)))
        return 0; /* submitted before we were killed */
    return start_process(folder, r.id, err);
}

static int64_t find(const char *folder, int64_t batch_job_id)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct record r;
    struct ab_error err = {0};
    return record_read(folder, batch_job_id, arena, &r, &err) < 0 ? 0 : r.id;
}

static bool waits(const struct record *r)
{
    return !r->started_us
           && llabs(ab_utc_us() - r->submitted_us) < START_US; /* a clock may go back */
}

static int list(const char *folder, ab_arena_t *arena, struct scheduler_job **jobs, size_t *n,
                struct ab_error *err)
{
    int64_t *ids = NULL;
    size_t n_ids = 0;
    *n = 0;
    if (record_ids(folder, arena, &ids, &n_ids, err) < 0)
        return -1;
    *jobs = ab_alloc(arena, n_ids + 1, sizeof(struct scheduler_job));
    for (size_t i = 0; i < n_ids; i++) {
        struct record r;
        struct ab_error unread = {0};
        if (record_read(folder, ids[i], arena, &r, &unread) < 0) {
            ab_log(AB_WARN, "batch_job.unreadable", AB_KV("error", unread.text));
            continue;
        }
        bool alive = !r.ended_us && record_alive(folder, r.id);
        if (r.ended_us || (!alive && !waits(&r)))
            continue;
        int64_t gone_min = r.started_us ? (ab_utc_us() - r.started_us) / 60000000 : 0;
        (*jobs)[(*n)++] = (struct scheduler_job){
            .id = r.id,
            .running = r.started_us != 0,
            .queue = r.queue,
            .project = r.project,
            .num_nodes = r.num_nodes,
            .wall_time_min = r.wall_time_min,
            .time_remaining_min = r.wall_time_min > gone_min ? r.wall_time_min - gone_min : 0,
            .queued_time_min = r.started_us ? 0 : (ab_utc_us() - r.submitted_us) / 60000000,
        };
    }
    return 0;
}

static int cancel(const char *folder, int64_t id, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct record r;
    if (record_read(folder, id, arena, &r, err) < 0)
        return -1;
    if (r.pid > 0 && record_alive(folder, id)) /* the lock says that the pid is still the job's */
        (void)kill(r.pid, SIGTERM);
    return 0;
}

static int past(const char *folder, int64_t id, struct scheduler_past *out, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct record r;
    *out = (struct scheduler_past){0};
    if (record_read(folder, id, arena, &r, err) < 0)
        return err && err->code == AB_ENOENT ? 0 : -1;
    *out = (struct scheduler_past){true, r.started_us, r.ended_us, r.has_exit, r.exit_code};
    return 0;
}

static int backfill(const char *folder, struct ab_buf *json, struct ab_error *err)
{
    (void)folder;
    (void)err;
    ab_buf_str(json, "{}");
    return 0;
}

static size_t count_alive(const char *folder, const struct scheduler_job *jobs, size_t n)
{
    size_t alive = 0;
    for (size_t i = 0; i < n; i++)
        alive += record_alive(folder, jobs[i].id);
    return alive;
}

static void stop(const char *folder, int64_t timeout_ms)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct scheduler_job *jobs = NULL;
    struct ab_error err = {0};
    size_t n = 0;
    if (list(folder, arena, &jobs, &n, &err) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        (void)cancel(folder, jobs[i].id, &err);
    int64_t until = ab_now_ms() + timeout_ms;
    while (count_alive(folder, jobs, n) > 0 && ab_now_ms() < until) {
        (void)poll(NULL, 0, 50);
        for (size_t i = 0; i < n; i++) /* one that was just starting had no pid yet */
            if (!jobs[i].running)
                (void)cancel(folder, jobs[i].id, &err);
    }
}

const struct scheduler scheduler_local = {
    .name = "local",
    .submit = submit,
    .find = find,
    .list = list,
    .cancel = cancel,
    .past = past,
    .backfill = backfill,
    .stop = stop,
};
