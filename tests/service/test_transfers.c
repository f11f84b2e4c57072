/* test_transfers.c - transfer items, and what they do to their jobs */
#include "base/fault.h"
#include "desk.h"
#include "pg.h"
#include <inttypes.h>
#include <string.h>

#define I PRId64

static const char two_in[] =
    "'tags': {'k': 'v'}, 'transfers': {'input': {'location_alias': 'beamline', 'path': '/x//y/'},"
    " 'more': {'location_alias': 'archive', 'path': '/z'}}";
static const char in_and_out[] =
    "'transfers': {'input': {'location_alias': 'beamline', 'path': '/x'},"
    " 'output': {'location_alias': 'archive', 'path': '/y'}}";

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

/* Items of a job in order of their ids. */
static int items_of(int64_t job, int64_t *ids)
{
    assert_int_equal(ask(user, "GET", path("/transfers/?job_id=%" I, job), NO_BODY), 200);
    for (int i = 0; i < len("results"); i++)
        ids[i] = num(path("results.%d.id", i));
    return len("results");
}

static void an_item_shows_what_slot_and_job_say(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, two_in);
    assert_int_equal(items_of(job, ids), 2);
    assert_int_equal(ask(user, "GET", path("/transfers/%" I, ids[0]), NO_BODY), 200);
    assert_int_equal(num("job_id"), job);
    int more = strcmp(txt("location_alias"), "archive") == 0;
    assert_int_equal(ask(user, "GET", path("/transfers/%" I, ids[more]), NO_BODY), 200);
    assert_string_equal(txt("remote_path"), "/x/y");
    assert_int_equal(ask(user, "GET", path("/transfers/%" I, ids[!more]), NO_BODY), 200);
    assert_true(at("recursive")->b);
    assert_string_equal(txt("local_path"), "more");
    assert_int_equal(ask(user, "GET", "/transfers/999999", NO_BODY), 404);
}

static void a_later_edit_of_the_app_does_not_change_items(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, in_and_out);
    assert_int_equal(ask(user, "PUT", path("/apps/%" I, app), "{'transfers': {}}"), 200);
    assert_int_equal(items_of(job, ids), 2);
}

static void the_job_is_staged_in_when_its_last_input_is_done(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, two_in);
    items_of(job, ids);
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[0]),
                         "{'state': 'active', 'task_id': 'rsync:1', 'transfer_info': {'n': 1}, "
                         "'recursive': true}"),
                     200);
    assert_string_equal(txt("task_id"), "rsync:1");
    assert_int_equal(num("transfer_info.n"), 1);
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[0]), "{'state': 'done'}"), 200);
    assert_string_equal(txt("task_id"), "rsync:1");
    assert_string_equal(state_of(job), "READY");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': 'error'}"), 200);
    assert_string_equal(state_of(job), "READY");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': 'done'}"), 200);
    assert_non_null(strstr(told(), path("e%" I, user)));
    assert_string_equal(history_of(job), "CREATED>READY READY>STAGED_IN");
    assert_int_equal(
        ask(user, "GET", path("/events/?job_id=%" I "&to_state=STAGED_IN", job), NO_BODY), 200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(len("results.0.data"), 0);
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': 'pending'}"), 200);
    assert_string_equal(state_of(job), "STAGED_IN");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': null}"), 422);
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': 'lost'}"), 422);
    assert_int_equal(ask(user, "PUT", "/transfers/999999", "{'state': 'done'}"), 404);
}

