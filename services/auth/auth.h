/* auth.h - who is asking, and with which right */
#ifndef AB_AUTH_H
#define AB_AUTH_H

#include "service/service.h"

extern const struct ab_service auth_service;

#endif
