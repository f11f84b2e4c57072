/* test_sites.c - sites: what a client sees of them */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <string.h>

#define I PRId64

static void a_new_site_has_all_fields_and_equal_dates(void **state)
{
    (void)state;
    int64_t tenant = new_user();
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'theta', 'path': '/projects//x/'}"),
                     201);
    assert_string_equal(txt("name"), "theta");
    assert_string_equal(txt("path"), "/projects/x");
    assert_true(is_null("globus_endpoint_id"));
    assert_int_equal(len("backfill_windows"), 0);
    assert_int_equal(at("allowed_projects")->type, AB_V_LIST);
    assert_int_equal(at("transfer_locations")->type, AB_V_MAP);
    assert_string_equal(txt("creation_date"), txt("last_refresh"));
    assert_null(strstr(txt("last_refresh"), "+00:00"));
}

static void a_name_is_unique_for_its_owner_only(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user();
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'x', 'path': '/p'}"), 201);
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'x', 'path': '/q'}"), 400);
    assert_non_null(strstr(txt("text"), "x"));
    assert_int_equal(ask(stranger, "POST", "/sites/", "{'name': 'x', 'path': '/p'}"), 201);
}

static void a_rename_onto_another_site_is_400(void **state)
{
    (void)state;
    int64_t tenant = new_user();
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'one', 'path': '/p'}"), 201);
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'two', 'path': '/p'}"), 201);
    assert_int_equal(ask(tenant, "PUT", path("/sites/%" I, num("id")), "{'name': 'one'}"), 400);
}

static void any_put_refreshes_the_site_and_changes_only_what_is_sent(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant);
    char before[64], *uuid = "0E8F9C9A11DD4C2Bb0d1112233445566";
    snprintf(before, sizeof(before), "%s", txt("last_refresh"));
    const char *put = path("/sites/%" I, site);

    assert_int_equal(ask(tenant, "PUT", put, "{}"), 200);
    assert_true(strcmp(txt("last_refresh"), before) > 0);
    assert_int_equal(ask(tenant, "PUT", put,
                         "{'globus_endpoint_id': '%s', 'owner_id': 77, 'unknown': [1]}", uuid),
                     200);
    assert_string_equal(txt("globus_endpoint_id"), "0e8f9c9a-11dd-4c2b-b0d1-112233445566");
    assert_string_equal(txt("transfer_locations.archive"), "local://localhost/a");
    assert_int_equal(ask(tenant, "PUT", put, "{'allowed_projects': ['a', 'b']}"), 200);
    assert_string_equal(txt("globus_endpoint_id"), "0e8f9c9a-11dd-4c2b-b0d1-112233445566");
    assert_string_equal(txt("allowed_projects.1"), "b");
    assert_int_equal(ask(tenant, "PUT", put, "{'globus_endpoint_id': null}"), 200);
    assert_true(is_null("globus_endpoint_id"));
    assert_int_equal(ask(tenant, "PUT", put, "{'name': null}"), 422);
}

static void sites_are_listed_by_their_filters(void **state)
{
    (void)state;
    int64_t tenant = new_user();
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'a', 'path': '/home/a'}"), 201);
    int64_t a = num("id");
    assert_int_equal(ask(tenant, "POST", "/sites/", "{'name': 'b', 'path': '/work/b'}"), 201);
    assert_int_equal(ask(tenant, "GET", "/sites/", NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_int_equal(num("results.0.id"), a);
    assert_int_equal(ask(tenant, "GET", "/sites/?name=b", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(ask(tenant, "GET", "/sites/?path=ome", NO_BODY), 200);
    assert_int_equal(num("results.0.id"), a);
    assert_int_equal(ask(tenant, "GET", path("/sites/?id=%" I "&limit=0&offset=0", a), NO_BODY),
                     200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(len("results"), 0);
    assert_int_equal(ask(tenant, "GET", "/sites/?last_refresh_after=2100-01-01T00:00", NO_BODY),
                     200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", "/sites/?offset=1&limit=1", NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_int_equal(len("results"), 1);
}

static void a_site_takes_all_that_is_its_along(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant),
            app = new_app(tenant, site);
    int64_t kept = new_job(tenant, new_app(tenant, other), "");
    int64_t job = new_job(tenant, app,
                          "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}");
    move(tenant, job, "PREPROCESSED");
    int64_t batch_job = new_batch_job(tenant, site), session = new_session(tenant, site, batch_job);
    assert_int_equal(ask(tenant, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}}"),
                     200);
    assert_int_equal(len(""), 1);
    move(tenant, job, "RUNNING");

    assert_int_equal(ask(tenant, "DELETE", path("/sites/%" I, site), NO_BODY), 204);
    assert_int_equal(ask(tenant, "GET", path("/sites/%" I, site), NO_BODY), 404);
    assert_string_equal(txt("kind"), "not_found");
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, job), NO_BODY), 404);
    assert_int_equal(ask(tenant, "GET", path("/apps/%" I, app), NO_BODY), 404);
    assert_int_equal(ask(tenant, "GET", path("/batch-jobs/%" I, batch_job), NO_BODY), 404);
    assert_int_equal(ask(tenant, "PUT", path("/sessions/%" I, session), NO_BODY), 404);
    assert_int_equal(ask(tenant, "GET", path("/events/?job_id=%" I, job), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, kept), NO_BODY), 200);
    assert_int_equal(
        pg_int(desk_db(), "SELECT count(*) FROM transfer_items WHERE job_id = %" I, job), 0);
    check_books();
    assert_int_equal(ask(tenant, "DELETE", path("/sites/%" I, site), NO_BODY), 404);
}

