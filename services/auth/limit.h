/* limit.h - log-ins are counted by address, and by user and address, before any password is hashed
 */
#ifndef AB_AUTH_LIMIT_H
#define AB_AUTH_LIMIT_H

#include "service/service.h"

/* -1 AB_ERATE with retry_sec. `what` tells log-ins from registrations, and the like. */
int limit_attempt(struct ab_call *call, const char *what, const char *username,
                  struct ab_error *err);
/* Right behind an attempt that was none. */
int limit_forgive(struct ab_call *call, struct ab_error *err);

int limit_forget(struct ab_call *call, struct ab_error *err); /* timer */

#endif
