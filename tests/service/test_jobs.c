/* test_jobs.c - jobs: create, list, read, update, delete */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

/* ---- create */

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

/* ---- lists */

static int64_t counted(int64_t user, const char *query)
{
    int status = ask(user, "GET", path("/jobs/%s", query), NO_BODY);
    if (status != 200)
        fail_msg("%d for %s: %s", status, query, answer());
    if (there("next") && is_null("next") && !strstr(query, "limit") && !strstr(query, "offset"))
        assert_int_equal(num("count"), len("results"));
    return num("count");
}

static void jobs_are_listed_by_their_filters(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site),
            other = new_app(tenant, new_site(tenant)), ids[4];
    new_jobs(tenant, app, 4, ids, "'tags': {'k': 'v:w', 'n': 1}");
    int64_t child = new_job(
        tenant, other, path("'parent_ids': [%" I ", %" I "], 'tags': {'k': 'x'}", ids[0], ids[1]));
    move(tenant, ids[2], "PREPROCESSED");
    move(tenant, ids[3], "FAILED");
    int64_t batch_job = new_batch_job(tenant, site);
    assert_int_equal(ask(tenant, "PUT", path("/jobs/%" I, ids[2]),
                         "{'batch_job_id': %" I
                         ", 'pending_file_cleanup': false, 'workdir': 'Zed/x_y'}",
                         batch_job),
                     200);

    assert_int_equal(counted(tenant, ""), 5);
    assert_int_equal(counted(tenant, "?unknown=7&ids=3"), 5);
    assert_int_equal(counted(tenant, path("?id=%" I "&id=%" I, ids[0], child)), 2);
    assert_int_equal(counted(tenant, path("?parent_id=%" I, ids[1])), 1);
    assert_int_equal(num("results.0.id"), child);
    assert_int_equal(counted(tenant, path("?app_id=%" I, app)), 4);
    assert_int_equal(counted(tenant, "?app_id=0"), 5);
    assert_int_equal(counted(tenant, path("?site_id=%" I, site)), 4);
    assert_int_equal(counted(tenant, path("?site_id=%" I "&state=FAILED&state=PREPROCESSED", site)),
                     2);
    assert_int_equal(counted(tenant, "?state=AWAITING_PARENTS"), 1);
    assert_int_equal(counted(tenant, "?state__ne=STAGED_IN"), 3);
    assert_int_equal(counted(tenant, path("?batch_job_id=%" I, batch_job)), 1);
    assert_int_equal(counted(tenant, "?tags=k:v:w"), 4);
    assert_int_equal(counted(tenant, "?tags=k:v:w&tags=n:1"), 4);
    assert_int_equal(counted(tenant, "?tags=k:v:w&tags=k:x"), 1);
    assert_int_equal(counted(tenant, "?tags=nonsense"), 5);
    assert_int_equal(counted(tenant, "?workdir__contains=Zed"), 1);
    assert_int_equal(counted(tenant, "?workdir__contains=zed"), 0);
    assert_int_equal(counted(tenant, "?workdir__contains=x%25y"), 1);
    assert_int_equal(counted(tenant, "?workdir__contains="), 5);
    assert_int_equal(counted(tenant, "?pending_file_cleanup=True"), 4);
    assert_int_equal(counted(tenant, "?pending_file_cleanup=false"), 5);
    assert_int_equal(counted(tenant, "?limit=2&offset=4"), 5);
    assert_int_equal(len("results"), 1);
    assert_int_equal(counted(tenant, "?limit=0&offset=0"), 5);
    assert_int_equal(len("results"), 0);
    assert_int_equal(counted(tenant, "?ordering=state"), 5);
    assert_string_equal(txt("results.0.state"), "AWAITING_PARENTS");
    assert_string_equal(txt("results.2.state"), "PREPROCESSED");
    assert_int_equal(num("results.3.id"), ids[0]);
    assert_int_equal(counted(tenant, "?ordering=-state"), 5);
    assert_int_equal(num("results.0.id"), ids[0]);
    assert_int_equal(counted(tenant, "?ordering=-last_update&limit=1"), 5);
    assert_int_equal(num("results.0.id"), ids[2]);
    assert_int_equal(ask(tenant, "GET", "/jobs/?ordering=app_id", NO_BODY), 422);
    assert_int_equal(ask(tenant, "GET", "/jobs/?state=NOPE", NO_BODY), 422);
    assert_int_equal(ask(tenant, "GET", "/jobs/?limit=-1", NO_BODY), 422);
    assert_int_equal(ask(tenant, "GET", "/jobs/?limit=100001", NO_BODY), 422);
}

