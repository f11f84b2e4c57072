/* roster.h - the services and replicas that a gateway knows, and which one gets the next request
 *
 * A replica's load is what it holds plus its ghosts: requests that it still works on though nobody
 * waits for them any more (answered by another, timed out, cancelled). Without them a replica with
 * stuck workers would be fed its full capacity again at every deadline.
 */
#ifndef AB_ROSTER_H
#define AB_ROSTER_H

#include "pending.h"

#define AB_ROSTER_SERVICES 64
#define AB_ROSTER_REPLICAS 4096

struct service {
    char name[32];
    struct ab_pending_list queue;
    int live;
    int64_t none_since; /* when `live` became 0 */
    size_t turn;        /* where the search for a replica begins: ties go round */
    uint64_t sent, resent, refused, timed_out, late;
};

struct replica {
    uint64_t peer;
    struct service *service;
    char instance[128];
    int version; /* what we speak with it */
    int capacity, queued;
    int64_t oldest_ms;
    int64_t heard_ms;
    int64_t full_until;
    bool silent;   /* gone by silence: may come back */
    bool draining; /* takes no more */
    struct ab_pending_list sent;
    size_t ghosts;
};

struct ab_roster {
    int64_t started_ms;
    struct service *services[AB_ROSTER_SERVICES];
    size_t n_services;
    struct replica **replicas;
    size_t n_replicas, cap_replicas;
};

void ab_roster_free(struct ab_roster *self);

/* Made when it is not there; NULL: too many, or the name is too long. */
struct service *ab_roster_service(struct ab_roster *self, const char *name);

struct replica *ab_roster_find(const struct ab_roster *self, uint64_t peer);
struct replica *ab_roster_namesake(const struct ab_roster *self, const char *service,
                                   const char *instance);
struct replica *ab_roster_add(struct ab_roster *self, uint64_t peer, struct service *service,
                              const char *instance); /* NULL: too many */
void ab_roster_remove(struct ab_roster *self, struct replica *replica, int64_t now);

/* After a change of a replica's standing. */
void ab_roster_count_live(struct ab_roster *self, struct service *service, int64_t now);

/* The least loaded replica with room, or NULL. */
struct replica *ab_roster_pick(struct ab_roster *self, struct service *service, int64_t now);

void ab_roster_stats(const struct ab_roster *self, const struct service *service,
                     struct ab_bus_service_stats *out);

#endif
