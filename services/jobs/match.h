/* match.h - which jobs do the filters of a request mean? */
#ifndef MATCH_H
#define MATCH_H

#include "service/service.h"

/* The states that the filters leave, a bit each (enumeration job_state). */
#define MATCH_ALL_STATES ((UINT64_C(1) << AB_JOB_STAGED_OUT) * 2 - 1)
uint64_t match_states(const struct job_query *query);

/* What a list of jobs is made of. */
struct ab_list_spec match_spec(struct ab_call *call);

/* At most `limit` ids, ascending, behind `after` and up to `upto`. free: only of jobs that no session
 * holds. */
int match_ids(struct ab_call *call, bool free, int64_t after, int64_t upto, size_t limit,
              struct ab_ids *out, struct ab_error *err);

/* The same filters again, on ids that the caller has locked meanwhile: those that still match. */
int match_again(struct ab_call *call, const struct ab_ids *locked, struct ab_ids *out,
                struct ab_error *err);

/* Is there any filter at all? */
bool match_has_filter(const struct ab_call *call);

#endif
