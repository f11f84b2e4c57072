/* create.c - n new jobs: the limit (COPY of the rows alone), and the complete call in two ways */
#include "base/clock.h"
#include "base/rand.h"
#include "bench.h"
#include "create.sql.h"
#include "insert.sql.h"
#include "request.sql.h"
#include "tx.sql.h"
#include <stdio.h>
#include <string.h>

static const char tags[] = "{\"experiment\": \"e17\", \"sample\": \"s0042\"}";
static const char state[] = "STAGED_IN";

static int64_t site_of(const struct client *c)
{
    return 1 + c->no % 4;
}

static void draw(struct client *c, const PGresult *r, int64_t *out)
{
    size_t n;
    int64_t *ids = ab_col_int8s(r, 0, ab_col(r, "ids"), c->arena, &n);
    memcpy(out, ids, n * sizeof(*ids));
}

/* ---- rows of the three COPYs */

static void copy_jobs(struct client *c)
{
    struct ab_buf *out = &c->rows;
    struct ab_error err = {0};
    int64_t now = ab_utc_us(), site = site_of(c);
    ab_buf_clear(out);
    ab_copy_begin(out);
    for (int i = 0; i < c->n; i++) {
        ab_copy_row(out, 15);
        ab_copy_int8(out, c->ids[i]);
        ab_copy_int8(out, 1);
        ab_copy_int8(out, site);
        ab_copy_int8(out, site);
        ab_copy_time(out, now);
        ab_copy_text(out, state, sizeof(state) - 1);
        for (int k = 0; k < 3; k++)
            ab_copy_int4(out, 0); /* open parents, in, out */
        ab_copy_int4(out, 1);
        ab_copy_int4(out, 1);
        ab_copy_int4(out, 1 + i % 8);
        ab_copy_int4(out, i % 60);
        ab_copy_null(out);
        ab_copy_int4(out, 0);
    }
    ab_copy_end(out);
    if (ab_db_copy(c->db, &SQL_job_copy, out, &err) < 0)
        die(&err);
}

static void copy_specs(struct client *c)
{
    struct ab_buf *out = &c->rows;
    struct ab_error err = {0};
    char workdir[40];
    ab_buf_clear(out);
    ab_copy_begin(out);
    for (int i = 0; i < c->n; i++) {
        int len = snprintf(workdir, sizeof(workdir), "campaign/run-%05d", i);
        ab_copy_row(out, 14);
        ab_copy_int8(out, c->ids[i]);
        ab_copy_int8(out, 1);
        ab_copy_int8(out, site_of(c));
        ab_copy_int4(out, 1);
        ab_copy_int4(out, 1);
        ab_copy_float8(out, 0);
        ab_copy_text(out, workdir, (size_t)len);
        ab_copy_int8s(out, NULL, 0);
        ab_copy_jsonb(out, tags, sizeof(tags) - 1);
        ab_copy_text(out, "{\"n\": \"17\"}", 11);
        ab_copy_text(out, "{\"retries\": 0}", 14);
        ab_copy_text(out, "{}", 2);
        ab_copy_text(out, "", 0);
        ab_copy_null(out);
    }
    ab_copy_end(out);
    if (ab_db_copy(c->db, &SQL_job_spec_copy, out, &err) < 0)
        die(&err);
}

static void copy_events(struct client *c)
{
    struct ab_buf *out = &c->rows;
    struct ab_error err = {0};
    int64_t now = ab_utc_us();
    ab_buf_clear(out);
    ab_copy_begin(out);
    for (int i = 0; i < c->n; i++) {
        ab_copy_row(out, 6);
        ab_copy_int8(out, c->event_ids[i]);
        ab_copy_int8(out, 1);
        ab_copy_int8(out, c->ids[i]);
        ab_copy_time(out, now);
        ab_copy_text(out, "CREATED", 7);
        ab_copy_text(out, state, sizeof(state) - 1);
    }
    ab_copy_end(out);
    if (ab_db_copy(c->db, &SQL_event_copy, out, &err) < 0)
        die(&err);
}

/* ---- the limit */

static void draw_ids(struct client *c)
{
    const struct ab_db_param n[] = {{"n", int_value(c->n)}};
    must(c, "BEGIN");
    draw(c, RUN(c, SQL_job_ids, n), c->ids);
}

static long run_limit_hot(struct client *c)
{
    draw_ids(c);
    copy_jobs(c);
    must(c, "COMMIT");
    return c->n;
}

/* All rows that a create leaves, and nothing else of it. */
static long run_limit(struct client *c)
{
    const struct ab_db_param n[] = {{"n", int_value(c->n)}};
    draw_ids(c);
    draw(c, RUN(c, SQL_event_ids, n), c->event_ids);
    copy_jobs(c);
    copy_specs(c);
    copy_events(c);
    must(c, "COMMIT");
    return c->n;
}

/* ---- the call */

