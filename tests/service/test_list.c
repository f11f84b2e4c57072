/* test_list.c - lists: filters, order, pages that go on by key, exact totals */
#include "fake.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "crypt/crypt.h"
#include "pg.h"
#include "schema/pack.h"
#include "svc_jobs/jobs.h"
#include "svc_transfers/transfers.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    ROWS = 2500
};

static struct ab_service service;
static const struct ab_service *asked = &service;
static ab_db_t *db, *asked_db;
static int64_t site;
static bool totals; /* may batch_total answer? */

static const char *const no_params[] = {NULL};
static const struct ab_sql known_total = {
    .name = "known_total", .text = "SELECT 4711", .params = no_params, .file = "test_list.c"};
static const struct ab_sql *const own_blocks[] = {&known_total, NULL};
static const struct ab_sql *const *const own_sql[] = {own_blocks, NULL};

static const struct ab_sql *batch_total(struct ab_call *call, const void *query)
{
    (void)call;
    (void)query;
    return totals ? &known_total : NULL;
}

static const struct ab_list_spec batch_spec = {
    .out = &ab_schema_batch_job,
    .query = &ab_schema_batch_job_query,
    .from = "batch_jobs b",
    .owner = "b.owner_id",
    .id = "b.id",
    .total = batch_total,
};

static struct ab_ids found; /* by ab_list_ids */
static int64_t found_ids[3];
static char plans[64]; /* settings right behind it */

static int batch_list(struct ab_call *call, struct ab_error *err)
{
    return ab_list_handler(call, &batch_spec, err);
}

static int site_list(struct ab_call *call, struct ab_error *err)
{
    static const struct ab_list_spec spec = {
        .out = &ab_schema_site,
        .query = &ab_schema_site_query,
        .from = "sites site",
        .owner = "site.owner_id",
        .id = "site.id",
    };
    if (ab_list_ids(call, &spec, 3, &found, err) < 0)
        return -1;
    PGresult *r = ab_db_query(
        call->db, "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan')",
        NULL, NULL, 0, call->arena, err);
    if (!r)
        return -1;
    snprintf(plans, sizeof(plans), "%s %s", PQgetvalue(r, 0, 0), PQgetvalue(r, 0, 1));
    memcpy(found_ids, found.v, found.n * sizeof(*found.v));
    return ab_list_handler(call, &spec, err);
}

static const struct ab_verb verbs[] = {
    {.name = "batch_job.list", .handler = batch_list},
    {.name = "site.list", .handler = site_list},
    {0},
};

static int open_all(void **state)
{
    (void)state;
    ab_crypt_init();
    db = pg_open();
    fake_open(&service, "jobs", verbs);
    service.sql = own_sql;
    pg_exec(db, "INSERT INTO users (id, username) VALUES (1, 'a'), (2, 'b')");
    pg_exec(db, "INSERT INTO sites (owner_id, name, path) VALUES (1, 's', '/s')");
    site = pg_int(db, "SELECT id FROM sites");
    /* times with ties and with nulls, in an order that is not the ids' */
    pg_exec(db,
            "INSERT INTO batch_jobs (owner_id, site_id, num_nodes, wall_time_min, job_mode, "
            "project, queue,"
            " start_time, state, filter_tags) SELECT 1, %" PRId64
            ", i, 10, 'mpi', 'p', 'q' || i %% 3,"
            " CASE WHEN i %% 5 = 0 THEN NULL ELSE timestamptz '2026-01-01' + (i * 7919 %% 100) * "
            "interval '1 h' END,"
            " CASE WHEN i %% 2 = 0 THEN 'queued' ELSE 'running' END::batch_state,"
            " jsonb_build_object('k', (i %% 10)::text) FROM generate_series(1, %d) AS i",
            site, ROWS);
    pg_exec(db,
            "INSERT INTO batch_jobs (owner_id, site_id, num_nodes, wall_time_min, job_mode, "
            "project, queue)"
            " VALUES (2, %" PRId64 ", 1, 1, 'mpi', 'p', 'q')",
            site);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    fake_close(&service);
    ab_db_close(&db);
    return 0;
}

/* ---- asking, as the gateway does: page after page */

