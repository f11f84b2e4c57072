/* test_plans.c - no statement of a service reads the whole of a table that grows
 *
 * Every block of every .sql file that a service prepares is planned on tables of 240,000 jobs, as its
 * role has it and for its values; every filter and order of every list is asked for, and so is
 * whatever a timer does inside its functions, with what PostgreSQL says of the plans it chose. What
 * is new is therefore covered at once.
 */
#include "base/cleanup.h"
#include "desk.h"
#include "pg.h"
#include "plans.h"
#include "request.sql.h"
#include "service/service.h"
#include "svc_auth/auth.h"
#include "svc_jobs/jobs.h"
#include "svc_sessions/sessions.h"
#include "svc_transfers/transfers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct served {
    const struct ab_service *service;
    const char *role;
} all_services[] = {
    {&jobs_service, "abies_jobs"},
    {&sessions_service, "abies_sessions"},
    {&transfers_service, "abies_transfers"},
    {&auth_service, "abies_auth"},
};

/* What may read all of a table, and why. `where` is a block, a timer or VERB?FIELD. */
static const struct exception {
    const char *where, *table, *why;
} exceptions[] = {
    {"session_stale", "sessions", "an index on heartbeat would cost every heartbeat more"},
    {"session_clock", "sessions", "the same: a row for each launcher that lives"},
    {"sessions.sweep", "sessions", "the same, as it is run"},
    {"figures_look", "sessions", "the same"},
    {"sessions.figures", "sessions", "the same, as it is run"},
};

/* Of a tenant who has half of all rows. Exact totals by filters, and orders, that no index serves: each change of
 * a job would pay for one. His own rows are read, and to read all of them is the cheaper way. */
static const struct {
    const char *where, *table;
} of_half[] = {
    {"job.list?last_update_before", "jobs"},
    {"job.list?last_update_after", "jobs"},
    {"job.list?pending_file_cleanup", "jobs"},
    {"job.list?workdir__contains", "job_specs"},
    {"job.list?ordering=workdir", "job_specs"},
    {"job.list?ordering=-workdir", "job_specs"},
    {"event.list?data", "events_"},
    {"event.list?from_state", "events_"},
    {"event.list?timestamp_before", "events_"},
    {"event.list?timestamp_after", "events_"},
    {"transfer.list?direction", "transfer_items"},
    {"job.update_where?workdir__contains", "job_specs"},
    {"job.update_where?last_update_before", "jobs"},
    {"job.update_where?last_update_after", "jobs"},
};
static bool seen[AB_COUNT(exceptions)];
static int64_t tenant; /* 1 has half of all jobs, the others some hundred each */

static bool is_excepted(const char *where, const char *table)
{
    for (size_t i = 0; i < AB_COUNT(exceptions); i++)
        if (strcmp(exceptions[i].where, where) == 0 && strcmp(exceptions[i].table, table) == 0)
            return seen[i] = true;
    for (size_t i = 0; tenant == 1 && i < AB_COUNT(of_half); i++)
        if (strcmp(of_half[i].where, where) == 0
            && strncmp(of_half[i].table, table, strlen(of_half[i].table)) == 0)
            return true;
    return false;
}

static int bad_plans;

static void complain(const char *name, const char *mode, const char *what, const char *plan)
{
    bad_plans++;
    fprintf(stderr, "%s (%s) %s\n%s\n", name, mode, what, plan);
}

/* Statements that take the head of a queue, which may have a million jobs. */
static bool takes_from_queue(const char *name)
{
    static const char *const blocks[] = {"lease_small_first",      "lease_long_first",
                                         "lease_to_process",       "lease_tagged_walk",
                                         "lease_tagged_walk_long", "explain_place"};
    for (size_t i = 0; i < AB_COUNT(blocks); i++)
        if (strcmp(name, blocks[i]) == 0)
            return true;
    return false;
}

static void judge(const char *name, const char *mode, const char *plan)
{
    char what[200];
    const char *how, *table = plans_reads_all(plan, &how);
    if (table && !is_excepted(name, table)) {
        snprintf(what, sizeof(what), "reads all of %s: %s", table, how);
        complain(name, mode, what, plan);
    }
    if (takes_from_queue(name) && !plans_queue(plan))
        complain(name, mode, "reads and sorts the whole queue", plan);
}

/* ---- the blocks */

