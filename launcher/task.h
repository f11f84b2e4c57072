/* task.h - one leased job in the launcher's loop */
#ifndef TASK_H
#define TASK_H

#include "lease.h"
#include "place.h"

struct task {
    struct task *next;
    struct lease_batch *batch;
    const struct job *job;
    struct placement *placement;
    bool claimed, accepted; /* reported RUNNING ahead; the centre knows */
    bool running, lost, cancelled;
    int64_t not_before_ms;
};

#endif