struct result {
    int64_t count;
    int pages, n;
    int64_t ids[ROWS + 10];
};

static struct ab_buf last; /* the last page, packed */

/* The body of the first request with "next" added. */
static void add_next(struct ab_buf *body, const struct ab_cursor *next)
{
    struct ab_cursor end = *next;
    assert_int_equal(ab_cursor_skip(&end), 0);
    assert_true((uint8_t)body->data[0] >= 0x80 && (uint8_t)body->data[0] < 0x8f); /* a small map */
    body->data[0]++;
    ab_pack_str(body, "next");
    ab_buf_add(body, next->at, (size_t)(end.at - next->at));
}

static int take_page(struct result *out, struct ab_buf *request, const struct ab_buf *first)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *page = fake_tree(arena, &last), *rows = ab_value_get(page, "results");
    if (out->pages++ == 0)
        out->count = ab_value_int(ab_value_get(page, "count"), -1);
    else
        assert_null(ab_value_get(page, "count"));
    assert_true(rows->n <= AB_PAGE_ROWS);
    for (size_t i = 0; i < rows->n; i++) {
        assert_true(out->n < ROWS + 10);
        out->ids[out->n++] = ab_value_int(ab_value_get(&rows->items[i], "id"), -1);
    }
    struct ab_cursor next;
    assert_int_equal(ab_cursor_find(ab_cursor(last.data, last.len), "next", &next), 0);
    if (ab_cursor_peek(&next) == AB_TK_NIL)
        return 0;
    ab_buf_clear(request);
    ab_buf_add(request, first->data, first->len);
    add_next(request, &next);
    return 1;
}

static void ask(const char *verb, int64_t owner, const char *query, struct result *out)
{
    AB_AUTO(ab_buf_free) struct ab_buf first = {0}, request = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    struct ab_http_parts parts = {.query = query, .query_len = strlen(query)};
    memset(out, 0, sizeof(*out));
    if (ab_json_request(ab_route_of_verb(verb), &parts, &first, &issues) < 0)
        fail_msg("%s: %.*s", query, (int)issues.list.len, issues.list.data);
    ab_buf_add(&request, first.data, first.len);
    do {
        int status = ab_service_call(asked, asked_db ? asked_db : db, NULL, verb, owner, NULL,
                                     request.data, request.len, &last);
        if (status != 200)
            fail_msg("%s: %d %s", query, status, fake_json(&last));
    } while (take_page(out, &request, &first));
}

/* The ids as one statement gives them. */
static void expect(const struct result *got, const char *sql)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    PGresult *r = ab_db_query(db, sql, NULL, NULL, 0, arena, &err);
    if (!r)
        fail_msg("%s", err.text);
    assert_int_equal(got->n, PQntuples(r));
    for (int i = 0; i < got->n; i++)
        assert_int_equal(got->ids[i], ab_col_int(r, i, 0));
}

static struct result result;

/* ---- tests */

static void a_list_shows_the_owners_rows_only_in_the_order_of_ids(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "", &result);
    expect(&result, "SELECT id FROM batch_jobs WHERE owner_id = 1 ORDER BY id");
    assert_int_equal(result.count, ROWS);
    assert_int_equal(result.pages, 3);
    ask("batch_job.list", 2, "", &result);
    assert_int_equal(result.n, 1);
    assert_int_equal(result.count, 1);
    ask("batch_job.list", 3, "", &result);
    assert_int_equal(result.n + result.count, 0);
}

static void pages_go_on_by_key_in_every_order(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "ordering=start_time", &result);
    expect(&result, "SELECT id FROM batch_jobs WHERE owner_id = 1 ORDER BY start_time, id");
    assert_int_equal(result.pages, 3);
    ask("batch_job.list", 1, "ordering=-start_time", &result);
    expect(&result, "SELECT id FROM batch_jobs WHERE owner_id = 1 ORDER BY start_time DESC, id");
    assert_int_equal(result.pages, 3);
}