static void last_update_filters_have_microseconds(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[2];
    new_jobs(tenant, app, 2, ids, "");
    const char *now = pg_text(desk_db(), "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC',"
                                         " 'YYYY-MM-DD+HH24:MI:SS.US')");
    char after[256];
    snprintf(after, sizeof(after), "?last_update_after=%s", now);
    assert_int_equal(counted(tenant, after), 0);
    assert_int_equal(ask(tenant, "PATCH", "/jobs/", "[{'id': %" I "}]", ids[1]), 200);
    assert_int_equal(num(""), 1);
    assert_int_equal(counted(tenant, after), 1);
    assert_int_equal(num("results.0.id"), ids[1]);
}

/* ---- updates */

static void each_item_of_a_patch_has_its_own_keys(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[4];
    new_jobs(tenant, app, 4, ids, "'tags': {'a': 'b'}, 'data': {'x': 1}, 'return_code': 7");
    assert_int_equal(
        ask(tenant, "PATCH", "/jobs/",
            "[{'id': %" I ", 'state': 'STAGED_IN', 'num_nodes': 3},"
            " {'id': %" I ", 'state': 'PREPROCESSED', 'data': {'y': 2}},"
            " {'id': %" I ", 'return_code': null, 'tags': {}, 'serialized_exception': 'E'},"
            " {'id': '%" I
            "', 'state': null, 'state_message': 'ignored', 'app_id': 9, 'parent_ids': [1]}]",
            ids[0], ids[1], ids[2], ids[3]),
        200);
    assert_int_equal(num(""), 4);
    assert_string_equal(history_of(ids[0]), "CREATED>STAGED_IN");
    assert_string_equal(history_of(ids[1]), "CREATED>STAGED_IN STAGED_IN>PREPROCESSED");
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[0]), NO_BODY), 200);
    assert_int_equal(num("num_nodes"), 3);
    assert_int_equal(num("data.x"), 1);
    assert_int_equal(num("return_code"), 7);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[1]), NO_BODY), 200);
    assert_int_equal(num("num_nodes"), 1);
    assert_false(there("data.x"));
    assert_int_equal(num("data.y"), 2);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[2]), NO_BODY), 200);
    assert_true(is_null("return_code"));
    assert_int_equal(len("tags"), 0);
    assert_string_equal(txt("serialized_exception"), "E");
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[3]), NO_BODY), 200);
    assert_string_equal(txt("tags.a"), "b");
    assert_int_equal(num("app_id"), app);
    assert_int_equal(len("parent_ids"), 0);
    check_books();
}

