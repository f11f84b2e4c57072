/* held.h - the jobs that the processing session holds: waiting for a worker, or with a hook that
 * runs
 */
#ifndef MODULES_HELD_H
#define MODULES_HELD_H

#include "base/arena.h"
#include "hook.h"
#include "schema/schema.h"

/* One answer of the centre; its memory lives as long as one of its jobs. */
struct batch {
    ab_arena_t *arena;
    size_t users;
};

struct held {
    struct batch *batch;
    const struct job *job; /* in the batch's arena */
    hook_t *hook;          /* NULL: waits */
    bool needs_worker;     /* known to have a hook */
    bool named;            /* in a heartbeat */
    struct held *next;
};

struct held_list {
    struct held *first, **end;
    size_t n, running;
};

void held_init(struct held_list *list);
/* Takes a reply body ([job, ...]) in. Number of jobs, -1 + err. */
int64_t held_add(struct held_list *list, const char *json, size_t len, struct ab_error *err);
struct held *held_find(struct held_list *list, int64_t job_id);
struct held *held_of_fd(struct held_list *list, int fd);
void held_remove(struct held_list *list, struct held *one); /* kills its hook */
void held_clear(struct held_list *list);

#endif
