/* test_dispatch.c - who gets the next request, and what becomes of it when a replica is gone */
#include "dispatch_rig.h"

/* ------------------------------------------------------------------ dispatch and queue */

static void a_reply_reaches_the_one_who_asked(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0}, b = {0};
    ready(rig, 1, 4);
    uint64_t first = ask(rig, &a), second = ask(rig, &b);
    assert_int_not_equal(first, 0);
    assert_int_not_equal(first, second);
    assert_int_equal(last(rig, AB_CMD_REQUEST)->remaining_ms, 30000);
    reply(rig, 1, second, 200, "two");
    reply(rig, 1, first, 201, "one");
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.status, 201);
    assert_string_equal(a.body, "one");
    assert_string_equal(b.body, "two");
    assert_int_equal(stats(rig).outstanding, 0);
}

static void the_least_loaded_replica_gets_the_next_one(void **state)
{
    struct rig *rig = *state;
    struct answer a[6] = {0};
    ready(rig, 1, 8);
    ready(rig, 2, 8);
    uint64_t n[6];
    for (int i = 0; i < 4; i++)
        n[i] = ask(rig, &a[i]);
    assert_int_equal(requests_to(rig, 1), 2);
    assert_int_equal(requests_to(rig, 2), 2);
    for (int i = 0; i < 4; i++) {
        if (rig->log[i].peer == 2)
            reply(rig, 2, n[i], 200, "");
    }
    ask(rig, &a[4]);
    ask(rig, &a[5]);
    assert_int_equal(requests_to(rig, 2), 4);
}

static void past_capacity_requests_wait_and_past_the_queue_503_comes_at_once(void **state)
{
    struct rig *rig = *state;
    struct answer a[6] = {0};
    uint64_t n[6];
    ready(rig, 1, 2);
    for (int i = 0; i < 6; i++)
        n[i] = ask(rig, &a[i]);
    assert_int_equal(requests_to(rig, 1), 2);
    assert_int_equal(stats(rig).queued, 3);
    assert_int_equal(a[5].calls, 1);
    assert_int_equal(a[5].status, 503);
    assert_int_equal(stats(rig).refused, 1);
    reply(rig, 1, n[0], 200, "");
    assert_int_equal(requests_to(rig, 1), 3);
    assert_int_equal(last(rig, AB_CMD_REQUEST)->number, n[2]); /* first come, first served */
}

static void a_replica_whose_pipe_is_full_is_passed_over(void **state)
{
    struct rig *rig = *state;
    struct answer a[2] = {0};
    ready(rig, 1, 8);
    ready(rig, 2, 8);
    rig->full = 1;
    ask(rig, &a[0]);
    ask(rig, &a[1]);
    assert_int_equal(requests_to(rig, 2), 2);
    rig->full = 0;
    assert_int_equal(stats(rig).replicas, 2);
}

static void a_lone_full_replica_is_tried_again_after_a_beat(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 8);
    rig->full = 1;
    ask(rig, &a);
    assert_int_equal(stats(rig).queued, 1);
    rig->full = 0;
    pass(rig, 2 * BEAT);
    assert_int_equal(requests_to(rig, 1), 1);
    assert_int_equal(a.calls, 0);
}

/* ------------------------------------------------------------------ nobody there */

static void requests_wait_for_the_first_replica_and_are_refused_after_the_grace(void **state)
{
    struct rig *rig = *state;
    struct answer early = {0}, late = {0}, now = {0};
    ask(rig, &early);
    assert_int_equal(early.calls, 0);
    pass(rig, 100);
    ready(rig, 1, 4);
    assert_int_equal(requests_to(rig, 1), 1);
    reply(rig, 1, last(rig, AB_CMD_REQUEST)->number, 200, "");
    assert_int_equal(early.status, 200);

    rig->gone = 1;
    pass(rig, BEAT);
    assert_int_equal(stats(rig).replicas, 0);
    ask(rig, &late);
    pass(rig, DEAD - BEAT);
    assert_int_equal(late.calls, 0);
    pass(rig, 2 * BEAT);
    assert_int_equal(late.status, 503);
    ask(rig, &now);
    assert_int_equal(now.status, 503);
    assert_non_null(strstr(now.text, "jobs"));
}

