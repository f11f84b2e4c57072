/* test_batch.c - batch jobs */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <string.h>

#define I PRId64

static void a_new_batch_job_waits_for_submission(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant);
    assert_int_equal(
        ask(tenant, "POST", "/batch-jobs/",
            "{'site_id': %" I ", 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
            " 'job_mode': 'mpi', 'filter_tags': {'n': 1}, 'state': 'running', 'scheduler_id': 3,"
            " 'partitions': [{'job_mode': 'serial', 'num_nodes': 4}]}",
            site),
        201);
    assert_string_equal(txt("state"), "pending_submission");
    assert_true(is_null("scheduler_id"));
    assert_true(is_null("start_time"));
    assert_int_equal(len("status_info"), 0);
    assert_string_equal(txt("filter_tags.n"), "1");
    assert_string_equal(txt("partitions.0.job_mode"), "serial");
    assert_int_equal(ask(tenant, "GET", path("/batch-jobs/%" I, num("id")), NO_BODY), 200);
    assert_int_equal(num("site_id"), site);
}

static void an_unknown_or_foreign_site_is_400(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(), sites[] = {new_site(stranger), 999999};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ask(tenant, "POST", "/batch-jobs/",
                             "{'site_id': %" I
                             ", 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
                             " 'job_mode': 'mpi'}",
                             sites[i]),
                         400);
    assert_int_equal(
        ask(tenant, "POST", "/batch-jobs/",
            "{'site_id': 1, 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
            " 'job_mode': 'both'}"),
        422);
}

static void an_update_touches_only_what_is_sent(void **state)
{
    (void)state;
    int64_t tenant = new_user(), job = new_batch_job(tenant, new_site(tenant));
    const char *put = path("/batch-jobs/%" I, job);
    assert_int_equal(
        ask(tenant, "PUT", put,
            "{'state': 'queued', 'scheduler_id': 1234, 'num_nodes': 99, 'status': 'x'}"),
        200);
    assert_string_equal(txt("state"), "queued");
    assert_int_equal(num("scheduler_id"), 1234);
    assert_int_equal(num("num_nodes"), 4);
    assert_int_equal(ask(tenant, "PUT", put,
                         "{'start_time': '2026-01-02T03:04:05+01:00', 'status_info': {'a': 1}}"),
                     200);
    assert_string_equal(txt("start_time"), "2026-01-02T02:04:05");
    assert_string_equal(txt("status_info.a"), "1");
    assert_int_equal(num("scheduler_id"), 1234);
    assert_int_equal(ask(tenant, "PUT", put, "{'start_time': null, 'status_info': {'b': 'c'}}"),
                     200);
    assert_true(is_null("start_time"));
    assert_false(there("status_info.a"));
    assert_string_equal(txt("state"), "queued");
    assert_int_equal(ask(tenant, "PUT", put, "{'state': null}"), 422);
    assert_int_equal(ask(tenant, "PUT", put, "{'status_info': null}"), 422);
    assert_int_equal(ask(tenant, "PUT", "/batch-jobs/999999", "{'state': 'queued'}"), 404);
}

static void what_is_to_be_deleted_can_only_be_finished(void **state)
{
    (void)state;
    int64_t tenant = new_user(), job = new_batch_job(tenant, new_site(tenant));
    const char *put = path("/batch-jobs/%" I, job);
    assert_int_equal(ask(tenant, "PUT", put, "{'state': 'pending_deletion'}"), 200);
    assert_int_equal(ask(tenant, "PUT", put, "{'state': 'running', 'scheduler_id': 7}"), 200);
    assert_string_equal(txt("state"), "pending_deletion");
    assert_int_equal(num("scheduler_id"), 7);
    assert_int_equal(ask(tenant, "PUT", put, "{'state': 'finished'}"), 200);
    assert_string_equal(txt("state"), "finished");
    assert_int_equal(ask(tenant, "PUT", put, "{'state': 'running'}"), 200);
    assert_string_equal(txt("state"), "running");
}

static void a_patch_answers_in_order_of_ids_and_the_last_item_of_an_id_counts(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), a = new_batch_job(tenant, site),
            b = new_batch_job(tenant, site);
    assert_int_equal(ask(tenant, "PATCH", "/batch-jobs/",
                         "[{'id': %" I ", 'state': 'running'}, {'id': %" I
                         ", 'scheduler_id': 5, 'state': 'queued'},"
                         " {'id': %" I ", 'state': 'submit_failed'}]",
                         b, a, b),
                     200);
    assert_int_equal(len(""), 2);
    assert_int_equal(num("0.id"), a);
    assert_int_equal(num("0.scheduler_id"), 5);
    assert_string_equal(txt("1.state"), "submit_failed");
    assert_true(is_null("1.scheduler_id"));
    assert_int_equal(ask(tenant, "PATCH", "/batch-jobs/",
                         "[{'id': %" I ", 'state': 'finished'}, {'id': 999999}]", a),
                     400);
    assert_int_equal(num("items.0.index"), 1);
    assert_int_equal(ask(tenant, "GET", path("/batch-jobs/%" I, a), NO_BODY), 200);
    assert_string_equal(txt("state"), "queued");
    assert_int_equal(ask(tenant, "PATCH", "/batch-jobs/", "[]"), 200);
    assert_int_equal(len(""), 0);
}