static void limit_and_offset_hold_across_pages(void **state)
{
    (void)state;
    static const int cases[][2] = {{1, 0},    {5, 2498},      {32, 0},    {33, 7},    {1000, 0},
                                   {1000, 3}, {1001, 0},      {1500, 10}, {2000, 0},  {2500, 0},
                                   {2499, 1}, {100000, 2400}, {10, 2500}, {10, 99999}};
    for (size_t i = 0; i < AB_COUNT(cases); i++) {
        char query[100], sql[200];
        snprintf(query, sizeof(query), "ordering=-start_time&limit=%d&offset=%d", cases[i][0],
                 cases[i][1]);
        snprintf(sql, sizeof(sql),
                 "SELECT id FROM batch_jobs WHERE owner_id = 1 ORDER BY start_time DESC, id LIMIT "
                 "%d OFFSET %d",
                 cases[i][0], cases[i][1]);
        ask("batch_job.list", 1, query, &result);
        expect(&result, sql);
        assert_int_equal(result.count, ROWS);
    }
}

static void limit_zero_counts_only(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "limit=0&offset=0&state=queued", &result);
    assert_int_equal(result.n, 0);
    assert_int_equal(result.count, ROWS / 2);
}

static void filters_are_joined_by_and_and_values_by_or(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "state=queued&state=running&queue=q1&filter_tags=k:3", &result);
    expect(&result, "SELECT id FROM batch_jobs WHERE owner_id = 1 AND queue = 'q1'"
                    " AND filter_tags @> '{\"k\": \"3\"}' ORDER BY id");
    assert_true(result.n > 10);
    ask("batch_job.list", 1,
        "start_time_after=2026-01-02T00:00:00&start_time_before=2026-01-03%2000:00", &result);
    expect(&result, "SELECT id FROM batch_jobs WHERE owner_id = 1 AND start_time >= '2026-01-02'"
                    " AND start_time <= '2026-01-03' ORDER BY id");
    assert_true(result.n > 10);
    ask("batch_job.list", 1, "state=unheard_of", &result);
    assert_int_equal(result.n + result.count, 0);
}

static void falsy_values_are_no_filters(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "scheduler_id=0&queue=&limit=1", &result);
    assert_int_equal(result.count, ROWS);
}

static void a_value_is_never_part_of_the_statement(void **state)
{
    (void)state;
    ask("batch_job.list", 1, "queue=q1'%20OR%20true--", &result);
    assert_int_equal(result.n + result.count, 0);
    ask("batch_job.list", 1, "queue=q1%3F&filter_tags=a'b:%22%3B", &result);
    assert_int_equal(result.n + result.count, 0);
}

static void rows_that_come_and_go_between_pages_shift_nothing(void **state)
{
    (void)state;
    /* take page one by hand, delete and add in front of its end, then go on */
    AB_AUTO(ab_buf_free) struct ab_buf first = {0}, request = {0};
    struct ab_http_parts parts = {.query = "", .query_len = 0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    memset(&result, 0, sizeof(result));
    assert_int_equal(ab_json_request(ab_route_of_verb("batch_job.list"), &parts, &first, &issues),
                     0);
    assert_int_equal(ab_service_call(&service, db, NULL, "batch_job.list", 1, NULL, first.data,
                                     first.len, &last),
                     200);
    assert_int_equal(take_page(&result, &request, &first), 1);
    int64_t border = result.ids[result.n - 1];
    pg_exec(db, "BEGIN");
    pg_exec(db, "DELETE FROM batch_jobs WHERE id <= %" PRId64 " AND id %% 2 = 0", border);
    int64_t lost = pg_int(db, "SELECT %d - count(*) FROM batch_jobs WHERE owner_id = 1", ROWS);
    assert_true(lost > 400);
    pg_exec(db, "COMMIT");
    do {
        assert_int_equal(ab_service_call(&service, db, NULL, "batch_job.list", 1, NULL,
                                         request.data, request.len, &last),
                         200);
    } while (take_page(&result, &request, &first));
    assert_int_equal(result.n, ROWS);
    for (int i = 1; i < result.n; i++)
        assert_true(result.ids[i] > result.ids[i - 1]);
}

static void a_total_may_come_from_elsewhere_when_the_page_cannot_tell(void **state)
{
    (void)state;
    totals = true;
    ask("batch_job.list", 1, "limit=5", &result);
    assert_int_equal(result.count, 4711);
    ask("batch_job.list", 1, "limit=5&id=1&id=2&id=999999",
        &result); /* a short page tells itself */
    assert_int_equal(result.count, result.n);
    totals = false;
}

static void a_next_that_we_never_gave_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\x01", 1},
               {"\xc2", 1},
               {"\x90", 1},
               {"\x93\xff\xc0\x01", 4},
               {"\x93\xc0\xa1x\x01", 5},
               {"\x92\xc0\x01", 3},
               {"\x93\xc0\xc0\xc0", 4},
               {"\xa3"
                "abc",
                4}};
    for (size_t i = 0; i < AB_COUNT(bad); i++) {
        AB_AUTO(ab_buf_free) struct ab_buf body = {0};
        ab_pack_map(&body, 2);
        ab_pack_str(&body, "q");
        ab_pack_map(&body, 0);
        ab_pack_str(&body, "next");
        ab_buf_add(&body, bad[i].bytes, bad[i].n);
        int status = ab_service_call(&service, db, NULL, "batch_job.list", 1, NULL, body.data,
                                     body.len, &last);
        assert_in_range(status, 400, 422);
    }
}