static void a_patch_of_many_items_moves_their_jobs_once(void **state)
{
    (void)state;
    int64_t ids[4], jobs[2];
    new_jobs(user, app, 2, jobs, two_in);
    items_of(jobs[0], ids);
    items_of(jobs[1], ids + 2);
    assert_int_equal(ask(user, "PATCH", "/transfers/",
                         "[{'id': %" I ", 'state': 'done'}, {'id': %" I
                         ", 'state': 'done'}, {'id': %" I ", 'state': 'error'}, {'id': %" I
                         ", 'state': 'done', 'task_id': 't'},"
                         " {'id': %" I ", 'state': 'done'}]",
                         ids[3], ids[1], ids[2], ids[0], ids[2]),
                     200);
    assert_int_equal(len(""), 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(num(path("%d.id", i)), ids[i]);
        assert_string_equal(txt(path("%d.state", i)),
                            "done"); /* the last of a repeated id counts */
    }
    assert_string_equal(txt("0.task_id"), "t");
    assert_string_equal(history_of(jobs[0]), "CREATED>READY READY>STAGED_IN");
    assert_string_equal(history_of(jobs[1]), "CREATED>READY READY>STAGED_IN");
    assert_int_equal(ask(user, "PATCH", "/transfers/",
                         "[{'id': %" I ", 'state': 'error'}, {'id': 999999}]", ids[0]),
                     400);
    assert_int_equal(num("items.0.index"), 1);
    assert_int_equal(ask(user, "GET", path("/transfers/%" I, ids[0]), NO_BODY), 200);
    assert_string_equal(txt("state"), "done");
    assert_int_equal(ask(user, "PATCH", "/transfers/", "[]"), 200);
    assert_int_equal(len(""), 0);
}

static void the_job_is_finished_when_its_last_output_is_done(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, in_and_out),
                    child = new_job(user, app, path("'parent_ids': [%" I "]", job));
    items_of(job, ids);
    assert_int_equal(
        ask(user, "GET", path("/transfers/?job_id=%" I "&direction=out", job), NO_BODY), 200);
    int64_t out = num("results.0.id"), in = out == ids[0] ? ids[1] : ids[0];
    assert_string_equal(txt("results.0.state"), "awaiting_job");
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, in), "{'state': 'done'}"), 200);
    assert_string_equal(state_of(job), "STAGED_IN");
    move(user, job, "POSTPROCESSED");
    assert_int_equal(ask(user, "GET", path("/transfers/?state=pending&site_id=%" I, site), NO_BODY),
                     200);
    assert_int_equal(num("count"), 1);
    assert_int_equal(num("results.0.id"), out);
    assert_int_equal(ask(user, "PATCH", "/transfers/", "[{'id': %" I ", 'state': 'done'}]", out),
                     200);
    assert_string_equal(state_of(job), "JOB_FINISHED");
    assert_string_equal(history_of(child),
                        "CREATED>AWAITING_PARENTS AWAITING_PARENTS>STAGED_IN:Skipped stage in");
}

static void items_are_listed_by_their_filters(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, two_in), other = new_job(user, app, in_and_out);
    items_of(job, ids);
    assert_int_equal(ask(user, "PUT", path("/transfers/%" I, ids[1]), "{'state': 'active'}"), 200);
    static const struct {
        const char *query;
        int count;
    } tries[] = {
        {"", 4},
        {"?state=pending", 2},
        {"?state=pending&state=active", 3},
        {"?direction=out", 1},
        {"?job_state=READY", 4},
        {"?job_state=NOPE", 0},
        {"?tags=k:v", 2},
        {"?tags=k:w", 0},
        {"?limit=1&offset=3", 4},
        {"?site_id=0", 4},
        {"?site_id=999999", 0},
    };
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        assert_int_equal(ask(user, "GET", path("/transfers/%s", tries[i].query), NO_BODY), 200);
        assert_int_equal(num("count"), tries[i].count);
    }
    assert_int_equal(
        ask(user, "GET", path("/transfers/?id=%" I "&job_id=%" I, ids[0], other), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(user, "GET", "/transfers/?state=lost", NO_BODY), 422);
}

