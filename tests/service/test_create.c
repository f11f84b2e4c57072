/* test_create.c - jobs that are made: what is taken, what is refused, once */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

static void a_created_job_shows_every_field(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    assert_int_equal(
        ask(tenant, "POST", "/jobs/",
            "[{'app_id': %" I ", 'workdir': './run//one/', 'tags': {'mass': 1.0, 'ok': true},"
            " 'parameters': {'n': 3}, 'data': {'a': [1, null]}, 'num_nodes': '2', 'gpus_per_rank': "
            "1,"
            " 'priority': 5, 'retry': {'max_attempts': 3}, 'unknown': 1, 'state': 'FAILED'}]",
            app),
        201);
    assert_int_equal(len(""), 1);
    assert_string_equal(txt("0.workdir"), "run/one");
    assert_string_equal(txt("0.tags.mass"), "1.0");
    assert_string_equal(txt("0.tags.ok"), "True");
    assert_string_equal(txt("0.state"), "STAGED_IN");
    assert_int_equal(num("0.num_nodes"), 2);
    assert_int_equal(num("0.ranks_per_node"), 1);
    assert_int_equal(num("0.node_packing_count"), 1);
    assert_int_equal(num("0.wall_time_min"), 0);
    assert_int_equal(num("0.priority"), 5);
    assert_int_equal(num("0.parameters.n"), 3);
    assert_int_equal(num("0.retry.max_attempts"), 3);
    assert_string_equal(txt("0.serialized_parameters"), "");
    assert_string_equal(txt("0.serialized_return_value"), "");
    assert_string_equal(txt("0.serialized_exception"), "");
    assert_true(is_null("0.return_code"));
    assert_true(is_null("0.batch_job_id"));
    assert_true(at("0.pending_file_cleanup")->b);
    assert_int_equal(len("0.parent_ids"), 0);
    assert_false(there("0.transfers"));
    assert_false(there("0.state_data"));

    char created[16384];
    snprintf(created, sizeof(created), "%s", answer());
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, num("0.id")), NO_BODY), 200);
    assert_non_null(strstr(txt("last_update"), "+00:00"));
    created[strlen(created) - 1] =
        '\0'; /* of its list: the same, byte for byte, but for the order of tags */
    assert_string_equal(strstr(created, "\"serialized_parameters\""),
                        strstr(answer(), "\"serialized_parameters\""));
}

static void the_reply_is_in_the_order_of_the_request(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    assert_int_equal(ask(tenant, "POST", "/jobs/",
                         "[{'app_id': %" I ", 'workdir': 'b', 'transfers': {'input': "
                         "{'location_alias': 'beamline', 'path': '/b'}}},"
                         " {'app_id': %" I ", 'workdir': 'a', 'transfers': {'input': "
                         "{'location_alias': 'beamline', 'path': '/a'}}},"
                         " {'app_id': %" I ", 'workdir': 'c', 'transfers': {'input': "
                         "{'location_alias': 'beamline', 'path': '/c'}}}]",
                         app, app, app),
                     201);
    static const char *const order[] = {"b", "a", "c"};
    int64_t first = num("0.id");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(txt(path("%d.workdir", i)), order[i]);
        assert_true(i == 0 || num(path("%d.id", i)) > num(path("%d.id", i - 1)));
    }
    assert_string_equal(
        pg_text(desk_db(),
                "SELECT string_agg(s.workdir || t.remote_path, ' ' ORDER BY s.id) FROM job_specs s"
                " JOIN transfer_items t ON t.job_id = s.id WHERE s.id >= %" I,
                first),
        "b/b a/a c/c");
}

static void nothing_makes_nothing(void **state)
{
    (void)state;
    assert_int_equal(ask(new_user(), "POST", "/jobs/", "[]"), 201);
    assert_int_equal(len(""), 0);
}

static int64_t jobs_of(int64_t user)
{
    return pg_int(desk_db(),
                  "SELECT (SELECT count(*) FROM jobs WHERE owner_id = %" I
                  ") + (SELECT count(*) FROM job_specs WHERE"
                  " owner_id = %" I ") + (SELECT count(*) FROM events WHERE owner_id = %" I ")"
                  " + (SELECT count(*) FROM transfer_items WHERE owner_id = %" I ")",
                  user, user, user, user);
}

