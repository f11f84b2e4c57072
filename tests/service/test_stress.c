/* test_stress.c - several workers on the same jobs, all at once, and afterwards every counter is
 * true
 *
 * Each worker has its own connections, under the services' own roles, and does at random what
 * clients do: create graphs, step overlapping sets, finish and reopen parents, lease and let go,
 * report transfers, delete. Nothing may deadlock, nothing may fail with a 5xx, and what
 * `abies-admin check` looks at must hold at the end.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "check.sql.h"
#include "pg.h"
#include "schema/json.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define I PRId64

enum {
    WORKERS = 4,
    CALLS = 150, /* of each worker */
};

struct worker {
    pthread_t thread;
    ab_db_t *jobs, *sessions, *transfers, *look;
    const struct ab_service *service; /* of the connection in use */
    int64_t session;
    int done, failed;
    char first_failure[512];
};

static int64_t user, site, app;
static ab_conf_t *conf[3];

static int call(struct worker *w, const char *verb, int64_t id, const char *body)
{
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0}, reply = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    const struct ab_route *route = ab_route_of_verb(verb);
    char number[24];
    int which = route->service[0] == 'j' ? 0 : route->service[0] == 's' ? 1 : 2;
    const struct ab_service *services[] = {&jobs_service, &sessions_service, &transfers_service};
    ab_db_t *dbs[] = {w->jobs, w->sessions, w->transfers};
    struct ab_http_parts parts = {.query = "",
                                  .body = body,
                                  .body_len = strlen(body),
                                  .has_body = *body != '\0',
                                  .content_json = true};
    parts.path_id_len = (size_t)snprintf(number, sizeof(number), "%" I, id);
    parts.path_id = number;
    int status = 422;
    if (ab_json_request(route, &parts, &packed, &issues) == 0)
        status = ab_service_call_as(services[which], dbs[which], conf[which],
                                    &(struct ab_caller){.owner_id = user, .scopes = AB_SCOPE_USER},
                                    verb, packed.data, packed.len, &reply);
    w->done++;
    if ((status >= 500 || status == 422) && w->failed++ == 0)
        snprintf(w->first_failure, sizeof(w->first_failure), "%s: %d %.200s: %.200s", verb, status,
                 body, status == 422 && issues.list.data ? issues.list.data : "");
    return status;
}

/* A few ids of the table that a condition holds for, as "1,2,3"; "" none. */
static const char *some(struct worker *w, const char *table, const char *where, int n)
{
    const char *ids = pg_text(w->look,
                              "SELECT string_agg(id::text, ',') FROM (SELECT id FROM %s WHERE %s"
                              " ORDER BY random() LIMIT %d) AS few",
                              table, where, n);
    return ids ? ids : "";
}

static void create(struct worker *w)
{
    static const char *const transfers[] = {
        "", ", \"transfers\": {\"input\": {\"location_alias\": \"a\", \"path\": \"/x\"}}",
        ", \"transfers\": {\"output\": {\"location_alias\": \"a\", \"path\": \"/y\"}}"};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    int n = 1 + (int)ab_random_below(8);
    char parents[256];
    snprintf(parents, sizeof(parents), "%s", some(w, "jobs", "true", (int)ab_random_below(4)));
    ab_buf_char(&body, '[');
    for (int i = 0; i < n; i++)
        ab_buf_printf(&body,
                      "%s{\"app_id\": %" I
                      ", \"workdir\": \"w%d\", \"parent_ids\": [%s], \"num_nodes\": %d%s}",
                      i ? "," : "", app, i, parents, 1 + (int)ab_random_below(3),
                      transfers[ab_random_below(3)]);
    ab_buf_char(&body, ']');
    call(w, "job.create", 0, body.data);
}

static void step(struct worker *w)
{
    static const char *const states[] = {"PREPROCESSED",  "RUNNING",       "RUN_DONE",
                                         "POSTPROCESSED", "POSTPROCESSED", "JOB_FINISHED",
                                         "JOB_FINISHED",  "RESTART_READY", "READY",
                                         "FAILED",        "STAGED_OUT"};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    char ids[4096], *rest = NULL;
    snprintf(ids, sizeof(ids), "%s", some(w, "jobs", "true", 1 + (int)ab_random_below(40)));
    ab_buf_char(&body, '[');
    for (char *id = strtok_r(ids, ",", &rest); id; id = strtok_r(NULL, ",", &rest))
        ab_buf_printf(&body, "%s{\"id\": %s, \"state\": \"%s\", \"num_nodes\": %d}",
                      body.len > 1 ? "," : "", id, states[ab_random_below(AB_COUNT(states))],
                      1 + (int)ab_random_below(3));
    ab_buf_char(&body, ']');
    call(w, "job.patch", 0, body.data);
}

static void lease(struct worker *w)
{
    char body[200];
    if (w->session == 0) {
        snprintf(body, sizeof(body), "{\"site_id\": %" I "}", site);
        call(w, "session.create", 0, body);
        w->session = pg_int(w->look, "SELECT coalesce(max(id), 0) FROM sessions");
    }
    snprintf(body, sizeof(body),
             "{\"max_num_jobs\": %d, \"filter_tags\": {}, \"max_aggregate_nodes\": 20}",
             1 + (int)ab_random_below(20));
    if (call(w, "session.acquire", w->session, body) == 404)
        w->session = 0;
}

