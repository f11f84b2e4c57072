/* test_lifecycle.c - how jobs change state, as a client sees it (job-states.md of the contract) */
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define I PRId64

static const char in_item[] =
    "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'}}";
static const char out_item[] =
    "'transfers': {'output': {'location_alias': 'archive', 'path': '/y'}}";

static int64_t user, site, app;

static int fresh(void **state)
{
    (void)state;
    user = new_user();
    site = new_site(user);
    app = new_app(user, site);
    return 0;
}

static int books(void **state)
{
    (void)state;
    check_books();
    return 0;
}

static int64_t item_of(int64_t job, const char *direction)
{
    return pg_int(desk_db(),
                  "SELECT min(id) FROM transfer_items WHERE job_id = %" I " AND direction = '%s'",
                  job, direction);
}

static void set_item(int64_t item, const char *state)
{
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, item), "{'state': '%s'}", state), 200);
    assert_string_equal(txt("state"), state);
}

/* ---- creation */

static void a_job_with_stage_in_begins_ready(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, in_item);
    assert_string_equal(txt("0.state"), "READY");
    assert_string_equal(history_of(job), "CREATED>READY");
    assert_int_equal(ask(user, "GET", path("/transfers/?job_id=%" I, job), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_string_equal(txt("results.0.direction"), "in");
    assert_string_equal(txt("results.0.state"), "pending");
    assert_string_equal(txt("results.0.local_path"), "in.dat");
    assert_string_equal(txt("results.0.remote_path"), "/x");
    assert_string_equal(txt("results.0.location_alias"), "beamline");
    assert_string_equal(txt("results.0.task_id"), "");
    assert_int_equal(len("results.0.transfer_info"), 0);
    assert_false(at("results.0.recursive")->b);
}

static void a_job_without_transfers_begins_staged_in(void **state)
{
    (void)state;
    assert_string_equal(history_of(new_job(user, app, "")), "CREATED>STAGED_IN");
    assert_string_equal(history_of(new_job(user, app, out_item)), "CREATED>STAGED_IN");
}

static void creation_time_is_the_first_events_time(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    assert_int_equal(pg_int(desk_db(),
                            "SELECT count(*) FROM jobs j JOIN events e ON e.job_id = j.id"
                            " WHERE j.id = %" I
                            " AND e.timestamp = j.last_update AND e.data = '{}'",
                            job),
                     1);
}

/* ---- requested states */

static void any_state_may_follow_any_state(void **state)
{
    (void)state;
    static const char *const states[] = {"FAILED",           "CREATED",  "RUN_ERROR",
                                         "AWAITING_PARENTS", "RUNNING",  "RESTART_READY",
                                         "RUN_TIMEOUT",      "STAGED_IN"};
    int64_t job = new_job(user, app, "");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        move(user, job, states[i]);
        assert_string_equal(state_of(job), states[i]);
    }
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'state': 'DONE'}"), 422);
}

static void the_same_state_is_no_change(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    assert_int_equal(
        ask(user, "PUT", path("/jobs/%" I, job), "{'state': 'STAGED_IN', 'num_nodes': 2}"), 200);
    assert_int_equal(num(""), 1);
    assert_string_equal(history_of(job), "CREATED>STAGED_IN");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I, job), NO_BODY), 200);
    assert_int_equal(num("num_nodes"), 2);
}

static void time_and_data_of_a_change_are_the_clients(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    assert_int_equal(
        ask(user, "PUT", path("/jobs/%" I, job),
            "{'state': 'RUN_ERROR', 'state_timestamp': '2026-01-02T03:04:05.000678+02:00',"
            " 'state_data': {'returncode': 3, 'error': 'tail'}}"),
        200);
    assert_int_equal(ask(user, "GET", path("/events/?to_state=RUN_ERROR&job_id=%" I, job), NO_BODY),
                     200);
    assert_int_equal(num("count"), 1);
    assert_string_equal(txt("results.0.timestamp"), "2026-01-02T01:04:05.000678");
    assert_int_equal(num("results.0.data.returncode"), 3);
    assert_int_equal(
        ask(user, "PUT", path("/jobs/%" I, job), "{'state': 'FAILED', 'state_timestamp': null}"),
        200);
    assert_int_equal(ask(user, "GET", path("/events/?to_state=FAILED&job_id=%" I, job), NO_BODY),
                     200);
    assert_int_equal(num("count"), 1);
    assert_false(is_null("results.0.timestamp"));
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'state_data': null}"), 422);
}

