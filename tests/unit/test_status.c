/* test_status.c - the launcher's reports against a centre of a few lines */
#include "launcher/status.h"

#include "base/clock.h"
#include "script.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATCH "PATCH /jobs/"

struct rig {
    script_t *centre;
    struct ab_client_file file;
    status_t *status;
};

static int set_up(void **state)
{
    static struct rig rig;
    struct ab_error err = {0};
    rig = (struct rig){.centre = script_new()};
    rig.file = script_client(rig.centre);
    rig.status = status_new(&rig.file, &err);
    *state = &rig;
    return rig.status ? 0 : -1;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    (void)status_end(&rig->status, 0);
    script_destroy(&rig->centre);
    return 0;
}

static struct job update_of(int64_t job, int state)
{
    struct job update = {.id = job, .lease = 4, .state = state};
    AB_SET(job, &update, id);
    AB_SET(job, &update, lease);
    AB_SET(job, &update, state);
    return update;
}

static void put(struct rig *rig, int64_t job, int state)
{
    struct job update = update_of(job, state);
    status_put(rig->status, &update);
}

static void claim(struct rig *rig, int64_t job)
{
    struct job update = update_of(job, AB_JOB_RUNNING);
    status_claim(rig->status, &update);
}

/* "1:RUNNING 2:RUN_DONE " */
static const char *said(const struct script_call *call)
{
    static char out[1024];
    size_t n = 0;
    for (const char *at = call->body; (at = strchr(at, '{')) != NULL; at++) {
        const char *id = strstr(at, "\"id\":"), *state = strstr(at, "\"state\":\"");
        assert_non_null(id);
        assert_non_null(state);
        assert_non_null(strstr(at, "\"lease\":4"));
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%ld:%.*s ", strtol(id + 5, NULL, 10),
                              (int)strcspn(state + 9, "\""), state + 9);
    }
    return out;
}

static void wait_for_refused(struct rig *rig, int64_t job)
{
    int64_t id = 0;
    int lease = 0;
    struct pollfd p = {.fd = status_fd(rig->status), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_true(status_refused(rig->status, &id, &lease));
    assert_int_equal(id, job);
    assert_int_equal(lease, 4);
}

static void updates_go_together_and_one_a_job_in_a_call(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, PATCH, 200, "[]");
    put(rig, 1, AB_JOB_RUNNING);
    put(rig, 2, AB_JOB_RUNNING);
    put(rig, 1, AB_JOB_RUN_DONE);
    put(rig, 3, AB_JOB_RUNNING);
    assert_string_equal(said(script_wait(rig->centre, PATCH, 0)), "1:RUNNING 2:RUNNING 3:RUNNING ");
    assert_string_equal(said(script_wait(rig->centre, PATCH, 1)), "1:RUN_DONE ");
    assert_int_equal(status_end(&rig->status, 5000), 0);
    assert_int_equal(script_count(rig->centre, PATCH), 2);
}

static void drain(struct rig *rig)
{
    struct pollfd p = {.fd = status_fd(rig->status), .events = POLLIN};
    uint64_t n;
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(p.fd, &n, sizeof(n)), sizeof(n));
}

static void a_claim_is_told_when_the_centre_has_it_and_not_before(void **state)
{
    struct rig *rig = *state;
    int64_t job = 0;
    int lease = 0;
    script_say(rig->centre, PATCH, 503, "{\"detail\":\"no\"}");
    script_say(rig->centre, PATCH, 503, "{\"detail\":\"no\"}");
    script_say(rig->centre, PATCH, 409,
               "{\"detail\":\"lost\",\"items\":[{\"index\":1,\"id\":2,\"reason\":\"lease 5\"}]}");
    script_always(rig->centre, PATCH, 200, "[]");
    claim(rig, 1);
    claim(rig, 2);
    put(rig, 3, AB_JOB_RUN_DONE);
    status_hurry(rig->status);
    assert_string_equal(said(script_wait(rig->centre, PATCH, 1)),
                        "1:RUNNING 2:RUNNING 3:RUN_DONE ");
    assert_false(status_accepted(rig->status, &job, &lease));
    assert_string_equal(said(script_wait(rig->centre, PATCH, 3)), "1:RUNNING 3:RUN_DONE ");
    while (!status_accepted(rig->status, &job, &lease))
        drain(rig);
    assert_int_equal(job, 1);
    assert_int_equal(lease, 4);
    assert_true(status_refused(rig->status, &job, &lease));
    assert_int_equal(job, 2);
    assert_false(status_accepted(rig->status, &job, &lease));
}

static void a_claim_waits_for_no_other_update(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, PATCH, 200, "[]");
    for (int64_t job = 1; job <= 8; job++) { /* each would begin the quiet time anew */
        put(rig, 100 + job, AB_JOB_RUNNING);
        int64_t begin = ab_now_ms();
        claim(rig, job);
        status_hurry(rig->status);
        int64_t at = script_wait(rig->centre, PATCH, (size_t)job - 1)->at_ms;
        if (at - begin < 45) /* a busy machine may be slow once, not each time */
            return;
    }
    fail_msg("claims wait as long as reports");
}

