/* local.c - no starter: the program itself, one process */
#include "apprun.h"

static const char **words(ab_arena_t *arena, const struct apprun_spec *spec, struct ab_error *err)
{
    if (spec->n_nodes != 1 || spec->ranks_per_node != 1) {
        ab_fail(err, AB_EINVAL,
                "the launcher `local` starts one process on one node, not %d ranks on each of %zu; "
                "use an MPI launcher (settings.yml: launcher.mpi_app_launcher) and mpi mode",
                spec->ranks_per_node, spec->n_nodes);
        return NULL;
    }
    return ab_alloc(arena, 1, sizeof(char *));
}

const struct apprun apprun_local = {.name = "local", .words = words};
