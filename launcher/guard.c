/* guard.c - the guard's whole life is one read loop */
#include "guard.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST = 65536
};

/* One message: a group to watch, the negative of one to forget, 0 for goodbye. Shorter than
 * PIPE_BUF: atomic. */
static int to_guard = -1;
static pid_t guard_pid;

static void note(pid_t *groups, size_t *n, pid_t message)
{
    if (message > 0 && *n < MOST) {
        groups[(*n)++] = message;
        return;
    }
    for (size_t i = 0; i < *n; i++)
        if (groups[i] == -message) {
            groups[i] = groups[--*n];
            return;
        }
}

static void live(int from)
{
    pid_t *groups = calloc(MOST, sizeof(pid_t));
    size_t n = 0;
    pid_t message = 0;
    if (!groups)
        _exit(1);
    for (;;) {
        ssize_t got = read(from, &message, sizeof(message));
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)sizeof(message))
            break; /* closed: the launcher is gone */
        if (message == 0)
            _exit(0);
        note(groups, &n, message);
    }
    for (size_t i = 0; i < n; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

int guard_start(struct ab_error *err)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make the guard's pipe");
    guard_pid = fork();
    if (guard_pid < 0) {
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        return ab_fail_errno(err, AB_EINTERNAL, "cannot start the guard");
    }
    if (guard_pid == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        setsid(); /* a kill of the launcher's group must not take the guard along */
        prctl(PR_SET_NAME, "abies-guard");
        close(pipe_fds[1]);
        for (int fd = 0; fd < 1024; fd++)
            if (fd != pipe_fds[0])
                close(fd);
        live(pipe_fds[0]);
    }
    close(pipe_fds[0]);
    to_guard = pipe_fds[1];
    return 0;
}

static void tell(pid_t message)
{
    if (to_guard >= 0)
        while (write(to_guard, &message, sizeof(message)) < 0 && errno == EINTR)
            ;
}

void guard_watch(pid_t group)
{
    tell(group);
}

void guard_forget(pid_t group)
{
    tell(-group);
}

void guard_stop(void)
{
    tell(0);
    ab_close(&to_guard);
    if (guard_pid > 0)
        (void)waitpid(guard_pid, NULL, 0);
    guard_pid = 0;
}
