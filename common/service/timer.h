/* timer.h - the thread of a service's timers; it also keeps an eye on the database for /readyz */
#ifndef AB_SERVICE_TIMER_H
#define AB_SERVICE_TIMER_H

#include "skeleton.h"

struct timers;

/* `worker` has a connection of its own; it is used by the thread only. */
struct timers *timers_start(struct ab_worker *worker, struct ab_error *err);
void timers_stop(struct timers **self);
/* Was the database there a moment ago? Any thread. */
bool timers_database(const struct timers *self);

#endif
