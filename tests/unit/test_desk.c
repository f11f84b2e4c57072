/* test_desk.c - the queue between a replica's I/O thread and its workers: no socket, many threads
 */
#include "base/clock.h"
#include "bus/task.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WORKERS 4
#define TASKS 5000
#define LIMIT 64

static ab_task_t *task(uint64_t number, const char *body, int64_t remaining_ms)
{
    struct ab_frame_request head = {.number = number, .verb = "v", .remaining_ms = remaining_ms};
    struct ab_buf header = {0};
    zmq_msg_t msg;

    ab_frame_pack_request(&header, AB_BUS_VERSION, &head);
    zmq_msg_init_size(&msg, strlen(body));
    memcpy(zmq_msg_data(&msg), body, strlen(body));
    struct ab_parcel parcel = {AB_CMD_REQUEST, header.data, header.len, &msg, 0};
    ab_task_t *self = ab_task_new(&parcel, ab_now_ms());
    assert_non_null(self);
    assert_int_equal(zmq_msg_size(&msg), 0); /* moved, not copied */
    zmq_msg_close(&msg);
    ab_buf_free(&header);
    return self;
}

static int set_up(void **state)
{
    struct ab_desk *desk = malloc(sizeof(*desk));
    *state = desk;
    return ab_desk_init(desk);
}

static int tear_down(void **state)
{
    ab_desk_free(*state);
    free(*state);
    return 0;
}

static bool readable(const struct ab_desk *desk)
{
    struct pollfd p = {desk->wake_fd, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

static void free_results(ab_task_t *t)
{
    while (t) {
        ab_task_t *next = t->next;
        ab_task_destroy(&t);
        t = next;
    }
}

static void a_task_goes_to_a_worker_and_its_reply_wakes_the_io_thread(void **state)
{
    struct ab_desk *desk = *state;
    struct ab_desk_out out;
    assert_int_equal(ab_desk_put(desk, task(7, "body", 1000), LIMIT), 0);
    ab_task_t *t = ab_desk_take(desk);
    assert_memory_equal(ab_task_info(t)->body, "body", 4);
    assert_false(readable(desk));
    ab_desk_reply(desk, t, 201, (void *)(uintptr_t) "answer", 6, false);
    assert_true(readable(desk));
    ab_desk_collect(desk, &out);
    assert_false(readable(desk));
    assert_int_equal(out.results->number, 7);
    assert_int_equal(out.results->status, 201);
    assert_int_equal(zmq_msg_size(&out.results->reply), 6);
    assert_memory_equal(zmq_msg_data(&out.results->reply), "answer", 6);
    free_results(out.results);
}

static void one_wake_up_serves_many_results(void **state)
{
    struct ab_desk *desk = *state;
    struct ab_desk_out out;
    ab_task_t *t[3];
    uint64_t count;
    for (uint64_t i = 0; i < 3; i++)
        ab_desk_put(desk, task(i + 1, "", 1000), LIMIT);
    for (int i = 0; i < 3; i++)
        t[i] = ab_desk_take(desk);
    for (int i = 0; i < 3; i++)
        ab_desk_reply(desk, t[i], 200, NULL, 0, false);
    assert_int_equal(read(desk->wake_fd, &count, sizeof(count)), sizeof(count));
    assert_int_equal(count, 1);
    ab_desk_collect(desk, &out);
    assert_int_equal(out.results->number, 1);
    assert_int_equal(out.results->next->next->number, 3);
    assert_null(out.results->next->next->next);
    free_results(out.results);
}

static void a_taken_over_body_is_freed_once(void **state)
{
    struct ab_desk *desk = *state;
    struct ab_desk_out out;
    ab_desk_put(desk, task(1, "", 1000), LIMIT);
    ab_desk_reply(desk, ab_desk_take(desk), 200, strdup("mine"), 4,
                  true); /* the sanitizer watches */
    ab_desk_collect(desk, &out);
    assert_memory_equal(zmq_msg_data(&out.results->reply), "mine", 4);
    free_results(out.results);
}

static void the_queue_has_a_limit(void **state)
{
    struct ab_desk *desk = *state;
    assert_int_equal(ab_desk_put(desk, task(1, "", 1000), 2), 0);
    assert_int_equal(ab_desk_put(desk, task(2, "", 1000), 2), 0);
    ab_task_t *third = task(3, "", 1000);
    assert_int_equal(ab_desk_put(desk, third, 2), -1);
    ab_task_destroy(&third);
}

static void it_knows_the_oldest_and_the_last_deadline(void **state)
{
    struct ab_desk *desk = *state;
    struct ab_desk_state s;
    struct ab_desk_out out;
    int64_t now = ab_now_ms();
    ab_desk_look(desk, now, &s);
    assert_int_equal(s.queued + s.running + s.results + s.oldest_ms, 0);
    ab_desk_put(desk, task(1, "", 5000), LIMIT);
    ab_desk_put(desk, task(2, "", 9000), LIMIT);
    ab_task_t *first = ab_desk_take(desk);
    ab_desk_look(desk, ab_now_ms(), &s);
    assert_true(s.oldest_ms >= 1); /* 0 would say idle */
    ab_desk_look(desk, ab_now_ms() + 700, &s);
    assert_int_equal(s.queued, 1);
    assert_int_equal(s.running, 1);
    assert_in_range(s.oldest_ms, 700, 900);
    assert_in_range(s.deadline_ms - now, 9000, 9200);
    ab_desk_reply(desk, first, 200, NULL, 0, false);
    ab_desk_look(desk, ab_now_ms(), &s);
    assert_int_equal(s.results, 1);
    assert_int_equal(s.oldest_ms, 0);
    ab_desk_collect(desk, &out);
    free_results(out.results);
}

static void hints_are_bounded(void **state)
{
    struct ab_desk *desk = *state;
    char *big = calloc(1, 1 << 20);
    for (int i = 0; i < 20; i++)
        ab_desk_hint(desk, 'n', i, big, 1 << 20);
    assert_true(desk->lost_hints > 0);
    assert_int_equal(desk->lost_hints + desk->hint_count, 20);
    assert_true(readable(desk));
    free(big);
}

static void no_remaining_time_is_negative_or_for_ever(void **state)
{
    (void)state;
    int64_t now = ab_now_ms();
    ab_task_t *late = task(1, "", -50), *long_one = task(2, "", INT64_MAX);
    assert_in_range(late->info.deadline_ms, now, now + 1000);
    assert_in_range(long_one->info.deadline_ms, now, now + 2 * 3600 * 1000);
    ab_task_destroy(&late);
    ab_task_destroy(&long_one);
}

/* ------------------------------------------------------------------ threads */

static void *work(void *arg)
{
    struct ab_desk *desk = arg;
    ab_task_t *t;
    uintptr_t n = 0;
    while ((t = ab_desk_take(desk)) != NULL) {
        uint64_t number = t->number;
        n++;
        if (number % 16 == 0)
            ab_desk_hint(desk, 'e', (int64_t)number, &number, sizeof(number));
        ab_desk_reply(desk, t, 200, &number, sizeof(number), false);
    }
    return (void *)n;
}

static void closing_lets_all_workers_go(void **state)
{
    pthread_t threads[WORKERS];
    void *n;
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, *state);
    ab_desk_close(*state);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], &n);
        assert_null(n);
    }
    assert_null(ab_desk_take(*state));
}

