/* mpich.c - MPICH's mpiexec (hydra): -n RANKS -ppn PER_NODE -hosts a,b
 *
 * Debian installs it beside Open MPI as mpiexec.mpich, so that name is tried first. The ranks
 * inherit our environment (-genvall is hydra's default), so no variable has to pass through a
 * command line.
 */
#include "apprun.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool in_path(const char *program)
{
    const char *path = getenv("PATH");
    char file[4096];
    for (const char *dir = path ? path : "/usr/bin:/bin"; *dir;) {
        size_t n = strcspn(dir, ":");
        if (snprintf(file, sizeof(file), "%.*s/%s", (int)n, dir, program) < (int)sizeof(file)
            && access(file, X_OK) == 0)
            return true;
        dir += n + (dir[n] == ':');
    }
    return false;
}

static const char **words(ab_arena_t *arena, const struct apprun_spec *spec, struct ab_error *err)
{
    const char *program = in_path("mpiexec.mpich") ? "mpiexec.mpich" : "mpiexec";
    if (!in_path(program)) {
        ab_fail(err, AB_EINVAL,
                "there is no mpiexec in PATH; install MPICH or load its module in "
                "the app's preamble or the job template");
        return NULL;
    }
    size_t room = 1;
    for (size_t i = 0; i < spec->n_nodes; i++)
        room += strlen(spec->nodes[i]) + 1;
    char *hosts = ab_alloc(arena, room, 1), *at = hosts;
    for (size_t i = 0; i < spec->n_nodes; i++)
        at += snprintf(at, room - (size_t)(at - hosts), "%s%s", i ? "," : "", spec->nodes[i]);

    const char **w = ab_alloc(arena, 8, sizeof(char *));
    w[0] = program;
    w[1] = "-n";
    w[2] = ab_printf(arena, "%zu", spec->n_nodes * (size_t)spec->ranks_per_node);
    w[3] = "-ppn";
    w[4] = ab_printf(arena, "%d", spec->ranks_per_node);
    w[5] = "-hosts";
    w[6] = hosts;
    return w;
}

const struct apprun apprun_mpich = {.name = "mpich", .words = words};
