/* jobs.h - the service, for main and for tests */
#ifndef JOBS_H
#define JOBS_H

#include "service/service.h"

extern const struct ab_service jobs_service;

#endif
