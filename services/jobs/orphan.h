/* orphan.h - what becomes of jobs that wait for a parent that FAILED or was deleted */
#ifndef ORPHAN_H
#define ORPHAN_H

#include "service/service.h"

/* The timer: with the setting fail_orphans they FAIL, and their events say why; without it they wait
 * for ever, as the contract has it (job-states.md 4). */
int orphan_fail(struct ab_call *call, struct ab_error *err);

#endif