static void a_service_that_nobody_offers_is_refused_at_once_after_the_start(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    pass(rig, DEAD);
    ask(rig, &a);
    assert_int_equal(a.status, 503);
}

/* ------------------------------------------------------------------ deaths */

static void a_killed_replica_is_noticed_within_a_beat_and_its_requests_go_on(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    pass(rig, BEAT);
    uint64_t number = ask(rig, &a);
    struct sent first = *last(rig, AB_CMD_REQUEST);
    ready(rig, 2, 4);
    rig->gone = 1;
    pass(rig, BEAT);
    struct sent *again = last(rig, AB_CMD_REQUEST);
    assert_int_equal(again->peer, 2);
    assert_int_equal(again->number, number);
    assert_memory_equal(again->uuid, first.uuid, 16);
    assert_int_equal(first.try, 0);
    assert_int_equal(again->try, 1);
    assert_true(again->remaining_ms < first.remaining_ms);
    assert_int_equal(stats(rig).resent, 1);
    reply(rig, 2, number, 200, "ok");
    assert_int_equal(a.calls, 1);
}

static void a_send_to_a_killed_replica_goes_to_another(void **state)
{
    struct rig *rig = *state;
    struct answer a[4] = {0};
    ready(rig, 1, 4);
    ready(rig, 2, 4);
    rig->gone = 1;
    for (int i = 0; i < 4; i++)
        ask(rig, &a[i]);
    assert_int_equal(requests_to(rig, 2), 4);
    assert_int_equal(stats(rig).replicas, 1);
}

static void a_silent_replica_loses_its_requests_and_comes_back_with_its_ready(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    uint64_t number = ask(rig, &a);
    for (int i = 0; i < 8; i++) {
        ready(rig, 2, 4);
        pass(rig, BEAT);
    }
    assert_int_equal(requests_to(rig, 2), 1);
    assert_int_equal(stats(rig).replicas, 1);
    reply(rig, 2, number, 200, "from two");
    reply(rig, 1, number, 200, "late"); /* it thawed */
    assert_int_equal(a.calls, 1);
    assert_string_equal(a.body, "from two");
    assert_int_equal(stats(rig).late, 1);
    ready(rig, 1, 4);
    assert_int_equal(stats(rig).replicas, 2);
}

static void the_first_reply_wins_even_from_the_one_thought_dead(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    uint64_t number = ask(rig, &a);
    for (int i = 0; i < 8; i++) {
        ready(rig, 2, 4);
        pass(rig, BEAT);
    }
    reply(rig, 1, number, 200, "from one");
    assert_string_equal(a.body, "from one");
    reply(rig, 2, number, 200, "from two");
    assert_int_equal(a.calls, 1);
    assert_int_equal(stats(rig).late, 1);
    assert_int_equal(stats(rig).outstanding, 0);
}

static void replies_keep_a_replica_alive(void **state)
{
    struct rig *rig = *state;
    struct answer a[10] = {0};
    ready(rig, 1, 4);
    for (int i = 0; i < 10; i++) {
        uint64_t number = ask(rig, &a[i]);
        pass(rig, 2 * BEAT);
        reply(rig, 1, number, 200, "");
    }
    assert_int_equal(stats(rig).replicas, 1);
}

static void a_request_that_kills_three_replicas_is_answered_503(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    for (uint64_t peer = 1; peer <= 4; peer++)
        ready(rig, peer, 4);
    ask(rig, &a);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a.calls, 0);
        rig->gone = last(rig, AB_CMD_REQUEST)->peer;
        pass(rig, BEAT);
    }
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.status, 503);
    assert_int_equal(stats(rig).resent, 2);
    assert_int_equal(stats(rig).replicas, 1);
}

static void requests_taken_back_stand_before_those_that_wait(void **state)
{
    struct rig *rig = *state;
    struct answer a[4] = {0};
    uint64_t n[4];
    ready(rig, 1, 2);
    for (int i = 0; i < 4; i++)
        n[i] = ask(rig, &a[i]);
    rig->gone = 1;
    pass(rig, BEAT);
    rig->gone = 0;
    size_t before = rig->n;
    ready(rig, 2, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig->log[before + (size_t)i].number, n[i]);
}

