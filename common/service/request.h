/* request.h - the transaction around a call, and exactly once
 *
 * The key of a request is the digest of its Idempotency-Key, else its request id. The first
 * statement of its transaction claims the key; whoever finds it taken answers what was answered
 * before.
 */
#ifndef AB_SERVICE_REQUEST_H
#define AB_SERVICE_REQUEST_H

#include "skeleton.h"

extern const struct ab_sql *const request_blocks[];

/* Key and digest of the body, before anything else. */
void request_identify(struct ab_worker *worker, const struct ask *ask);

/* Of a body with secret fields only the others are digested: a fast hash of a password must not be
 * kept. */
void request_leave_secrets_out(struct ab_call *call);

/* BEGIN, the limits of the deadline and, if the route mutates, the claim: one round trip, or none of
 * its own (they go ahead of the handler's first statement).
 * 0 go on, 1 this request was committed before: call->reply and status are what it answered, -1. */
int request_begin(struct ab_call *call, struct ab_error *err);

/* Of a call without a transaction: PostgreSQL is told the trace, with the first statement. */
int request_name_plain(struct ab_call *call, struct ab_error *err);

/* The reply is recorded and everything committed: one round trip. A call that only read stays open:
 * it has nothing to lose, so it is answered first. */
int request_commit(struct ab_call *call, struct ab_error *err);
void request_end_read(struct ab_call *call);

/* Whatever state the connection is in; NULL-safe on a lost one. */
void request_rollback(struct ab_call *call);

#endif
