/* plans.c - see plans.h */
#include "plans.h"

#include "base/arena.h"
#include "pg.h"
#include "schema/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the rows */

/* clang-format off */
static const char *const rows[] = {
    "SET synchronous_commit = off",
    "INSERT INTO users (id, username) SELECT g, 'u' || g FROM generate_series(1, 200) g",
    "INSERT INTO sites (id, owner_id, name, path) SELECT g, 1 + g % 200, 's' || g, '/s' FROM generate_series(1, 400) g",
    "INSERT INTO apps (id, owner_id, site_id, name) SELECT g, 1 + g % 200, g, 'a' FROM generate_series(1, 400) g",
    "INSERT INTO batch_jobs (id, owner_id, site_id, num_nodes, wall_time_min, job_mode, state, project, queue, scheduler_id)"
    " SELECT g, 1 + (1 + g % 400) % 200, 1 + g % 400, 1, 10, 'mpi',"
    "        CASE WHEN g % 50 = 0 THEN 'running' ELSE 'finished' END::batch_state, 'p', 'q', g + 5000"
    " FROM generate_series(1, 20000) g",
    "INSERT INTO sessions (id, owner_id, site_id, batch_job_id)"
    " SELECT g, 1 + (1 + g * 50 % 400) % 200, 1 + g * 50 % 400, g * 50 FROM generate_series(1, 400) g",
    /* owner 1 has half of all jobs */
    "CREATE TEMP TABLE w AS"
    " SELECT g AS id, CASE WHEN g % 2 = 0 THEN 200 ELSE 1 + g / 2 % 400 END AS site,"
    "        CASE g % 20 WHEN 0 THEN 'PREPROCESSED' WHEN 1 THEN 'RUNNING' WHEN 2 THEN 'STAGED_IN' WHEN 3 THEN 'READY'"
    "                    WHEN 4 THEN 'AWAITING_PARENTS' WHEN 5 THEN 'FAILED' WHEN 6 THEN 'RESTART_READY'"
    "                    WHEN 7 THEN 'RUN_DONE' ELSE 'JOB_FINISHED' END::job_state AS state"
    " FROM generate_series(1, 240000) g",
    "INSERT INTO jobs (id, owner_id, site_id, app_id, batch_job_id, session_id, last_update, state, num_nodes, wall_time_min, not_before)"
    " SELECT id, 1 + site % 200, site, site, 1 + id % 20000, CASE WHEN state = 'RUNNING' THEN 1 + id % 400 END,"
    "        now() - id * interval '1 s', state, 1 + id % 4, id % 60,"
    "        CASE WHEN state = 'RESTART_READY' AND id % 100 = 6 THEN now() END FROM w",
    "INSERT INTO job_specs (id, owner_id, app_id, workdir, parent_ids, tags)"
    " SELECT id, 1 + site % 200, site, 'run/' || id, CASE WHEN id % 2 = 0 THEN ARRAY[id - 1, id - 2] ELSE '{}' END,"
    "        jsonb_build_object('experiment', 'e' || id % 10, 'sample', 's' || id % 1000) FROM w",
    "INSERT INTO job_parents SELECT unnest(parent_ids), id FROM job_specs",
    "INSERT INTO transfer_items (owner_id, site_id, job_id, direction, state, local_path, remote_path, location_alias)"
    " SELECT 1 + site % 200, site, id, 'in', CASE WHEN state = 'READY' THEN 'pending' ELSE 'done' END::transfer_state, 'l', 'r', 'a'"
    " FROM w WHERE id % 2 = 1",
    "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
    " SELECT (1 << 24) - 240000 + 2 * id + k, 1 + site % 200, id, now() - (2 * (240000 - id) + 2 - k) * interval '1 s',"
    "        CASE k WHEN 0 THEN 'CREATED' ELSE 'READY' END::job_state, CASE k WHEN 0 THEN 'READY' ELSE state END::job_state"
    " FROM w, generate_series(0, 1) k",
    "SELECT setval('event_ids', (1 << 24) + 240002), setval('job_ids', 240000)",
    "INSERT INTO requests (owner_id, key, created, verb, reply)"
    " SELECT 1 + id % 200, gen_random_uuid(), now() - id * interval '1 s', 'job.patch', '\\xc0' FROM w",
    "INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)"
    " SELECT owner_id, site_id, app_id, state, count(*), count(*), 2 * count(*) FROM jobs GROUP BY 1, 2, 3, 4",
    "DROP TABLE w",
    "ANALYZE",
};
/* clang-format on */

