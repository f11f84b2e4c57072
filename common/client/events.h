/* events.h - live events: a WebSocket to /events/stream that resumes by itself
 *
 * Blocking iterator on libwebsockets' client, for `abies watch` and agents.
 */
#ifndef AB_EVENTS_H
#define AB_EVENTS_H

#include "api.h"

typedef struct ab_events ab_events_t;

/* query: "site_id=3&state=RUNNING", may be NULL. since: a cursor or NULL (from now on). */
ab_events_t *ab_events_new(const struct ab_client_file *file, const char *query, const char *since,
                           struct ab_error *err);
void ab_events_destroy(ab_events_t **self);

/* Next frame's JSON text ({"cursor","events":[..]}), valid until the next call. 1 a frame, 0
 * timeout, -1 it cannot go on (token refused; AB_EGONE: what is behind the cursor was forgotten). Reconnects with the last cursor in between. */
int ab_events_next(ab_events_t *self, int64_t timeout_ms, const char **text, size_t *len,
                   struct ab_error *err);

#endif
