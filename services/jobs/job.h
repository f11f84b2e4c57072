/* job.h - jobs: list, read, update, delete */
#ifndef JOB_H
#define JOB_H

#include "bad.h"
#include "service/service.h"

ab_handler_f job_list, job_get, job_patch, job_update, job_update_where, job_delete,
    job_delete_where;
int jobs_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

#endif