static void batch_jobs_are_listed_by_their_filters(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), a = new_batch_job(tenant, site),
            b = new_batch_job(tenant, new_site(tenant));
    assert_int_equal(
        ask(tenant, "PUT", path("/batch-jobs/%" I, a),
            "{'state': 'finished', 'scheduler_id': 77, 'start_time': '2026-01-01T00:00',"
            " 'end_time': '2026-01-01T01:00'}"),
        200);
    static const struct {
        const char *query;
        int count;
    } tries[] = {
        {"", 2},
        {"?state=finished", 1},
        {"?state=finished&state=pending_submission", 2},
        {"?state=nonsense", 0},
        {"?scheduler_id=77", 1},
        {"?scheduler_id=0", 2},
        {"?queue=q", 2},
        {"?queue=Q", 0},
        {"?start_time_after=2026-01-01T00:00", 1},
        {"?start_time_before=2025-01-01T00:00", 0},
        {"?end_time_before=2026-01-01T01:00", 1},
        {"?filter_tags=a:b", 0},
        {"?limit=1", 2},
    };
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        assert_int_equal(ask(tenant, "GET", path("/batch-jobs/%s", tries[i].query), NO_BODY), 200);
        assert_int_equal(num("count"), tries[i].count);
    }
    assert_int_equal(ask(tenant, "GET", path("/batch-jobs/?site_id=%" I, site), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(ask(tenant, "GET", "/batch-jobs/?ordering=start_time", NO_BODY), 200);
    assert_int_equal(num("results.0.id"), a);
    assert_int_equal(ask(tenant, "GET", "/batch-jobs/?ordering=-start_time", NO_BODY), 200);
    assert_int_equal(num("results.0.id"), b);
}

static void a_deleted_batch_job_is_forgotten_by_jobs_and_sessions(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), app = new_app(tenant, site),
            job = new_job(tenant, app, "");
    int64_t batch_job = new_batch_job(tenant, site), session = new_session(tenant, site, batch_job);
    move(tenant, job, "PREPROCESSED");
    assert_int_equal(ask(tenant, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}}"),
                     200);
    assert_int_equal(ask(tenant, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 204);
    assert_int_equal(ask(tenant, "GET", path("/jobs/%" I, job), NO_BODY), 200);
    assert_true(is_null("batch_job_id"));
    assert_int_equal(num("session_id"), session);
    assert_int_equal(ask(tenant, "GET", "/sessions/", NO_BODY), 200);
    assert_true(is_null("results.0.batch_job_id"));
    assert_int_equal(ask(tenant, "DELETE", path("/batch-jobs/%" I, batch_job), NO_BODY), 404);
}

static void a_stranger_sees_nothing(void **state)
{
    (void)state;
    int64_t tenant = new_user(), stranger = new_user(),
            job = new_batch_job(tenant, new_site(tenant));
    const char *mine = path("/batch-jobs/%" I, job);
    assert_int_equal(ask(stranger, "GET", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", mine, "{'state': 'finished'}"), 404);
    assert_int_equal(
        ask(stranger, "PATCH", "/batch-jobs/", "[{'id': %" I ", 'state': 'finished'}]", job), 400);
    assert_int_equal(ask(stranger, "DELETE", mine, NO_BODY), 404);
    assert_int_equal(ask(stranger, "GET", "/batch-jobs/", NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(tenant, "GET", mine, NO_BODY), 200);
    assert_string_equal(txt("state"), "pending_submission");
}

static void a_sites_token_is_for_that_site(void **state)
{
    (void)state;
    int64_t tenant = new_user(), site = new_site(tenant), other = new_site(tenant),
            mine = new_batch_job(tenant, site);
    int64_t away = new_batch_job(tenant, other);
    struct who agent = {.user = tenant, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/batch-jobs/", NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.id"), mine);
    assert_int_equal(ask_as(&agent, "GET", path("/batch-jobs/%" I, away), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/batch-jobs/%" I, away), "{}"), 404);
    assert_int_equal(ask_as(&agent, "DELETE", path("/batch-jobs/%" I, away), NO_BODY), 404);
    assert_int_equal(
        ask_as(&agent, "PATCH", "/batch-jobs/", "[{'id': %" I "}, {'id': %" I "}]", mine, away),
        400);
    assert_int_equal(ask_as(&agent, "POST", "/batch-jobs/",
                            "{'site_id': %" I
                            ", 'project': 'p', 'queue': 'q', 'num_nodes': 4, 'wall_time_min': 30,"
                            " 'job_mode': 'mpi'}",
                            other),
                     400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_batch_job_waits_for_submission),
        cmocka_unit_test(an_unknown_or_foreign_site_is_400),
        cmocka_unit_test(an_update_touches_only_what_is_sent),
        cmocka_unit_test(what_is_to_be_deleted_can_only_be_finished),
        cmocka_unit_test(a_patch_answers_in_order_of_ids_and_the_last_item_of_an_id_counts),
        cmocka_unit_test(batch_jobs_are_listed_by_their_filters),
        cmocka_unit_test(a_deleted_batch_job_is_forgotten_by_jobs_and_sessions),
        cmocka_unit_test(a_stranger_sees_nothing),
        cmocka_unit_test(a_sites_token_is_for_that_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
