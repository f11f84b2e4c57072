/* pending.h - requests that wait for a reply: numbers, lists, deadlines
 *
 * A request has a number (generation and slot: found in O(1), never met again by a late reply),
 * stands in one list (its service's queue, its replica's, or the finished ones) and in a heap of
 * deadlines. Generations begin at a random place: a reply meant for an earlier run of this gateway
 * must not fit.
 */
#ifndef AB_PENDING_H
#define AB_PENDING_H

#include "frame.h"
#include "server.h"
#include <stdatomic.h>

/* A body that the bus and libzmq's own thread hold together. */
struct ab_shared {
    atomic_int refs;
    void *data; /* malloc'ed */
    size_t len;
};
struct ab_shared *ab_shared_new(void *data, size_t len); /* takes data over; one reference */
struct ab_shared *ab_shared_hold(struct ab_shared *self);
void ab_shared_drop(struct ab_shared *self);

struct ab_pending_list {
    struct ab_pending *first, *last;
    size_t n;
};

enum ab_pending_state {
    AB_PENDING_QUEUED, /* in its service's queue */
    AB_PENDING_SENT,   /* a replica has it */
    AB_PENDING_OVER,   /* failed; `done` is still to be called */
};

struct ab_pending {
    struct ab_frame_request head; /* texts point into text[] */
    struct ab_shared *body;
    int64_t deadline_ms;
    void (*done)(void *arg, int status, const void *body, size_t len);
    void *arg;
    enum ab_pending_state state;
    int status; /* of what is over */
    char reason[192];
    void *owner;  /* the service */
    void *holder; /* the replica that has it; NULL unless SENT */
    struct ab_pending_list *list;
    struct ab_pending *prev, *next;
    size_t heap_at; /* place in the heap, from 1; 0: not there */
    size_t text_len;
    char text[];
};

/* Copies all texts, takes the body over. */
struct ab_pending *ab_pending_new(struct ab_bus_request *request);
void ab_pending_destroy(struct ab_pending **self);

void ab_pending_append(struct ab_pending_list *list, struct ab_pending *r);
void ab_pending_prepend(struct ab_pending_list *list, struct ab_pending *r);
void ab_pending_unlink(struct ab_pending *r); /* from whatever list it is in */

struct ab_pending_table {
    struct ab_pending_slot {
        struct ab_pending *r;
        uint64_t generation;
        uint32_t next_free; /* slot + 1; 0 ends */
    } * slots;
    uint32_t n, free;
    struct ab_pending **heap; /* [1..used], earliest deadline at 1 */
    size_t heap_used, heap_cap;
    uint64_t first_generation;
    uint32_t limit;
};

void ab_pending_table_init(struct ab_pending_table *self, uint32_t limit);
void ab_pending_table_free(struct ab_pending_table *self);
int ab_pending_table_add(struct ab_pending_table *self,
                         struct ab_pending *r); /* gives the number; -1 full */
void ab_pending_table_remove(struct ab_pending_table *self, struct ab_pending *r);
struct ab_pending *ab_pending_find(const struct ab_pending_table *self, uint64_t number);

/* The one whose deadline comes first, or NULL. */
struct ab_pending *ab_pending_earliest(const struct ab_pending_table *self);
void ab_pending_forget_deadline(struct ab_pending_table *self, struct ab_pending *r);

#endif
