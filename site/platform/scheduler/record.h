/* record.h - what the local scheduler knows of a batch job: qsubmit/job-NNNNN.json, and a lock
 * beside it
 *
 * The record is made once (O_EXCL) before the job's process is started and replaced as a whole when
 * something happens. The job's process holds a lock on job-NNNNN.lock as long as it lives: that,
 * not a process id, tells whether it runs.
 */
#ifndef RECORD_H
#define RECORD_H

#include "base/arena.h"
#include "scheduler.h"

#include <sys/types.h>

struct record {
    int64_t id;
    const char *script, *project, *queue;
    int num_nodes;
    int64_t wall_time_min;
    pid_t pid;                                  /* of the job's process; 0: not yet */
    int64_t submitted_us, started_us, ended_us; /* UTC; 0: not yet */
    bool has_exit;
    int exit_code;
};

/* 0; 1: it was there before (and *record is what it says). */
int record_make(const char *folder, ab_arena_t *arena, struct record *record, struct ab_error *err);
int record_write(const char *folder, const struct record *record, struct ab_error *err);
int record_read(const char *folder, int64_t id, ab_arena_t *arena, struct record *out,
                struct ab_error *err);

/* The lock of a job's process: a descriptor to keep open, -1 somebody else holds it or it cannot be
 * made. */
int record_lock(const char *folder, int64_t id);
/* The same when descriptor 0 is the lock, held by whoever started us; else as record_lock. */
int record_lock_given(const char *folder, int64_t id);
bool record_alive(const char *folder, int64_t id);

/* Numbers of all records, ascending. */
int record_ids(const char *folder, ab_arena_t *arena, int64_t **ids, size_t *n,
               struct ab_error *err);

#endif
