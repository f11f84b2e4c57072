/* sweep.h - housekeeping, in one replica of the deployment */
#ifndef SWEEP_H
#define SWEEP_H

#include "service/service.h"

int sweep_sessions(struct ab_call *call, struct ab_error *err);
int sweep_waiting(struct ab_call *call, struct ab_error *err);
int sweep_requests(struct ab_call *call, struct ab_error *err);
int sweep_partitions(struct ab_call *call, struct ab_error *err);

#endif
