/* tally.h - what a launcher has done, for Prometheus: run/metrics/<instance>.prom of its site */
#ifndef TALLY_H
#define TALLY_H

#include "crew.h"
#include "place.h"
#include "sitedir/figures.h"

#define TALLY_NODES 256 /* that have figures of their own: a file has its bounds */

enum tally_end {
    TALLY_DONE,
    TALLY_ERROR,
    TALLY_TIMEOUT,
    TALLY_NODE_LOSS,
    TALLY_CANCELLED,
    TALLY_LOST, /* the lease was another's by then */
    TALLY_ENDS
};

struct tally {
    ab_figures_t *figures;
    char labels[160];
    uint64_t started, refused, delayed, ended[TALLY_ENDS];
};

/* How it is now. */
struct tally_now {
    size_t running, stash;
    const struct node_info *nodes;
    size_t n_nodes;
    const place_t *place;
    crew_t *crew; /* serial mode */
    runs_t *runs; /* mpi mode */
};

void tally_open(struct tally *self, const struct ab_site *site, const char *instance,
                int64_t batch_job_id);
void tally_close(struct tally *self);
/* Writes when it is time. ms until it wants to again. */
int64_t tally_step(struct tally *self, const struct tally_now *now);

#endif
