/* state.h - run/centre.json: which processes there are, for people, tests and the next `abies up`
 */
#ifndef CENTRE_STATE_H
#define CENTRE_STATE_H

#include "base/supervise.h"
#include "centre.h"
#include "cluster.h"
#include "schema/json.h"
#include <sys/types.h>

struct state_process {
    const char *name, *role;
    pid_t pid; /* 0: it does not run now */
    int64_t restarts, last_exit;
    int64_t started_us;
    const char *health, *instance; /* NULL: not said yet */
};

struct state {
    pid_t supervisor;   /* 0: none runs */
    const char *health; /* the supervisor's port; NULL: not known */
    const char *url, *socket_dir;
    struct state_process *processes;
    size_t n;
};

/* Written by the supervisor after each change. health: where it listens. */
int state_write(const struct centre *self, const struct cluster *cluster,
                const ab_supervise_t *supervise, const char *health, struct ab_error *err);

/* In the arena. No file: no supervisor, no processes. */
int state_read(const struct centre *self, ab_arena_t *arena, struct state *out,
               struct ab_error *err);

#endif