static void running_keeps_the_lease_and_the_end_gives_it_back(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, ""), batch_job = new_batch_job(user, site);
    int64_t session = new_session(user, site, batch_job);
    move(user, job, "PREPROCESSED");
    assert_int_equal(
        ask(user, "POST", path("/sessions/%" I, session), "{'max_num_jobs': 1, 'filter_tags': {}}"),
        200);
    assert_int_equal(num("0.id"), job);
    assert_int_equal(num("0.batch_job_id"), batch_job);
    assert_int_equal(num("0.session_id"), session);
    move(user, job, "RUNNING");
    assert_string_equal(state_of(job), "RUNNING held");
    assert_string_equal(history_of(job),
                        "CREATED>STAGED_IN STAGED_IN>PREPROCESSED PREPROCESSED>RUNNING");
    move(user, job, "RUN_DONE");
    assert_string_equal(state_of(job), "RUN_DONE");
    assert_int_equal(pg_int(desk_db(), "SELECT batch_job_id FROM jobs WHERE id = %" I, job),
                     batch_job);
}

static void a_change_to_the_same_state_keeps_the_lease(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, ""), session = new_session(user, site, 0);
    assert_int_equal(ask(user, "POST", path("/sessions/%" I, session),
                         "{'max_num_jobs': 1, 'filter_tags': {}, 'states': ['STAGED_IN']}"),
                     200);
    move(user, job, "STAGED_IN");
    assert_string_equal(state_of(job), "STAGED_IN held");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'data': {'n': 1}}"), 200);
    assert_string_equal(state_of(job), "STAGED_IN held");
}

static void a_report_under_a_lost_lease_is_409_and_names_the_job(void **state)
{
    (void)state;
    int64_t ids[2], session = new_session(user, site, 0);
    new_jobs(user, app, 2, ids, "");
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'state': 'PREPROCESSED'}, {'id': %" I
                         ", 'state': 'PREPROCESSED'}]",
                         ids[0], ids[1]),
                     200);
    assert_int_equal(
        ask(user, "POST", path("/sessions/%" I, session), "{'max_num_jobs': 2, 'filter_tags': {}}"),
        200);
    int64_t lease = num("0.lease");
    assert_int_equal(lease, 1);
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'lease': %" I ", 'state': 'RUNNING'}, {'id': %" I
                         ", 'lease': %" I ", 'state': 'RUNNING'}]",
                         ids[0], lease, ids[1], lease),
                     200);
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'lease': %" I ", 'state': 'RUN_DONE'}, {'id': %" I
                         ", 'lease': %" I ", 'state': 'RUN_DONE'}]",
                         ids[0], lease, ids[1], lease + 1),
                     409);
    assert_int_equal(len("items"), 1);
    assert_int_equal(num("items.0.index"), 1);
    assert_int_equal(num("items.0.id"), ids[1]);
    assert_string_equal(state_of(ids[0]), "RUNNING held");
    assert_int_equal(ask(user, "DELETE", path("/sessions/%" I, session), NO_BODY), 204);
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, ids[0]),
                         "{'state': 'RUN_DONE', 'lease': %" I "}", lease),
                     409);
    assert_string_equal(state_of(ids[0]), "RUN_TIMEOUT");
    move(user, ids[0], "RUN_DONE"); /* without a lease nobody asks */
}

/* ---- skipping stages */

static void ready_without_open_stage_in_is_staged_in(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    move(user, job, "FAILED");
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job),
                         "{'state': 'READY', 'state_data': {'a': 1, 'message': 'm'}}"),
                     200);
    assert_string_equal(history_of(job),
                        "CREATED>STAGED_IN STAGED_IN>FAILED FAILED>STAGED_IN:Skipped stage in");
    assert_int_equal(
        pg_int(desk_db(),
               "SELECT (data->>'a')::int FROM events WHERE job_id = %" I " AND data ? 'a'", job),
        1);
}

static void postprocessed_without_open_stage_out_is_finished(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, in_item);
    set_item(item_of(job, "in"), "done");
    move(user, job, "POSTPROCESSED");
    assert_string_equal(history_of(job),
                        "CREATED>READY READY>STAGED_IN STAGED_IN>JOB_FINISHED:Skipped stage out");
}