/* What a parameter is given, by name; else by type. */
static const struct sample {
    const char *name, *value;
} by_name[] = {
    {"max_jobs", "512"},
    {"max_nodes", "2147483647"},
    {"max_wall_time", "2147483647"},
    {"batch", "1000"},
    {"limit", "500"},
    {"bytes", "1000000"},
    {"budget", "'Infinity'"},
    {"token_site", "0"},
    {"request", "'01020304-0506-7708-890a-0b0c0d0e0f10'"},
    {"after", "100000"},
    {"n", "10"},
    {"site_id", "200"},
    {"job_id", "100000"},
    {"xid", "'0'"},
    {"session_id", "11"},
    {"batch_id", "120"},
    {"tags", "'{\"experiment\": \"e3\", \"sample\": \"s33\"}'"},
    {"keep", "'1 day'"},
};

static const struct sample arrays[] = {
    {"app_ids", "'{}'"}, /* no filter */
    {"site_ids", "'{}'"},
    {"sessions", "'{11,12,13}'"},
};

static const struct sample by_type[] = {
    {"boolean", "false"},
    {"text", "'x'"},
    {"bytea", "'\\x00'"},
    {"uuid", "'01020304-0506-7708-890a-0b0c0d0e0f10'"},
    {"interval", "'5 minutes'"},
    {"timestamp with time zone", "now()"},
    {"jsonb", "'{}'"},
    {"json", "'{}'"},
    {"xid8", "'0'"},
    {"job_state", "'RUNNING'"},
    {"batch_state", "'running'"},
    {"batch_mode", "'mpi'"},
    {"transfer_state", "'done'"},
    {"transfer_direction", "'in'"},
};

static const char *find(const struct sample *samples, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(samples[i].name, name) == 0)
            return samples[i].value;
    return NULL;
}

static const char *states_of(const char *block)
{
    if (strncmp(block, "lease_to_process", 16) == 0)
        return "'{STAGED_IN,RUN_DONE,RUN_ERROR,RUN_TIMEOUT}'";
    if (strncmp(block, "lease_", 6) == 0)
        return "'{PREPROCESSED,RESTART_READY}'";
    return strcmp(block, "event_tail") == 0 || strstr(block, "total") ? "'{}'" : NULL;
}

static void add_numbers(struct ab_buf *out)
{
    ab_buf_str(out, "'{1000");
    for (int i = 2; i <= 100; i++)
        ab_buf_printf(out, ",%d", 1000 * i);
    ab_buf_str(out, "}'");
}

/* The value of one parameter; a hundred of them for an array. */
static void add_value(struct ab_buf *out, const char *block, const char *name, const char *type)
{
    char element[64];
    size_t n = strcspn(type, "[");
    snprintf(element, sizeof(element), "%.*s", (int)n, type);
    bool is_array = type[n] != '\0';
    const char *value = strcmp(name, "states") == 0 ? states_of(block)
                        : is_array                  ? find(arrays, AB_COUNT(arrays), name)
                                                    : find(by_name, AB_COUNT(by_name), name);
    if (value) {
        ab_buf_str(out, value);
        return;
    }
    bool number = strcmp(element, "bigint") == 0 || strcmp(element, "integer") == 0
                  || strcmp(element, "double precision") == 0 || strcmp(element, "smallint") == 0
                  || strcmp(element, "numeric") == 0;
    if (!number && !(value = find(by_type, AB_COUNT(by_type), element)))
        fail_msg("%s: :%s has a type without a sample here: %s", block, name, type);
    if (!is_array)
        ab_buf_str(out, number ? "1" : value);
    else if (number)
        add_numbers(out);
    else
        ab_buf_printf(out, "array_fill(%s::%s, ARRAY[100])", value, element);
}

/* EXPLAIN takes these only. */
static bool has_plan(const char *text)
{
    static const char *const words[] = {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"};
    static const char *const others[] = {"BEGIN", "COMMIT", "COPY"};
    while (*text == ' ' || *text == '\n')
        text++;
    for (size_t i = 0; i < AB_COUNT(words); i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0)
            return true;
    for (size_t i = 0; i < AB_COUNT(others); i++)
        if (strncmp(text, others[i], strlen(others[i])) == 0)
            return false;
    fail_msg("what is this? %s", text);
    return false;
}

/* False: the role may not run it. */
static bool explain(ab_db_t *db, const struct ab_sql *sql, const char *mode)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    ab_buf_printf(&text, "EXPLAIN (FORMAT JSON) EXECUTE \"%s\"", sql->name);
    for (int i = 0; sql->params[i]; i++) {
        char type[64];
        snprintf(
            type, sizeof(type), "%s",
            pg_text(
                db,
                "SELECT parameter_types[%d]::text FROM pg_prepared_statements WHERE name = '%s'",
                i + 1, sql->name));
        ab_buf_str(&text, i ? ", " : " (");
        add_value(&text, sql->name, sql->params[i], type);
    }
    if (sql->params[0])
        ab_buf_char(&text, ')');
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    PGresult *r = ab_db_query(db, text.data, NULL, NULL, 0, arena, &err);
    if (r)
        judge(sql->name, mode, ab_col_text(r, 0, 0, NULL));
    else if (!strstr(err.text, "42501")) /* lifecycle.sql is everybody's, not all of it */
        fail_msg("%s: %s", sql->name, err.text);
    return r != NULL;
}

