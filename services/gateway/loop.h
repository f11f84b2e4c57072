/* loop.h - lws, the bus and our timers on one libuv loop */
#ifndef LOOP_H
#define LOOP_H

#include "base/error.h"

/* The loop itself; then, once the bus is there, everything that hangs on it. */
int loop_init(struct ab_error *err);
int loop_start(struct ab_error *err);
void loop_run(void); /* until SIGTERM or SIGINT, and what was begun is finished */
void loop_free(void);

#endif