static void what_cannot_be_is_refused_in_order_and_named(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), app = new_app(tenant, new_site(tenant)),
            foreign = new_app(stranger, new_site(stranger));
    int64_t foreign_job = new_job(stranger, foreign, "");

    /* 2. apps, although parents, workdirs and slots are wrong too */
    assert_int_equal(
        ask(tenant, "POST", "/jobs/",
            "[{'app_id': %" I ", 'workdir': 'a', 'parent_ids': [999999]},"
            " {'app_id': %" I
            ", 'workdir': 'a', 'transfers': {'x': {'location_alias': 'y', 'path': '/p'}}}]",
            app, foreign),
        404);
    assert_string_not_equal(txt("kind"), "not_found");
    assert_int_equal(len("items"), 1);
    assert_int_equal(num("items.0.index"), 1);
    /* 3. parents */
    assert_int_equal(ask(tenant, "POST", "/jobs/",
                         "[{'app_id': %" I ", 'workdir': 'a', 'parent_ids': [%" I
                         "]}, {'app_id': %" I ", 'workdir': 'a'}]",
                         app, foreign_job, app),
                     404);
    assert_int_equal(num("items.0.index"), 0);
    assert_non_null(strstr(txt("items.0.reason"), path("parent job %" I " ", foreign_job)));
    /* 4. workdirs, as normalised */
    assert_int_equal(ask(tenant, "POST", "/jobs/",
                         "[{'app_id': %" I ", 'workdir': 'a/b'}, {'app_id': %" I
                         ", 'workdir': 'x'},"
                         " {'app_id': %" I ", 'workdir': 'a//b/'}]",
                         app, app, app),
                     400);
    assert_int_equal(num("items.0.index"), 2);
    /* 5. slots, then aliases */
    assert_int_equal(ask(tenant, "POST", "/jobs/",
                         "[{'app_id': %" I
                         ", 'workdir': 'a', 'transfers': {'nope': {'location_alias': 'beamline',"
                         " 'path': '/p'}}}, {'app_id': %" I
                         ", 'workdir': 'b', 'transfers': {'input':"
                         " {'location_alias': 'nowhere', 'path': '/p'}}}]",
                         app, app),
                     400);
    assert_int_equal(len("items"), 2);
    assert_non_null(strstr(txt("items.0.reason"), "nope"));
    assert_non_null(strstr(txt("items.1.reason"), "nowhere"));
    /* a path that is not absolute, a shorthand */
    assert_int_equal(ask(tenant, "POST", "/jobs/",
                         "[{'app_id': %" I
                         ", 'workdir': 'a', 'transfers': {'input': {'location_alias': 'beamline',"
                         " 'path': 'p'}}}]",
                         app),
                     422);
    assert_int_equal(
        ask(tenant, "POST", "/jobs/",
            "[{'app_id': %" I ", 'workdir': 'a', 'transfers': {'input': 'beamline:/p'}}]", app),
        422);
    assert_int_equal(ask(tenant, "POST", "/jobs/", "[{'app_id': %" I ", 'workdir': '/a'}]", app),
                     422);
    assert_int_equal(jobs_of(tenant), 0);
}

/* A switch of the centre: the contract's default is that required slots may stay empty. */
static void required_slots_must_be_filled_where_the_centre_says_so(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant);
    assert_int_equal(ask(tenant, "POST", "/apps/",
                         "{'site_id': %" I
                         ", 'name': 'A', 'serialized_class': '', 'source_code': '',"
                         " 'transfers': {'must': {'required': true, 'direction': 'in',"
                         " 'local_path': 'x'}, 'may': {'required': false, 'direction': 'out',"
                         " 'local_path': 'y'}}}",
                         site),
                     201);
    int64_t app = num("id");
    char body[512];
    snprintf(body, sizeof(body),
             "[{'app_id': %" I ", 'workdir': 'a', 'transfers': {'must': {'location_alias':"
             " 'beamline', 'path': '/p'}}}, {'app_id': %" I ", 'workdir': 'b'},"
             " {'app_id': %" I ", 'workdir': 'c', 'transfers': {'may': {'location_alias':"
             " 'beamline', 'path': '/q'}}}]",
             app, app, app);

    desk_set("jobs", "require_slots", "true");
    assert_int_equal(ask(tenant, "POST", "/jobs/", "%s", body), 400);
    assert_int_equal(len("items"), 2);
    assert_int_equal(num("items.0.index"), 1);
    assert_int_equal(num("items.1.index"), 2);
    assert_non_null(strstr(txt("items.1.reason"), "slot must"));
    assert_int_equal(jobs_of(tenant), 0);
    assert_int_equal(ask(tenant, "POST", "/jobs/array",
                         "{'template': {'app_id': %" I "}, 'workdir': '{{n}}',"
                         " 'parameters': {'n': [1]}}",
                         app),
                     400);

    desk_set("jobs", "require_slots", "false");
    assert_int_equal(ask(tenant, "POST", "/jobs/", "%s", body), 201);
    assert_int_equal(len(""), 3);
}