static void a_patch_with_a_wrong_id_changes_nothing_and_names_it(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), app = new_app(tenant, new_site(tenant)),
            ids[2];
    int64_t foreign = new_job(stranger, new_app(stranger, new_site(stranger)), "");
    new_jobs(tenant, app, 2, ids, "");
    assert_int_equal(ask(tenant, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'state': 'FAILED'}, {'id': %" I
                         ", 'state': 'FAILED'}, {'id': 999999}]",
                         ids[0], foreign),
                     400);
    assert_int_equal(len("items"), 2);
    assert_int_equal(num("items.0.index"), 1);
    assert_int_equal(num("items.0.id"), foreign);
    assert_int_equal(num("items.1.index"), 2);
    assert_string_equal(state_of(ids[0]), "STAGED_IN");
    assert_string_equal(state_of(foreign), "STAGED_IN");

    assert_int_equal(ask(tenant, "PATCH", "/jobs/",
                         "[{'id': %" I "}, {'id': %" I "}, {'id': %" I "}]", ids[0], ids[1],
                         ids[0]),
                     400);
    assert_int_equal(num("items.0.index"), 2);
    assert_int_equal(ask(tenant, "PUT", "/jobs/999999", "{'state': 'FAILED'}"), 400);
    assert_int_equal(ask(tenant, "PATCH", "/jobs/", "[]"), 200);
    assert_int_equal(num(""), 0);
    assert_int_equal(ask(tenant, "PATCH", "/jobs/", "[{'state': 'FAILED'}]"), 422);
    assert_int_equal(ask(tenant, "PATCH", "/jobs/", "[{'id': %" I ", 'num_nodes': null}]", ids[0]),
                     422);
    assert_int_equal(ask(tenant, "PATCH", "/jobs/", "[{'id': %" I ", 'num_nodes': 0}]", ids[0]),
                     422);
}

static void a_batch_job_must_be_there(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), site = new_site(tenant),
            job = new_job(tenant, new_app(tenant, site), "");
    int64_t foreign = new_batch_job(stranger, new_site(stranger)),
            mine = new_batch_job(tenant, site);
    const char *put = path("/jobs/%" I, job);
    assert_int_equal(
        ask(tenant, "PUT", put, "{'batch_job_id': %" I ", 'state': 'FAILED'}", foreign), 400);
    assert_int_equal(ask(tenant, "PUT", put, "{'batch_job_id': 999999}"), 400);
    assert_non_null(strstr(txt("items.0.reason"), "batch job 999999 "));
    assert_int_equal(ask(tenant, "PUT", "/jobs/", "{'batch_job_id': 999999}"), 400);
    assert_int_equal(len("items"), 0);
    assert_string_equal(state_of(job), "STAGED_IN");
    assert_int_equal(ask(tenant, "PUT", put, "{'batch_job_id': %" I "}", mine), 200);
    assert_int_equal(ask(tenant, "GET", put, NO_BODY), 200);
    assert_int_equal(num("batch_job_id"), mine);
    assert_int_equal(ask(tenant, "PUT", put, "{'batch_job_id': null}"), 200);
    assert_int_equal(ask(tenant, "GET", put, NO_BODY), 200);
    assert_true(is_null("batch_job_id"));
}

static void a_put_by_filter_changes_all_matches(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[3];
    new_jobs(tenant, app, 3, ids, "'tags': {'mass': 2.0}");
    int64_t other = new_job(tenant, app, "'tags': {'mass': 1.0}");
    assert_int_equal(ask(tenant, "PUT", "/jobs/?tags=mass:2.0", "{'num_nodes': 128}"), 200);
    assert_int_equal(num(""), 3);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, other), NO_BODY), 200);
    assert_int_equal(num("num_nodes"), 1);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[2]), NO_BODY), 200);
    assert_int_equal(num("num_nodes"), 128);
    assert_int_equal(ask(tenant, "PUT", "/jobs/?tags=mass:3.0", "{'num_nodes': 128}"), 200);
    assert_int_equal(num(""), 0);
    assert_int_equal(ask(tenant, "PUT", "/jobs/?state=STAGED_IN", "{'state': 'PREPROCESSED'}"),
                     200);
    assert_int_equal(num(""), 4);
    assert_string_equal(history_of(other), "CREATED>STAGED_IN STAGED_IN>PREPROCESSED");
    check_books();
}

