/* agent.c - starting and stopping the agent of a site */
#include "agent.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "output.h"
#include "schema/json.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_LIMIT_MS 15000
#define STOP_LIMIT_MS 20000
#define LOOK_MS 50

/* run/health.json of this very process: how far has it come? */
static void look(const struct ab_site *site, struct agent_state *out)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(ab_free) char *path = ab_site_path(site, "run/health.json");
    if (ab_file_read(path, 1 << 20, &text, NULL) < 0)
        return;
    const struct ab_value *v = ab_value_parse(arena, text.data, text.len, NULL);
    if (ab_value_int(ab_value_get(v, "pid"), 0) != out->pid)
        return;
    const struct ab_value *settings = ab_value_get(v, "settings");
    out->reached = ab_value_bool(ab_value_get(ab_value_get(v, "uplink"), "reached"), false);
    out->known = ab_value_bool(ab_value_get(settings, "known"), false);
    snprintf(out->why, sizeof(out->why), "%s", ab_value_text(ab_value_get(settings, "why"), ""));
}

static int fail_with_log(const char *log, off_t from, int status, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *line = "it wrote nothing";
    if (ab_file_read(log, (size_t)64 << 20, &text, NULL) == 0 && (off_t)text.len > from) {
        while (text.len > 0 && text.data[text.len - 1] == '\n')
            text.data[--text.len] = '\0';
        line = strrchr(text.data, '\n');
        line = line ? line + 1 : text.data;
    }
    return ab_fail(err, AB_EINTERNAL, "the agent ended at once (%s %d); %s: %.300s",
                   WIFSIGNALED(status) ? "signal" : "exit status",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), log, line);
}

/* Until it holds the lock and the centre has taken or refused its settings, or it has ended. */
static int follow(const struct ab_site *site, struct agent_state *out, const char *log,
                  off_t log_from, struct ab_error *err)
{
    pid_t pid = out->pid;
    AB_AUTO(ab_close) int pidfd = ab_pidfd(pid);
    bool locked = false;
    for (int64_t until = ab_now_ms() + START_LIMIT_MS; ab_now_ms() < until;) {
        struct pollfd p = {pidfd, POLLIN, 0};
        struct ab_site_owner owner;
        int status = 0;
        if (poll(&p, 1, LOOK_MS) > 0 && waitpid(pid, &status, WNOHANG) == pid)
            return fail_with_log(log, log_from, status, err);
        locked = ab_site_owner(site, &owner, NULL) == 1 && owner.here && owner.pid == pid;
        if (locked)
            look(site, out);
        progress(locked ? "the agent runs; reaching the centre" : "starting the agent");
        if (out->reached && (out->known || *out->why))
            return 0;
    }
    progress_end();
    return locked ? 0
                  : ab_fail(err, AB_ETIMEOUT, "the agent (pid %d) does not get going; see %s",
                            (int)pid, log);
}

int agent_start(const struct ab_site *site, struct agent_state *out, struct ab_error *err)
{
    *out = (struct agent_state){0};
    struct ab_site_owner owner;
    int held = ab_site_owner(site, &owner, err);
    if (held < 0)
        return -1;
    if (held == 1 && owner.alive) {
        if (!owner.here)
            return ab_fail(err, AB_ECONFLICT,
                           "the agent of this site runs on %s (pid %d): stop it there first",
                           owner.host, (int)owner.pid);
        out->pid = owner.pid;
        look(site, out);
        return 1;
    }
    const char *program = ab_find_program("abies-site");
    if (!program)
        return ab_fail(err, AB_ENOENT,
                       "program abies-site is not installed beside this one (in %s)",
                       ab_self_dir());
    AB_AUTO(ab_free) char *log = ab_site_path(site, "log/agent.log");
    AB_AUTO(ab_close)
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot open `%s`", log);
    off_t from = lseek(fd, 0, SEEK_END);
    const char *argv[] = {program, "--site", site->path, NULL};
    struct ab_spawn what = {
        .argv = argv, .cwd = site->path, .in = -1, .out = fd, .err = fd, .new_session = true};
    if (ab_spawn(&what, &out->pid, err) < 0)
        return -1;
    return follow(site, out, log, from, err);
}

int agent_stop(const struct ab_site *site, struct ab_error *err)
{
    struct ab_site_owner owner;
    int held = ab_site_owner(site, &owner, err);
    if (held <= 0 || !owner.alive)
        return held < 0 ? -1 : 1;
    if (!owner.here)
        return ab_fail(err, AB_ECONFLICT,
                       "the agent of this site runs on %s (pid %d): stop it there", owner.host,
                       (int)owner.pid);
    AB_AUTO(ab_close) int pidfd = ab_pidfd(owner.pid);
    if (pidfd < 0 || ab_pid_start_time(owner.pid) != owner.start)
        return 1;
    struct pollfd p = {pidfd, POLLIN, 0};
    if (kill(owner.pid, SIGTERM) < 0)
        return ab_fail_errno(err, AB_EDENIED, "cannot stop the agent (pid %d)", (int)owner.pid);
    progress("the agent gives back what it holds");
    if (poll(&p, 1, STOP_LIMIT_MS) == 1)
        return 0;
    (void)kill(-owner.pid, SIGKILL);
    (void)kill(owner.pid, SIGKILL);
    (void)poll(&p, 1, STOP_LIMIT_MS);
    return ab_fail(err, AB_ETIMEOUT, "the agent (pid %d) did not end within %d s and was killed",
                   (int)owner.pid, STOP_LIMIT_MS / 1000);
}
