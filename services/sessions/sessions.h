/* sessions.h - the service, for main and for tests */
#ifndef SESSIONS_H
#define SESSIONS_H

#include "service/service.h"

extern const struct ab_service sessions_service;

#endif
