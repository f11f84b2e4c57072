/* test_bus.c - gateway and replicas over real sockets, with CURVE */
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "bus_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BEAT 100
#define DEAD 600
#define SOON 5000 /* for what should take milliseconds */

static const char *only(ab_bus_t *bus, const char *gateways[2])
{
    gateways[0] = ab_bus_endpoint(bus);
    gateways[1] = NULL;
    return gateways[0];
}

static void a_request_reaches_a_handler_with_all_that_belongs_to_it(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica r;
    struct rig_call head = {0}, echo = {0};
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 2, BEAT, DEAD);

    rig_ask(bus, &head, "jobs", "head", "", 0, 30000); /* waits for the first READY */
    assert_true(rig_turn(bus, &head.done, SOON));
    assert_int_equal(head.status, 200);
    assert_string_equal(head.body,
                        "user=42 username=tenant scopes=5 site=9 key=a key trace=trace-1 "
                        "peer=192.0.2.7 try=0 left=30");
    rig_ask(bus, &echo, "jobs", "echo", "\x81\xa1q\xc0", 4, 30000);
    assert_true(rig_turn(bus, &echo.done, SOON));
    assert_int_equal(echo.len, 4);
    assert_memory_equal(echo.body, "\x81\xa1q\xc0", 4);

    struct ab_replica_stats s;
    ab_replica_stats(r.replica, &s);
    assert_int_equal(s.taken, 2);
    assert_int_equal(s.replied, 2);
    assert_int_equal(s.gateways, 1);
    rig_call_free(&head);
    rig_call_free(&echo);
    rig_replica_stop(&r);
    assert_int_equal(r.rc, 0);
    ab_bus_destroy(&bus);
}

static void errors_keep_their_items(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", NULL, BEAT, DEAD);
    struct rig_replica r;
    struct rig_call call = {0};
    struct ab_error err;
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, NULL, 1, BEAT, DEAD);
    rig_ask(bus, &call, "jobs", "boom", "", 0, 30000);
    assert_true(rig_turn(bus, &call.done, SOON));
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    assert_int_equal(ab_bus_error_unpack(call.body, call.len, call.status, arena, &err), 0);
    assert_int_equal(err.code, 409);
    assert_string_equal(err.kind, "conflict");
    assert_string_equal(err.text, "the lease is lost");
    assert_int_equal(err.n_items, 1);
    assert_int_equal(err.items[0].index, 3);
    assert_int_equal(err.items[0].id, 77);
    assert_string_equal(err.items[0].reason, "lost");
    rig_call_free(&call);
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static void large_bodies_travel_both_ways(void **state)
{
    (void)state; /* dead: SOON, as a READY waits behind a large reply */
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, SOON);
    struct rig_replica r;
    struct rig_call call[3] = {0};
    size_t n = 5 * 1024 * 1024;
    char *big = malloc(n);
    const char *gateways[2];
    for (size_t i = 0; i < n; i++)
        big[i] = (char)(i * 2654435761u >> 24);
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 2, BEAT, SOON);
    for (int i = 0; i < 3; i++)
        rig_ask(bus, &call[i], "jobs", "echo", big, n, 30000);
    for (int i = 0; i < 3; i++) {
        assert_true(rig_turn(bus, &call[i].done, 20000));
        assert_int_equal(call[i].status, 200);
        assert_int_equal(call[i].len, n);
        assert_memory_equal(call[i].body, big, n);
        rig_call_free(&call[i]);
    }
    free(big);
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static bool hinted(ab_bus_t *bus, void *arg)
{
    ab_replica_hint(arg, 'e', -5, "newest", 6); /* lossy: until the subscription has arrived */
    (void)bus;
    return rig_hint.calls > 0;
}

