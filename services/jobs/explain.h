/* explain.h - GET /jobs/{id}/explain */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "service/service.h"

ab_handler_f job_explain;

#endif