static void what_was_not_answered_is_sent_again_as_it_was_and_in_order(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 5; i++)
        script_say(rig->centre, PATCH, i % 2 ? 503 : SCRIPT_LOSE, "{\"detail\":\"no\"}");
    script_always(rig->centre, PATCH, 200, "[]");
    put(rig, 1, AB_JOB_RUNNING);
    (void)script_wait(rig->centre, PATCH, 0);
    put(rig, 1, AB_JOB_RUN_DONE);
    put(rig, 2, AB_JOB_RUNNING);
    for (size_t i = 1; i < 6; i++) {
        assert_string_equal(said(script_wait(rig->centre, PATCH, i)), "1:RUNNING ");
        assert_string_equal(script_wait(rig->centre, PATCH, i)->key,
                            script_wait(rig->centre, PATCH, 0)->key);
    }
    assert_string_equal(said(script_wait(rig->centre, PATCH, 6)), "1:RUN_DONE 2:RUNNING ");
    assert_string_not_equal(script_wait(rig->centre, PATCH, 6)->key,
                            script_wait(rig->centre, PATCH, 0)->key);
}

static void a_job_that_is_not_ours_any_more_is_left_out_and_told_to_the_loop(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, PATCH, 409,
               "{\"detail\":\"lost\",\"items\":[{\"index\":1,\"id\":2,\"reason\":\"lease 5\"}]}");
    script_always(rig->centre, PATCH, 200, "[]");
    put(rig, 1, AB_JOB_RUNNING);
    put(rig, 2, AB_JOB_RUNNING);
    put(rig, 3, AB_JOB_RUNNING);
    wait_for_refused(rig, 2);
    assert_string_equal(said(script_wait(rig->centre, PATCH, 1)), "1:RUNNING 3:RUNNING ");
    assert_string_not_equal(script_wait(rig->centre, PATCH, 1)->key,
                            script_wait(rig->centre, PATCH, 0)->key);
}

static void when_the_centre_does_not_say_what_is_wrong_updates_go_one_by_one(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, PATCH, 422, "{\"detail\":[]}");
    script_say(rig->centre, PATCH, 200, "[]");
    script_say(rig->centre, PATCH, 422, "{\"detail\":[]}");
    script_say(rig->centre, PATCH, 200, "[]");
    put(rig, 1, AB_JOB_RUNNING);
    put(rig, 2, AB_JOB_RUNNING);
    put(rig, 3, AB_JOB_RUNNING);
    wait_for_refused(rig, 2);
    assert_string_equal(said(script_wait(rig->centre, PATCH, 1)), "1:RUNNING ");
    assert_string_equal(said(script_wait(rig->centre, PATCH, 2)), "2:RUNNING ");
    assert_string_equal(said(script_wait(rig->centre, PATCH, 3)), "3:RUNNING ");
    assert_int_equal(status_end(&rig->status, 5000), 0);
}

static void the_end_sends_what_is_left_at_once(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, PATCH, 200, "[]");
    put(rig, 1, AB_JOB_RUN_TIMEOUT);
    assert_int_equal(status_end(&rig->status, 5000), 0);
    assert_string_equal(said(script_wait(rig->centre, PATCH, 0)), "1:RUN_TIMEOUT ");
}

static void the_end_says_what_it_could_not_deliver_in_time(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, PATCH, SCRIPT_STALL, "");
    put(rig, 1, AB_JOB_RUNNING);
    put(rig, 2, AB_JOB_RUNNING);
    (void)script_wait(rig->centre, PATCH, 0);
    put(rig, 1, AB_JOB_RUN_DONE);
    int64_t begun = ab_now_ms();
    assert_int_equal(status_end(&rig->status, 300), 3);
    assert_in_range(ab_now_ms() - begun, 300, 2500);
}

static void the_end_does_not_wait_out_a_pause_between_tries(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, PATCH, 503, "{\"detail\":\"no\"}");
    put(rig, 1, AB_JOB_RUNNING);
    (void)script_wait(rig->centre, PATCH, 5);
    int64_t begun = ab_now_ms();
    assert_int_equal(status_end(&rig->status, 200), 1);
    assert_in_range(ab_now_ms() - begun, 100, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        T(updates_go_together_and_one_a_job_in_a_call),
        T(a_claim_is_told_when_the_centre_has_it_and_not_before),
        T(a_claim_waits_for_no_other_update),
        T(what_was_not_answered_is_sent_again_as_it_was_and_in_order),
        T(a_job_that_is_not_ours_any_more_is_left_out_and_told_to_the_loop),
        T(when_the_centre_does_not_say_what_is_wrong_updates_go_one_by_one),
        T(the_end_sends_what_is_left_at_once),
        T(the_end_says_what_it_could_not_deliver_in_time),
        T(the_end_does_not_wait_out_a_pause_between_tries),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
