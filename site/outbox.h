/* outbox.h - updates that must reach the centre, on disk until they have
 *
 * Modules hand over updates of jobs, transfers and batch jobs, each a JSON object with an id. They
 * are sent in bulk, in the order in which they came: one id never twice in a call, its second
 * update after its first. What goes into a call is written down, with the call's Idempotency-Key,
 * before it is sent: after a crash at any byte the same call is sent again and the centre answers
 * it without doing it twice.
 *
 * Files <folder>/<number>.log, only ever appended to; a torn tail is what a crash left and is
 * ignored. Thread safe; only outbox_sync and the functions that say so touch the disk's cache
 * flush.
 */
#ifndef SITE_OUTBOX_H
#define SITE_OUTBOX_H

#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum outbox_target {
    OUTBOX_JOBS,
    OUTBOX_TRANSFERS,
    OUTBOX_BATCH_JOBS,
    OUTBOX_TARGETS
};
extern const char *const outbox_paths[OUTBOX_TARGETS]; /* "/jobs/" ... */
int outbox_target_of(const char *path);                /* -1: none of them */

#define OUTBOX_LIMIT ((size_t)64 << 20)

typedef struct outbox outbox_t;

/* limit: bytes of updates that may wait. Reads what is there and starts a new file. */
outbox_t *outbox_open(const char *folder, size_t limit, struct ab_error *err);
void outbox_close(outbox_t **self);

/* One update at the end. Not on disk for sure until outbox_sync. AB_EBUSY: full; AB_EINVAL: no
 * object with an id. */
int outbox_put(outbox_t *self, enum outbox_target target, const char *json, size_t len,
               struct ab_error *err);
int outbox_sync(outbox_t *self, struct ab_error *err);

/* The call to make next: the same one until it was ended. 1, 0 nothing to do now, -1 disk. */
struct outbox_call {
    uint64_t number; /* for the functions below */
    char key[40];
    enum outbox_target target;
    size_t n;           /* updates in it */
    struct ab_buf body; /* JSON list; the caller frees it */
};
int outbox_next(outbox_t *self, struct outbox_call *out, struct ab_error *err);

/* It is over: done, or these of its updates can never be done and the rest is tried again as a new
 * call. */
int outbox_done(outbox_t *self, uint64_t number, struct ab_error *err);
int outbox_drop(outbox_t *self, uint64_t number, const bool *bad,
                struct ab_error *err); /* bad[n] */
/* Two calls of half the size in its place: one of its updates is to blame, who knows which. */
int outbox_split(outbox_t *self, uint64_t number, struct ab_error *err);
/* Not for so long: others go first. Its ids' later updates wait with it. */
void outbox_park(outbox_t *self, uint64_t number, int64_t delay_ms);

/* The id of its i-th update, 0 past the end. */
int64_t outbox_id(outbox_t *self, uint64_t number, size_t i);

/* Number of the last update put, and whether anything for `target` up to a number still waits. */
uint64_t outbox_last(outbox_t *self);
bool outbox_waits(outbox_t *self, enum outbox_target target, uint64_t up_to);

struct outbox_figures {
    size_t updates, bytes;
    int64_t oldest_utc_us; /* 0: none */
};
void outbox_figures(outbox_t *self, struct outbox_figures *out);

#endif
