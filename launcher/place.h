/* place.h - which job runs on which node, cores and GPUs (contract launcher.md 5)
 *
 * A job of several nodes takes whole empty nodes. A job of one node takes 1/node_packing_count of a
 * node, ranks * threads cores and ranks * gpus GPUs; cores that come back go to the end of the idle
 * list.
 */
#ifndef PLACE_H
#define PLACE_H

#include "node/node.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct place place_t;

struct place_want {
    int num_nodes, ranks_per_node, threads_per_rank, threads_per_core, node_packing_count;
    double gpus_per_rank;
};

struct place_slot {
    size_t node; /* index in the list given to place_new */
    size_t n_cpus, n_gpus;
    int *cpus;
    const char **gpus;
};

struct placement {
    double occupancy; /* of each of its nodes */
    size_t n_nodes;
    struct place_slot *nodes;
};

/* The nodes are borrowed. packing false: every job takes whole nodes. */
place_t *place_new(const struct node_info *nodes, size_t n, bool packing);
void place_destroy(place_t **self);

/* 0 and a placement (to be given back), 1: not now, -1: it can never fit on these nodes (err says
 * why). */
int place_take(place_t *self, const struct place_want *want, struct placement **out,
               struct ab_error *err);
void place_give(place_t *self, struct placement **placement);

/* At most so many jobs of one node at a time there (none: its worker is not there); no limit at the
 * start. */
void place_limit(place_t *self, size_t node, size_t jobs);

/* What is taken of a node. */
struct place_use {
    size_t jobs, cpus, gpus;
};
struct place_use place_use(const place_t *self, size_t node);

size_t place_empty_nodes(const place_t *self);
double place_free(const place_t *self); /* nodes not taken, with fractions; at its limit: none */

#endif
