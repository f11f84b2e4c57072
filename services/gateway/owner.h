/* owner.h - owners with subscribers, and when each is fetched: soon after a hint, else once a while
 */
#ifndef OWNER_H
#define OWNER_H

#include "base/error.h"
#include "tail.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live;

struct owner {
    int64_t id;
    struct owner *next; /* in its bucket */
    struct owner *next_waiting;
    struct live *first; /* subscribers */
    struct place
        at;         /* all up to here has gone out to the live ones; not known: no one has joined */
    int64_t due_ms; /* waiting to be fetched then; 0: not */
    int64_t asked_ms; /* the last fetch or poll */
    int64_t fan_us;   /* what it took to tell the subscribers, the last time */
    int64_t hint_us;  /* the first hint that no fetch has answered; 0: none */
    int64_t held_ms;  /* the last wait for an open transaction; 0: none is in the way */
    bool again;       /* asked for during a fetch */
    bool asking;      /* inside the call that asks */
    uint64_t bus;     /* a fetch is under way */
};

/* fetch: its time has come. */
int owners_init(void (*fetch)(struct owner *o), struct ab_error *err);
void owners_free(void);
/* Those that nobody has asked for so long: many together, and who has moved on is fetched. What is too
 * much for one call has its turn at the next ones. */
void owners_poll(int64_t every_ms);

struct owner *owner_find(int64_t id);
struct owner *owner_get(int64_t id); /* made, if need be; NULL: no memory */
void owner_drop(struct owner *o);

/* Fetch it then, or sooner if that is due. During a fetch: once more when it ends. */
void owner_at(struct owner *o, int64_t due_ms);
/* At once after a silence, together with what else happens if much happens. */
void owner_soon(struct owner *o);
/* How much longer than others it waits, because to tell its subscribers takes long. */
int64_t owner_fan_ms(const struct owner *o);

#endif
