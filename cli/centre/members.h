/* members.h - the processes of a centre, as the supervisor is to run them */
#ifndef CENTRE_MEMBERS_H
#define CENTRE_MEMBERS_H

#include "base/supervise.h"
#include "centre.h"
#include "cluster.h"
#include "known.h"

/* "postgres": alone, because the others want it ready. */
struct ab_ward member_postgres(const struct centre *self, const struct cluster *cluster);

/* gateway.0 ..., auth.0, jobs.0, jobs.1 ...: in the arena, *n of them. */
struct ab_ward *members_make(const struct centre *self, const struct known *known, size_t *n);

/* <home>/run/<name>.json: where the process itself says where it listens. */
const char *member_run_file(const struct centre *self, const char *name);

/* "jobs" of "jobs.1", in the arena. */
const char *member_role(const struct centre *self, const char *name);

#endif
