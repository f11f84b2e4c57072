/* hold.h - replies that leave later: they slow down who guesses passwords, and hold up nobody else
 *
 * A bounded list and one thread, started by the first reply that is held. Past the bound a reply
 * leaves at once.
 */
#ifndef AB_SERVICE_HOLD_H
#define AB_SERVICE_HOLD_H

#include "bus/client.h"

#define HOLD_MAX 1024

struct hold;

struct hold *hold_new(ab_replica_t *replica);
/* Sends what is left, ends the thread. */
void hold_free(struct hold **self);
/* Takes task and body (malloc'ed) over. */
void hold_reply(struct hold *self, ab_task_t **task, int status, void *body, size_t len,
                int64_t ms);

#endif