static void hints_reach_the_gateway(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica r;
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 1, BEAT, DEAD);
    memset(&rig_hint, 0, sizeof(rig_hint));
    assert_true(rig_turn_until(bus, hinted, r.replica, SOON));
    assert_int_equal(rig_hint.topic, 'e');
    assert_int_equal(rig_hint.owner, -5);
    assert_string_equal(rig_hint.body, "newest");
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static void a_replica_serves_two_gateways(void **state)
{
    (void)state;
    ab_bus_t *a = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    ab_bus_t *b = rig_bus("tcp://127.0.0.1:*", NULL, BEAT, DEAD);
    ab_bus_destroy(&b); /* the second is there only later */
    struct rig_replica r;
    struct rig_call one = {0}, two = {0};
    char second[64];
    int port = rig_free_port();
    snprintf(second, sizeof(second), "tcp://127.0.0.1:%d", port);
    const char *gateways[] = {ab_bus_endpoint(a), second, NULL};
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 1, BEAT, DEAD);
    rig_ask(a, &one, "jobs", "who", "", 0, 30000);
    assert_true(rig_turn(a, &one.done, SOON));
    ab_bus_destroy(&a);
    b = rig_bus(second, rig_curve_dir(), BEAT, DEAD);
    rig_ask(b, &two, "jobs", "who", "", 0, 30000);
    assert_true(rig_turn(b, &two.done, SOON));
    assert_string_equal(two.body, "jobs-1");
    rig_call_free(&one);
    rig_call_free(&two);
    rig_replica_stop(&r);
    ab_bus_destroy(&b);
}

static void a_gateway_is_found_by_its_name(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica r;
    char name[64];
    snprintf(name, sizeof(name), "tcp://localhost%s", strrchr(ab_bus_endpoint(bus), ':'));
    const char *gateways[] = {name, ab_bus_endpoint(bus), NULL}; /* the same one twice */
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 1, BEAT, DEAD);
    assert_true(rig_wait_live(bus, "jobs", 1, SOON));
    rig_turn(bus, NULL, 3 * BEAT);
    assert_int_equal(rig_live(bus, "jobs"), 1);
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static bool tested(ab_bus_t *bus, void *arg)
{
    struct ab_bus_figures f;
    ab_bus_tick(bus, ab_now_ms() + *(int64_t *)arg); /* a minute later */
    ab_bus_figures(bus, &f);
    return f.self_tests > 0;
}

static void the_door_is_tried_again_every_minute(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct ab_bus_figures f;
    int64_t minute = 61000;
    rig_turn(bus, NULL, 300);
    ab_bus_figures(bus, &f);
    assert_int_equal(f.self_tests, 0); /* not all the time */
    assert_true(rig_turn_until(bus, tested, &minute, SOON));
    ab_bus_destroy(&bus);
}

static void a_gateway_that_restarts_learns_its_replicas_again(void **state)
{
    (void)state;
    char listen[64];
    struct rig_replica r;
    snprintf(listen, sizeof(listen), "tcp://127.0.0.1:%d", rig_free_port());
    const char *gateways[] = {listen, NULL};
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 1, BEAT, DEAD);
    for (int i = 0; i < 3; i++) {
        struct rig_call call = {0};
        ab_bus_t *bus = rig_bus(listen, rig_curve_dir(), BEAT, DEAD);
        rig_ask(bus, &call, "jobs", "who", "", 0, 30000);
        assert_true(rig_turn(bus, &call.done, SOON));
        assert_int_equal(call.status, 200);
        rig_call_free(&call);
        ab_bus_destroy(&bus);
    }
    rig_replica_stop(&r);
}

static void a_replica_that_stops_answers_what_it_has(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica r;
    struct rig_call call[4] = {0};
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 2, BEAT, DEAD);
    assert_true(rig_wait_live(bus, "jobs", 1, SOON));
    for (int i = 0; i < 4; i++)
        rig_ask(bus, &call[i], "jobs", "sleep", "300", 3, 30000);
    rig_turn(bus, NULL, 100);
    ab_replica_stop(r.replica);
    assert_true(rig_wait_live(bus, "jobs", 0, SOON));
    for (int i = 0; i < 4; i++) {
        assert_true(rig_turn(bus, &call[i].done, SOON));
        assert_int_equal(call[i].status, 200);
        rig_call_free(&call[i]);
    }
    int64_t before = ab_now_ms();
    rig_replica_stop(&r);
    assert_in_range(ab_now_ms() - before, 0, 2000);
    struct ab_bus_service_stats s;
    assert_true(ab_bus_stats(bus, 0, &s));
    assert_int_equal(s.resent, 0);
    ab_bus_destroy(&bus);
}

