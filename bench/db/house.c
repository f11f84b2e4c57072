/* house.c - what costs by the size of the tables: lists, sweeping, deleting; by the services' own calls
 *
 * On a connection of their own, with the settings that the services' roles have.
 */
#include "bench.h"
#include "lifecycle/lifecycle.h"
#include "schema/pack.h"
#include "schema/schema.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "tx.sql.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *settings =
    "SET plan_cache_mode = force_generic_plan; SET random_page_cost = 1.1;"
    "SET enable_seqscan = off; SET jit = off";

static void open_served(struct client *c)
{
    struct ab_error err = {0};
    c->served = ab_db_open(getenv("ABIES_DATABASE_URL"), "dbbench", &err);
    if (!c->served || ab_db_exec(c->served, settings, &err) < 0)
        die(&err);
}

static void call(struct client *c, const char *verb, const void *query)
{
    struct ab_buf body = {0}, reply = {0};
    ab_pack_request(&body, ab_route_of_verb(verb), 0, query, NULL, 0);
    int status =
        ab_service_call(&jobs_service, c->served, NULL, verb, 1, NULL, body.data, body.len, &reply);
    if (status >= 300) {
        fprintf(stderr, "dbbench: %s: status %d\n", verb, status);
        exit(1);
    }
    ab_buf_free(&body);
    ab_buf_free(&reply);
}

/* ---- lists: --how plain, state, offset or tags; -n rows */

static long list(struct client *c)
{
    static int finished = AB_JOB_PREPROCESSED;
    struct job_query q = {.limit = c->n};
    AB_SET(job_query, &q, limit);
    if (strcmp(c->how, "state") == 0) {
        q.state.v = &finished;
        q.state.n = 1;
        AB_SET(job_query, &q, state);
    } else if (strcmp(c->how, "offset") == 0) {
        q.offset = 500000;
        AB_SET(job_query, &q, offset);
    } else if (strcmp(c->how, "tags") == 0) {
        q.tags = (struct ab_bytes){"{\"experiment\":\"e1\"}", 19};
        AB_SET(job_query, &q, tags);
    }
    call(c, "job.list", &q);
    return c->n;
}

/* ---- a silent session with --pool running jobs: one piece of its end after the other */

static void hold(struct client *c)
{
    const struct ab_db_param site[] = {{"site_id", int_value(1)}};
    c->session = ab_col_int(RUN(c, SQL_open_session, site), 0, 0);
    const struct ab_db_param some[] = {{"session_id", int_value(c->session)},
                                       {"n", int_value(pool_size)}};
    (void)RUN(c, SQL_hold, some);
}

static void sweep_set_up(struct client *c)
{
    open_served(c);
    hold(c);
}

static long sweep(struct client *c)
{
    struct ab_error err = {0};
    int more = ab_service_tick(&sessions_service, c->served, NULL, "sweep", &err);
    if (more < 0)
        die(&err);
    c->ended = !more;
    return c->ended ? 1 : AB_SESSION_PIECE;
}

static void sweep_after(struct client *c)
{
    if (c->ended)
        hold(c);
}

/* ---- n jobs are deleted, with their events: the oldest that have finished */

static void delete_next(struct client *c)
{
    const struct ab_db_param n[] = {{"n", int_value(c->n)}};
    PGresult *r = RUN(c, SQL_oldest, n);
    size_t found;
    int64_t *ids = ab_col_int8s(r, 0, 0, c->arena, &found);
    c->pool_n = (int)found;
    memcpy(c->ids, ids, found * sizeof(*ids));
}

static void delete_set_up(struct client *c)
{
    open_served(c);
    delete_next(c);
}

static long delete (struct client *c)
{
    struct job_query q = {.id = {c->ids, (size_t)c->pool_n}};
    if (c->pool_n == 0)
        return 0;
    AB_SET(job_query, &q, id);
    call(c, "job.delete_where", &q);
    return c->pool_n;
}

const struct mode house_modes[] = {
    {"list", "a page of n jobs", open_served, list, NULL},
    {"sweep", "pieces of the end of a session with --pool running jobs", sweep_set_up, sweep,
     sweep_after},
    {"delete", "n jobs are deleted", delete_set_up, delete, delete_next},
    {0},
};
