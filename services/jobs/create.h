/* create.h - POST /jobs/ */
#ifndef CREATE_H
#define CREATE_H

#include "service/service.h"

ab_handler_f job_create;

#endif
