/* leases.h - a tenant with a site, an app and runnable jobs, for tests of sessions */
#ifndef LEASES_H
#define LEASES_H

#include "desk.h"

extern int64_t user, site, app;

/* Setup of a test: all three are new. Teardown: the books are true. */
int fresh(void **state);
int books(void **state);

/* n runnable jobs: the first id, and all of them in ids (NULL: not wanted). */
int64_t runnable(int n, int64_t *ids, const char *fields);
/* How many jobs the session gets; the last answer is the list. */
int acquire(int64_t session, const char *spec);

#endif
