/* cancel.h - POST /jobs/{id}/cancel and /jobs/cancel?filters */
#ifndef CANCEL_H
#define CANCEL_H

#include "service/service.h"

ab_handler_f job_cancel, job_cancel_where;

#endif