static void leave(struct worker *w)
{
    if (w->session)
        call(w, "session.delete", w->session, "");
    w->session = 0;
}

static void transfer(struct worker *w)
{
    static const char *const states[] = {"done", "done", "done", "error", "active", "pending"};
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    char ids[4096], *rest = NULL;
    snprintf(ids, sizeof(ids), "%s",
             some(w, "transfer_items", "state <> 'awaiting_job'", 1 + (int)ab_random_below(20)));
    ab_buf_char(&body, '[');
    for (char *id = strtok_r(ids, ",", &rest); id; id = strtok_r(NULL, ",", &rest))
        ab_buf_printf(&body, "%s{\"id\": %s, \"state\": \"%s\"}", body.len > 1 ? "," : "", id,
                      states[ab_random_below(AB_COUNT(states))]);
    ab_buf_char(&body, ']');
    call(w, "transfer.patch", 0, body.data);
}

static void delete_one(struct worker *w)
{
    const char *id = some(w, "jobs", "session_id IS NULL", 1);
    if (*id)
        call(w, "job.delete", strtoll(id, NULL, 10), "");
}

static void *work(void *arg)
{
    static void (*const acts[])(struct worker *) = {
        create, step, step, step, step, lease, lease, leave, transfer, transfer, delete_one};
    struct worker *w = arg;
    for (int i = 0; i < 5; i++)
        create(w);
    while (w->done < CALLS)
        acts[ab_random_below(AB_COUNT(acts))](w);
    return NULL;
}

static void open_worker(struct worker *w)
{
    w->jobs = pg_open_as("abies_jobs");
    w->sessions = pg_open_as("abies_sessions");
    w->transfers = pg_open_as("abies_transfers");
    w->look = pg_open();
}

static void close_worker(struct worker *w)
{
    ab_db_close(&w->jobs);
    ab_db_close(&w->sessions);
    ab_db_close(&w->transfers);
    ab_db_close(&w->look);
}

/* What `abies-admin check` looks at. */
static void check_all(ab_db_t *db)
{
    static const struct ab_sql *const *const lists[] = {check_sql, NULL};
    struct ab_error err = {0};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    assert_int_equal(ab_db_prepare(db, lists, &err), 0);
    for (const struct ab_sql *const *sql = check_sql; *sql; sql++) {
        PGresult *r = ab_db_run(db, *sql, NULL, 0, arena, &err);
        assert_non_null(r);
        size_t n;
        const char *example = ab_col_text(r, 0, ab_col(r, "example"), &n);
        if (ab_col_int(r, 0, ab_col(r, "n")) != 0)
            fail_msg("%s: %" I ", e.g. %.*s", (*sql)->name, ab_col_int(r, 0, 0), (int)n, example);
    }
}

static void nothing_deadlocks_or_fails_and_all_counters_stay_true(void **state)
{
    ab_db_t *owner = *state;
    struct worker workers[WORKERS] = {0};
    struct ab_error err = {0};
    for (int i = 0; i < WORKERS; i++)
        open_worker(&workers[i]);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i].failed)
            fail_msg("%d calls failed, the first: %s", workers[i].failed, workers[i].first_failure);
        assert_true(workers[i].done >= CALLS);
    }
    assert_true(pg_int(owner, "SELECT count(*) FROM events WHERE to_state = 'JOB_FINISHED'") > 50);
    assert_true(pg_int(owner, "SELECT count(*) FROM events WHERE from_state = 'JOB_FINISHED'")
                > 10);
    check_all(owner);
    assert_int_equal(ab_service_tick(&jobs_service, workers[0].jobs, conf[0], "fold", &err), 0);
    check_all(owner);
    for (int i = 0; i < WORKERS; i++)
        close_worker(&workers[i]);
    /* Backends hand their statistics in when they end; wait for them, then look. */
    int64_t until = ab_now_ms() + 10000;
    while (pg_int(owner, "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'abies_%%'"
                         " AND datname = current_database()")
           > 0)
        assert_true(ab_now_ms() < until);
    assert_int_equal(
        pg_int(owner, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
        0);
}

static int set_up(void **state)
{
    const struct ab_service *services[] = {&jobs_service, &sessions_service, &transfers_service};
    ab_db_t *owner = pg_open();
    for (int i = 0; i < 3; i++)
        conf[i] = ab_service_conf(services[i]);
    user = pg_int(owner, "INSERT INTO users (username) VALUES ('u') RETURNING id");
    site = pg_int(owner,
                  "INSERT INTO sites (owner_id, name, path, transfer_locations)"
                  " VALUES (%" I ", 's', '/s', '{\"a\": \"local://localhost/a\"}') RETURNING id",
                  user);
    app =
        pg_int(owner,
               "INSERT INTO apps (owner_id, site_id, name, transfers) VALUES (%" I ", %" I ", 'a',"
               " '{\"input\": {\"required\": false, \"direction\": \"in\", \"local_path\": \"i\", "
               "\"recursive\": false},"
               "   \"output\": {\"required\": false, \"direction\": \"out\", \"local_path\": "
               "\"o\", \"recursive\": false}}')"
               " RETURNING id",
               user, site);
    *state = owner;
    return 0;
}

static int tear_down(void **state)
{
    ab_db_t *owner = *state;
    for (int i = 0; i < 3; i++)
        ab_conf_destroy(&conf[i]);
    ab_db_close(&owner);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_deadlocks_or_fails_and_all_counters_stay_true),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
