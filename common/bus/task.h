/* task.h - requests between a replica's I/O thread and its workers
 *
 *   I/O thread: ab_desk_put ─► queue (mutex, cond) ─► ab_desk_take: worker
 *   worker: ab_desk_reply ─► results (same mutex) + eventfd ─► I/O thread
 *
 * The eventfd is written only when nothing waited yet.
 */
#ifndef AB_TASK_H
#define AB_TASK_H

#include "client.h"
#include "frame.h"
#include "parcel.h"
#include <pthread.h>
#include <zmq.h>

struct ab_task {
    struct ab_task_info info;
    uint64_t gateway; /* serial of the connection that the reply goes to */
    uint64_t number;
    int version;
    int64_t taken_ms;
    zmq_msg_t body; /* the frame that it is in, moved from the socket; info.body points into it */
    zmq_msg_t reply;
    int status;
    struct ab_task *prev, *next;
    char text[];
};

/* Takes the frame of the body over (it is an empty message afterwards). NULL: the header is none. */
ab_task_t *ab_task_new(const struct ab_parcel *parcel, int64_t now);
void ab_task_destroy(ab_task_t **self);

struct ab_task_list {
    ab_task_t *first, *last;
    int n;
};

struct ab_hint_note {
    struct ab_hint_note *next;
    char head[AB_HINT_HEAD];
    size_t len;
    char body[];
};

struct ab_desk {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct ab_task_list queue, running, results;
    struct ab_hint_note *hints, **hints_end;
    size_t hint_bytes;
    bool closed, woken;
    int wake_fd; /* eventfd */
    uint64_t taken, replied, hint_count, lost_hints;
};

int ab_desk_init(struct ab_desk *self); /* 0, or -1 with errno */
void ab_desk_free(struct ab_desk *self);

int ab_desk_put(struct ab_desk *self, ab_task_t *task, int limit); /* -1: `limit` wait already */
ab_task_t *ab_desk_take(struct ab_desk *self);                     /* blocks; NULL: closed */
void ab_desk_reply(struct ab_desk *self, ab_task_t *task, int status, void *body, size_t len,
                   bool take);
void ab_desk_hint(struct ab_desk *self, char topic, int64_t owner, const void *body, size_t len);
void ab_desk_wake(struct ab_desk *self);
void ab_desk_close(struct ab_desk *self); /* takers get NULL; what waited stays for ab_desk_free */

/* For the I/O thread: all results and hints there are, which are its own then. */
struct ab_desk_out {
    ab_task_t *results;
    struct ab_hint_note *hints;
};
void ab_desk_collect(struct ab_desk *self, struct ab_desk_out *out);

struct ab_desk_state {
    int queued, running, results;
    int64_t oldest_ms;   /* age of the oldest running one, at least 1; 0 none */
    int64_t deadline_ms; /* the last deadline of all that are here */
};
void ab_desk_look(struct ab_desk *self, int64_t now, struct ab_desk_state *out);

#endif
