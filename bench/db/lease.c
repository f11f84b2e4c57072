/* lease.c - a session takes n jobs of a backlog */
#include "bench.h"
#include "lease.sql.h"
#include "tx.sql.h"
#include <math.h>
#include <string.h>

static const struct ab_sql *block;

static void set_up(struct client *c)
{
    const struct ab_db_param site[] = {{"site_id", int_value(1)}};
    c->session = ab_col_int(RUN(c, SQL_open_session, site), 0, 0);
    block = strcmp(c->how, "long_first") == 0   ? &SQL_lease_long_first
            : strcmp(c->how, "to_process") == 0 ? &SQL_lease_to_process
                                                : &SQL_lease_small_first;
}

static long run(struct client *c)
{
    const struct ab_db_value states[] = {text_value("PREPROCESSED"), text_value("RESTART_READY")};
    const struct ab_db_param touch[] = {{"session_id", int_value(c->session)},
                                        {"owner_id", int_value(1)}};
    const struct ab_db_param take[] = {
        {"session_id", int_value(c->session)},
        {"owner_id", int_value(1)},
        {"site_id", int_value(1)},
        {"batch_job_id", {.type = AB_DB_NULL}},
        {"states", {.type = AB_DB_ARRAY, .items = states, .n_items = 2}},
        {"max_nodes", int_value(INT32_MAX)},
        {"max_wall_time", int_value(INT32_MAX)},
        {"serial_only", {.type = AB_DB_BOOL}},
        {"app_ids", EMPTY_ARRAY},
        {"tags", text_value("{}")},
        {"max_jobs", int_value(c->n)},
        {"budget", {.type = AB_DB_REAL, .f = INFINITY}}};
    struct ab_db_step steps[] = {
        STEP(SQL_lease_touch, touch),
        {.sql = block, .params = take, .n = sizeof(take) / sizeof(take[0])}};
    return run_steps(c, steps, 2, true) ? PQntuples(steps[1].result) : -1;
}

static void after(struct client *c)
{
    const struct ab_db_param session[] = {{"session_id", int_value(c->session)}};
    if (give_back)
        RUN(c, SQL_give_back, session);
}

const struct mode lease_modes[] = {
    {"lease", "a session takes n jobs", set_up, run, after},
    {0},
};
