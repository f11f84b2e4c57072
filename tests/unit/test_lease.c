/* test_lease.c - the launcher's session against a centre of a few lines */
#include "launcher/lease.h"

#include "base/clock.h"
#include "script.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OPEN "POST /sessions/"
#define ACQUIRE "POST /sessions/7"
#define BEAT "POST /sessions/7/heartbeat"
#define JOB(id)                                                                                    \
    "{\"id\":" id ",\"app_id\":1,\"workdir\":\"w\",\"state\":\"PREPROCESSED\",\"lease\":3,"        \
    "\"num_nodes\":1}"

static const struct lease_want want = {
    .max_jobs = 8, .max_nodes = 1, .max_aggregate_nodes = -1, .max_minutes = 10};

struct rig {
    script_t *centre;
    struct ab_client_file file;
    lease_t *lease;
};

static int set_up(void **state)
{
    static struct rig rig;
    rig = (struct rig){.centre = script_new()};
    rig.file = script_client(rig.centre);
    script_always(rig.centre, BEAT, 200, "{\"expires_in_sec\":0.9,\"cancel\":[],\"lost\":[]}");
    script_always(rig.centre, "DELETE /sessions/7", 204, "");
    *state = &rig;
    return 0;
}

static void open_lease(struct rig *rig)
{
    struct ab_error err = {0};
    struct lease_options options = {.file = &rig->file,
                                    .site_id = 5,
                                    .batch_job_id = 6,
                                    .filter_tags = "{\"a\":\"b\"}",
                                    .serial_only = true,
                                    .heartbeat_ms = 60000};
    rig->lease = lease_new(&options, &err);
    if (!rig->lease)
        fail_msg("%s", err.text);
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    lease_end(&rig->lease, 2000);
    script_destroy(&rig->centre);
    return 0;
}

static void open_as_7(struct rig *rig)
{
    script_say(rig->centre, OPEN, 201, "{\"id\":7}");
    open_lease(rig);
}

static void wait_for_bell(struct rig *rig)
{
    uint64_t n;
    struct pollfd p = {.fd = lease_fd(rig->lease), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(read(lease_fd(rig->lease), &n, sizeof(n)), sizeof(n));
}

static struct lease_batch *wait_for_batch(struct rig *rig)
{
    struct lease_batch *batch;
    while (!(batch = lease_take(rig->lease)))
        wait_for_bell(rig);
    return batch;
}

static void let_go(struct lease_batch *batch)
{
    for (size_t n = batch->jobs.n + 1; n > 0; n--)
        lease_batch_drop(batch);
}

static struct lease_news wait_for_news(struct rig *rig)
{
    struct lease_news news;
    while (!lease_news(rig->lease, &news))
        wait_for_bell(rig);
    return news;
}

static void jobs_of_an_acquire_are_held_and_named_in_heartbeats(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, ACQUIRE, 200, "[" JOB("11") "," JOB("12") "]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    struct lease_batch *batch = wait_for_batch(rig);
    assert_int_equal(batch->jobs.n, 2);
    assert_int_equal(batch->session, 7);
    assert_int_equal(((const struct job *)batch->jobs.v)[1].id, 12);
    assert_int_equal(((const struct job *)batch->jobs.v)[1].lease, 3);
    size_t beats = script_count(rig->centre, BEAT);
    assert_string_equal(script_wait(rig->centre, BEAT, beats + 1)->body, "{\"jobs\":[11,12]}");
    lease_drop(rig->lease, 11, 3);
    beats = script_count(rig->centre, BEAT);
    assert_string_equal(script_wait(rig->centre, BEAT, beats + 1)->body, "{\"jobs\":[12]}");
    let_go(batch);
}

static void the_session_and_the_acquire_say_who_asks_for_what(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, ACQUIRE, 200, "[]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    assert_string_equal(script_wait(rig->centre, OPEN, 0)->body,
                        "{\"site_id\":5,\"batch_job_id\":6}");
    assert_string_equal(script_wait(rig->centre, ACQUIRE, 0)->body,
                        "{\"max_num_jobs\":8,\"max_nodes_per_job\":1,\"max_wall_time_min\":10,"
                        "\"serial_only\":true,\"filter_tags\":{\"a\":\"b\"}}");
    wait_for_bell(rig);
    assert_false(lease_asking(rig->lease));
    assert_null(lease_take(rig->lease));
}

