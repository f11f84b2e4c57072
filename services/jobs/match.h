/* match.h - which jobs do the filters of a request mean? */
#ifndef MATCH_H
#define MATCH_H

#include "service/service.h"

/* What a list of jobs is made of. `more` narrows it down ("AND j.session_id IS NULL"); may be "".
 */
struct ab_list_spec match_spec(struct ab_call *call, const char *more);

/* At most `limit` ids, ascending, behind `after`. */
int match_ids(struct ab_call *call, const char *more, int64_t after, size_t limit,
              struct ab_ids *out, struct ab_error *err);

/* The same filters again, on ids that the caller has locked meanwhile: those that still match. */
int match_again(struct ab_call *call, const struct ab_ids *locked, struct ab_ids *out,
                struct ab_error *err);

/* Is there any filter at all? */
bool match_has_filter(const struct ab_call *call);

#endif