static void pages_of_large_rows_are_cut_by_their_bytes(void **state)
{
    (void)state;
    pg_exec(db,
            "INSERT INTO sites (owner_id, name, path, allowed_projects) SELECT 1, 'big' || i, '/b',"
            " json_build_array(repeat('x', 100000)) FROM generate_series(1, 60) AS i");
    ask("site.list", 1, "path=b", &result);
    expect(&result, "SELECT id FROM sites WHERE name LIKE 'big%' ORDER BY id");
    assert_int_equal(result.count, 60);
    assert_in_range(result.pages, 10, 13); /* 5 or 6 rows each */
    assert_int_equal(found.n, 3);
    assert_int_equal(found_ids[0], result.ids[0]);
    pg_exec(db, "DELETE FROM sites WHERE name LIKE 'big%%'");
}

static void ids_by_filter_do_not_change_the_plans_of_what_follows(void **state)
{
    (void)state;
    AB_AUTO(ab_db_close) ab_db_t *jobs = pg_open_as("abies_jobs");
    AB_AUTO(ab_buf_free) struct ab_buf request = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    struct ab_http_parts parts = {.query = "", .query_len = 0};
    assert_int_equal(ab_json_request(ab_route_of_verb("site.list"), &parts, &request, &issues), 0);
    assert_string_equal(pg_text(jobs, "SELECT current_setting('plan_cache_mode')"),
                        "force_generic_plan");
    assert_int_equal(ab_service_call(&service, jobs, NULL, "site.list", 1, NULL, request.data,
                                     request.len, &last),
                     200);
    assert_string_equal(plans, "force_generic_plan off");
    assert_string_equal(pg_text(jobs, "SELECT current_setting('plan_cache_mode')"),
                        "force_generic_plan");
}

/* ---- jobs, their events and files: whatever table and index a search takes, it finds the same */

#define OF_JOBS(rest)                                                                              \
    "SELECT j.id FROM jobs j JOIN job_specs s USING (id) WHERE j.owner_id = 1 " rest
#define OF_EVENTS(rest) "SELECT e.id FROM events e WHERE e.owner_id = 1 " rest
#define OF_ITEMS(rest) "SELECT t.id FROM transfer_items t WHERE t.owner_id = 1 " rest
#define WITH_JOB(column, is)                                                                       \
    "AND " column " IN (SELECT j.id FROM jobs j JOIN job_specs s USING (id) WHERE " is ") "
#define LATEST "ORDER BY e.timestamp DESC, e.id"

