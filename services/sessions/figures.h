/* figures.h - how the deployment is, for Prometheus: leases, jobs, what holds events back
 *
 * Every replica looks for itself, so that the figures are there whichever of them is asked.
 */
#ifndef FIGURES_H
#define FIGURES_H

#include "base/buf.h"
#include "service/service.h"

int figures_look(struct ab_call *call, struct ab_error *err); /* the timer */
void figures_write(struct ab_buf *out);                       /* any thread */

/* Counted where they happen, by this replica. */
void figures_leased(int64_t jobs);
void figures_swept(int64_t sessions, int64_t freed, int64_t timed_out);

#endif