static void a_leaving_replica_gets_no_work_and_may_finish_what_it_has(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0}, b[3] = {0};
    ready(rig, 1, 4);
    uint64_t number = ask(rig, &a);
    ready(rig, 2, 4);
    leave(rig, 1);
    for (int i = 0; i < 3; i++) /* the last ones would be its turn */
        ask(rig, &b[i]);
    assert_int_equal(requests_to(rig, 1), 1);
    assert_int_equal(requests_to(rig, 2), 3);
    reply(rig, 1, number, 200, "done");
    assert_int_equal(a.status, 200);
    rig->gone = 1;
    pass(rig, BEAT);
    assert_int_equal(stats(rig).resent, 0);
}

static void a_reconnected_replica_has_its_requests_sent_again(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    uint64_t number = ask(rig, &a);
    say_as(rig, 9, NULL, AB_CMD_READY, AB_BUS_VERSION, "jobs", "jobs-1", 4, 0);
    assert_int_equal(stats(rig).replicas, 1);
    assert_int_equal(last(rig, AB_CMD_REQUEST)->peer, 9);
    reply(rig, 9, number, 200, "");
    assert_int_equal(a.status, 200);
}

static void a_gateway_that_was_stopped_itself_blames_nobody(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    pass(rig, BEAT);
    ask(rig, &a);
    rig->now += 5 * DEAD; /* not a single tick */
    ab_dispatch_tick(rig->dispatch, rig->now);
    assert_int_equal(stats(rig).replicas, 1);
    assert_int_equal(stats(rig).resent, 0);
    pass(rig, DEAD + BEAT);
    assert_int_equal(stats(rig).replicas, 0);
}

/* ------------------------------------------------------------------ time limits */

static void a_lost_reply_is_504_at_the_deadline(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    struct ab_bus_request r = request(rig, &a);
    r.deadline_ms = rig->now + 700;
    ready(rig, 1, 4);
    ab_dispatch_submit(rig->dispatch, &r, rig->now);
    pass(rig, 699);
    assert_int_equal(a.calls, 0);
    pass(rig, 1);
    assert_int_equal(a.status, 504);
    assert_string_equal(a.kind, "timeout");
    assert_int_equal(stats(rig).timed_out, 1);
}

static void deadlines_end_requests_in_their_order(void **state)
{
    struct rig *rig = *state;
    struct answer a[40] = {0};
    ready(rig, 1, 100);
    for (int i = 0; i < 40; i++) {
        struct ab_bus_request r = request(rig, &a[i]);
        r.deadline_ms = rig->now + 10 + (i * 17) % 40; /* a permutation of 10..49 */
        ab_dispatch_submit(rig->dispatch, &r, rig->now);
    }
    for (int ms = 1; ms <= 60; ms++) {
        rig->now++;
        ab_dispatch_tick(rig->dispatch, rig->now);
        for (int i = 0; i < 40; i++)
            assert_int_equal(a[i].calls, ms >= 10 + (i * 17) % 40);
    }
}

static void a_deadline_that_is_over_is_504_without_a_send(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    struct ab_bus_request r = request(rig, &a);
    r.deadline_ms = rig->now;
    ready(rig, 1, 4);
    ab_dispatch_submit(rig->dispatch, &r, rig->now);
    assert_int_equal(a.status, 504);
    assert_int_equal(requests_to(rig, 1), 0);
}

static void a_replica_with_stuck_workers_is_not_fed_again(void **state)
{
    struct rig *rig = *state;
    struct answer a[4] = {0};
    uint64_t n[4];
    ready(rig, 1, 2);
    for (int i = 0; i < 2; i++) {
        struct ab_bus_request r = request(rig, &a[i]);
        r.deadline_ms = rig->now + 500;
        n[i] = ab_dispatch_submit(rig->dispatch, &r, rig->now);
    }
    pass(rig, 600);
    ready(rig, 1, 2);
    assert_int_equal(a[1].status, 504);
    ask(rig, &a[2]);
    assert_int_equal(requests_to(rig, 1), 2); /* both workers still have theirs */
    reply(rig, 1, n[0], 200, "late");
    assert_int_equal(requests_to(rig, 1), 3);
    ask(rig, &a[3]);
    assert_int_equal(requests_to(rig, 1), 3);
    say_as(rig, 1, NULL, AB_CMD_READY, AB_BUS_VERSION, "jobs", "jobs-1", 2, 0); /* idle after all */
    assert_int_equal(requests_to(rig, 1), 4);
}

