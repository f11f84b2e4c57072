/* status.h - state reports on their way to the centre: in batches, in order per job, never lost
 * while we live
 *
 * One thread with its own HTTPS client. Updates gather for a moment, go out as one PATCH /jobs/
 * with at most one update per job (the second update of a job goes with the next call), and are
 * sent again, under the same Idempotency-Key, until the centre has answered. A job that the centre
 * says is not ours any more is dropped from the call and told to the loop.
 */
#ifndef STATUS_H
#define STATUS_H

#include "client/api.h"
#include "schema/schema.h"

typedef struct status status_t;

status_t *status_new(const struct ab_client_file *file, struct ab_error *err);

/* Fields of `update`: id and lease, state, state_timestamp, state_data, return_code as its `has`
 * bits say. */
void status_put(status_t *self, const struct job *update);

/* The same; status_accepted tells when the centre has it. After some claims status_hurry sends them
 * at once, with all that waits. */
void status_claim(status_t *self, const struct job *update);
void status_hurry(status_t *self);

int status_fd(const status_t *self); /* an eventfd: read it, then ask the two below */
bool status_refused(status_t *self, int64_t *job, int *lease);
bool status_accepted(status_t *self, int64_t *job, int *lease); /* next claim that was */

/* Sends what is left, for at most timeout_ms. Returns how many updates could not be delivered. */
size_t status_end(status_t **self, int64_t timeout_ms);

#endif
