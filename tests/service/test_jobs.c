/* test_jobs.c - jobs: list, read, update, delete; test_create.c makes them */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

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
