/* test_rows.c - the rows of the .def files agree with each other, with the contract and with the
 * database */
#include "support.h"

#include <stdio.h>
#include <string.h>

static void states_stand_in_the_order_of_their_names(void **state)
{
    (void)state;
    assert_int_equal(ab_enum_job_state.n, 14);
    for (int i = 1; i < ab_enum_job_state.n; i++)
        assert_true(strcmp(ab_enum_job_state.names[i - 1], ab_enum_job_state.names[i]) < 0);
    for (int i = 0; i < ab_enum_job_state.n; i++)
        assert_int_equal(ab_enum_find(&ab_enum_job_state, ab_enum_job_state.names[i],
                                      strlen(ab_enum_job_state.names[i])),
                         i);
    assert_int_equal(ab_enum_find(&ab_enum_job_state, "RUN", 3), -1);
    assert_int_equal(ab_enum_find(&ab_enum_job_state, "READY\0x", 7), -1);
}

static void every_step_leads_from_the_first_state_to_an_end(void **state)
{
    (void)state;
    bool reached[AB_JOB_STATES] = {[AB_JOB_CREATED] = true},
         ends[AB_JOB_STATES] = {[AB_JOB_FAILED] = true, [AB_JOB_JOB_FINISHED] = true};
    for (int round = 0; round < AB_JOB_STATES; round++)
        for (const struct ab_job_step *step = ab_job_steps; step->text; step++) {
            reached[step->to] |= reached[step->from];
            ends[step->from] |= ends[step->to];
        }
    for (int i = 0; i < AB_JOB_STATES; i++)
        assert_true(i == AB_JOB_STAGED_OUT || (reached[i] && ends[i]));
    for (const struct ab_job_step *step = ab_job_steps; step->text; step++) {
        assert_true(step->from != AB_JOB_JOB_FINISHED && step->from != AB_JOB_FAILED);
        for (const struct ab_job_step *other = step + 1; other->text; other++)
            assert_false(other->from == step->from && other->to == step->to);
    }
}

/* Every route of the contract's section 4 and 5 that is built, and what was added. */
static const struct {
    const char *method, *path, *verb;
    int status;
} contract[] = {
    {"GET", "/sites/", "site.list", 200},
    {"GET", "/sites/{id}", "site.get", 200},
    {"POST", "/sites/", "site.create", 201},
    {"PUT", "/sites/{id}", "site.update", 200},
    {"DELETE", "/sites/{id}", "site.delete", 204},
    {"GET", "/sites/{id}/backlog", "site.backlog", 200},
    {"GET", "/apps/", "app.list", 200},
    {"GET", "/apps/{id}", "app.get", 200},
    {"POST", "/apps/", "app.create", 201},
    {"PUT", "/apps/{id}", "app.update", 200},
    {"DELETE", "/apps/{id}", "app.delete", 204},
    {"GET", "/jobs/", "job.list", 200},
    {"GET", "/jobs/{id}", "job.get", 200},
    {"POST", "/jobs/", "job.create", 201},
    {"POST", "/jobs/array", "job.array", 201},
    {"GET", "/jobs/{id}/explain", "job.explain", 200},
    {"PATCH", "/jobs/", "job.patch", 200},
    {"PUT", "/jobs/", "job.update_where", 200},
    {"PUT", "/jobs/{id}", "job.update", 200},
    {"DELETE", "/jobs/{id}", "job.delete", 204},
    {"DELETE", "/jobs/", "job.delete_where", 204},
    {"POST", "/jobs/{id}/cancel", "job.cancel", 200},
    {"POST", "/jobs/cancel", "job.cancel_where", 200},
    {"GET", "/events/", "event.list", 200},
    {"GET", "/batch-jobs/", "batch_job.list", 200},
    {"GET", "/batch-jobs/{id}", "batch_job.get", 200},
    {"POST", "/batch-jobs/", "batch_job.create", 201},
    {"PUT", "/batch-jobs/{id}", "batch_job.update", 200},
    {"PATCH", "/batch-jobs/", "batch_job.patch", 200},
    {"DELETE", "/batch-jobs/{id}", "batch_job.delete", 204},
    {"GET", "/transfers/", "transfer.list", 200},
    {"GET", "/transfers/{id}", "transfer.get", 200},
    {"PUT", "/transfers/{id}", "transfer.update", 200},
    {"PATCH", "/transfers/", "transfer.patch", 200},
    {"GET", "/sessions/", "session.list", 200},
    {"POST", "/sessions/", "session.create", 201},
    {"POST", "/sessions/{id}", "session.acquire", 200},
    {"PUT", "/sessions/{id}", "session.touch", 200},
    {"DELETE", "/sessions/{id}", "session.delete", 204},
    {"POST", "/sessions/{id}/heartbeat", "session.heartbeat", 200},
    {"GET", "/auth/how", "auth.how", 200},
    {"POST", "/auth/password/register", "user.register", 201},
    {"POST", "/auth/password/login", "user.login", 200},
    {"GET", "/auth/password/me", "user.me", 200},
    {"POST", "/auth/token/refresh", "token.refresh", 200},
    {"GET", "/auth/tokens", "token.list", 200},
    {"POST", "/auth/tokens", "token.create", 201},
    {"DELETE", "/auth/tokens/{id}", "token.delete", 204},
};