void plans_fill(ab_db_t *owner)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        pg_exec(owner, "%s", rows[i]);
}

/* ---- the rule */

static bool is_large(const char *table)
{
    static const char *const large[] = {"jobs",     "job_specs", "job_parents", "transfer_items",
                                        "requests", "sessions",  "batch_jobs"};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        if (strcmp(table, large[i]) == 0)
            return true;
    return strncmp(table, "events_", 7) == 0;
}

/* They hold what is held, waiting or to be done, and nothing else. */
static bool is_partial(const char *index)
{
    static const char *const partial[] = {
        "jobs_small_first", "jobs_long_first", "jobs_to_process",     "jobs_session",
        "jobs_batch",       "jobs_wake",       "transfer_items_wake", "transfer_items_todo"};
    for (size_t i = 0; i < sizeof(partial) / sizeof(partial[0]); i++)
        if (strcmp(index, partial[i]) == 0)
            return true;
    return false;
}

static const char *text_of(const struct ab_value *node, const char *key)
{
    return ab_value_text(ab_value_get(node, key), "");
}

static const char *look(const struct ab_value *node, const char **how)
{
    const char *type = text_of(node, "Node Type"), *table = text_of(node, "Relation Name");
    const char *index = text_of(node, "Index Name");
    const struct ab_value *below = ab_value_get(node, "Plans");

    if (strcmp(type, "Seq Scan") == 0 && is_large(table)) {
        *how = "Seq Scan";
        return table;
    }
    if (*index && !ab_value_get(node, "Index Cond") && !is_partial(index)
        && (is_large(table) || strcmp(type, "Bitmap Index Scan") == 0)) {
        *how = index;
        return *table ? table : index;
    }
    for (size_t i = 0; below && i < below->n; i++) {
        const char *found = look(&below->items[i], how);
        if (found)
            return found;
    }
    return NULL;
}

static const char *queue_index(const struct ab_value *node, bool sorted)
{
    const char *type = text_of(node, "Node Type"), *index = text_of(node, "Index Name");
    const struct ab_value *below = ab_value_get(node, "Plans");

    /* what was taken is sorted again, and that is behind the limit */
    if (strcmp(type, "Limit") == 0)
        sorted = false;
    if (strstr(type, "Sort") || strcmp(type, "Bitmap Heap Scan") == 0)
        sorted = true;
    if (!sorted && strncmp(type, "Index", 5) == 0
        && (strcmp(index, "jobs_small_first") == 0 || strcmp(index, "jobs_long_first") == 0
            || strcmp(index, "jobs_to_process") == 0))
        return index;
    for (size_t i = 0; below && i < below->n; i++) {
        const char *found = queue_index(&below->items[i], sorted);
        if (found)
            return found;
    }
    return NULL;
}

static const struct ab_value *root_of(const char *plan)
{
    static ab_arena_t *arena;
    struct ab_error err = {0};

    if (!arena)
        arena = ab_arena_new();
    ab_arena_reset(arena);
    const struct ab_value *v = ab_value_parse(arena, plan, strlen(plan), &err);
    if (v && v->type == AB_V_LIST && v->n == 1)
        v = &v->items[0];
    const struct ab_value *root = v ? ab_value_get(v, "Plan") : NULL;
    if (!root) {
        fprintf(stderr, "no plan: %s: %s\n", err.text, plan);
        exit(1);
    }
    return root;
}

const char *plans_reads_all(const char *plan, const char **how)
{
    return look(root_of(plan), how);
}

const char *plans_queue(const char *plan)
{
    return queue_index(root_of(plan), true);
}
