/* array.h - POST /jobs/array: one request, a job for each combination of parameters */
#ifndef ARRAY_H
#define ARRAY_H

#include "service/service.h"

ab_handler_f job_array;
int array_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

#endif
