/* plan.h - n jobs to be: what they refer to, and what they will be at first */
#ifndef PLAN_H
#define PLAN_H

#include "bad.h"
#include "service/service.h"

struct slot_item {         /* one transfer item to be */
    const char *direction; /* "in", "out" */
    const char *local_path, *remote_path;
    const struct job_transfer *wish;
    bool recursive;
};

struct planned {
    const struct job *req;
    const char *workdir; /* these two are the job's own: the jobs of an array share req */
    struct ab_bytes parameters;
    const char *const *paths; /* remote paths in the order of req->transfers; NULL: as there */
    int64_t site_id;
    int state; /* AB_JOB_* */
    int32_t open_parents, open_in, open_out;
    struct ab_ids parents; /* distinct */
    struct slot_item *items;
    size_t n_items;
};

struct plan {
    size_t n;
    bool alike; /* all have one req */
    struct planned *jobs;
    struct place *app_places, *parent_places; /* sorted by id */
    size_t n_parent_places;
    PGresult *quota, *apps, *parents; /* rows of quota_jobs, create_apps, create_parents */
    int64_t *ids, *event_ids;
    int64_t created; /* us UTC */
};

/* What is looked at once for all jobs that are alike. */
static inline size_t plan_kinds(const struct plan *plan)
{
    return plan->alike && plan->n > 1 ? 1 : plan->n;
}

/* All checks of the contract (rest-api.md 4.2) in its order, each bad job named; fills the jobs. */
int plan_check(struct ab_call *call, struct plan *plan, struct ab_error *err);

#endif
