/* jobs.c - sites, apps, jobs, batch jobs and events */
#include "jobs.h"

#include "app.h"
#include "app.sql.h"
#include "array.h"
#include "batch.h"
#include "batch.sql.h"
#include "cancel.h"
#include "count.h"
#include "count.sql.h"
#include "create.h"
#include "create.sql.h"
#include "event.h"
#include "event.sql.h"
#include "explain.h"
#include "explain.sql.h"
#include "job.h"
#include "job.sql.h"
#include "lifecycle/lifecycle.h"
#include "orphan.h"
#include "orphan.sql.h"
#include "quota.sql.h"
#include "site.h"
#include "site.sql.h"

static const struct ab_verb verbs[] = {
    {.name = "site.list", .handler = site_list},
    {.name = "site.create", .handler = site_create, .replay = site_again},
    {.name = "site.get", .handler = site_get},
    {.name = "site.update", .handler = site_update, .replay = site_again},
    {.name = "site.delete", .handler = site_delete},
    {.name = "site.backlog", .handler = site_backlog},
    {.name = "app.list", .handler = app_list},
    {.name = "app.create", .handler = app_create, .replay = app_again},
    {.name = "app.get", .handler = app_get},
    {.name = "app.update", .handler = app_update, .replay = app_again},
    {.name = "app.delete", .handler = app_delete},
    {.name = "job.list", .handler = job_list},
    {.name = "job.create", .handler = job_create, .replay = jobs_again},
    {.name = "job.array", .handler = job_array, .replay = array_again},
    {.name = "job.explain", .handler = job_explain},
    {.name = "job.get", .handler = job_get},
    {.name = "job.patch", .handler = job_patch},
    {.name = "job.update", .handler = job_update},
    {.name = "job.update_where", .handler = job_update_where},
    {.name = "job.delete", .handler = job_delete},
    {.name = "job.delete_where", .handler = job_delete_where},
    {.name = "job.cancel", .handler = job_cancel},
    {.name = "job.cancel_where", .handler = job_cancel_where},
    {.name = "batch_job.list", .handler = batch_list},
    {.name = "batch_job.create", .handler = batch_create, .replay = batch_again},
    {.name = "batch_job.get", .handler = batch_get},
    {.name = "batch_job.update", .handler = batch_update, .replay = batch_again},
    {.name = "batch_job.patch", .handler = batch_patch, .replay = batches_again},
    {.name = "batch_job.delete", .handler = batch_delete},
    {.name = "event.list", .handler = event_list},
    {.name = "event.tail", .handler = event_tail},
    {.name = "event.moved", .handler = event_moved},
    {0},
};

static const struct ab_timer timers[] = {
    {.name = "fold", .run = count_fold, .every = "fold_period", .one_replica = true},
    {.name = "orphans", .run = orphan_fail, .every = "orphan_period", .one_replica = true},
    {.name = "frozen", .run = count_end_frozen, .every = "fold_period", .one_replica = true},
    {0},
};

static const struct ab_setting settings[] = {
    {"max_jobs", AB_CONF_INT, "0",
     "how many jobs that have not ended a user may have; 0 any number"},
    {"max_sites", AB_CONF_INT, "0", "how many sites a user may have; 0 any number"},
    {"require_slots", AB_CONF_BOOL, "false",
     "a job must fill all transfer slots that its app marks as required"},
    {"fail_orphans", AB_CONF_BOOL, "false",
     "a job whose parent has FAILED or was deleted FAILs too; else it waits for ever"},
    {"orphan_period", AB_CONF_DURATION, "10s", "how often such jobs are looked for"},
    {"site_silent", AB_CONF_DURATION, "5m",
     "a site not heard of for this long is taken for down when a job is explained"},
    {"fold_period", AB_CONF_DURATION, "1s", "how often the job counts are folded together"},
    {0},
};

static const struct ab_sql *const *const sql[] = {site_sql,   app_sql,     create_sql,    job_sql,
                                                  batch_sql,  event_sql,   count_sql,     quota_sql,
                                                  orphan_sql, explain_sql, lifecycle_sql, NULL};

const struct ab_service jobs_service = {
    .name = "jobs",
    .verbs = verbs,
    .timers = timers,
    .sql = sql,
    .settings = settings,
};
