/* plan.h - n jobs to be: what they refer to, and what they will be at first */
#ifndef PLAN_H
#define PLAN_H

#include "bad.h"
#include "service/service.h"

struct slot_item {         /* one transfer item to be */
    const char *direction; /* "in", "out" */
    const char *local_path;
    const struct job_transfer *wish;
    bool recursive;
};

struct planned {
    const struct job *req;
    int64_t site_id;
    int state; /* AB_JOB_* */
    int32_t open_parents, open_in, open_out;
    struct ab_ids parents; /* distinct */
    struct slot_item *items;
    size_t n_items;
};

struct plan {
    size_t n;
    struct planned *jobs;
    struct place *app_places, *parent_places; /* sorted by id */
    size_t n_parent_places;
    PGresult *apps, *parents; /* rows of create_apps, create_parents */
    int64_t *ids, *event_ids;
    int64_t created; /* us UTC */
};

/* All checks of the contract (rest-api.md 4.2) in its order, each bad job named; fills the jobs. */
int plan_check(struct ab_call *call, struct plan *plan, struct ab_error *err);

#endif