static void the_backlog_is_a_sum_by_state(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[4];
    new_jobs(tenant, app, 4, ids, "'num_nodes': 2, 'node_packing_count': 4");
    move(tenant, ids[0], "PREPROCESSED");
    move(tenant, ids[1], "RESTART_READY");
    move(tenant, ids[2], "RUNNING");
    new_batch_job(tenant, site);
    assert_int_equal(ask(tenant, "GET", path("/sites/%" I "/backlog", site), NO_BODY), 200);
    assert_int_equal(num("site_id"), site);
    assert_int_equal(num("jobs.STAGED_IN"), 1);
    assert_int_equal(num("runnable.jobs"), 2);
    assert_float_equal(real("runnable.nodes"), 1.0, 1e-9);
    assert_float_equal(real("running.nodes"), 0.5, 1e-9);
    assert_int_equal(num("batch_jobs.pending_submission.count"), 1);
    assert_float_equal(real("batch_jobs.pending_submission.nodes"), 4.0, 1e-9);
}

static void a_stranger_sees_nothing(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), site = new_site(tenant);
    const char *mine = path("/sites/%" I, site);
    assert_int_equal(ask(stranger, "GET", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", mine, "{'name': 'stolen'}"), 404);
    assert_int_equal(ask(stranger, "DELETE", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "GET", path("/sites/%" I "/backlog", site), NO_BODY), 404);
    assert_int_equal(ask(stranger, "GET", path("/sites/?id=%" I, site), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", mine, NO_BODY), 200);
}

static void a_sites_token_is_for_that_site(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant);
    struct who agent = {.user = tenant, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/sites/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.id"), site);
    assert_int_equal(ask_as(&agent, "GET", path("/sites/%" I, other), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/sites/%" I, other), "{}"), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/sites/%" I, site), "{}"), 200);
    assert_int_equal(ask_as(&agent, "GET", path("/sites/%" I "/backlog", other), NO_BODY), 404);
}

static void a_repeated_create_makes_one_site(void **state)
{
    (void)state;
    int64_t tenant = new_user();
    struct who once = {.user = tenant, .key = "make my site"};
    assert_int_equal(ask_as(&once, "POST", "/sites/", "{'name': 'x', 'path': '/p'}"), 201);
    int64_t id = num("id");
    assert_int_equal(ask_as(&once, "POST", "/sites/", "{'name': 'x', 'path': '/p'}"), 201);
    assert_int_equal(num("id"), id);
    assert_int_equal(ask_as(&once, "POST", "/sites/", "{'name': 'y', 'path': '/p'}"), 422);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_site_has_all_fields_and_equal_dates),
        cmocka_unit_test(a_name_is_unique_for_its_owner_only),
        cmocka_unit_test(a_rename_onto_another_site_is_400),
        cmocka_unit_test(any_put_refreshes_the_site_and_changes_only_what_is_sent),
        cmocka_unit_test(sites_are_listed_by_their_filters),
        cmocka_unit_test(a_site_takes_all_that_is_its_along),
        cmocka_unit_test(the_backlog_is_a_sum_by_state),
        cmocka_unit_test(a_stranger_sees_nothing),
        cmocka_unit_test(a_sites_token_is_for_that_site),
        cmocka_unit_test(a_repeated_create_makes_one_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