static void one_failure_anywhere_leaves_no_half_transfer(void **state)
{
    (void)state;
    bool fired = true;
    int refused = 0;
    for (int nth = 1; fired; nth++) {
        int64_t ids[2], job = new_job(user, app, in_and_out);
        int64_t child = new_job(user, app, path("'parent_ids': [%" I "]", job));
        items_of(job, ids);
        move(user, job, "POSTPROCESSED");
        ab_fault_arm(nth);
        int status = ask(user, "PATCH", "/transfers/",
                         "[{'id': %" I ", 'state': 'done'}, {'id': %" I ", 'state': 'done'}]",
                         ids[0], ids[1]);
        fired = ab_fault_fired();
        ab_fault_arm(0);
        bool done = status == 200;
        if (!done)
            assert_int_equal(status, 503);
        refused += !done;
        assert_string_equal(state_of(job), done ? "JOB_FINISHED" : "POSTPROCESSED");
        assert_string_equal(state_of(child), done ? "STAGED_IN" : "AWAITING_PARENTS");
        check_books();
    }
    assert_in_range(refused, 1, 100);
}

static void a_repeated_patch_answers_the_same(void **state)
{
    (void)state;
    int64_t ids[2], job = new_job(user, app, two_in);
    items_of(job, ids);
    struct who once = {.user = user, .key = "k"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            ask_as(&once, "PATCH", "/transfers/", "[{'id': %" I ", 'state': 'done'}]", ids[0]),
            200);
        assert_int_equal(num("0.id"), ids[0]);
    }
}

static void a_stranger_sees_and_changes_nothing(void **state)
{
    (void)state;
    int64_t stranger = new_user(), ids[2], job = new_job(user, app, two_in);
    items_of(job, ids);
    assert_int_equal(ask(stranger, "GET", path("/transfers/%" I, ids[0]), NO_BODY), 404);
    assert_int_equal(ask(stranger, "PUT", path("/transfers/%" I, ids[0]), "{'state': 'done'}"),
                     404);
    assert_int_equal(
        ask(stranger, "PATCH", "/transfers/", "[{'id': %" I ", 'state': 'done'}]", ids[0]), 400);
    assert_int_equal(ask(stranger, "GET", path("/transfers/?job_id=%" I, job), NO_BODY), 200);
    assert_int_equal(num("count"), 0);
    assert_int_equal(ask(user, "GET", path("/transfers/%" I, ids[0]), NO_BODY), 200);
    assert_string_equal(txt("state"), "pending");
}

static void a_sites_token_is_for_that_site(void **state)
{
    (void)state;
    int64_t other = new_site(user), far = new_app(user, other), mine[2], away[2];
    items_of(new_job(user, app, two_in), mine);
    items_of(new_job(user, far, two_in), away);
    struct who agent = {.user = user, .token_site = site};
    assert_int_equal(ask_as(&agent, "GET", "/transfers/", NO_BODY), 200);
    assert_int_equal(num("count"), 2);
    assert_int_equal(ask_as(&agent, "GET", path("/transfers/%" I, away[0]), NO_BODY), 404);
    assert_int_equal(ask_as(&agent, "PUT", path("/transfers/%" I, away[0]), "{'state': 'done'}"),
                     404);
    assert_int_equal(ask_as(&agent, "PATCH", "/transfers/",
                            "[{'id': %" I ", 'state': 'done'}, {'id': %" I "}]", mine[0], away[0]),
                     400);
    assert_int_equal(num("items.0.id"), away[0]);
    assert_int_equal(ask_as(&agent, "PUT", path("/transfers/%" I, mine[0]), "{'state': 'done'}"),
                     200);
}

#define test(f) cmocka_unit_test_setup_teardown(f, fresh, books)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(an_item_shows_what_slot_and_job_say),
        test(a_later_edit_of_the_app_does_not_change_items),
        test(the_job_is_staged_in_when_its_last_input_is_done),
        test(a_patch_of_many_items_moves_their_jobs_once),
        test(the_job_is_finished_when_its_last_output_is_done),
        test(items_are_listed_by_their_filters),
        test(one_failure_anywhere_leaves_no_half_transfer),
        test(a_repeated_patch_answers_the_same),
        test(a_stranger_sees_and_changes_nothing),
        test(a_sites_token_is_for_that_site),
    };
    return cmocka_run_group_tests(tests, desk_open, desk_close);
}
