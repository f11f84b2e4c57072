/* sessions.c - which site holds which jobs, and for how long */
#include "sessions.h"

#include "figures.h"
#include "figures.sql.h"
#include "lease.h"
#include "lease.sql.h"
#include "lifecycle/lifecycle.h"
#include "session.h"
#include "session.sql.h"
#include "sweep.h"
#include "sweep.sql.h"

static const struct ab_verb verbs[] = {
    {.name = "session.create", .handler = session_create},
    {.name = "session.list", .handler = session_list},
    {.name = "session.acquire",
     .handler = lease_acquire,
     .replay = lease_again,
     .still_true = lease_still_true},
    {.name = "session.touch", .handler = session_touch, .writes = true},
    {.name = "session.heartbeat", .handler = session_heartbeat, .writes = true},
    {.name = "session.delete", .handler = session_delete},
    {0},
};

static const struct ab_timer timers[] = {
    {.name = "sweep", .run = sweep_sessions, .every = "sweep_period", .one_replica = true},
    {.name = "waiting", .run = sweep_waiting, .every = "wake_period", .one_replica = true},
    {.name = "requests", .run = sweep_requests, .every = "house_period", .one_replica = true},
    {.name = "room", .run = sweep_room, .every = "house_period", .one_replica = true},
    {.name = "events", .run = sweep_events, .every = "house_period", .one_replica = true},
    {.name = "figures", .run = figures_look, .every = "figures_period"},
    {0},
};

static const struct ab_setting settings[] = {
    {"session_ttl", AB_CONF_DURATION, "5m", "a session without a heartbeat for this long is ended"},
    {"sweep_period", AB_CONF_DURATION, "10s", "how often ended sessions are looked for"},
    {"wake_period", AB_CONF_DURATION, "1s",
     "how often jobs are looked for whose next attempt is due"},
    {"house_period", AB_CONF_DURATION, "1m",
     "how often old request ids and events are dropped and event partitions made"},
    {"request_keep", AB_CONF_DURATION, "24h", "how long a repeated request is recognised"},
    {"event_keep", AB_CONF_DURATION, "0", "how long events are kept, an hour at least; 0 for ever"},
    {"figures_period", AB_CONF_DURATION, "10s",
     "how often leases and jobs are counted for /metrics"},
    {0},
};

static const struct ab_sql *const *const sql[] = {session_sql,   lease_sql,   sweep_sql,
                                                  lifecycle_sql, figures_sql, NULL};

const struct ab_service sessions_service = {
    .name = "sessions",
    .verbs = verbs,
    .timers = timers,
    .sql = sql,
    .settings = settings,
    .metrics = figures_write,
};
