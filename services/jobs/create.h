/* create.h - POST /jobs/ */
#ifndef CREATE_H
#define CREATE_H

#include "plan.h"

ab_handler_f job_create;

/* n planned jobs become rows, or none does: quota, checks, ids, rows, events. Fills plan->ids. */
int create_planned(struct ab_call *call, struct plan *plan, struct ab_error *err);

#endif
