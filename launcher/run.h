/* run.h - the processes of jobs: started, limited in time, killed by group, reaped
 *
 * Used by the head (mpi mode: the MPI starter of each job) and by a node's worker (serial mode: the
 * program itself). One thread owns it; runs_fd() is readable when runs_step() has something to do.
 */
#ifndef RUN_H
#define RUN_H

#include "base/arena.h"
#include "base/error.h"
#include "http/metric.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct runs runs_t;

struct run_spec {
    int64_t job;
    const char *const *argv;
    const char *const *env; /* the whole environment, NULL-terminated */
    const char *cwd;        /* exists */
    const char
        *output; /* stdout and stderr, made anew; the one of the run before becomes OUTPUT.prev */
    const int *cpus; /* affinity; NULL: all */
    size_t n_cpus;
    int64_t limit_ms; /* 0: none */
};

enum run_end {
    RUN_ENDED,  /* by itself: code */
    RUN_LIMIT,  /* its own wall time was over */
    RUN_KILLED, /* by run_kill */
};

struct run_exit {
    int64_t job;
    enum run_end end;
    int code;         /* exit code, or -signal; RUN_NEVER if it could not be started */
    const char *tail; /* last lines of its output, valid UTF-8; until the callback returns */
};

#define RUN_NEVER 12345 /* what the contract reports for a program that could not be started */

typedef void run_exit_f(void *arg, const struct run_exit *exit);

runs_t *runs_new(int tail_lines, run_exit_f *on_exit, void *arg, struct ab_error *err);
void runs_destroy(runs_t **self); /* SIGKILL for what still runs */

/* -1: it could not be started (err says why, e.g. no such program); no exit will be reported.
 * AB_EBUSY: the job is not to blame (no descriptors, no processes, a full disk); later it may. */
int run_start(runs_t *self, const struct run_spec *spec, struct ab_error *err);

/* SIGTERM to the job's group now, SIGKILL after grace_ms. The exit is reported as RUN_KILLED. */
void run_kill(runs_t *self, int64_t job, int64_t grace_ms);
void runs_kill_all(runs_t *self, int64_t grace_ms);

int runs_fd(const runs_t *self);
size_t runs_count(const runs_t *self);
/* How many may run at a time: what the limit of descriptors leaves beside `spared` for others. */
size_t runs_room(const runs_t *self, size_t spared);

struct runs_figures {
    uint64_t started, not_started;
    struct ab_histogram spawn; /* from the order to the program's own first step */
};
struct runs_figures *runs_figures(runs_t *self);

/* Reap, enforce limits. Returns ms until it wants to be called again even if nothing is readable.
 */
int64_t runs_step(runs_t *self, int64_t now_ms);

#endif
