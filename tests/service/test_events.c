/* test_events.c - the log of changes of state: lists, totals, the tail behind a cursor */
#include "desk.h"
#include "pg.h"
#include "schema/pack.h"
#include "service/service.h"
#include "svc_jobs/jobs.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

static int64_t counted(int64_t user, const char *query)
{
    int status = ask(user, "GET", path("/events/%s", query), NO_BODY);
    if (status != 200)
        fail_msg("%d for %s: %s", status, query, answer());
    return num("count");
}

static void events_are_listed_newest_first_and_by_their_filters(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[2];
    new_jobs(tenant, app, 2, ids, "'tags': {'k': 'v'}");
    int64_t other = new_job(tenant, app, "");
    move(tenant, ids[0], "PREPROCESSED");
    assert_int_equal(ask(tenant, "PUT", path("/jobs/%" I, ids[0]),
                         "{'state': 'RUNNING', 'state_data': {'num_nodes': 0.5, 'host': 'n1'}}"),
                     200);
    assert_int_equal(ask(tenant, "PUT", path("/jobs/%" I, ids[1]),
                         "{'state': 'FAILED', 'state_timestamp': '2001-02-03 04:05:06'}"),
                     200);

    assert_int_equal(counted(tenant, ""), 6);
    assert_string_equal(txt("results.0.to_state"), "RUNNING");
    assert_string_equal(txt("results.5.to_state"), "FAILED"); /* its time is long ago */
    assert_string_equal(txt("results.5.timestamp"), "2001-02-03T04:05:06");
    assert_int_equal(counted(tenant, "?ordering=timestamp"), 6);
    assert_string_equal(txt("results.0.to_state"), "FAILED");
    assert_int_equal(counted(tenant, path("?job_id=%" I, ids[0])), 3);
    assert_string_equal(txt("results.2.from_state"), "CREATED");
    assert_int_equal(counted(tenant, path("?job_id=%" I "&job_id=%" I, ids[0], other)), 4);
    assert_int_equal(counted(tenant, "?to_state=STAGED_IN&limit=1"), 3);
    assert_int_equal(counted(tenant, "?to_state=NOPE&limit=1&offset=1"), 0);
    assert_int_equal(counted(tenant, "?from_state=STAGED_IN"), 2);
    assert_int_equal(counted(tenant, "?tags=k:v"), 5);
    assert_int_equal(counted(tenant, "?data=host:n1"), 1);
    assert_int_equal(counted(tenant, "?data=num_nodes:0.5"), 0); /* values of filters are text */
    assert_int_equal(counted(tenant, "?timestamp_before=2001-02-03T04:05:06"), 1);
    assert_int_equal(counted(tenant, "?timestamp_after=2001-02-03T04:05:06.000001"), 5);
    assert_int_equal(counted(tenant, path("?id=%" I, num("results.0.id"))), 1);
    assert_int_equal(counted(tenant, "?limit=2&offset=4"), 6);
    assert_int_equal(len("results"), 2);
}

static void events_of_a_batch_job_are_all_events_of_its_jobs(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[2];
    new_jobs(tenant, app, 2, ids, "");
    int64_t batch_job = new_batch_job(tenant, site), session = new_session(tenant, site, batch_job);
    assert_int_equal(
        ask(tenant, "PUT", path("/batch-jobs/%" I, batch_job), "{'scheduler_id': 4711}"), 200);
    move(tenant, ids[0], "PREPROCESSED");
    assert_int_equal(ask(tenant, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}}"),
                     200);
    move(tenant, ids[0], "RUNNING");
    move(tenant, ids[0], "RUN_DONE");
    assert_int_equal(counted(tenant, path("?batch_job_id=%" I, batch_job)), 4);
    assert_int_equal(counted(tenant, "?scheduler_id=4711"), 4);
    assert_int_equal(counted(tenant, "?scheduler_id=4712"), 0);
}

