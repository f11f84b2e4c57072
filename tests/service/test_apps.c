/* test_apps.c - apps: an index of what sites can run */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <string.h>

#define I PRId64

static void an_app_comes_back_as_it_was_sent_with_defaults_filled_in(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant);
    assert_int_equal(
        ask(tenant, "POST", "/apps/",
            "{'site_id': %" I
            ", 'name': 'Eigen', 'serialized_class': 'abc', 'source_code': 'command: x',"
            " 'parameters': {'n': {'required': true}, 'mode': {'required': 'False', 'default': 1}},"
            " 'transfers': {'m': {'required': true, 'direction': 'in', 'local_path': "
            "'./in//m.bin'}}}",
            site),
        201);
    assert_int_equal(num("site_id"), site);
    assert_string_equal(txt("description"), "");
    assert_true(is_null("parameters.n.default"));
    assert_string_equal(txt("parameters.mode.default"), "1");
    assert_string_equal(txt("transfers.m.local_path"), "in/m.bin");
    assert_false(at("transfers.m.recursive")->b);
}

static void a_foreign_or_unknown_site_is_404(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), site = new_site(tenant);
    assert_int_equal(
        ask(stranger, "POST", "/apps/",
            "{'site_id': %" I ", 'name': 'A', 'serialized_class': '', 'source_code': ''}", site),
        404);
    assert_string_equal(txt("kind"), "not_found");
    assert_int_equal(
        ask(tenant, "POST", "/apps/",
            "{'site_id': 999999, 'name': 'A', 'serialized_class': '', 'source_code': ''}"),
        404);
}

static void a_name_is_unique_at_its_site(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant);
    int64_t sites[] = {site, site, other};
    int status[] = {201, 400, 201};
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(tenant, "POST", "/apps/",
                             "{'site_id': %" I
                             ", 'name': 'A', 'serialized_class': '', 'source_code': ''}",
                             sites[i]),
                         status[i]);
    assert_int_equal(ask(tenant, "PUT", path("/apps/%" I, num("id")), "{'site_id': %" I "}", site),
                     400);
}

static void an_update_touches_only_what_is_sent(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site);
    const char *put = path("/apps/%" I, app);
    assert_int_equal(ask(tenant, "PUT", put, "{'description': 'better'}"), 200);
    assert_string_equal(txt("description"), "better");
    assert_string_equal(txt("transfers.output.direction"), "out");
    assert_int_equal(ask(tenant, "PUT", put, "{'site_id': 999999}"), 404);
    assert_int_equal(ask(tenant, "PUT", put, "{'name': 'no identifier'}"), 422);
    assert_int_equal(ask(tenant, "GET", put, NO_BODY), 200);
    assert_int_equal(num("site_id"), site);
}

static void an_app_that_moves_takes_its_jobs_along(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant),
            app = new_app(tenant, site), ids[3];
    new_jobs(tenant, app, 3, ids,
             "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}");
    move(tenant, ids[0], "PREPROCESSED");
    assert_int_equal(ask(tenant, "PUT", path("/apps/%" I, app), "{'site_id': %" I "}", other), 200);
    assert_int_equal(ask(tenant, "GET", path("/jobs/?site_id=%" I, site), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", path("/jobs/?site_id=%" I "&limit=1", other), NO_BODY),
                     200);
    assert_int_equal(num("count"), 3);
    assert_int_equal(ask(tenant, "GET", path("/transfers/?site_id=%" I, other), NO_BODY), 200);
    assert_int_equal(num("count"), 3);
    check_books();
}

static void deleting_an_app_deletes_its_jobs_held_or_not(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[3];
    new_jobs(tenant, app, 3, ids, "");
    move(tenant, ids[0], "PREPROCESSED");
    int64_t session = new_session(tenant, site, 0);
    assert_int_equal(ask(tenant, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 9, 'filter_tags': {}}"),
                     200);
    assert_int_equal(len(""), 1);
    assert_int_equal(ask(tenant, "DELETE", path("/apps/%" I, app), NO_BODY), 204);
    assert_int_equal(ask(tenant, "GET", "/jobs/", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "DELETE", path("/apps/%" I, app), NO_BODY), 404);
    check_books();
}

static void apps_are_listed_by_their_filters(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant);
    char site_name[64];
    snprintf(site_name, sizeof(site_name), "%s", txt("name"));
    int64_t app = new_app(tenant, site);
    new_app(tenant, new_site(tenant));
    assert_int_equal(ask(tenant, "GET", path("/apps/?site_id=%" I, site), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.id"), app);
    assert_int_equal(ask(tenant, "GET", path("/apps/?site_name=%s", site_name), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(ask(tenant, "GET", "/apps/?site_path=home", NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_int_equal(ask(tenant, "GET", "/apps/?name=", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
}

static void a_stranger_sees_nothing(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), app = new_app(tenant, new_site(tenant));
    const char *mine = path("/apps/%" I, app);
    assert_int_equal(ask(stranger, "GET", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", mine, "{'name': 'stolen'}"), 404);
    assert_int_equal(ask(stranger, "DELETE", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "GET", "/apps/", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "PUT", mine, "{'site_id': %" I "}", new_site(stranger)), 404);
}

static void a_sites_token_is_for_that_site(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant),
            app = new_app(tenant, other);
    struct who agent = {.user = tenant, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", path("/apps/%" I, app), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "DELETE", path("/apps/%" I, app), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/apps/%" I, app), "{}"), 404);
    assert_int_equal(ask_as(&agent, "POST", "/apps/",
                            "{'site_id': %" I
                            ", 'name': 'B', 'serialized_class': '', 'source_code': ''}",
                            other),
                     404);
    assert_int_equal(
        ask_as(&agent, "POST", "/apps/",
               "{'site_id': %" I ", 'name': 'B', 'serialized_class': '', 'source_code': ''}", site),
        201);
    assert_int_equal(
        ask_as(&agent, "PUT", path("/apps/%" I, num("id")), "{'site_id': %" I "}", other), 404);
    assert_int_equal(ask_as(&agent, "GET", "/apps/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_app_comes_back_as_it_was_sent_with_defaults_filled_in),
        cmocka_unit_test(a_foreign_or_unknown_site_is_404),
        cmocka_unit_test(a_name_is_unique_at_its_site),
        cmocka_unit_test(an_update_touches_only_what_is_sent),
        cmocka_unit_test(an_app_that_moves_takes_its_jobs_along),
        cmocka_unit_test(deleting_an_app_deletes_its_jobs_held_or_not),
        cmocka_unit_test(apps_are_listed_by_their_filters),
        cmocka_unit_test(a_stranger_sees_nothing),
        cmocka_unit_test(a_sites_token_is_for_that_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
