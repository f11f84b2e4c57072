/* spawn.h - child processes: argument vector, own process group, nothing inherited by accident
 */
#ifndef AB_SPAWN_H
#define AB_SPAWN_H

#include "error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ab_spawn {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH if it has no '/' */
    const char *const *env;  /* NULL-terminated "K=V"; NULL: this process's environment */
    const char *cwd;         /* NULL: ours */
    int in, out, err;        /* descriptors for 0, 1, 2; -1: /dev/null. Ours stay open */
    bool new_group;          /* own process group: kill(-pid) reaches its children */
    bool new_session;        /* setsid: out of reach of the terminal; a group of its own as well */
    bool die_with_parent;    /* SIGKILL when the parent thread's process dies (PR_SET_PDEATHSIG) */
    const int *cpus;         /* set the child's CPU affinity; NULL: inherited */
    size_t n_cpus;
    int *pidfd; /* NULL, or gets a pidfd (CLOEXEC) of the child: nothing starts without one */
};

/* Starts a child; signals are back at their defaults and unblocked in it. An exec failure is
 * reported here, with errno's text, not by an exit code. 0 or -1; AB_EBUSY if it may be started
 * later: no descriptors, processes or memory now. */
int ab_spawn(const struct ab_spawn *what, pid_t *pid, struct ab_error *err);

/* Run to the end with a time limit, collecting at most `limit` bytes of stdout+stderr (the rest is
 * read and dropped). On timeout the group is killed. *status is waitpid's. 0 or -1. */
struct ab_buf;
int ab_run_command(const struct ab_spawn *what, int64_t timeout_ms, struct ab_buf *output,
                   int *status, struct ab_error *err);

/* waitpid status -> shell-like number: exit code, or -signal. */
int ab_exit_code(int status);

/* A pidfd (CLOEXEC) that becomes readable when the child has ended; -1 with errno. */
int ab_pidfd(pid_t pid);

/* Start time of a process in clock ticks (/proc/PID/stat field 22), 0 if there is none (or a
 * zombie): tells a reused pid from the one that was written down. */
uint64_t ab_pid_start_time(pid_t pid);

/* Directory of this program's own file (from /proc/self/exe), static storage. */
const char *ab_self_dir(void);

/* Where to find another program of the installation: beside us, ../bin, or ../libexec/abies. The
 * text is in static storage per name and lives as long as the process; NULL if it is not there. */
const char *ab_find_program(const char *name);
/* The same for ../share/abies/<name> (or the source tree's file in a build tree). */
const char *ab_find_share(const char *name);

#endif