/* Each block of a list, which must be somebody's. */
static void walk_list(const struct served *served, ab_db_t *db, const struct ab_sql *const *list,
                      const char *mode)
{
    for (const struct ab_sql *const *sql = list; *sql; sql++)
        if (has_plan((*sql)->text) && !explain(db, *sql, mode)
            && strcmp((*sql)->file, "lifecycle.sql") != 0)
            fail_msg("%s may not run %s", served->role, (*sql)->name);
}

static void walk_blocks(const struct served *served, const char *mode, const char *settings)
{
    static const struct ab_sql *const *const own[] = {request_sql, NULL};
    struct ab_error err = {0};
    AB_AUTO(ab_db_close) ab_db_t *db = pg_open_as(served->role);

    assert_int_equal(ab_db_prepare(db, own, &err), 0);
    assert_int_equal(ab_db_prepare(db, served->service->sql, &err), 0);
    pg_exec(db, "%s", settings);
    walk_list(served, db, request_sql, mode);
    for (const struct ab_sql *const *const *list = served->service->sql; *list; list++)
        walk_list(served, db, *list, mode);
}

static void no_statement_reads_a_whole_table_as_its_role_plans_it(void **state)
{
    (void)state;
    bad_plans = 0;
    for (size_t i = 0; i < AB_COUNT(all_services); i++)
        walk_blocks(&all_services[i], "generic plan", "SELECT 1");
    assert_int_equal(bad_plans, 0);
}

/* And would not choose to, if it knew the values and nothing forbade it. */
static void no_statement_wants_to_read_a_whole_table(void **state)
{
    (void)state;
    bad_plans = 0;
    for (size_t i = 0; i < AB_COUNT(all_services); i++)
        walk_blocks(&all_services[i], "custom plan",
                    "SET plan_cache_mode = force_custom_plan; SET enable_seqscan = on");
    assert_int_equal(bad_plans, 0);
}

/* ---- what is really done: lists, and the insides of functions */

static char where[128];
static int heard;

static void on_notice(void *arg, const PGresult *r)
{
    (void)arg;
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    const char *plan = text ? strchr(text, '{') : NULL;
    if (!plan || !strstr(text, "plan:"))
        return;
    heard++;
    judge(where, "as it was run", plan);
}

static void listen_to(const char *service)
{
    PQsetNoticeReceiver(ab_db_conn(desk_db_of(service)), on_notice, NULL);
}

static const char *sample_of(const struct ab_field *field)
{
    switch (field->kind) {
    case AB_BOOL:
        return "true";
    case AB_I32:
    case AB_I64:
        return strcmp(field->name, "limit") == 0 ? "50" : "200";
    case AB_IDS:
        return "200";
    case AB_TIME:
        return "2020-01-01T00:00:00";
    case AB_ENUM:
    case AB_ENUMS:
        return field->enumeration->names[0];
    case AB_TAGS:
        return "experiment:e3";
    default:
        return "READY";
    }
}

static void ask_list(const struct ab_route *route, const char *name, const char *value)
{
    bool order = strcmp(name, "ordering") == 0;
    bool limit = strcmp(name, "limit") != 0 && ab_field_find(route->query, "limit", 5, 0) >= 0;
    snprintf(where, sizeof(where), "%s?%s%s%s", route->verb, name, order ? "=" : "",
             order ? value : "");
    const char *asked = path("%s?%s=%s%s", route->path, name, value, limit ? "&limit=50" : "");
    int status = ask(tenant, "GET", asked, NO_BODY);
    if (status != 200)
        fail_msg("%s=%s: %d %s", where, value, status, answer());
}

static void ask_all_lists(void)
{
    int lists = 0;
    bad_plans = heard = 0;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        if (!route->method || strcmp(route->method, "GET") != 0 || !route->query
            || strcmp(route->service, "auth") == 0)
            continue;
        lists++;
        for (int k = 0; k < route->query->n_fields; k++) {
            const struct ab_field *field = &route->query->fields[k];
            const struct ab_enum *e = field->enumeration;
            if (strcmp(field->name, "since") == 0)
                continue; /* event_tail */
            if (strcmp(field->name, "ordering") != 0) {
                ask_list(route, field->name, sample_of(field));
                continue;
            }
            for (int v = 0; v < e->n; v++)
                ask_list(route, field->name, e->names[v]);
        }
    }
    assert_true(lists >= 7);
    assert_true(heard > 100);
    assert_int_equal(bad_plans, 0);
}

