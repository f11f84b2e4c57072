/* ports.h - loopback ports that nobody else has */
#ifndef CENTRE_PORTS_H
#define CENTRE_PORTS_H

#include "centre.h"

/* Keep the ports of centre.yml where they are free, take the next free ones where not, any where it
 * says 0. Sets self->changed when one moved. */
int ports_choose(struct centre *self, struct ab_error *err);

/* Hold the HTTPS port for as long as the descriptor lives (bound, not listening, shared with the
 * gateways by SO_REUSEPORT), so that it stays ours while they restart. */
int ports_hold(const struct centre *self, struct ab_error *err);

#endif
