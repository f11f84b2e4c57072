/* walk.c - see walk.h
 *
 * By ascending id, up to the newest job there was when the walk began: whoever creates jobs
 * meanwhile does not keep it from ending, and what a piece has done is not looked at again.
 */
#include "walk.h"

#include "bad.h"
#include "job.sql.h"
#include "match.h"

enum {
    FOUND_MOST = 10 * WALK_PART, /* a search costs most of its time before its first row */
};

enum {
    LAST,
    NEWEST
}; /* of piece->v */

static int begin(struct ab_call *call, struct ab_piece *piece, struct ab_error *err)
{
    if (!piece->first)
        return 0;
    PGresult *r = ab_run(call, &SQL_job_newest, err);
    if (!r)
        return -1;
    piece->v[NEWEST] = ab_col_int(r, 0, 0);
    return 0;
}

static int do_parts(struct ab_call *call, struct ab_piece *piece, const struct ab_ids *found,
                    walk_part_f *part, void *arg, struct ab_error *err)
{
    for (size_t i = 0; i < found->n; i += WALK_PART) {
        struct ab_ids ids = {found->v + i, found->n - i < WALK_PART ? found->n - i : WALK_PART};
        if (check_time(call, err) < 0 || part(call, &ids, arg, err) < 0)
            return -1;
        piece->v[LAST] = ids.v[ids.n - 1];
        if (ab_piece_full(piece))
            return 0;
    }
    return 1;
}

int walk_matches(struct ab_call *call, struct ab_piece *piece, bool free, walk_part_f *part,
                 void *arg, struct ab_error *err)
{
    struct ab_ids found;
    int rc;

    if (begin(call, piece, err) < 0)
        return -1;
    do {
        if (check_time(call, err) < 0
            || match_ids(call, free, piece->v[LAST], piece->v[NEWEST], FOUND_MOST, &found, err) < 0)
            return -1;
        rc = do_parts(call, piece, &found, part, arg, err);
    } while (rc > 0 && found.n == FOUND_MOST);
    return rc;
}
