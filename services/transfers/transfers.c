/* transfers.c - transfer items, and what their state does to jobs */
#include "transfers.h"

#include "lifecycle/lifecycle.h"
#include "transfer.h"
#include "transfer.sql.h"

static const struct ab_verb verbs[] = {
    {.name = "transfer.list", .handler = transfer_list},
    {.name = "transfer.get", .handler = transfer_get},
    {.name = "transfer.update", .handler = transfer_update, .replay = transfer_again},
    {.name = "transfer.patch", .handler = transfer_patch, .replay = transfers_again},
    {0},
};

static const struct ab_timer timers[] = {
    {.name = "waiting", .run = transfer_wake, .every = "wake_period", .one_replica = true},
    {0},
};

static const struct ab_setting settings[] = {
    {"wake_period", AB_CONF_DURATION, "1s",
     "how often items are looked for whose next attempt is due"},
    {0},
};

static const struct ab_sql *const *const sql[] = {transfer_sql, lifecycle_sql, NULL};

const struct ab_service transfers_service = {
    .name = "transfers",
    .verbs = verbs,
    .timers = timers,
    .sql = sql,
    .settings = settings,
};
