/* scheduler.h - the batch system of a machine: one table row a system
 *
 * The Scheduler interface of the paper: submit, list, cancel, backfill windows, and what became of
 * a job that is not listed any more. Submitting is idempotent by the batch job's number: a module
 * that was killed between submitting and telling the centre asks again and gets the same id.
 */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct scheduler_job {
    int64_t id;   /* the batch system's */
    bool running; /* else queued */
    const char *queue, *project;
    int num_nodes;
    int64_t wall_time_min, time_remaining_min, queued_time_min;
};

struct scheduler_submit {
    int64_t batch_job_id;
    const char *script; /* absolute path, executable */
    const char *project, *queue;
    int num_nodes;
    int64_t wall_time_min;
};

struct scheduler_past {
    bool known;               /* the batch system remembers it */
    int64_t start_us, end_us; /* UTC; 0 unknown */
    bool has_exit;
    int exit_code; /* as ab_exit_code */
};

struct scheduler {
    const char *name; /* as in settings.yml: scheduler.type */
    /* All take the folder of scripts and outputs (qsubmit/). 0 or -1; AB_EBUSY: ask again later. */
    int (*submit)(const char *folder, const struct scheduler_submit *job, int64_t *id,
                  struct ab_error *err);
    /* The id that submit gave to this batch job; 0: it was never submitted. */
    int64_t (*find)(const char *folder, int64_t batch_job_id);
    int (*list)(const char *folder, ab_arena_t *arena, struct scheduler_job **jobs, size_t *n,
                struct ab_error *err);
    int (*cancel)(const char *folder, int64_t id,
                  struct ab_error *err); /* one that is gone already is fine */
    int (*past)(const char *folder, int64_t id, struct scheduler_past *out, struct ab_error *err);
    /* {"queue": [{"num_nodes": 2, "wall_time_min": 60}]} */
    int (*backfill)(const char *folder, struct ab_buf *json, struct ab_error *err);
    /* The site stops: end what cannot go on without it, for at most timeout_ms. NULL: nothing to
     * do. */
    void (*stop)(const char *folder, int64_t timeout_ms);
};

const struct scheduler *scheduler_find(const char *name, struct ab_error *err);

extern const struct scheduler scheduler_local;

/* The process that is one batch job of the local scheduler: `abies-module-scheduler job ...`. */
int scheduler_local_job(int argc, char **argv);

#endif
