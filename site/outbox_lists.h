/* outbox_lists.h - the outbox in memory: updates in their order, and the calls that hold some of
 * them */
#ifndef SITE_OUTBOX_LISTS_H
#define SITE_OUTBOX_LISTS_H

#include "outbox.h"
#include <pthread.h>

#define OUTBOX_CALL_MAX 5000 /* updates in a call: the contract's limit */
#define OUTBOX_KEY 36

struct update {
    uint64_t number;
    int64_t time_us, id;
    enum outbox_target target;
    uint64_t call; /* 0: in none yet */
    uint64_t file; /* where it is written */
    char *json;
    size_t len;
    struct update *next;
};

struct call {
    uint64_t number;
    char key[OUTBOX_KEY + 1];
    enum outbox_target target;
    struct update **updates;
    size_t n;
    int64_t not_before_ms; /* monotonic */
    struct call *next;
};

struct outbox {
    pthread_mutex_t mutex;
    char *folder;
    size_t limit, bytes, waiting;
    struct update *first, **end;
    struct call *calls;
    uint64_t last, last_call;
    uint64_t file, oldest_file; /* numbers */
    int fd;
    bool torn; /* a write failed: what follows it in this file could not be read */
    size_t file_size;
};

#define OUTBOX_GONE UINT64_MAX /* update.call: over, to be removed */

void outbox_free_update(struct update *update);
void outbox_free_call(struct call *call);
struct call *outbox_new_call(enum outbox_target target,
                             size_t n); /* with a key of its own and room for n */

struct update *outbox_find_update(outbox_t *self, uint64_t number);
struct call *outbox_find_call(outbox_t *self, uint64_t number);
void outbox_append_update(outbox_t *self, struct update *update);
void outbox_append_call(outbox_t *self, struct call *call); /* numbers it, and its updates */
void outbox_unlink_call(outbox_t *self, struct call *call);
void outbox_remove_updates(outbox_t *self, uint64_t gone); /* those whose call is `gone` */

/* A later call takes its updates over from earlier ones; calls left empty go. `call` may be NULL.
 */
void outbox_take_over(outbox_t *self, struct call *call);

/* One file's records into the lists (outbox_restore.c). */
int outbox_restore_file(outbox_t *self, uint64_t number, struct ab_error *err);

#endif