static void an_acquire_whose_answer_is_lost_is_made_again_as_it_was(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 4; i++)
        script_say(rig->centre, ACQUIRE, i % 2 ? 503 : SCRIPT_LOSE, "{\"detail\":\"no\"}");
    script_say(rig->centre, ACQUIRE, 200, "[" JOB("11") "]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    struct lease_batch *batch = wait_for_batch(rig);
    assert_int_equal(batch->jobs.n, 1);
    assert_false(lease_asking(rig->lease) && script_count(rig->centre, ACQUIRE) < 5);
    for (size_t i = 1; i < 5; i++) {
        assert_string_equal(script_wait(rig->centre, ACQUIRE, i)->key,
                            script_wait(rig->centre, ACQUIRE, 0)->key);
        assert_string_equal(script_wait(rig->centre, ACQUIRE, i)->body,
                            script_wait(rig->centre, ACQUIRE, 0)->body);
    }
    script_always(rig->centre, ACQUIRE, 200, "[]");
    lease_ask(rig->lease, &want);
    assert_string_not_equal(script_wait(rig->centre, ACQUIRE, 5)->key,
                            script_wait(rig->centre, ACQUIRE, 0)->key);
    let_go(batch);
}

static void a_session_that_was_swept_is_replaced_and_its_jobs_are_lost(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, ACQUIRE, 200, "[" JOB("11") "," JOB("12") "]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    struct lease_batch *batch = wait_for_batch(rig);
    script_say(rig->centre, OPEN, 201, "{\"id\":8}");
    script_always(rig->centre, "POST /sessions/8/heartbeat", 200, "{\"expires_in_sec\":0.9}");
    script_always(rig->centre, "DELETE /sessions/8", 204, "");
    script_say(rig->centre, BEAT, 404, "{\"error\":\"Not found\"}");
    struct lease_news one = wait_for_news(rig), two = wait_for_news(rig);
    assert_true(one.lost && two.lost);
    assert_int_equal(one.lease + two.lease, 6);
    assert_int_equal(one.job + two.job, 23);
    assert_string_equal(script_wait(rig->centre, "POST /sessions/8/heartbeat", 0)->body,
                        "{\"jobs\":[]}");
    let_go(batch);
}

static void jobs_of_a_swept_session_that_nobody_has_taken_yet_are_never_given_out(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, ACQUIRE, 200, "[" JOB("11") "]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    wait_for_bell(rig);
    assert_false(lease_asking(rig->lease));
    script_say(rig->centre, BEAT, 404, "{}");
    script_say(rig->centre, OPEN, 201, "{\"id\":8}");
    script_always(rig->centre, "POST /sessions/8/heartbeat", 200, "{\"expires_in_sec\":0.9}");
    script_always(rig->centre, "DELETE /sessions/8", 204, "");
    (void)script_wait(rig->centre, "POST /sessions/8/heartbeat", 0);
    assert_null(lease_take(rig->lease));
}

static void a_heartbeat_tells_what_is_cancelled_and_what_is_lost(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, ACQUIRE, 200, "[" JOB("11") "," JOB("12") "]");
    open_as_7(rig);
    lease_ask(rig->lease, &want);
    struct lease_batch *batch = wait_for_batch(rig);
    script_say(
        rig->centre, BEAT, 200,
        "{\"expires_in_sec\":0.9,\"cancel\":[11,99],\"lost\":[12,98]}"); /* not ours: no news */
    struct lease_news one = wait_for_news(rig), two = wait_for_news(rig), none;
    if (!one.lost) { /* told in either order */
        none = one;
        one = two;
        two = none;
    }
    assert_true(one.lost && !two.lost);
    assert_int_equal(one.job, 12);
    assert_int_equal(one.lease, 3);
    assert_int_equal(two.job, 11);
    assert_int_equal(two.lease, 3);
    assert_false(lease_news(rig->lease, &none));
    size_t beats = script_count(rig->centre, BEAT); /* what is lost is not asked about again */
    assert_string_equal(script_wait(rig->centre, BEAT, beats + 1)->body, "{\"jobs\":[11]}");
    let_go(batch);
}