static void totals_are_exact_before_and_after_folding(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[10];
    new_jobs(tenant, app, 10, ids, "");
    assert_int_equal(ask(tenant, "PUT", "/jobs/", "{'state': 'PREPROCESSED'}"), 200);
    assert_int_equal(ask(tenant, "PUT", "/jobs/", "{'state': 'RUNNING'}"), 200);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(counted(tenant, "?limit=1"), 30);
        assert_int_equal(counted(tenant, "?limit=1&to_state=RUNNING"), 10);
        assert_int_equal(ask(tenant, "GET", "/jobs/?limit=1&state=RUNNING", NO_BODY), 200);
        assert_int_equal(num("count"), 10);
        assert_int_equal(ask(tenant, "GET", "/jobs/?limit=1&state=STAGED_IN", NO_BODY), 200);
        assert_int_equal(num("count"), 0);
        check_books();
        tick("jobs", "fold");
    }
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT count(*) FROM (SELECT FROM job_counts GROUP BY owner_id, site_id, app_id,"
               " state HAVING count(*) > 1) AS d"),
        0);
    assert_int_equal(ask(tenant, "DELETE", path("/jobs/%" I, ids[0]), NO_BODY), 204);
    assert_int_equal(counted(tenant, "?limit=1"), 27);
    tick("jobs", "frozen");
}

static void nobody_writes_events(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++)
        if (ab_routes[i].method && strncmp(ab_routes[i].path, "/events/", 8) == 0)
            assert_string_equal(ab_routes[i].method, "GET");
}

/* ---- the tail, as the gateway asks for it */

static char cursor[64], head[64];
static bool more, held;

static void take(struct ab_cursor page, const char *name, char out[64])
{
    struct ab_cursor at;
    const char *text;
    size_t n;

    assert_int_equal(ab_cursor_find(page, name, &at), 0);
    assert_int_equal(ab_cursor_str(&at, &text, &n), 0);
    snprintf(out, 64, "%.*s", (int)n, text);
}

static bool take_bool(struct ab_cursor page, const char *name)
{
    struct ab_cursor at;
    bool v;

    assert_int_equal(ab_cursor_find(page, name, &at), 0);
    assert_int_equal(ab_cursor_bool(&at, &v), 0);
    return v;
}

/* The number of events behind the cursor, which moves. */
static int tail(int64_t user, const char *since, int limit)
{
    const struct ab_route *route = ab_route_of_verb("event.tail");
    struct event_tail q = {.since = since, .limit = limit};
    struct ab_buf body = {0}, reply = {0};
    struct ab_cursor list, page;
    uint32_t rows;

    AB_SET(event_tail, &q, since);
    AB_SET(event_tail, &q, limit);
    ab_pack_request(&body, route, 0, &q, NULL, 0);
    ab_db_t *db = pg_open_as("abies_jobs");
    assert_int_equal(ab_service_call(&jobs_service, db, NULL, "event.tail", user, NULL, body.data,
                                     body.len, &reply),
                     200);
    page = ab_cursor(reply.data, reply.len);
    take(page, "next", cursor);
    take(page, "head", head);
    more = take_bool(page, "more");
    held = take_bool(page, "held");
    assert_int_equal(ab_cursor_find(page, "results", &list), 0);
    assert_int_equal(ab_cursor_array(&list, &rows), 0);
    ab_buf_free(&body);
    ab_buf_free(&reply);
    ab_db_close(&db);
    return (int)rows;
}

