/* node.h - what a machine's compute nodes look like: one table row a platform
 *
 * The ComputeNode interface of the paper: the nodes of this allocation, their cores and GPUs, how a
 * job is told which GPUs are its own, and which scheduler job we are in. Placement
 * (launcher/place.c) never asks which machine it is on.
 */
#ifndef NODE_H
#define NODE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"

struct node_info {
    const char *id;   /* what the MPI starter calls it */
    const char *host; /* to reach it */
    const int *cpus;  /* logical cores that jobs may use */
    size_t n_cpus;
    const char *const *gpus; /* names as the visibility variable wants them */
    size_t n_gpus;
};

struct node_platform {
    const char *name; /* as in settings.yml: launcher.compute_node */
    /* The allocation's nodes, in order; everything belongs to the arena. */
    int (*list)(ab_arena_t *arena, struct node_info **nodes, size_t *n, struct ab_error *err);
    /* This allocation's id at the batch system, or NULL outside of one. */
    const char *(*scheduler_id)(ab_arena_t *arena);
    /* "K=V" entries that show only these GPUs to a job, each ended by NUL, into `out`; NULL: no
     * GPUs here. */
    void (*gpu_environment)(struct ab_buf *out, const char *const *gpus, size_t n);
};

/* NULL and an error with the names that exist. */
const struct node_platform *node_platform_find(const char *name, struct ab_error *err);

extern const struct node_platform node_local;

/* ABIES_LOCAL_CPUS=8 pretends that many cores on the local platform: packing is then tested on
 * small machines. */

#endif
