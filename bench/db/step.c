/* step.c - n jobs change state: each client its own jobs, or all of them random sets of one pool */
#include "bench.h"
#include "lifecycle.sql.h"
#include "tx.sql.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_up(struct client *c)
{
    const struct ab_db_param params[] = {{"clients", int_value(shared_pool ? 1 : c->clients)},
                                         {"no", int_value(shared_pool ? 0 : c->no)},
                                         {"n", int_value(pool_size)}};
    PGresult *r = RUN(c, SQL_pool_ids, params);
    size_t n;
    int64_t *ids = ab_col_int8s(r, 0, 0, c->arena, &n);
    c->pool_n = (int)n;
    c->pool = calloc(n + 1, sizeof(*c->pool));
    if (!c->pool || c->pool_n < c->n) {
        fprintf(stderr, "dbbench: the pool of %d jobs is too small\n", c->pool_n);
        exit(1);
    }
    memcpy(c->pool, ids, n * sizeof(*ids));
}

/* Distinct, in any order: the statement sorts for itself. */
static int choose(struct client *c)
{
    int per = c->pool_n / c->n;
    if (!shared_pool) {
        memcpy(c->ids, c->pool + (c->turn % per) * c->n, (size_t)c->n * sizeof(*c->ids));
        return c->n;
    }
    int at = rand_r(&c->seed) % c->pool_n, left = c->pool_n, n = 0;
    while (n < c->n && left > 0) {
        int jump = 1 + rand_r(&c->seed) % 3;
        c->ids[n++] = c->pool[at];
        at = (at + jump) % c->pool_n;
        left -= jump;
    }
    for (int i = n - 1; i > 0; i--) {
        int k = rand_r(&c->seed) % (i + 1);
        int64_t id = c->ids[i];
        c->ids[i] = c->ids[k];
        c->ids[k] = id;
    }
    return n;
}

static bool release(struct client *c, const PGresult *stepped)
{
    size_t n_finished, n_reopened;
    int64_t *finished =
        ab_col_int8s(stepped, 0, ab_col(stepped, "finished"), c->arena, &n_finished);
    int64_t *reopened =
        ab_col_int8s(stepped, 0, ab_col(stepped, "reopened"), c->arena, &n_reopened);
    const struct ab_db_param params[] = {{"finished", ints(c, finished, (int)n_finished)},
                                         {"reopened", ints(c, reopened, (int)n_reopened)}};
    struct ab_db_step steps[] = {STEP(SQL_job_release, params), {.sql = &SQL_commit}};
    struct ab_error err = {0};
    if (ab_db_pipeline(c->db, steps, 2, c->arena, &err) == 0)
        return true;
    if (strcmp(err.kind, "db_conflict") != 0)
        die(&err);
    must(c, "ROLLBACK");
    return false;
}

static long run(struct client *c)
{
    static const char *const walk[] = {"PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED"};
    int per = c->pool_n / c->n, n = choose(c);
    const char *state = walk[shared_pool ? rand_r(&c->seed) % 4 : (c->turn / (per ? per : 1)) % 4];
    bool late =
        shared_pool || state == walk[3]; /* finished and reopened jobs have children to tell */
    c->turn++;
    const struct ab_db_param params[] = {
        {"owner_id", int_value(1)},
        {"ids", ints(c, c->ids, n)},
        {"states", same(c, text_value(state), n)},
        {"timestamps", same(c, (struct ab_db_value){.type = AB_DB_TIME, .i = 1767225845000678}, n)},
        {"data", same(c, text_value("{\"num_nodes\": 0.5}"), n)},
        {"leases", EMPTY_ARRAY}};
    struct ab_db_step steps[] = {STEP(SQL_job_step, params)};
    if (!run_steps(c, steps, 1, !late) || (late && !release(c, steps[0].result)))
        return -1;
    return n;
}

const struct mode step_modes[] = {
    {"step", "n jobs change state", set_up, run, NULL},
    {0},
};