static void one_failure_anywhere_leaves_no_half_patch(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant));
    bool fired = true;
    int refused = 0;
    for (int nth = 1; fired; nth++) {
        int64_t parent = new_job(tenant, app, ""), other = new_job(tenant, app, "");
        int64_t child = new_job(tenant, app, path("'parent_ids': [%" I "]", parent));
        ab_fault_arm(nth);
        int status = ask(tenant, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'state': 'JOB_FINISHED'}, {'id': %" I
                         ", 'num_nodes': 2, 'tags': {'a': 1}}]",
                         parent, other);
        fired = ab_fault_fired();
        ab_fault_arm(0);
        bool done = status == 200;
        if (!done)
            assert_int_equal(status, 503);
        refused += !done;
        assert_string_equal(state_of(parent), done ? "JOB_FINISHED" : "STAGED_IN");
        assert_string_equal(state_of(child), done ? "STAGED_IN" : "AWAITING_PARENTS");
        assert_int_equal(pg_int(desk_db(), "SELECT num_nodes FROM jobs WHERE id = %" I, other),
                         done ? 2 : 1);
        assert_int_equal(pg_int(desk_db(), "SELECT count(*) FROM events WHERE job_id = %" I, child),
                         done ? 2 : 1);
        check_books();
    }
    assert_in_range(refused, 1, 100);
}

/* ---- deletion */

static void a_held_job_survives_deletion_and_the_answer_is_204(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[3];
    new_jobs(tenant, app, 3, ids, "");
    move(tenant, ids[0], "PREPROCESSED");
    int64_t session = new_session(tenant, site, 0);
    assert_int_equal(ask(tenant, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 9, 'filter_tags': {}}"),
                     200);
    assert_int_equal(ask(tenant, "DELETE", path("/jobs/%" I, ids[0]), NO_BODY), 204);
    assert_string_equal(state_of(ids[0]), "PREPROCESSED held");
    assert_int_equal(ask(tenant, "DELETE", path("/jobs/%" I, ids[1]), NO_BODY), 204);
    assert_int_equal(ask(tenant, "DELETE", path("/jobs/%" I, ids[1]), NO_BODY), 404);
    assert_int_equal(ask(tenant, "GET", path("/events/?job_id=%" I, ids[1]), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "DELETE", "/jobs/", NO_BODY), 204);
    assert_int_equal(counted(tenant, ""), 1);
    check_books();
}

static void deletion_by_state_leaves_the_other_states(void **state)
{
    (void)state;
    int64_t tenant = new_user(), app = new_app(tenant, new_site(tenant)), ids[4];
    new_jobs(tenant, app, 4, ids, "");
    move(tenant, ids[1], "FAILED");
    move(tenant, ids[3], "FAILED");
    assert_int_equal(ask(tenant, "DELETE", "/jobs/?state=FAILED", NO_BODY), 204);
    assert_int_equal(counted(tenant, ""), 2);
    assert_int_equal(num("results.0.id"), ids[0]);
    assert_int_equal(num("results.1.id"), ids[2]);
    check_books();
}

/* ---- cancellation */

static void cancelling_fails_what_does_not_run_and_asks_for_what_does(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site), ids[4];
    new_jobs(tenant, app, 4, ids, "'tags': {'c': 'd'}");
    move(tenant, ids[0], "RUNNING");
    move(tenant, ids[1], "JOB_FINISHED");
    assert_int_equal(ask(tenant, "POST", "/jobs/cancel", "{}"), 422);
    assert_int_equal(
        ask(tenant, "POST", "/jobs/cancel?tags=c:d", "{'reason': 'wrong \\'input\\''}"), 200);
    assert_int_equal(num("cancelled"), 2);
    assert_int_equal(num("requested"), 1);
    assert_string_equal(state_of(ids[0]), "RUNNING");
    assert_string_equal(state_of(ids[1]), "JOB_FINISHED");
    assert_string_equal(history_of(ids[2]), "CREATED>STAGED_IN STAGED_IN>FAILED:cancelled");
    assert_string_equal(pg_text(desk_db(),
                                "SELECT data->>'reason' FROM events WHERE job_id = %" I
                                " AND to_state = 'FAILED'",
                                ids[2]),
                        "wrong \"input\"");
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, ids[0]), NO_BODY), 200);
    assert_true(at("cancel")->b);
    assert_int_equal(ask(tenant, "POST", path("/jobs/%" I "/cancel", ids[2]), NO_BODY), 200);
    assert_int_equal(num("cancelled"), 0);
    assert_int_equal(ask(tenant, "POST", "/jobs/999999/cancel", NO_BODY), 404);
    check_books();
}