static void postprocessed_with_stage_out_waits_and_frees_its_items(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, out_item), item = item_of(job, "out");
    assert_string_equal(pg_text(desk_db(), "SELECT state FROM transfer_items WHERE id = %" I, item),
                        "awaiting_job");
    move(user, job, "POSTPROCESSED");
    assert_string_equal(state_of(job), "POSTPROCESSED");
    assert_string_equal(pg_text(desk_db(), "SELECT state FROM transfer_items WHERE id = %" I, item),
                        "pending");
    move(user, job, "STAGED_OUT");
    assert_string_equal(history_of(job),
                        "CREATED>STAGED_IN STAGED_IN>POSTPROCESSED POSTPROCESSED>JOB_FINISHED");
    assert_string_equal(pg_text(desk_db(), "SELECT state FROM transfer_items WHERE id = %" I, item),
                        "pending");
}

/* ---- parents and children */

static void a_child_waits_for_all_its_parents(void **state)
{
    (void)state;
    int64_t ids[2];
    new_jobs(user, app, 2, ids, "");
    int64_t child =
        new_job(user, app, path("'parent_ids': [%" I ", %" I ", %" I "]", ids[0], ids[1], ids[0]));
    assert_string_equal(txt("0.state"), "AWAITING_PARENTS");
    assert_int_equal(len("0.parent_ids"), 2);
    move(user, ids[0], "JOB_FINISHED");
    assert_string_equal(state_of(child), "AWAITING_PARENTS");
    move(user, ids[1], "POSTPROCESSED");
    assert_string_equal(history_of(child),
                        "CREATED>AWAITING_PARENTS AWAITING_PARENTS>STAGED_IN:Skipped stage in");
}

static void a_finished_parent_frees_all_children_in_the_same_call(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, "");
    int64_t a = new_job(user, app, path("'parent_ids': [%" I "], %s", parent, in_item));
    int64_t b = new_job(user, app, path("'parent_ids': [%" I "], %s", parent, in_item));
    move(user, parent, "POSTPROCESSED");
    assert_string_equal(state_of(parent), "JOB_FINISHED");
    assert_string_equal(history_of(a),
                        "CREATED>AWAITING_PARENTS AWAITING_PARENTS>READY:All parents finished");
    assert_string_equal(state_of(b), "READY");
}

static void early_stage_in_lets_a_child_skip_ready(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, ""),
            child = new_job(user, app, path("'parent_ids': [%" I "], %s", parent, in_item));
    set_item(item_of(child, "in"), "done");
    assert_string_equal(state_of(child), "AWAITING_PARENTS");
    move(user, parent, "JOB_FINISHED");
    assert_string_equal(state_of(child), "STAGED_IN");
}

static void stage_out_of_a_parent_frees_its_children(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, out_item),
            child = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    move(user, parent, "POSTPROCESSED");
    assert_string_equal(state_of(child), "AWAITING_PARENTS");
    set_item(item_of(parent, "out"), "done");
    assert_string_equal(history_of(parent),
                        "CREATED>STAGED_IN STAGED_IN>POSTPROCESSED POSTPROCESSED>JOB_FINISHED");
    assert_string_equal(state_of(child), "STAGED_IN");
}

static void a_child_of_a_failed_parent_waits_until_it_is_repaired(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, "");
    move(user, parent, "FAILED");
    int64_t child = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    assert_string_equal(txt("0.state"), "AWAITING_PARENTS");
    move(user, parent, "JOB_FINISHED");
    assert_string_equal(state_of(child), "STAGED_IN");
    int64_t late = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    assert_string_equal(state_of(late), "STAGED_IN");
}

static void a_child_of_a_deleted_parent_waits_for_ever(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, ""),
            child = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, parent), NO_BODY), 204);
    assert_string_equal(state_of(child), "AWAITING_PARENTS");
    assert_int_equal(ask(user, "GET", path("/jobs/%" I, child), NO_BODY), 200);
    assert_int_equal(num("parent_ids.0"), parent);
    move(user, child, "STAGED_IN"); /* by hand it may */
    assert_string_equal(state_of(child), "STAGED_IN");
}

static const char *message_of(int64_t job)
{
    return pg_text(desk_db(),
                   "SELECT data->>'message' || ' ' || (data->>'parent_id') FROM events WHERE"
                   " job_id = %" I " AND to_state = 'FAILED'",
                   job);
}