static const struct {
    const char *verb, *query, *sql;
} searches[] = {
    {"job.list", "state=READY", OF_JOBS("AND state = 'READY' ORDER BY 1")},
    {"job.list", "state=READY&state=FAILED",
     OF_JOBS("AND state IN ('READY', 'FAILED') ORDER BY 1")},
    {"job.list", "state__ne=READY", OF_JOBS("AND state <> 'READY' ORDER BY 1")},
    {"job.list", "state=READY&state__ne=READY", OF_JOBS("AND false")},
    {"job.list", "state=READY&state__ne=FAILED", OF_JOBS("AND state = 'READY' ORDER BY 1")},
    {"job.list", "ordering=-state", OF_JOBS("ORDER BY state DESC, id")},
    {"job.list", "ordering=state", OF_JOBS("ORDER BY state, id")},
    {"job.list", "state__ne=RUNNING&ordering=-state&tags=k:1",
     OF_JOBS("AND state <> 'RUNNING' AND tags->>'k' = '1' ORDER BY state DESC, id")},
    {"job.list", "state=READY&tags=k:1",
     OF_JOBS("AND state = 'READY' AND tags->>'k' = '1' ORDER BY 1")},
    {"job.list", "state__ne=READY&workdir__contains=7",
     OF_JOBS("AND state <> 'READY' AND workdir LIKE '%7%' ORDER BY 1")},
    {"job.list", "state=READY&site_id=2",
     OF_JOBS("AND state = 'READY' AND site_id = 2 ORDER BY 1")},
    {"job.list", "site_id=2", OF_JOBS("AND site_id = 2 ORDER BY 1")},
    {"job.list", "site_id=3", OF_JOBS("AND false")},
    {"job.list", "app_id=0", OF_JOBS("ORDER BY 1")},
    {"job.list", "ordering=last_update", OF_JOBS("ORDER BY last_update, id")},
    {"job.list", "ordering=-last_update", OF_JOBS("ORDER BY last_update DESC, id")},
    {"job.list", "last_update_after=2026-01-03T00:00:00",
     OF_JOBS("AND last_update >= '2026-01-03' ORDER BY 1")},
    {"job.list", "last_update_before=2026-01-03T00:00:00&state=READY",
     OF_JOBS("AND last_update <= '2026-01-03' AND state = 'READY' ORDER BY 1")},
    {"job.list", "last_update_after=2026-01-03T00:00:00&tags=k:1",
     OF_JOBS("AND last_update >= '2026-01-03' AND tags->>'k' = '1' ORDER BY 1")},
    {"job.list", "last_update_after=2026-01-02T00:00:00&tags=k:1&ordering=-last_update",
     OF_JOBS("AND last_update >= '2026-01-02' AND tags->>'k' = '1' ORDER BY last_update DESC, id")},
    {"event.list", "", OF_EVENTS(LATEST)},
    {"event.list", "to_state=", OF_EVENTS(LATEST)},
    {"event.list", "to_state=FAILED", OF_EVENTS("AND to_state = 'FAILED' " LATEST)},
    {"event.list", "to_state=RUN_TIMEOUT", OF_EVENTS("AND false")},
    {"event.list", "to_state=NONSENSE", OF_EVENTS("AND false")},
    {"event.list", "tags=k:1", OF_EVENTS(WITH_JOB("job_id", "tags->>'k' = '1'") LATEST)},
    {"event.list", "tags=k:1&to_state=FAILED&ordering=timestamp",
     OF_EVENTS("AND to_state = 'FAILED' " WITH_JOB("job_id",
                                                   "tags->>'k' = '1'") "ORDER BY timestamp, id")},
    {"event.list", "batch_job_id=5", OF_EVENTS(WITH_JOB("job_id", "batch_job_id = 5") LATEST)},
    {"event.list", "scheduler_id=77", OF_EVENTS(WITH_JOB("job_id", "batch_job_id = 5") LATEST)},
    {"transfer.list", "state=pending", OF_ITEMS("AND state = 'pending' ORDER BY 1")},
    {"transfer.list", "state=pending&state=done", OF_ITEMS("ORDER BY 1")},
    {"transfer.list", "job_state=READY",
     OF_ITEMS(WITH_JOB("job_id", "state = 'READY'") "ORDER BY 1")},
    {"transfer.list", "job_state=NONSENSE", OF_ITEMS("AND false")},
    {"transfer.list", "job_state=", OF_ITEMS("ORDER BY 1")},
    {"transfer.list", "tags=k:1&state=done",
     OF_ITEMS("AND state = 'done' " WITH_JOB("job_id", "tags->>'k' = '1'") "ORDER BY 1")},
};