/* ---- tenants */

static void a_stranger_sees_and_changes_nothing(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), app = new_app(tenant, new_site(tenant)),
            job = new_job(tenant, app, "");
    const char *mine = path("/jobs/%" I, job);
    assert_int_equal(ask(stranger, "GET", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", mine, "{'state': 'FAILED'}"), 400);
    assert_int_equal(ask(stranger, "DELETE", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "POST", path("/jobs/%" I "/cancel", job), NO_BODY), 404);
    assert_int_equal(ask(stranger, "PATCH", "/jobs/", "[{'id': %" I ", 'state': 'FAILED'}]", job),
                     400);
    assert_int_equal(ask(stranger, "PUT", path("/jobs/?id=%" I, job), "{'state': 'FAILED'}"), 200);
    assert_int_equal(num(""), 0);
    assert_int_equal(ask(stranger, "POST", path("/jobs/cancel?id=%" I, job), NO_BODY), 200);
    assert_int_equal(num("cancelled"), 0);
    assert_int_equal(ask(stranger, "DELETE", "/jobs/", NO_BODY), 204);
    assert_int_equal(counted(stranger, ""), 0);
    assert_int_equal(counted(stranger, path("?id=%" I "&app_id=%" I, job, app)), 0);
    assert_string_equal(state_of(job), "STAGED_IN");
}

static void a_sites_token_touches_only_jobs_of_its_site(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant),
            app = new_app(tenant, site);
    int64_t far = new_app(tenant, other), job = new_job(tenant, app, ""),
            away = new_job(tenant, far, "");
    struct who agent = {.user = tenant, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/jobs/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(ask_as(&agent, "GET", "/jobs/?limit=1&offset=1", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(
        ask_as(&agent, "GET", path("/jobs/?limit=1&offset=1&site_id=%" I, other), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask_as(&agent, "GET", path("/jobs/%" I, away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/jobs/%" I, away), "{'state': 'FAILED'}"), 400);
    assert_int_equal(ask_as(&agent, "DELETE", path("/jobs/%" I, away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "POST", path("/jobs/%" I "/cancel", away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PATCH", "/jobs/",
                            "[{'id': %" I ", 'state': 'FAILED'}, {'id': %" I "}]", job, away),
                     400);
    assert_int_equal(num("items.0.id"), away);
    assert_int_equal(ask_as(&agent, "POST", "/jobs/", "[{'app_id': %" I ", 'workdir': 'z'}]", far),
                     404);
    assert_int_equal(ask_as(&agent, "POST", "/jobs/",
                            "[{'app_id': %" I ", 'workdir': 'z', 'parent_ids': [%" I "]}]", app,
                            away),
                     404);
    assert_int_equal(ask_as(&agent, "PUT", "/jobs/", "{'state': 'PREPROCESSED'}"), 200);
    assert_int_equal(num(""), 1);
    assert_string_equal(state_of(away), "STAGED_IN");
    assert_int_equal(ask_as(&agent, "DELETE", "/jobs/", NO_BODY), 204);
    assert_string_equal(state_of(away), "STAGED_IN");
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
        cmocka_unit_test(jobs_are_listed_by_their_filters),
        cmocka_unit_test(last_update_filters_have_microseconds),
        cmocka_unit_test(each_item_of_a_patch_has_its_own_keys),
        cmocka_unit_test(a_patch_with_a_wrong_id_changes_nothing_and_names_it),
        cmocka_unit_test(a_batch_job_must_be_there),
        cmocka_unit_test(a_put_by_filter_changes_all_matches),
        cmocka_unit_test(one_failure_anywhere_leaves_no_half_patch),
        cmocka_unit_test(a_held_job_survives_deletion_and_the_answer_is_204),
        cmocka_unit_test(deletion_by_state_leaves_the_other_states),
        cmocka_unit_test(cancelling_fails_what_does_not_run_and_asks_for_what_does),
        cmocka_unit_test(a_stranger_sees_and_changes_nothing),
        cmocka_unit_test(a_sites_token_touches_only_jobs_of_its_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