/* Which of two owners the gateway is told to look after. */
static int moved(int64_t a, const char *a_at, int64_t b, const char *b_at)
{
    const struct ab_route *route = ab_route_of_verb("event.moved");
    int64_t owners[] = {a, b}, xids[2], ids[2];
    struct event_moved q = {.owner = {owners, 2}, .xid = {xids, 2}, .id = {ids, 2}};
    struct ab_buf body = {0}, reply = {0};
    int found = 0;
    uint32_t n;
    int64_t v;

    assert_int_equal(sscanf(a_at, "%" SCNd64 "-%" SCNd64, &xids[0], &ids[0]), 2);
    assert_int_equal(sscanf(b_at, "%" SCNd64 "-%" SCNd64, &xids[1], &ids[1]), 2);
    AB_SET(event_moved, &q, owner);
    AB_SET(event_moved, &q, xid);
    AB_SET(event_moved, &q, id);
    ab_pack_request(&body, route, 0, &q, NULL, 0);
    ab_db_t *db = pg_open_as("abies_jobs");
    struct ab_caller caller = {.scopes = AB_SCOPE_PUBLIC};
    assert_int_equal(ab_service_call_as(&jobs_service, db, NULL, &caller, "event.moved", body.data,
                                        body.len, &reply),
                     200);
    struct ab_cursor at = ab_cursor(reply.data, reply.len);
    assert_int_equal(ab_cursor_array(&at, &n), 0);
    for (; n > 0; n--) {
        assert_int_equal(ab_cursor_int(&at, &v), 0);
        found |= v == a ? 1 : v == b ? 2 : 4;
    }
    ab_buf_free(&body);
    ab_buf_free(&reply);
    ab_db_close(&db);
    return found;
}

static void owners_with_something_behind_their_cursor_are_named(void **state)
{
    (void)state;
    char mine[64], theirs[64];
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    int64_t stranger = new_user(), other = new_app(stranger, new_site(stranger));
    tail(tenant, "", 100);
    snprintf(mine, sizeof(mine), "%s", cursor);
    tail(stranger, "", 100);
    snprintf(theirs, sizeof(theirs), "%s", cursor);
    assert_int_equal(moved(tenant, mine, stranger, theirs), 0);
    new_job(tenant, app, "");
    assert_int_equal(moved(tenant, mine, stranger, theirs), 1);
    new_job(stranger, other, "");
    assert_int_equal(moved(tenant, mine, stranger, theirs), 3);
    tail(tenant, mine, 100);
    assert_int_equal(moved(tenant, cursor, stranger, theirs), 2);
    assert_int_equal(moved(stranger + 1, "3-0", stranger, theirs), 2);
    tail(stranger, theirs, 100);
    snprintf(theirs, sizeof(theirs), "%s", cursor);
    tail(tenant, mine, 100);
    assert_int_equal(moved(tenant, cursor, stranger, theirs), 0);

    /* what an older transaction holds back is something, too: the tail says that it is held */
    ab_db_t *open = pg_open();
    pg_exec(open, "BEGIN; SELECT pg_current_xact_id()");
    new_job(stranger, other, "");
    assert_int_equal(moved(tenant, cursor, stranger, theirs), 2);
    assert_int_equal(tail(stranger, theirs, 100), 0);
    assert_true(held);
    ab_db_close(&open);
}

static void the_tail_skips_nothing_while_transactions_overlap(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[3];
    new_jobs(tenant, app, 3, ids, "");
    assert_int_equal(tail(tenant, "", 100), 0);

    ab_db_t *slow = pg_open();
    pg_exec(slow, "BEGIN");
    pg_exec(slow,
            "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
            " VALUES (nextval('event_ids'), %" I ", %" I ", now(), 'STAGED_IN', 'FAILED')",
            tenant, ids[0]);
    move(tenant, ids[1], "PREPROCESSED");
    move(tenant, ids[2], "PREPROCESSED");
    char from[64];
    snprintf(from, sizeof(from), "%s", cursor);
    assert_int_equal(tail(tenant, from, 100), 0); /* they stand behind one that is still open */
    assert_string_equal(cursor, from);
    assert_true(held && !more);
    char before[64];
    snprintf(before, sizeof(before), "%s", head);
    pg_exec(slow, "COMMIT");
    ab_db_close(&slow);
    assert_int_equal(tail(tenant, from, 2), 2);
    assert_true(more && !held);
    snprintf(from, sizeof(from), "%s", cursor);
    assert_int_equal(tail(tenant, from, 2), 1);
    assert_true(!more && !held);
    assert_true(strcmp(head, before) > 0);
    snprintf(from, sizeof(from), "%s", cursor);
    assert_int_equal(tail(tenant, from, 2), 0);
    assert_string_equal(cursor, from);
    snprintf(from, sizeof(from), "%s", head);
    assert_int_equal(tail(tenant, from, 2), 0); /* nothing is between the last event and the head */
    move(tenant, ids[1], "RUNNING");
    assert_int_equal(tail(tenant, from, 2), 1); /* and what comes later is behind it */
    pg_exec(desk_db(), "DELETE FROM events WHERE job_id = %" I " AND to_state = 'FAILED'", ids[0]);
}

