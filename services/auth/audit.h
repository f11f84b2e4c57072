/* audit.h - what is written down: sign-ins, also failed ones, and what is done with tokens */
#ifndef AB_AUTH_AUDIT_H
#define AB_AUTH_AUDIT_H

#include "service/service.h"

struct audit {
    const char *action; /* "login.password" */
    bool ok;
    int64_t user;       /* whose account; 0 unknown */
    const char *actor;  /* the name, if it is one that we know: people type passwords there */
    const char *detail; /* NULL none; never a secret, and nothing a stranger chose */
};

/* In the call's transaction if it has one. -1: it could not be written, so it must not happen. */
int audit_add(struct ab_call *call, const struct audit *what, struct ab_error *err);

int audit_forget(struct ab_call *call, struct ab_error *err); /* timer */

#endif
