/* leftovers.h - processes of a centre whose supervisor is gone */
#ifndef CENTRE_LEFTOVERS_H
#define CENTRE_LEFTOVERS_H

#include "centre.h"
#include <stddef.h>

/* Ends them: SIGTERM (SIGINT for PostgreSQL, last), then SIGKILL. They are known by the run file
 * that stands in their environment. How many there were, or -1. */
int leftovers_end(const struct centre *self, struct ab_error *err);

#endif