static void a_page_ends_when_it_is_large_and_goes_on_from_there(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[6];
    new_jobs(tenant, app, 6, ids, "");
    tail(tenant, "3-0", 1000);
    char from[64];
    snprintf(from, sizeof(from), "%s", cursor);
    for (int i = 0; i < 6; i++)
        pg_exec(desk_db(),
                "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state, data)"
                " VALUES (nextval('event_ids'), %" I ", %" I ", now(), 'STAGED_IN', 'FAILED',"
                " jsonb_build_object('text', repeat('x', 600000)))",
                tenant, ids[i]);
    for (int i = 0; i < 3; i++) { /* 600 kB and 600 kB: the second fills the page */
        assert_int_equal(tail(tenant, from, 100), 2);
        assert_int_equal(more, i < 2);
        snprintf(from, sizeof(from), "%s", cursor);
    }
    assert_int_equal(tail(tenant, from, 100), 0);
    pg_exec(desk_db(), "DELETE FROM events WHERE owner_id = %" I " AND to_state = 'FAILED'",
            tenant);
}

static void since_lists_oldest_first_and_says_where_to_go_on(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), app = new_app(tenant, new_site(tenant));
    tail(tenant, "", 1);
    int64_t job = new_job(tenant, app, "");
    move(tenant, job, "PREPROCESSED");
    assert_int_equal(ask(tenant, "GET", path("/events/?since=%s", cursor), NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_string_equal(txt("results.0.from_state"), "CREATED");
    assert_string_equal(txt("results.1.to_state"), "PREPROCESSED");
    char next[64];
    snprintf(next, sizeof(next), "%s", txt("cursor"));
    assert_int_equal(ask(tenant, "GET", path("/events/?since=%s", next), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_string_equal(txt("cursor"), next);
    assert_int_equal(ask(stranger, "GET", path("/events/?since=%s", cursor), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", "/events/?since=yesterday", NO_BODY), 422);
    assert_int_equal(ask(tenant, "GET", "/events/?since=1-1%27%20OR%201", NO_BODY), 422);
}

static void a_stranger_sees_nothing(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(),
            job = new_job(tenant, new_app(tenant, new_site(tenant)), "");
    assert_int_equal(counted(stranger, ""), 0);
    assert_int_equal(counted(stranger, path("?job_id=%" I, job)), 0);
    assert_int_equal(tail(stranger, "3-0", 100), 0);
}

static void a_sites_token_sees_its_sites_events(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant);
    int64_t job = new_job(tenant, new_app(tenant, site), "");
    new_job(tenant, new_app(tenant, other), "");
    struct who agent = {.user = tenant, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/events/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.job_id"), job);
    assert_int_equal(ask_as(&agent, "GET", "/events/?limit=0", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(ask_as(&agent, "GET", "/events/?since=3-0", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_listed_newest_first_and_by_their_filters),
        cmocka_unit_test(events_of_a_batch_job_are_all_events_of_its_jobs),
        cmocka_unit_test(totals_are_exact_before_and_after_folding),
        cmocka_unit_test(nobody_writes_events),
        cmocka_unit_test(owners_with_something_behind_their_cursor_are_named),
        cmocka_unit_test(the_tail_skips_nothing_while_transactions_overlap),
        cmocka_unit_test(a_page_ends_when_it_is_large_and_goes_on_from_there),
        cmocka_unit_test(since_lists_oldest_first_and_says_where_to_go_on),
        cmocka_unit_test(a_stranger_sees_nothing),
        cmocka_unit_test(a_sites_token_sees_its_sites_events),
    };
    pg_alone(); /* others would hold up the tail */
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
