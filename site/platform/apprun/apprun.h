/* apprun.h - how an application is started on its nodes: one table row an MPI starter
 *
 * The AppRun interface of the paper, reduced to what differs: the words in front of the
 * application's own argument vector. Starting, watching and killing is the same for all
 * (launcher/run.c). The environment reaches the ranks by inheritance.
 */
#ifndef APPRUN_H
#define APPRUN_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

struct apprun_spec {
    const char *const *nodes; /* node ids, in order */
    size_t n_nodes;
    int ranks_per_node, threads_per_rank;
    int cpus_per_rank; /* at least 1 */
    int gpus_per_rank;
};

struct apprun {
    const char *name; /* as in settings.yml: launcher.mpi_app_launcher, local_app_launcher */
    /* The starter's words, NULL-terminated, in the arena; an empty list for none. */
    const char **(*words)(ab_arena_t *arena, const struct apprun_spec *spec, struct ab_error *err);
};

const struct apprun *apprun_find(const char *name, struct ab_error *err);

extern const struct apprun apprun_local, apprun_mpich;

#endif
