/* tally.h - what a launcher has done, for Prometheus: run/metrics/<instance>.prom of its site */
#ifndef TALLY_H
#define TALLY_H

#include "sitedir/figures.h"

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
    size_t running, stash, nodes;
    double free_nodes;
};

void tally_open(struct tally *self, const struct ab_site *site, const char *instance,
                int64_t batch_job_id);
void tally_close(struct tally *self);
/* Writes when it is time. ms until it wants to again. */
int64_t tally_step(struct tally *self, const struct tally_now *now);

#endif