static void more_than_5000_are_refused(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    struct ab_buf body = {0};
    for (int i = 0; i < 5001; i++)
        ab_buf_printf(&body, "%s{'app_id':%" I ",'workdir':'%d'}", i ? "," : "[", app, i);
    ab_buf_char(&body, ']');
    assert_int_equal(ask(tenant, "POST", "/jobs/", "%s", body.data), 400);
    ab_buf_free(&body);
    assert_int_equal(jobs_of(tenant), 0);
}

static void five_thousand_jobs_are_one_call_and_are_listed_in_pages(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    new_jobs(tenant, app, 5000, NULL, "");
    assert_int_equal(len(""), 5000);
    assert_int_equal(ask(tenant, "GET", "/jobs/?limit=3&ordering=-id", NO_BODY), 200);
    assert_int_equal(num("count"), 5000);
    assert_int_equal(len("results"), 3);
    assert_int_equal(ask(tenant, "GET", "/jobs/", NO_BODY), 200);
    assert_int_equal(num("count"), 5000);
    assert_true(len("results") <= 1000);
    assert_false(is_null("next"));
    check_books();
    assert_int_equal(ask(tenant, "PUT", "/jobs/", "{'num_nodes': 3}"), 200);
    assert_int_equal(num(""), 5000);
    new_job(tenant, app, "");
    assert_int_equal(ask(tenant, "PUT", "/jobs/", "{'num_nodes': 4}"), 400);
    assert_int_equal(ask(tenant, "DELETE", "/jobs/", NO_BODY), 204);
    assert_int_equal(jobs_of(tenant), 0);
    check_books();
}

static void a_repeated_create_makes_no_more_jobs(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    struct who once = {.user = tenant, .key = "my campaign"};
    struct ab_buf body = {0};
    for (int i = 0; i < 100; i++)
        ab_buf_printf(&body, "%s{'app_id':%" I ",'workdir':'%d'}", i ? "," : "[", app, i);
    ab_buf_char(&body, ']');
    assert_int_equal(ask_as(&once, "POST", "/jobs/", "%s", body.data), 201);
    int64_t first = num("0.id");
    assert_int_equal(ask_as(&once, "POST", "/jobs/", "%s", body.data), 201);
    assert_int_equal(len(""), 100);
    assert_int_equal(num("0.id"), first);
    assert_string_equal(txt("99.workdir"), "99");
    assert_int_equal(jobs_of(tenant), 300);
    ab_buf_free(&body);
}

/* Whatever fails, all is done or nothing is. A lost connection or a conflict is tried again by the
 * service, so an answer may be good although something failed. */
static void one_failure_anywhere_makes_all_jobs_or_none(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)),
            parent = new_job(tenant, app, "");
    int64_t count = jobs_of(tenant);
    bool fired = true;
    int refused = 0;
    for (int nth = 1; fired; nth++) {
        ab_fault_arm(nth);
        int status = ask(
            tenant, "POST", "/jobs/",
            "[{'app_id': %" I ", 'workdir': 'a', 'parent_ids': [%" I "], 'transfers': {'input':"
            " {'location_alias': 'beamline', 'path': '/p'}}}, {'app_id': %" I ", 'workdir': 'b'}]",
            app, parent, app);
        fired = ab_fault_fired();
        ab_fault_arm(0);
        refused += status == 503;
        if (status != 503)
            assert_int_equal(status, 201);
        count += status == 503 ? 0 : 7;
        assert_int_equal(jobs_of(tenant), count);
        check_books();
    }
    assert_in_range(refused, 1, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_created_job_shows_every_field),
        cmocka_unit_test(the_reply_is_in_the_order_of_the_request),
        cmocka_unit_test(nothing_makes_nothing),
        cmocka_unit_test(what_cannot_be_is_refused_in_order_and_named),
        cmocka_unit_test(required_slots_must_be_filled_where_the_centre_says_so),
        cmocka_unit_test(more_than_5000_are_refused),
        cmocka_unit_test(five_thousand_jobs_are_one_call_and_are_listed_in_pages),
        cmocka_unit_test(a_repeated_create_makes_no_more_jobs),
        cmocka_unit_test(one_failure_anywhere_makes_all_jobs_or_none),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
