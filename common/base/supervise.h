/* supervise.h - keep a set of processes running: start, restart with back-off, stop in order
 *
 * Used by `abies up` and by the site's broker. It owns no loop: the caller polls ab_supervise_fd()
 * (a signalfd-free epoll of pidfds and a timer) together with its own descriptors and calls
 * ab_supervise_step() when it is readable.
 */
#ifndef AB_SUPERVISE_H
#define AB_SUPERVISE_H

#include "error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct ab_supervise ab_supervise_t;

struct ab_ward {
    const char *name;        /* unique, e.g. "jobs.0"; copied */
    const char *const *argv; /* copied */
    const char *const *env;  /* added to ours, "K=V"; copied; NULL none */
    const char *cwd;
    const char *log_path; /* stdout and stderr go to the end of it, rotated at 16 MiB x 4 */
    int64_t stop_ms;      /* stop_signal, then SIGKILL to its group after this long */
    int stop_signal;      /* 0: SIGTERM */
    bool die_with_parent; /* see spawn.h: killed when the thread that supervises ends */
};

/* Restart waits 0.2 s, doubling to 30 s; a run of more than 60 s starts again at 0.2 s. */
ab_supervise_t *ab_supervise_new(struct ab_error *err);

/* Kills (SIGKILL, groups) what still runs. */
void ab_supervise_destroy(ab_supervise_t **self);

int ab_supervise_add(ab_supervise_t *self, const struct ab_ward *ward, struct ab_error *err);
int ab_supervise_remove(ab_supervise_t *self, const char *name); /* stops it; it is not restarted */

int ab_supervise_fd(const ab_supervise_t *self);
void ab_supervise_step(ab_supervise_t *self);

/* SIGTERM to all; step until ab_supervise_running() is 0 (each is killed after its stop_ms). */
void ab_supervise_stop(ab_supervise_t *self);
size_t ab_supervise_running(const ab_supervise_t *self);

/* Why one was started again. */
enum ab_ward_cause {
    AB_WARD_EXIT,        /* it ended, with status 0 */
    AB_WARD_ERROR,       /* with another one */
    AB_WARD_SIGNAL,      /* it was killed, or crashed */
    AB_WARD_NOT_STARTED, /* the program could not be started */
    AB_WARD_CAUSES
};

struct ab_ward_status {
    const char *name;
    pid_t pid; /* 0: not running now */
    int restarts;
    int last_exit; /* as ab_exit_code */
    int64_t started_utc_us;
    int64_t up_ms, backoff_ms;    /* how long it has run; until its next start */
    int by_cause[AB_WARD_CAUSES]; /* the restarts */
};
/* `i` from 0; false past the end. */
bool ab_supervise_status(const ab_supervise_t *self, size_t i, struct ab_ward_status *out);

/* Called after each start and end; NULL none. */
void ab_supervise_on_change(ab_supervise_t *self, void (*fn)(void *arg, const char *name),
                            void *arg);

#endif