/* ------------------------------------------------------------------ cancel, re-entry */

static void a_cancelled_request_is_never_answered(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0}, b = {0};
    ready(rig, 1, 1);
    uint64_t sent = ask(rig, &a), queued = ask(rig, &b);
    ab_dispatch_cancel(rig->dispatch, sent, rig->now);
    ab_dispatch_cancel(rig->dispatch, queued, rig->now);
    ab_dispatch_cancel(rig->dispatch, queued, rig->now);
    reply(rig, 1, sent, 200, "");
    pass(rig, 31000);
    assert_int_equal(a.calls + b.calls, 0);
    assert_int_equal(stats(rig).late, 1);
}

static void a_done_may_cancel_and_submit(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0}, b = {0}, c = {0};
    ready(rig, 1, 1);
    ask(rig, &a);
    uint64_t second = ask(rig, &b);
    struct ab_bus_request next = request(rig, &c);
    a.cancels = second;
    a.next = &next;
    rig->gone = 1;
    pass(rig, BEAT + DEAD + BEAT); /* all fail together, in one loop */
    assert_int_equal(a.status, 503);
    assert_int_equal(b.calls, 0);
    assert_int_equal(c.status, 503);
}

static void a_number_is_not_used_twice(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0}, b = {0};
    ready(rig, 1, 4);
    uint64_t first = ask(rig, &a);
    reply(rig, 1, first, 200, "");
    uint64_t second = ask(rig, &b);
    assert_int_not_equal(first, second);
    reply(rig, 1, first, 200, "again");
    assert_int_equal(b.calls, 0);
    assert_int_equal(a.calls, 1);
}

static void two_gateways_begin_with_different_numbers(void **state)
{
    struct rig *rig = *state;
    struct rig other = {.now = rig->now};
    struct ab_dispatch_options options = {
        .beat_ms = BEAT, .dead_ms = DEAD, .send = wire_send, .arg = &other};
    struct answer a = {0}, b = {0};
    other.dispatch = ab_dispatch_new(&options, other.now);
    assert_int_not_equal(ask(rig, &a), ask(&other, &b));
    ab_dispatch_destroy(&other.dispatch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reply_reaches_the_one_who_asked),
        TEST(the_least_loaded_replica_gets_the_next_one),
        TEST(past_capacity_requests_wait_and_past_the_queue_503_comes_at_once),
        TEST(a_replica_whose_pipe_is_full_is_passed_over),
        TEST(a_lone_full_replica_is_tried_again_after_a_beat),
        TEST(requests_wait_for_the_first_replica_and_are_refused_after_the_grace),
        TEST(a_service_that_nobody_offers_is_refused_at_once_after_the_start),
        TEST(a_killed_replica_is_noticed_within_a_beat_and_its_requests_go_on),
        TEST(a_send_to_a_killed_replica_goes_to_another),
        TEST(a_silent_replica_loses_its_requests_and_comes_back_with_its_ready),
        TEST(the_first_reply_wins_even_from_the_one_thought_dead),
        TEST(replies_keep_a_replica_alive),
        TEST(a_request_that_kills_three_replicas_is_answered_503),
        TEST(requests_taken_back_stand_before_those_that_wait),
        TEST(a_leaving_replica_gets_no_work_and_may_finish_what_it_has),
        TEST(a_reconnected_replica_has_its_requests_sent_again),
        TEST(a_gateway_that_was_stopped_itself_blames_nobody),
        TEST(a_lost_reply_is_504_at_the_deadline),
        TEST(deadlines_end_requests_in_their_order),
        TEST(a_deadline_that_is_over_is_504_without_a_send),
        TEST(a_replica_with_stuck_workers_is_not_fed_again),
        TEST(a_cancelled_request_is_never_answered),
        TEST(a_done_may_cancel_and_submit),
        TEST(a_number_is_not_used_twice),
        TEST(two_gateways_begin_with_different_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
