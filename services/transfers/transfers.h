/* transfers.h - the service, for main and for tests */
#ifndef TRANSFERS_H
#define TRANSFERS_H

#include "service/service.h"

extern const struct ab_service transfers_service;

#endif
