/* house.c - what costs by the size of the tables: lists, sweeping, deleting; by the services' own calls
 *
 * On a connection of their own, with the settings that the services' roles have.
 */
#include "bench.h"
#include "bus/client.h"
#include "lifecycle/lifecycle.h"
#include "schema/json.h"
#include "schema/pack.h"
#include "schema/schema.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
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

/* Whose verb is it, or whose timer ("sessions.requests")? */
static const struct ab_service *service_of(const char *what)
{
    static const struct ab_service *const all[] = {&jobs_service, &sessions_service,
                                                   &transfers_service};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (const struct ab_verb *v = all[i]->verbs; v->name; v++)
            if (strcmp(v->name, what) == 0)
                return all[i];
        size_t n = strlen(all[i]->name);
        if (strncmp(all[i]->name, what, n) == 0 && what[n] == '.')
            return all[i];
    }
    fprintf(stderr, "dbbench: no service has `%s`\n", what);
    exit(2);
}

static int call(struct client *c, const char *name, const struct ab_buf *body, struct ab_buf *reply)
{
    int status = ab_service_call(service_of(name), c->served, NULL, name, owner_id, NULL,
                                 body->data, body->len, reply);
    if (status >= 300) {
        fprintf(stderr, "dbbench: %s: status %d\n", name, status);
        exit(1);
    }
    return status;
}

/* ---- lists: --verb, --query as in a URL, -n rows of --owner */

static long list(struct client *c)
{
    char *query = ab_printf(c->arena, "limit=%d&%s", c->n, query_text);
    struct ab_http_parts parts = {.query = query, .query_len = strlen(query)};
    struct ab_buf body = {0}, reply = {0};
    struct ab_issues issues = {0};
    if (ab_json_request(ab_route_of_verb(verb), &parts, &body, &issues) < 0) {
        fprintf(stderr, "dbbench: %s: bad query `%s`\n", verb, query);
        exit(2);
    }
    call(c, verb, &body, &reply);
    ab_buf_free(&body);
    ab_buf_free(&reply);
    return c->n;
}

/* ---- a call that is done in pieces, such as app.delete: --verb, --id; each piece for itself */

static void pieces_set_up(struct client *c)
{
    open_served(c);
    ab_buf_char(&c->rows, '\0'); /* where it stands: at the beginning */
}

static long pieces(struct client *c)
{
    struct ab_buf plain = {0}, body = {0}, reply = {0};
    uint32_t members;
    if (c->ended)
        return 0;
    ab_pack_request(&plain, ab_route_of_verb(verb), object_id, NULL, NULL, 0);
    struct ab_cursor at = ab_cursor(plain.data, plain.len);
    ab_cursor_map(&at, &members);
    ab_pack_map(&body, members + 1);
    ab_buf_add(&body, at.at, (size_t)(at.end - at.at));
    ab_pack_str(&body, "next");
    ab_buf_add(&body, c->rows.data, c->rows.len);
    c->ended = call(c, verb, &body, &reply) != AB_BUS_MORE;
    ab_buf_clear(&c->rows);
    ab_buf_add(&c->rows, reply.data, reply.len);
    ab_buf_free(&plain);
    ab_buf_free(&body);
    ab_buf_free(&reply);
    return 1;
}

/* ---- a timer of a service, --verb SERVICE.TIMER, as long as it has more to do; settings: ABIES_* */

static long tick(struct client *c)
{
    struct ab_error err = {0};
    const struct ab_service *service = service_of(verb);
    if (c->ended)
        return 0;
    ab_conf_t *conf = ab_service_conf(service);
    if (ab_conf_env(conf, &err) < 0)
        die(&err);
    int more = ab_service_tick(service, c->served, conf, verb + strlen(service->name) + 1, &err);
    ab_conf_destroy(&conf);
    if (more < 0)
        die(&err);
    c->ended = !more;
    return 1;
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
    struct ab_buf body = {0}, reply = {0};
    ab_pack_request(&body, ab_route_of_verb("job.delete_where"), 0, &q, NULL, 0);
    call(c, "job.delete_where", &body, &reply);
    ab_buf_free(&body);
    ab_buf_free(&reply);
    return c->pool_n;
}

const struct mode house_modes[] = {
    {"list", "a page of n rows", open_served, list, NULL},
    {"pieces", "the pieces of a call that has many", pieces_set_up, pieces, NULL},
    {"timer", "the pieces of what a timer does", open_served, tick, NULL},
    {"sweep", "pieces of the end of a session with --pool running jobs", sweep_set_up, sweep,
     sweep_after},
    {"delete", "n jobs are deleted", delete_set_up, delete, delete_next},
    {0},
};