static void orphans_fail_where_the_centre_wants_it(void **state)
{
    (void)state;
    int64_t good = new_job(user, app, ""), bad = new_job(user, app, ""),
            gone = new_job(user, app, "");
    int64_t waits = new_job(user, app, path("'parent_ids': [%" I "]", good));
    int64_t child = new_job(user, app, path("'parent_ids': [%" I ", %" I "]", good, bad));
    int64_t grandchild = new_job(user, app, path("'parent_ids': [%" I "]", child));
    int64_t orphan = new_job(user, app, path("'parent_ids': [%" I "]", gone));
    int64_t stranger = new_user(), its = new_app(stranger, new_site(stranger));
    int64_t parent = new_job(stranger, its, "");
    int64_t others = new_job(stranger, its, path("'parent_ids': [%" I "]", parent));

    move(user, bad, "FAILED");
    move(stranger, parent, "FAILED");
    assert_int_equal(ask(user, "DELETE", path("/jobs/%" I, gone), NO_BODY), 204);
    for (int i = 0; i < 3; i++)
        tick("jobs", "orphans");
    assert_string_equal(state_of(child), "AWAITING_PARENTS"); /* as the contract has it */

    desk_set("jobs", "fail_orphans", "true");
    for (int i = 0; i < 6; i++) /* pages and rounds: the grandchild's parent fails in the first */
        tick("jobs", "orphans");
    desk_set("jobs", "fail_orphans", "false");
    assert_string_equal(state_of(waits), "AWAITING_PARENTS");
    assert_string_equal(state_of(child), "FAILED");
    assert_string_equal(message_of(child), path("a parent has failed %" I, bad));
    assert_string_equal(state_of(grandchild), "FAILED");
    assert_string_equal(message_of(grandchild), path("a parent has failed %" I, child));
    assert_string_equal(state_of(orphan), "FAILED");
    assert_string_equal(message_of(orphan), path("a parent was deleted %" I, gone));
    assert_string_equal(state_of(others), "FAILED");
    move(user, good, "JOB_FINISHED");
    assert_string_equal(state_of(waits), "STAGED_IN");
}

static void parent_and_child_in_one_patch(void **state)
{
    (void)state;
    int64_t parent = new_job(user, app, ""),
            child = new_job(user, app, path("'parent_ids': [%" I "]", parent));
    assert_int_equal(ask(user, "PATCH", "/jobs/",
                         "[{'id': %" I ", 'state': 'FAILED'}, {'id': %" I
                         ", 'state': 'JOB_FINISHED'}]",
                         child, parent),
                     200);
    assert_string_equal(state_of(child), "FAILED");
}

/* ---- what subscribers are told */

static void a_change_is_hinted_and_a_no_op_is_not(void **state)
{
    (void)state;
    int64_t job = new_job(user, app, "");
    char e[32];
    snprintf(e, sizeof(e), "e%" I, user);
    assert_non_null(strstr(told(), e));
    move(user, job, "FAILED");
    assert_non_null(strstr(told(), e));
    assert_int_equal(ask(user, "PUT", path("/jobs/%" I, job), "{'num_nodes': 2}"), 200);
    assert_null(strstr(told(), e));
}

#define test(f) cmocka_unit_test_setup_teardown(f, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_job_with_stage_in_begins_ready),
        test(a_job_without_transfers_begins_staged_in),
        test(creation_time_is_the_first_events_time),
        test(any_state_may_follow_any_state),
        test(the_same_state_is_no_change),
        test(time_and_data_of_a_change_are_the_clients),
        test(running_keeps_the_lease_and_the_end_gives_it_back),
        test(a_change_to_the_same_state_keeps_the_lease),
        test(a_report_under_a_lost_lease_is_409_and_names_the_job),
        test(ready_without_open_stage_in_is_staged_in),
        test(postprocessed_without_open_stage_out_is_finished),
        test(postprocessed_with_stage_out_waits_and_frees_its_items),
        test(a_child_waits_for_all_its_parents),
        test(a_finished_parent_frees_all_children_in_the_same_call),
        test(early_stage_in_lets_a_child_skip_ready),
        test(stage_out_of_a_parent_frees_its_children),
        test(a_child_of_a_failed_parent_waits_until_it_is_repaired),
        test(a_child_of_a_deleted_parent_waits_for_ever),
        test(orphans_fail_where_the_centre_wants_it),
        test(parent_and_child_in_one_patch),
        test(a_change_is_hinted_and_a_no_op_is_not),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
