/* walk.h - over all jobs that match a request's filters, however many they are */
#ifndef WALK_H
#define WALK_H

#include "service/service.h"

/* Does something to at most WALK_PART jobs, whose ids ascend. Between the search and the lock a job
 * may have moved on: match_again under the lock. */
typedef int walk_part_f(struct ab_call *call, const struct ab_ids *ids, void *arg,
                        struct ab_error *err);

#define WALK_PART 1000

/* piece->v[0] and v[1] are the walk's, v[2] and v[3] the caller's. free: only jobs
 * that no session holds. 1 all matches are done, 0 this piece is full: the handler
 * ends with ab_piece_more; -1. */
int walk_matches(struct ab_call *call, struct ab_piece *piece, bool free, walk_part_f *part,
                 void *arg, struct ab_error *err);

#endif
