/* lifecycle.h - how jobs change state: one place, for jobs, sessions and transfers
 *
 * The rules of the contract (job-states.md) are decided in lifecycle.sql on locked rows; N jobs,
 * their events, released children and transfer items move in one transaction with a constant number
 * of statements. Lock order: sessions, jobs by id, transfer items.
 *
 * A failed run of a job with a retry policy goes on in the statement that records it, so neither a
 * hook nor a launcher ever sees it in between.
 */
#ifndef AB_LIFECYCLE_H
#define AB_LIFECYCLE_H

#include "service/service.h"

extern const struct ab_sql *const lifecycle_sql[];

struct ab_step_result {
    int64_t matched, moved;
    struct ab_ids finished, reopened, stale;
    /* Of a call of at most AB_STEP_TELLS jobs: which moved, and the states (AB_JOB_*) where they
     * are now, which need not be those asked for. */
    struct ab_ids moved_ids, moved_to;
};

#define AB_STEP_TELLS 20

/* n jobs, each with its own wish: the fields id, state, state_timestamp, state_data, lease of
 * `struct job`. Runs job_step and, when needed, job_release. Sets call->events. The caller checks
 * matched and stale. */
int ab_job_step(struct ab_call *call, const struct job *items, size_t n, struct ab_step_result *out,
                struct ab_error *err);

/* The field updates of the same list (job_fields, job_spec_fields), only those that some item
 * sends. After ab_job_step: its locks cover them. */
int ab_job_set_fields(struct ab_call *call, const struct job *items, size_t n,
                      struct ab_error *err);

/* n transfer items (fields id, state, task_id, transfer_info of `struct transfer`). *rows are the
 * stored items; *matched < n: some are not there (nothing was changed yet). */
int ab_item_step(struct ab_call *call, const struct transfer *items, size_t n, int64_t *matched,
                 PGresult **rows, struct ab_error *err);

#define AB_SESSION_PIECE 2000 /* jobs: some 0.1 s */

/* End sessions already locked by session_stale or session_lock. In pieces of at_most jobs (0: all at
 * once), each in a transaction of its own: while there are `more`, the sessions stay, ended. */
struct ab_session_end {
    int64_t at_most;
    int64_t ended, freed, timed_out;
    bool more;
};
int ab_session_end(struct ab_call *call, const int64_t *sessions, size_t n,
                   struct ab_session_end *out, struct ab_error *err);

/* What waits for its next attempt (job_specs.retry) and is due now, at most `batch` of it. How
 * many, or -1. */
int64_t ab_job_wake(struct ab_call *call, int64_t batch, struct ab_error *err);
int64_t ab_item_wake(struct ab_call *call, int64_t batch, struct ab_error *err);

/* Delete unlocked jobs among ids (n at most 1000); the deleted ones. */
int ab_job_delete(struct ab_call *call, const int64_t *ids, size_t n, struct ab_ids *deleted,
                  struct ab_error *err);

#endif