static void no_list_reads_more_than_its_tenants_rows(void **state)
{
    (void)state;
    tenant = 3;
    ask_all_lists();
}

static void
of_a_tenant_who_has_half_of_everything_neither_but_for_what_no_index_serves(void **state)
{
    (void)state;
    tenant = 1;
    ask_all_lists();
}

/* A search for what is changed by filter. More than 5,000 matches are refused, behind the search. */
static void no_change_by_filter_reads_a_whole_table(void **state)
{
    (void)state;
    const struct ab_schema *query = ab_route_of_verb("job.update_where")->query;
    bad_plans = heard = 0;
    for (int k = 0; k < query->n_fields; k++) {
        const char *name = query->fields[k].name;
        if (!query->fields[k].column)
            continue;
        snprintf(where, sizeof(where), "job.update_where?%s", name);
        int status = ask(1, "PUT", path("/jobs/?%s=%s", name, sample_of(&query->fields[k])), "{}");
        if (status != 200 && status != 400)
            fail_msg("%s: %d %s", where, status, answer());
    }
    snprintf(where, sizeof(where), "job.cancel_where");
    assert_int_equal(ask(1, "POST", "/jobs/cancel?tags=experiment:e4&tags=sample:s34", NO_BODY),
                     200);
    snprintf(where, sizeof(where), "job.delete_where");
    assert_int_equal(ask(1, "DELETE", "/jobs/?tags=experiment:e4&tags=sample:s44", NO_BODY), 204);
    assert_true(heard > 50);
    assert_int_equal(bad_plans, 0);
}

static void no_timer_reads_a_whole_table(void **state)
{
    (void)state;
    bad_plans = heard = 0;
    desk_set("sessions", "event_keep", "24h");
    pg_exec(desk_db(), "INSERT INTO event_marks SELECT now() - interval '25 h', last_value - "
                       "300000 FROM event_ids");
    pg_exec(desk_db(), "UPDATE event_low SET low = (SELECT last_value - 480000 FROM event_ids)");
    for (size_t i = 0; i < 3; i++)
        for (const struct ab_timer *t = all_services[i].service->timers; t->name; t++) {
            snprintf(where, sizeof(where), "%s.%s", all_services[i].service->name, t->name);
            tick(all_services[i].service->name, t->name);
        }
    assert_true(heard > 20);
    assert_int_equal(bad_plans, 0);
}

static void every_exception_is_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < AB_COUNT(exceptions); i++)
        if (!seen[i])
            fail_msg("%s does not read all of %s: take the exception away", exceptions[i].where,
                     exceptions[i].table);
}

static int set_up(void **state)
{
    AB_AUTO(ab_db_close) ab_db_t *owner = pg_open();
    plans_fill(owner);
    for (size_t i = 0; i < 3; i++) {
        const char *role = all_services[i].role;
        pg_exec(owner, "ALTER ROLE %s SET session_preload_libraries = 'auto_explain'", role);
        pg_exec(owner, "ALTER ROLE %s SET auto_explain.log_min_duration = 0", role);
        pg_exec(owner, "ALTER ROLE %s SET auto_explain.log_format = json", role);
        pg_exec(owner, "ALTER ROLE %s SET auto_explain.log_level = notice", role);
        pg_exec(owner, "ALTER ROLE %s SET auto_explain.log_nested_statements = on", role);
    }
    int rc = desk_open(state);
    for (size_t i = 0; i < 3; i++)
        listen_to(all_services[i].service->name);
    return rc;
}

int main(void)
{
    pg_alone(); /* it changes roles */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_statement_reads_a_whole_table_as_its_role_plans_it),
        cmocka_unit_test(no_statement_wants_to_read_a_whole_table),
        cmocka_unit_test(no_list_reads_more_than_its_tenants_rows),
        cmocka_unit_test(
            of_a_tenant_who_has_half_of_everything_neither_but_for_what_no_index_serves),
        cmocka_unit_test(no_change_by_filter_reads_a_whole_table),
        cmocka_unit_test(no_timer_reads_a_whole_table),
        cmocka_unit_test(every_exception_is_needed),
    };
    return cmocka_run_group_tests(tests, set_up, desk_close);
}
