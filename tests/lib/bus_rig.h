/* bus_rig.h - a gateway's loop, keys and replicas for tests of the mesh */
#ifndef BUS_RIG_H
#define BUS_RIG_H

#include "bus/client.h"
#include "bus/curve.h"
#include "bus/server.h"
#include <pthread.h>
#include <sys/types.h>

/* A folder with gateway.key*, jobs.key*, auth.key* and allowed/{jobs,auth}.key; gone at the end of
 * the process. */
const char *rig_curve_dir(void);

/* Two neighbouring free loopback ports: the first. */
int rig_free_port(void);

ab_bus_t *rig_bus(const char *listen, const char *curve_dir, int64_t beat_ms, int64_t dead_ms);

/* Turn the gateway's loop until *flag is set or ms have passed; whether it was set. NULL: just ms.
 */
bool rig_turn(ab_bus_t *bus, const int *flag, int64_t ms);
bool rig_turn_until(ab_bus_t *bus, bool (*test)(ab_bus_t *bus, void *arg), void *arg, int64_t ms);

struct rig_hint {
    int calls;
    char topic;
    int64_t owner;
    char body[64];
};
extern struct rig_hint rig_hint; /* the last one */

/* Replicas that are live, as the gateway sees it. */
int rig_live(ab_bus_t *bus, const char *service);
bool rig_wait_live(ab_bus_t *bus, const char *service, int n, int64_t ms);

/* A replica on threads of this process: verbs `echo` (the body), `who` (the instance), `sleep` (ms
 * in the body, then the instance), `head` (what came with the request, as text), `boom` (409 with
 * items). */
struct rig_replica {
    ab_replica_t *replica;
    char instance[64];
    pthread_t io, workers[8];
    int n_workers;
    int rc;
};
void rig_replica_start(struct rig_replica *self, const char *service, const char *instance,
                       const char *const *gateways, const char *curve_dir, int workers,
                       int64_t beat_ms, int64_t dead_ms);
void rig_replica_stop(struct rig_replica *self); /* drains, joins, destroys */

/* The same as a process of its own: this program again, with "replica" as its first argument. */
pid_t rig_replica_spawn(const char *service, const char *instance, const char *gateway,
                        const char *curve_dir, int workers, int64_t beat_ms, int64_t dead_ms);
/* Call it first in main(); does not return in such a process. */
void rig_replica_main(int argc, char **argv);

/* One request and its answer. */
struct rig_call {
    int done, status;
    char *body;
    size_t len;
    int64_t took_ms;
    int64_t asked_ms;
};
uint64_t rig_ask(ab_bus_t *bus, struct rig_call *call, const char *service, const char *verb,
                 const void *body, size_t len, int64_t timeout_ms);
void rig_call_free(struct rig_call *call);

#endif
