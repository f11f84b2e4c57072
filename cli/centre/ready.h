/* ready.h - are the processes of a centre ready? */
#ifndef CENTRE_READY_H
#define CENTRE_READY_H

#include "centre.h"
#include "state.h"

/* ready[i] of state->processes[i]: PostgreSQL takes connections, another one's /readyz is 200.
 * why[i]: what it says when it is not, or NULL. True if all are. */
bool ready_now(const struct centre *self, const struct state *state, bool *ready, const char **why);

/* Until all processes are ready and a gateway answers over HTTPS. -1: not within the time, with the
 * name of the first that is not, what it says, and the last line of its log. */
int ready_wait(const struct centre *self, int64_t limit_ms, void (*progress)(const char *text),
               struct ab_error *err);

#endif
