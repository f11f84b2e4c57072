/* place.c - occupancy, idle cores and idle GPUs of each node */
#include "place.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-3; /* thirds and sevenths do not add up to 1 exactly */

struct node {
    double occupancy;
    size_t jobs, most;
    size_t n_cpus, n_gpus; /* idle ones */
    int *cpus;
    const char **gpus;
};

struct place {
    const struct node_info *info;
    size_t n;
    bool packing;
    struct node *nodes;
};

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

place_t *place_new(const struct node_info *nodes, size_t n, bool packing)
{
    place_t *self = need(calloc(1, sizeof(*self)));
    self->info = nodes;
    self->n = n;
    self->packing = packing;
    self->nodes = need(calloc(n ? n : 1, sizeof(struct node)));
    for (size_t i = 0; i < n; i++) {
        struct node *node = &self->nodes[i];
        node->most = SIZE_MAX;
        node->n_cpus = nodes[i].n_cpus;
        node->n_gpus = nodes[i].n_gpus;
        node->cpus = need(calloc(node->n_cpus + 1, sizeof(int)));
        node->gpus = need(calloc(node->n_gpus + 1, sizeof(char *)));
        if (node->n_cpus)
            memcpy(node->cpus, nodes[i].cpus, node->n_cpus * sizeof(int));
        if (node->n_gpus)
            memcpy(node->gpus, nodes[i].gpus, node->n_gpus * sizeof(char *));
    }
    return self;
}

void place_destroy(place_t **self)
{
    if (!self || !*self)
        return;
    for (size_t i = 0; i < (*self)->n; i++) {
        free((*self)->nodes[i].cpus);
        free((*self)->nodes[i].gpus);
    }
    free((*self)->nodes);
    free(*self);
    *self = NULL;
}

struct share {
    double occupancy;
    size_t cpus, gpus;
};

static struct share share_of(const place_t *self, const struct place_want *want)
{
    struct share s = {1.0, 0, 0};
    if (want->num_nodes > 1)
        return s;
    int per_core = want->threads_per_core > 0 ? want->threads_per_core : 1;
    int64_t threads = (int64_t)want->ranks_per_node * want->threads_per_rank;
    int64_t cpus = threads / per_core;
    s.cpus = cpus > 1 ? (size_t)cpus : 1;
    s.gpus = (size_t)(want->ranks_per_node * want->gpus_per_rank);
    if (self->packing && want->node_packing_count > 0)
        s.occupancy = 1.0 / want->node_packing_count;
    return s;
}

static bool node_fits(const struct node *node, const struct share *s)
{
    return node->jobs < node->most && node->occupancy + s->occupancy <= 1 + slack
           && node->n_cpus >= s->cpus && node->n_gpus >= s->gpus;
}

static int check_possible(const place_t *self, const struct place_want *want, const struct share *s,
                          struct ab_error *err)
{
    if (want->num_nodes < 1 || (size_t)want->num_nodes > self->n)
        return ab_fail(err, AB_EINVAL, "the job wants %d nodes, this allocation has %zu",
                       want->num_nodes, self->n);
    if (want->num_nodes > 1)
        return 0;
    for (size_t i = 0; i < self->n; i++)
        if (self->info[i].n_cpus >= s->cpus && self->info[i].n_gpus >= s->gpus)
            return 0;
    return ab_fail(err, AB_EINVAL,
                   "the job wants %zu cores and %zu GPUs of one node, no node here has that many",
                   s->cpus, s->gpus);
}

static void take_from(struct node *node, const struct share *s, struct place_slot *slot)
{
    slot->n_cpus = s->cpus;
    slot->n_gpus = s->gpus;
    slot->cpus = need(calloc(s->cpus + 1, sizeof(int)));
    slot->gpus = need(calloc(s->gpus + 1, sizeof(char *)));
    memcpy(slot->cpus, node->cpus, s->cpus * sizeof(int));
    memmove(node->cpus, node->cpus + s->cpus, (node->n_cpus - s->cpus) * sizeof(int));
    node->n_cpus -= s->cpus;
    memcpy(slot->gpus, node->gpus, s->gpus * sizeof(char *));
    memmove(node->gpus, node->gpus + s->gpus, (node->n_gpus - s->gpus) * sizeof(char *));
    node->n_gpus -= s->gpus;
    node->jobs++;
    node->occupancy += s->occupancy;
    if (node->occupancy > 1 - slack)
        node->occupancy = 1;
}

int place_take(place_t *self, const struct place_want *want, struct placement **out,
               struct ab_error *err)
{
    struct share s = share_of(self, want);
    if (check_possible(self, want, &s, err) < 0)
        return -1;

    size_t wanted = (size_t)want->num_nodes, found = 0;
    for (size_t i = 0; i < self->n && found < wanted; i++)
        found += node_fits(&self->nodes[i], &s);
    if (found < wanted)
        return 1;

    struct placement *p = need(calloc(1, sizeof(*p)));
    p->occupancy = s.occupancy;
    p->nodes = need(calloc(wanted, sizeof(struct place_slot)));
    for (size_t i = 0; i < self->n && p->n_nodes < wanted; i++) {
        if (!node_fits(&self->nodes[i], &s))
            continue;
        p->nodes[p->n_nodes].node = i;
        take_from(&self->nodes[i], &s, &p->nodes[p->n_nodes]);
        p->n_nodes++;
    }
    *out = p;
    return 0;
}

void place_give(place_t *self, struct placement **placement)
{
    struct placement *p = *placement;
    if (!p)
        return;
    for (size_t i = 0; i < p->n_nodes; i++) {
        struct place_slot *slot = &p->nodes[i];
        struct node *node = &self->nodes[slot->node];
        assert(node->n_cpus + slot->n_cpus <= self->info[slot->node].n_cpus);
        memcpy(node->cpus + node->n_cpus, slot->cpus, slot->n_cpus * sizeof(int));
        node->n_cpus += slot->n_cpus;
        memcpy(node->gpus + node->n_gpus, slot->gpus, slot->n_gpus * sizeof(char *));
        node->n_gpus += slot->n_gpus;
        node->jobs--;
        node->occupancy -= p->occupancy;
        if (node->occupancy < slack)
            node->occupancy = 0;
        free(slot->cpus);
        free(slot->gpus);
    }
    free(p->nodes);
    free(p);
    *placement = NULL;
}

void place_limit(place_t *self, size_t node, size_t jobs)
{
    self->nodes[node].most = jobs;
}

struct place_use place_use(const place_t *self, size_t node)
{
    const struct node *now = &self->nodes[node];
    return (struct place_use){
        .jobs = now->jobs,
        .cpus = self->info[node].n_cpus - now->n_cpus,
        .gpus = self->info[node].n_gpus - now->n_gpus,
    };
}

size_t place_empty_nodes(const place_t *self)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n; i++)
        n += self->nodes[i].occupancy == 0;
    return n;
}

double place_free(const place_t *self)
{
    double sum = 0;
    for (size_t i = 0; i < self->n; i++)
        if (self->nodes[i].jobs < self->nodes[i].most)
            sum += 1 - self->nodes[i].occupancy;
    return sum;
}
