/* sweep.h - housekeeping, in one replica of the deployment */
#ifndef SWEEP_H
#define SWEEP_H

#include "service/service.h"

/* Since when heartbeats can come without a gap, and can be told from old ones. */
struct sweep_watch {
    int64_t since_ms, seen_ms; /* monotonic; 0: not yet */
    int64_t ahead_ms;          /* how far the database's clock was ahead of the monotonic one */
};
/* The database's time at now_ms, before sweep_watch. Its clock has made a jump: all heartbeats look
 * old (or new) that are not, until they have come again. */
void sweep_clock(struct sweep_watch *self, int64_t now_ms, int64_t database_ms, int64_t ttl_ms);
/* A look at now_ms, at which gateways are there or not. True: whoever has been silent for ttl_ms
 * could have been heard all that time. */
bool sweep_watch(struct sweep_watch *self, int64_t now_ms, bool reachable, int64_t ttl_ms,
                 int64_t period_ms);

int sweep_sessions(struct ab_call *call, struct ab_error *err);
int sweep_waiting(struct ab_call *call, struct ab_error *err);
int sweep_requests(struct ab_call *call, struct ab_error *err);
int sweep_room(struct ab_call *call, struct ab_error *err);
int sweep_events(struct ab_call *call, struct ab_error *err);

#endif