static void a_replica_leaves_though_a_worker_is_stuck_past_its_deadline(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", NULL, BEAT, DEAD);
    struct rig_replica r;
    struct rig_call call = {0};
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, NULL, 1, BEAT, DEAD);
    assert_true(rig_wait_live(bus, "jobs", 1, SOON));
    rig_ask(bus, &call, "jobs", "sleep", "3000", 4, 500);
    assert_true(rig_turn(bus, &call.done, SOON));
    assert_int_equal(call.status, 504);
    int64_t before = ab_now_ms();
    ab_replica_stop(r.replica);
    pthread_join(r.io, NULL);
    assert_in_range(ab_now_ms() - before, 0, 2000);
    for (int i = 0; i < r.n_workers; i++)
        pthread_join(r.workers[i], NULL);
    ab_replica_destroy(&r.replica);
    rig_call_free(&call);
    ab_bus_destroy(&bus);
}

static void a_busy_replica_stays_alive(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica r;
    struct rig_call call[2] = {0};
    const char *gateways[2];
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, rig_curve_dir(), 2, BEAT, DEAD);
    assert_true(rig_wait_live(bus, "jobs", 1, SOON));
    for (int i = 0; i < 2; i++)
        rig_ask(bus, &call[i], "jobs", "sleep", "1500", 4, 30000);
    rig_turn(bus, NULL, 1000); /* longer than DEAD */
    struct ab_bus_service_stats s;
    assert_true(ab_bus_stats(bus, 0, &s));
    assert_int_equal(s.replicas, 1);
    assert_in_range(s.oldest_ms, 500, 1500);
    for (int i = 0; i < 2; i++) {
        assert_true(rig_turn(bus, &call[i].done, SOON));
        assert_int_equal(call[i].status, 200);
        rig_call_free(&call[i]);
    }
    assert_true(ab_bus_stats(bus, 0, &s));
    assert_int_equal(s.resent, 0);
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static void overload_is_refused_at_once(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_bus_options options = {
        .listen = "tcp://127.0.0.1:*", .beat_ms = BEAT, .dead_ms = DEAD, .queue_limit = 8};
    ab_bus_t *bus = ab_bus_new(&options, &err);
    struct rig_replica r;
    struct rig_call call[20] = {0};
    const char *gateways[2];
    int refused = 0;
    only(bus, gateways);
    rig_replica_start(&r, "jobs", "jobs-1", gateways, NULL, 1, BEAT, DEAD); /* capacity 4 */
    assert_true(rig_wait_live(bus, "jobs", 1, SOON));
    for (int i = 0; i < 20; i++)
        rig_ask(bus, &call[i], "jobs", "sleep", "20", 2, 30000);
    for (int i = 0; i < 20; i++)
        refused += call[i].done && call[i].status == 503;
    assert_int_equal(refused, 20 - 4 - 8);
    for (int i = 0; i < 20; i++) {
        assert_true(rig_turn(bus, &call[i].done, SOON));
        rig_call_free(&call[i]);
    }
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_reaches_a_handler_with_all_that_belongs_to_it),
        cmocka_unit_test(errors_keep_their_items),
        cmocka_unit_test(large_bodies_travel_both_ways),
        cmocka_unit_test(hints_reach_the_gateway),
        cmocka_unit_test(a_replica_serves_two_gateways),
        cmocka_unit_test(a_gateway_is_found_by_its_name),
        cmocka_unit_test(the_door_is_tried_again_every_minute),
        cmocka_unit_test(a_gateway_that_restarts_learns_its_replicas_again),
        cmocka_unit_test(a_replica_that_stops_answers_what_it_has),
        cmocka_unit_test(a_replica_leaves_though_a_worker_is_stuck_past_its_deadline),
        cmocka_unit_test(a_busy_replica_stays_alive),
        cmocka_unit_test(overload_is_refused_at_once),
    };
    rig_replica_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