static void heartbeats_come_three_times_in_the_life_of_a_lease(void **state)
{
    struct rig *rig = *state;
    open_as_7(rig);
    int64_t took =
        script_wait(rig->centre, BEAT, 4)->at_ms - script_wait(rig->centre, BEAT, 0)->at_ms;
    assert_in_range(took, 1000, 3000); /* four pauses of 300 ms */
}

/* Asks until n answers were empty. */
static void ask_in_vain(struct rig *rig, size_t n)
{
    while (script_count(rig->centre, ACQUIRE) < n) {
        lease_ask(rig->lease, &want);
        while (lease_asking(rig->lease))
            wait_for_bell(rig);
    }
}

static int64_t between(struct rig *rig, size_t a, size_t b)
{
    return script_wait(rig->centre, ACQUIRE, b)->at_ms
           - script_wait(rig->centre, ACQUIRE, a)->at_ms;
}

static void an_empty_queue_is_looked_at_less_and_less_until_a_job_ends(void **state)
{
    struct rig *rig = *state;
    script_always(rig->centre, ACQUIRE, 200, "[]");
    open_as_7(rig);
    ask_in_vain(rig, 5);
    assert_in_range(between(rig, 0, 3), 1400, 2400); /* 200, 400, 800 */
    assert_in_range(between(rig, 3, 4), 1000, 1600);
    lease_ask(rig->lease, &want);
    lease_drop(rig->lease, 11, 3);
    assert_in_range(between(rig, 4, 5), 200, 700);
}

static void a_session_is_asked_for_until_the_centre_is_back(void **state)
{
    struct rig *rig = *state;
    struct ab_error err;
    for (int i = 0; i < 4; i++)
        script_say(rig->centre, OPEN, 503, "{\"detail\":\"starting\"}");
    open_as_7(rig);
    (void)script_wait(rig->centre, BEAT, 0);
    assert_false(lease_refused(rig->lease, &err));
}

static void a_session_that_is_refused_for_good_is_said_so(void **state)
{
    struct rig *rig = *state;
    struct ab_error err;
    script_always(rig->centre, OPEN, 404, "{\"error\":\"Not found\",\"message\":\"no such site\"}");
    open_lease(rig);
    wait_for_bell(rig);
    assert_true(lease_refused(rig->lease, &err));
    assert_non_null(strstr(err.text, "no such site"));
}

static void the_end_deletes_the_session(void **state)
{
    struct rig *rig = *state;
    open_as_7(rig);
    (void)script_wait(rig->centre, BEAT, 0);
    lease_end(&rig->lease, 2000);
    assert_int_equal(script_count(rig->centre, "DELETE /sessions/7"), 1);
}

static void the_end_does_not_wait_for_a_centre_that_hangs(void **state)
{
    struct rig *rig = *state;
    script_say(rig->centre, OPEN, SCRIPT_STALL, "");
    open_lease(rig);
    (void)script_wait(rig->centre, OPEN, 0);
    int64_t begun = ab_now_ms();
    lease_end(&rig->lease, 500);
    assert_in_range(ab_now_ms() - begun, 0, 2500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        T(jobs_of_an_acquire_are_held_and_named_in_heartbeats),
        T(the_session_and_the_acquire_say_who_asks_for_what),
        T(an_acquire_whose_answer_is_lost_is_made_again_as_it_was),
        T(a_session_that_was_swept_is_replaced_and_its_jobs_are_lost),
        T(jobs_of_a_swept_session_that_nobody_has_taken_yet_are_never_given_out),
        T(a_heartbeat_tells_what_is_cancelled_and_what_is_lost),
        T(heartbeats_come_three_times_in_the_life_of_a_lease),
        T(an_empty_queue_is_looked_at_less_and_less_until_a_job_ends),
        T(a_session_is_asked_for_until_the_centre_is_back),
        T(a_session_that_is_refused_for_good_is_said_so),
        T(the_end_deletes_the_session),
        T(the_end_does_not_wait_for_a_centre_that_hangs),
    };
    return cmocka_run_group_tests_name("lease", tests, NULL, NULL);
}