static void every_task_is_answered_once_by_some_worker(void **state)
{
    struct ab_desk *desk = *state;
    pthread_t threads[WORKERS];
    char *seen = calloc(1, TASKS + 1);
    int answered = 0, hints = 0;
    uint64_t next = 1, total = 0;
    void *n;
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&threads[i], NULL, work, desk);
    ab_task_t *waiting = NULL;
    while (answered < TASKS) {
        struct ab_desk_out out;
        while (next <= TASKS) {
            if (!waiting)
                waiting = task(next, "", 30000);
            if (ab_desk_put(desk, waiting, LIMIT) < 0)
                break;
            waiting = NULL;
            next++;
        }
        struct pollfd p = {desk->wake_fd, POLLIN, 0};
        assert_int_equal(poll(&p, 1, 10000), 1); /* a lost wake-up would hang here */
        ab_desk_collect(desk, &out);
        while (out.results) {
            ab_task_t *t = out.results;
            out.results = t->next;
            assert_memory_equal(zmq_msg_data(&t->reply), &t->number, sizeof(t->number));
            assert_int_equal(seen[t->number]++, 0);
            answered++;
            ab_task_destroy(&t);
        }
        while (out.hints) {
            struct ab_hint_note *h = out.hints;
            out.hints = h->next;
            hints++;
            free(h);
        }
    }
    ab_desk_close(desk);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], &n);
        total += (uintptr_t)n;
    }
    assert_int_equal(total, TASKS);
    assert_int_equal(hints, TASKS / 16);
    assert_int_equal(desk->taken, TASKS);
    assert_int_equal(desk->replied, TASKS);
    free(seen);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_task_goes_to_a_worker_and_its_reply_wakes_the_io_thread),
        TEST(one_wake_up_serves_many_results),
        TEST(a_taken_over_body_is_freed_once),
        TEST(the_queue_has_a_limit),
        TEST(it_knows_the_oldest_and_the_last_deadline),
        TEST(hints_are_bounded),
        TEST(no_remaining_time_is_negative_or_for_ever),
        TEST(closing_lets_all_workers_go),
        TEST(every_task_is_answered_once_by_some_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
