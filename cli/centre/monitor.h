/* monitor.h - the supervisor's health port: who runs, who was started again and why
 *
 * On loopback, a port that is free; run/centre.json has it.
 */
#ifndef CENTRE_MONITOR_H
#define CENTRE_MONITOR_H

#include "base/supervise.h"

typedef struct monitor monitor_t;

monitor_t *monitor_new(struct ab_error *err);
void monitor_destroy(monitor_t **self);
const char *monitor_address(const monitor_t *self);

/* What the port shows from now on. Often enough: those who ask get what the last call saw. */
void monitor_show(monitor_t *self, const ab_supervise_t *wards, bool started);

#endif