static void claim(struct client *c, uint8_t key[16])
{
    int64_t site[] = {site_of(c)};
    ab_uuid7(key);
    const struct ab_db_param request[] = {{"owner_id", int_value(1)},
                                          {"key", {.type = AB_DB_UUID, .p = key, .n = 16}},
                                          {"verb", text_value("job.create")},
                                          {"body_hash", {.type = AB_DB_NULL}}};
    const struct ab_db_param n[] = {{"n", int_value(c->n)}};
    const struct ab_db_param apps[] = {{"owner_id", int_value(1)}, {"app_ids", ints(c, site, 1)}};
    struct ab_db_step steps[] = {STEP(SQL_request_claim, request), STEP(SQL_job_ids, n),
                                 STEP(SQL_event_ids, n), STEP(SQL_create_apps, apps)};
    run_steps(c, steps, 4, false);
    draw(c, steps[1].result, c->ids);
    draw(c, steps[2].result, c->event_ids);
}

static void finish(struct client *c, uint8_t key[16], struct ab_db_step *rows, size_t n_rows)
{
    const struct ab_db_param done[] = {{"owner_id", int_value(1)},
                                       {"key", {.type = AB_DB_UUID, .p = key, .n = 16}},
                                       {"reply", {.type = AB_DB_NULL}},
                                       {"ids", ints(c, c->ids, c->n)}};
    struct ab_db_step steps[8] = {0};
    struct ab_error err = {0};
    memcpy(steps, rows, n_rows * sizeof(*rows));
    steps[n_rows] = (struct ab_db_step)STEP(SQL_request_done, done);
    steps[n_rows + 1] = (struct ab_db_step){.sql = &SQL_commit};
    if (ab_db_pipeline(c->db, steps, n_rows + 2, c->arena, &err) < 0)
        die(&err);
}

static long run_create_copy(struct client *c)
{
    uint8_t key[16];
    struct ab_db_value site = same(c, int_value(site_of(c)), c->n),
                       states = same(c, text_value(state), c->n);
    claim(c, key);
    copy_jobs(c);
    copy_specs(c);
    copy_events(c);
    struct ab_db_value *nodes = ab_alloc(c->arena, (size_t)c->n, sizeof(*nodes));
    for (int i = 0; i < c->n; i++)
        nodes[i] = int_value(1000000 / (1 + i % 8));
    const struct ab_db_param counts[] = {
        {"owner_id", int_value(1)},
        {"site_ids", site},
        {"app_ids", site},
        {"states", states},
        {"nodes", {.type = AB_DB_ARRAY, .items = nodes, .n_items = (size_t)c->n}}};
    struct ab_db_step steps[] = {STEP(SQL_job_counts_add, counts)};
    finish(c, key, steps, 1);
    return c->n;
}

static long run_create_insert(struct client *c)
{
    uint8_t key[16];
    int n = c->n;
    claim(c, key);
    struct ab_db_value owner = int_value(1), ids = ints(c, c->ids, n),
                       site = same(c, int_value(site_of(c)), n), one = same(c, int_value(1), n),
                       zero = same(c, int_value(0), n), states = same(c, text_value(state), n),
                       null = same(c, (struct ab_db_value){0}, n);
    struct ab_db_value empty = same(c, text_value("{}"), n), none = same(c, text_value(""), n);
    const struct ab_db_param jobs[] = {{"owner_id", owner},         {"ids", ids},
                                       {"site_ids", site},          {"app_ids", site},
                                       {"states", states},          {"open_parents", zero},
                                       {"open_in", zero},           {"open_out", zero},
                                       {"num_nodes", one},          {"ranks_per_node", one},
                                       {"node_packing_count", one}, {"wall_time_min", zero},
                                       {"return_code", null},       {"priority", zero}};
    const struct ab_db_param specs[] = {{"owner_id", owner},
                                        {"ids", ids},
                                        {"app_ids", site},
                                        {"threads_per_rank", one},
                                        {"threads_per_core", one},
                                        {"gpus_per_rank", zero},
                                        {"workdir", same(c, text_value("campaign/run-00001"), n)},
                                        {"parent_ids", empty},
                                        {"tags", same(c, text_value(tags), n)},
                                        {"parameters", same(c, text_value("{\"n\": \"17\"}"), n)},
                                        {"data", same(c, text_value("{\"retries\": 0}"), n)},
                                        {"launch_params", empty},
                                        {"serialized_parameters", none},
                                        {"retry", null}};
    const struct ab_db_param events[] = {
        {"owner_id", owner}, {"ids", ids},       {"site_ids", site},         {"app_ids", site},
        {"states", states},  {"num_nodes", one}, {"node_packing_count", one}};
    struct ab_db_step steps[] = {STEP(SQL_job_insert, jobs), STEP(SQL_job_spec_insert, specs),
                                 STEP(SQL_job_first_events, events)};
    finish(c, key, steps, 3);
    return n;
}

const struct mode create_modes[] = {
    {"limit_hot", "COPY of the rows of jobs", NULL, run_limit_hot, NULL},
    {"limit", "COPY of the rows of jobs and job_specs", NULL, run_limit, NULL},
    {"create_copy", "the complete call by COPY", NULL, run_create_copy, NULL},
    {"create_insert", "the complete call by INSERT .. unnest", NULL, run_create_insert, NULL},
    {0},
};
