/* localjob.c - the process that is a batch job of the local scheduler
 *
 *     abies-module-scheduler job FOLDER ID
 *
 * Detaches, has the job's lock from its starter or takes it (a second one of the same job ends here), runs its script in a
 * process group, kills that at the wall time or on SIGTERM, and writes down when it began, ended,
 * and how.
 */
#include "record.h"
#include "scheduler.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_MS                                                                                   \
    8000 /* between SIGTERM and SIGKILL: a launcher reports and gives back in that time */

extern char **environ;

static const char **job_environment(ab_arena_t *arena, int64_t id)
{
    size_t n = 0;
    while (environ[n])
        n++;
    const char **env = ab_alloc(arena, n + 2, sizeof(char *));
    memcpy(env, environ, n * sizeof(char *));
    env[n] = ab_printf(arena, "ABIES_SCHEDULER_ID=%" PRId64, id);
    return env;
}

/* Waits for the script, bounded by the wall time and by SIGTERM. Its waitpid status. */
static int watch(pid_t pid, int pidfd, int signals, int64_t end_ms)
{
    int64_t kill_ms = 0;
    int status = 0;
    siginfo_t ended = {0};
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0
           && ended.si_pid == 0) {
        int64_t now = ab_now_ms();
        if (!kill_ms && now >= end_ms) {
            kill(-pid, SIGTERM);
            kill_ms = now + GRACE_MS;
        }
        if (kill_ms && now >= kill_ms) {
            kill(-pid, SIGKILL);
            kill_ms = now + 1000;
        }
        int64_t wait = (kill_ms ? kill_ms : end_ms) - now;
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
        (void)poll(p, 2, wait < 0 ? 0 : wait > 60000 ? 60000 : (int)wait);
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info) && !kill_ms)
            end_ms = 0;
    }
    kill(-pid, SIGKILL); /* what it left in its group, while the group's number is still ours */
    (void)waitpid(pid, &status, 0);
    return status;
}

static int run(const char *folder, struct record *r, int signals, ab_arena_t *arena,
               struct ab_error *err)
{
    const char *argv[] = {"bash", r->script, NULL};
    AB_AUTO(ab_close) int pidfd = -1;
    struct ab_spawn what = {
        .argv = argv,
        .env = job_environment(arena, r->id),
        .cwd = folder,
        .in = -1,
        .out = 1,
        .err = 2,
        .new_group = true,
        .die_with_parent = true,
        .pidfd = &pidfd,
    };
    pid_t pid = 0;
    r->pid = getpid();
    r->started_us = ab_utc_us();
    if (record_write(folder, r, err) < 0)
        return -1;
    if (ab_spawn(&what, &pid, err) == 0)
        r->exit_code =
            ab_exit_code(watch(pid, pidfd, signals, ab_now_ms() + r->wall_time_min * 60000));
    else
        r->exit_code = 127;
    r->has_exit = true;
    r->ended_us = ab_utc_us();
    return record_write(folder, r, err);
}

int scheduler_local_job(int argc, char **argv)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    struct record r;
    int64_t id = 0;
    ab_log_open("batch-job", argc > 2 ? argv[2] : "?", AB_INFO);
    if (argc != 3 || ab_parse_i64(argv[2], strlen(argv[2]), 1, INT64_MAX, &id) < 0)
        return 2;
    pid_t child = fork();
    if (child != 0)
        return child < 0;
    (void)setsid();

    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    AB_AUTO(ab_close) int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    AB_AUTO(ab_close) int lock = record_lock_given(argv[1], id);
    if (lock < 0)
        return 0; /* another process is this job already */
    if (record_read(argv[1], id, arena, &r, &err) == 0 && r.ended_us)
        return 0;
    if (err.code || run(argv[1], &r, signals, arena, &err) < 0) {
        ab_log(AB_ERROR, "batch_job.lost", AB_KV("id", id), AB_KV("error", err.text));
        return 1;
    }
    return 0;
}
