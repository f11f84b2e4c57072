/* metrics.h - how the gateway is, for /healthz, /readyz, /metrics and the health port */
#ifndef METRICS_H
#define METRICS_H

#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>

/* The health port's thread reads a snapshot that the loop renews; metrics_tick is that renewal. */
int metrics_start(const char *listen, struct ab_error *err);
void metrics_stop(void);
void metrics_tick(void);
const char *metrics_address(void);

struct ab_route;
/* An answer has begun, this long after its request; route NULL: a page of our own, or nobody's. */
void metrics_answer(const struct ab_route *route, int status, int64_t us);
/* Subscribers were given what a hint had told of so long ago. */
void metrics_event_lag(int64_t us);

void metrics_render(struct ab_buf *out);
/* Ready: keys known, each service has a live replica, not draining. What is missing goes to `why`.
 */
bool metrics_ready(struct ab_buf *why);

#endif
