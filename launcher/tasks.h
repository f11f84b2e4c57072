/* tasks.h - the jobs that a launcher has: in its stash, on nodes, or over and dropped
 *
 * Every change of state carries the lease number, so that a report that comes too late changes
 * nothing.
 */
#ifndef TASKS_H
#define TASKS_H

#include "crew.h"
#include "head.h"
#include "lease.h"
#include "place.h"
#include "prepare.h"
#include "run.h"
#include "status.h"
#include "tally.h"
#include "task.h"

enum {
    TASK_GRACE_MS = 10000 /* between SIGTERM and SIGKILL of a job */
};

struct tasks {
    const struct head_options *o;
    place_t *place;
    prepare_t *prepare;
    lease_t *lease;
    status_t *status;
    runs_t *runs; /* mpi mode */
    crew_t *crew; /* serial mode */
    struct task *first;
    size_t n_stash, n_busy; /* busy: on nodes, running or about to */
    size_t most;            /* mpi mode: busy at a time */
    struct tally tally;
    bool ending;
    const char *why; /* it ends */
};

bool task_is_busy(const struct task *t);
void task_drop(struct tasks *self, struct task **at);

/* A process has ended; arg: the tasks. */
void tasks_on_exit(void *arg, const struct run_exit *e);
/* A node's worker takes so many jobs at a time. */
void tasks_on_room(void *arg, size_t node, size_t jobs);

/* The job is not ours any more: its process must not go on, and nobody reports it. Somebody asked
 * for its end. True: dropped, and *at is the one behind it. */
bool task_lose(struct tasks *self, struct task **at);
bool task_cancel(struct tasks *self, struct task **at);

/* Those whose attempt the centre has counted; then those of the stash for which there is room. */
void tasks_start_accepted(struct tasks *self);
void tasks_start_fitting(struct tasks *self);

#endif