static void the_routes_are_those_of_the_contract(void **state)
{
    (void)state;
    size_t with_path = 0;
    for (size_t i = 0; i < ab_n_routes; i++)
        with_path += ab_routes[i].method != NULL;
    for (size_t i = 0; i < sizeof(contract) / sizeof(*contract); i++) {
        const struct ab_route *route = ab_route_of_verb(contract[i].verb);
        if (!route)
            fail_msg("no route for %s", contract[i].verb);
        assert_string_equal(route->method, contract[i].method);
        assert_string_equal(route->path, contract[i].path);
        assert_int_equal(route->status, contract[i].status);
    }
    assert_true(with_path >= sizeof(contract) / sizeof(*contract));
}

static void routes_differ_and_fit_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *route = &ab_routes[i];
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(route->verb, ab_routes[k].verb);
            if (route->method && ab_routes[k].method
                && strcmp(route->method, ab_routes[k].method) == 0)
                assert_string_not_equal(route->path, ab_routes[k].path);
        }
        assert_true((route->body_form != AB_NO_BODY) == (route->body != NULL));
        assert_true(!route->body || route->role);
        assert_true(route->reply
                    || (route->reply_form != AB_REPLY_OBJECT && route->reply_form != AB_REPLY_LIST
                        && route->reply_form != AB_REPLY_PAGE));
        assert_true(route->scopes);
        assert_true(route->body_limit > 0);
        assert_false(route->method && strcmp(route->method, "GET") == 0 && route->mutates);
        assert_true(!route->method == !*route->path);
        /* a token that may only read may not change anything */
        assert_false(route->mutates && (route->scopes & AB_SCOPE_READ));
        if (route->body_form == AB_BODY_LIST && (route->role & AB_UPDATE))
            assert_true(route->role & AB_KEY);
    }
}

static void fields_of_schemas_are_well_described(void **state)
{
    (void)state;
    static const char *const names[] = {
        "user",         "user_register",   "login",     "login_token",     "token_refresh",
        "token_create", "token",           "site",      "window",          "queued_job",
        "queue",        "site_query",      "app",       "app_parameter",   "app_transfer",
        "app_query",    "batch_job",       "partition", "batch_job_query", "job",
        "job_transfer", "retry",           "job_query", "cancel",          "cancelled",
        "session",      "session_acquire", "heartbeat", "heartbeat_reply", "session_query",
        "transfer",     "transfer_query",  "event",     "event_query",     "event_tail",
        "tail_event",   "job_template",    "job_array", "job_array_made",  "explanation",
        "reason"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const struct ab_schema *schema = ab_schema_find(names[i]);
        if (!schema)
            fail_msg("no schema %s", names[i]);
        for (int f = 0; f < schema->n_fields; f++) {
            const struct ab_field *field = &schema->fields[f];
            assert_int_equal(ab_field_find(schema, field->name, strlen(field->name), f), f);
            assert_int_equal(ab_field_find(schema, field->name, strlen(field->name), -1), f);
            assert_true(field->offset + 1 <= schema->size);
            assert_true(*field->text);
            assert_true(field->flags & (AB_CREATE | AB_UPDATE | AB_OUT | AB_KEY));
            assert_true(field->min <= field->max);
            /* what a request can make large has a limit */
            bool incoming = field->flags & (AB_CREATE | AB_UPDATE);
            bool list = field->kind == AB_IDS || field->kind == AB_STRS || field->kind == AB_ENUMS
                        || field->kind == AB_TAGS || field->kind == AB_LIST || field->kind == AB_MAP
                        || field->kind == AB_STR || field->kind == AB_PATH;
            if (incoming && list && field->max == 0)
                fail_msg("%s.%s has no limit", schema->name, field->name);
            /* a filter has one place for its value */
            if (strstr(schema->name, "_query") && field->column) {
                const char *mark = strchr(field->column, '?');
                assert_non_null(mark);
                assert_null(strchr(mark + 1, '?'));
            }
        }
    }
    assert_null(ab_schema_find("nothing"));
    assert_int_equal(ab_field_find(&ab_schema_job, "workdi", 6, 0), -1);
    assert_int_equal(ab_field_find(&ab_schema_job, "workdirs", 8, 0), -1);
    assert_int_equal(ab_field_find(&ab_schema_job, "id\0xxxxx", 8, 0), -1);
    assert_string_equal(ab_schema_app_parameter.fields[AB_FIELD_app_parameter_default_].name,
                        "default");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_stand_in_the_order_of_their_names),
        cmocka_unit_test(every_step_leads_from_the_first_state_to_an_end),
        cmocka_unit_test(the_routes_are_those_of_the_contract),
        cmocka_unit_test(routes_differ_and_fit_together),
        cmocka_unit_test(fields_of_schemas_are_well_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
