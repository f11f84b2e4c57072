/* local.c - one node: this machine, with the cores that this process may use */
#include "node.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t usable_cpus(ab_arena_t *arena, int **cpus)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        CPU_SET(0, &set);
    *cpus = ab_alloc(arena, (size_t)CPU_COUNT(&set), sizeof(int));
    size_t used = 0;
    for (int i = 0; i < CPU_SETSIZE && used < (size_t)CPU_COUNT(&set); i++)
        if (CPU_ISSET(i, &set))
            (*cpus)[used++] = i;
    return used;
}

/* ABIES_LOCAL_CPUS: more of them, by counting those that are there again and again. */
static size_t pretended_cpus(ab_arena_t *arena, int **cpus)
{
    const char *pretend = getenv("ABIES_LOCAL_CPUS");
    int64_t n = 0;
    size_t real = usable_cpus(arena, cpus);
    if (!pretend || ab_parse_i64(pretend, strlen(pretend), 1, 4096, &n) < 0)
        return real;
    int *all = ab_alloc(arena, (size_t)n, sizeof(int));
    for (int64_t i = 0; i < n; i++)
        all[i] = (*cpus)[(size_t)i % real];
    *cpus = all;
    return (size_t)n;
}

static int list(ab_arena_t *arena, struct node_info **nodes, size_t *n, struct ab_error *err)
{
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "this machine does not tell its name");
    struct node_info *node = ab_alloc(arena, 1, sizeof(*node));
    int *cpus = NULL;
    node->host = ab_strdup(arena, host);
    node->id = "localhost"; /* MPI starters fork for it; a host name may not even resolve */
    node->n_cpus = pretended_cpus(arena, &cpus);
    node->cpus = cpus;
    *nodes = node;
    *n = 1;
    return 0;
}

/* The local batch system is the site's scheduler module; it numbers a batch job by its process. */
static const char *scheduler_id(ab_arena_t *arena)
{
    const char *id = getenv("ABIES_SCHEDULER_ID");
    return id && *id ? ab_strdup(arena, id) : NULL;
}

const struct node_platform node_local = {
    .name = "local",
    .list = list,
    .scheduler_id = scheduler_id,
};