/* The second tenant has the same of everything, at the same times. */
static void fill_jobs(void)
{
    pg_exec(db, "INSERT INTO sites (id, owner_id, name, path) VALUES (2, 1, 'two', '/t'), (3, 1, "
                "'three', '/t')");
    pg_exec(db, "UPDATE batch_jobs SET scheduler_id = 77 WHERE id = 5");
    pg_exec(db,
            "INSERT INTO jobs (id, owner_id, site_id, app_id, batch_job_id, last_update, state)"
            " SELECT i, 1 + i %% 2, 1 + i / 2 %% 2, 1 + i / 2 %% 2, i / 100,"
            " timestamptz '2026-01-01' + (i * 7919 %% 100) * interval '1 h',"
            " (ARRAY['READY', 'FAILED', 'RUNNING', 'JOB_FINISHED', 'JOB_FINISHED'])[1 + i / 2 %% "
            "5]::job_state"
            " FROM generate_series(1, %d) AS i",
            ROWS);
    pg_exec(db, "INSERT INTO job_specs (id, owner_id, app_id, workdir, tags)"
                " SELECT id, owner_id, app_id, 'run-' || id, jsonb_build_object('k', (id / 4 %% "
                "7)::text) FROM jobs");
    pg_exec(db, "INSERT INTO events (id, owner_id, job_id, timestamp, from_state, to_state)"
                " SELECT id, owner_id, id, last_update, 'CREATED', state FROM jobs");
    pg_exec(db, "INSERT INTO transfer_items (owner_id, site_id, job_id, direction, state, "
                "local_path, remote_path, location_alias)"
                " SELECT owner_id, site_id, id, 'in', CASE WHEN id %% 3 = 0 THEN 'pending' ELSE "
                "'done' END::transfer_state,"
                " 'a', '/a', 'b' FROM jobs ORDER BY id DESC");
    pg_exec(db, "INSERT INTO job_counts (owner_id, site_id, app_id, state, jobs, nodes, events)"
                " SELECT owner_id, site_id, app_id, state, count(*), 0, count(*) FROM jobs GROUP "
                "BY 1, 2, 3, 4");
    pg_exec(db, "ANALYZE");
}

static void search(size_t i)
{
    char query[200], sql[1000];
    ask(searches[i].verb, 1, searches[i].query, &result);
    expect(&result, searches[i].sql);
    assert_int_equal(result.count, result.n);
    int64_t count = result.n;
    snprintf(query, sizeof(query), "%s&limit=7&offset=13", searches[i].query);
    snprintf(sql, sizeof(sql), "%s LIMIT 7 OFFSET 13", searches[i].sql);
    ask(searches[i].verb, 1, query, &result);
    expect(&result, sql);
    assert_int_equal(result.count, count);
}

static void a_search_finds_the_same_whatever_it_reads(void **state)
{
    (void)state;
    ab_db_t *jobs = pg_open_as("abies_jobs"), *transfers = pg_open_as("abies_transfers");
    fill_jobs();
    for (size_t i = 0; i < AB_COUNT(searches); i++) {
        bool of_items = strcmp(searches[i].verb, "transfer.list") == 0;
        asked = of_items ? &transfers_service : &jobs_service;
        asked_db = of_items ? transfers : jobs;
        search(i);
    }
    asked = &service;
    asked_db = NULL;
    ab_db_close(&jobs);
    ab_db_close(&transfers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_shows_the_owners_rows_only_in_the_order_of_ids),
        cmocka_unit_test(pages_go_on_by_key_in_every_order),
        cmocka_unit_test(limit_and_offset_hold_across_pages),
        cmocka_unit_test(limit_zero_counts_only),
        cmocka_unit_test(filters_are_joined_by_and_and_values_by_or),
        cmocka_unit_test(falsy_values_are_no_filters),
        cmocka_unit_test(a_value_is_never_part_of_the_statement),
        cmocka_unit_test(a_total_may_come_from_elsewhere_when_the_page_cannot_tell),
        cmocka_unit_test(a_next_that_we_never_gave_is_refused),
        cmocka_unit_test(pages_of_large_rows_are_cut_by_their_bytes),
        cmocka_unit_test(ids_by_filter_do_not_change_the_plans_of_what_follows),
        cmocka_unit_test(rows_that_come_and_go_between_pages_shift_nothing),
        cmocka_unit_test(a_search_finds_the_same_whatever_it_reads),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
