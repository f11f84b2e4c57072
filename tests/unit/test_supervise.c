/* test_supervise.c - processes that are kept running */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/supervise.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGV(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static struct ab_ward_status status_of(const ab_supervise_t *s, size_t i)
{
    struct ab_ward_status st = {0};
    assert_true(ab_supervise_status(s, i, &st));
    return st;
}

/* Step until the condition holds, for at most ten seconds. */
#define STEP_UNTIL(s, condition)                                                                   \
    do {                                                                                           \
        int64_t until_ms = ab_now_ms() + 10000;                                                    \
        while (!(condition)) {                                                                     \
            struct pollfd ab_poll = {ab_supervise_fd(s), POLLIN, 0};                               \
            assert_true(ab_now_ms() < until_ms);                                                   \
            (void)poll(&ab_poll, 1, 1000);                                                         \
            ab_supervise_step(s);                                                                  \
        }                                                                                          \
    } while (0)

static int changes;

static void count_change(void *arg, const char *name)
{
    assert_string_equal(name, arg);
    changes++;
}

static void a_killed_process_comes_back(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "sleeper", .argv = ARGV("sleep", "100"), .stop_ms = 5000};
    changes = 0;
    ab_supervise_on_change(s, count_change, "sleeper");
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    pid_t first = status_of(s, 0).pid;
    assert_true(first > 0);
    assert_int_equal(ab_supervise_running(s), 1);
    assert_int_equal(ab_supervise_add(s, &ward, &err), -1); /* the name is taken */

    kill(first, SIGKILL);
    STEP_UNTIL(s, status_of(s, 0).pid == 0);
    assert_in_range(status_of(s, 0).backoff_ms, 1, 200);
    assert_int_equal(status_of(s, 0).last_exit, -SIGKILL);
    int64_t died = ab_now_ms();
    STEP_UNTIL(s, status_of(s, 0).pid > 0);
    assert_true(status_of(s, 0).pid != first);
    assert_int_equal(status_of(s, 0).restarts, 1);
    assert_int_equal(status_of(s, 0).by_cause[AB_WARD_SIGNAL], 1);
    assert_true(ab_now_ms() - died >= 190);
    assert_int_equal(changes, 3);
}

static void one_that_dies_at_once_is_started_ever_more_slowly(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "failing", .argv = ARGV("sh", "-c", "exit 3"), .stop_ms = 1000};
    int64_t began = ab_now_ms();
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    STEP_UNTIL(s, status_of(s, 0).restarts == 3);
    assert_int_equal(status_of(s, 0).by_cause[AB_WARD_ERROR], 3);
    assert_true(ab_now_ms() - began >= 200 + 400 + 800 - 20);
    assert_int_equal(status_of(s, 0).last_exit, 3);
}

static void what_cannot_start_is_an_error_at_once(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_ward_status st;
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "none", .argv = ARGV("/no/such/program"), .stop_ms = 1000};
    assert_int_equal(ab_supervise_add(s, &ward, &err), -1);
    assert_false(ab_supervise_status(s, 0, &st));
}

static void stopping_is_polite_first_and_firm_later(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward polite = {
        .name = "polite",
        .argv = ARGV("sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done"),
        .stop_ms = 8000};
    struct ab_ward by_int = {
        .name = "by-int",
        .argv = ARGV("sh", "-c", "trap 'exit 8' INT; trap '' TERM; while :; do sleep 0.05; done"),
        .stop_ms = 8000,
        .stop_signal = SIGINT};
    struct ab_ward deaf = {
        .name = "deaf",
        .argv = ARGV("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"),
        .stop_ms = 300};
    char log[] = "/tmp/abies-test-deaf-XXXXXX";
    close(mkstemp(log));
    deaf.log_path = log;
    assert_int_equal(ab_supervise_add(s, &polite, &err), 0);
    assert_int_equal(ab_supervise_add(s, &by_int, &err), 0);
    assert_int_equal(ab_supervise_add(s, &deaf, &err), 0);
    struct stat file;
    STEP_UNTIL(s,
               stat(log, &file) == 0 && file.st_size > 0); /* the traps are set by now, or nearly */
    (void)poll(NULL, 0, 200);

    ab_supervise_stop(s);
    STEP_UNTIL(s, ab_supervise_running(s) == 0);
    assert_int_equal(status_of(s, 0).last_exit, 7);
    assert_int_equal(status_of(s, 1).last_exit, 8);
    assert_int_equal(status_of(s, 2).last_exit, -SIGKILL);
    assert_int_equal(ab_supervise_add(s, &polite, &err), -1);
    unlink(log);
}

static void a_removed_one_ends_and_is_forgotten(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_ward_status st;
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "a", .argv = ARGV("sleep", "100"), .stop_ms = 5000};
    struct ab_ward failing = {.name = "b", .argv = ARGV("false"), .stop_ms = 5000};
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    assert_int_equal(ab_supervise_add(s, &failing, &err), 0);
    STEP_UNTIL(s, status_of(s, 1).restarts == 1);
    assert_int_equal(ab_supervise_remove(s, "a"), 0);
    assert_int_equal(ab_supervise_remove(s, "b"), 0);
    assert_int_equal(ab_supervise_remove(s, "c"), -1);
    STEP_UNTIL(s, !ab_supervise_status(s, 0, &st));
    assert_int_equal(ab_supervise_running(s), 0);
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0); /* the name is free again */
}

static void children_of_a_dead_process_do_not_stay_behind(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char dir[] = "/tmp/abies-test-ward-XXXXXX", log[64];
    assert_non_null(mkdtemp(dir));
    snprintf(log, sizeof(log), "%s/log", dir);
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "parent",
                           .argv = ARGV("sh", "-c", "sleep 100 & echo $!; wait"),
                           .log_path = log,
                           .stop_ms = 5000};
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    STEP_UNTIL(s, (ab_buf_clear(&text),
                   ab_file_read(log, 100, &text, NULL) == 0 && memchr(text.data, '\n', text.len)));
    pid_t child = (pid_t)strtol(text.data, NULL, 10);
    AB_AUTO(ab_close) int fd = ab_pidfd(child);
    assert_true(fd >= 0);
    kill(status_of(s, 0).pid, SIGKILL);
    STEP_UNTIL(s, status_of(s, 0).pid == 0);
    struct pollfd p = {fd, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(ab_remove_tree(dir, &err), 0);
}

static void environment_is_added_to_ours(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char log[] = "/tmp/abies-test-env-XXXXXX";
    close(mkstemp(log));
    setenv("ABIES_TEST_A", "old", 1);
    setenv("ABIES_TEST_B", "kept", 1);
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {
        .name = "env",
        .argv = ARGV("sh", "-c", "echo $ABIES_TEST_A $ABIES_TEST_B $ABIES_TEST_C; sleep 100"),
        .env = ARGV("ABIES_TEST_A=new", "ABIES_TEST_C=added"),
        .log_path = log,
        .stop_ms = 5000};
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    STEP_UNTIL(s, (ab_buf_clear(&text), ab_file_read(log, 100, &text, NULL) == 0 && text.len > 0));
    assert_string_equal(text.data, "new kept added\n");
    unlink(log);
}

static void a_large_log_file_is_rotated_while_it_is_written(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char dir[] = "/tmp/abies-test-rotate-XXXXXX", log[64], old[64];
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(log, sizeof(log), "%s/log", dir);
    snprintf(old, sizeof(old), "%s/log.1", dir);
    AB_AUTO(ab_supervise_destroy) ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {
        .name = "chatty",
        .argv = ARGV("sh", "-c", "head -c 17000000 /dev/zero; read x </dev/zero; sleep 100"),
        .log_path = log,
        .stop_ms = 5000};
    ward.argv = ARGV("sh", "-c",
                     "head -c 17000000 /dev/zero; while [ ! -e $0.1 ]; do sleep 0.05; done; sleep "
                     "0.3; echo after; sleep 100",
                     log);
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    STEP_UNTIL(s, stat(old, &st) == 0 && st.st_size == 17000000);
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    STEP_UNTIL(
        s, (ab_buf_clear(&text), ab_file_read(log, 1 << 20, &text, NULL) == 0 && text.len == 6));
    assert_string_equal(text.data, "after\n");
    ab_supervise_stop(s);
    STEP_UNTIL(s, ab_supervise_running(s) == 0);
    assert_int_equal(ab_remove_tree(dir, &err), 0);
}

static void destroying_kills_what_runs(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_supervise_t *s = ab_supervise_new(&err);
    struct ab_ward ward = {.name = "a", .argv = ARGV("sleep", "100"), .stop_ms = 5000};
    assert_int_equal(ab_supervise_add(s, &ward, &err), 0);
    pid_t pid = status_of(s, 0).pid;
    ab_supervise_destroy(&s);
    assert_null(s);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

int main(void)
{
    ab_log_open("test", NULL, AB_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_comes_back),
        cmocka_unit_test(one_that_dies_at_once_is_started_ever_more_slowly),
        cmocka_unit_test(what_cannot_start_is_an_error_at_once),
        cmocka_unit_test(stopping_is_polite_first_and_firm_later),
        cmocka_unit_test(a_removed_one_ends_and_is_forgotten),
        cmocka_unit_test(children_of_a_dead_process_do_not_stay_behind),
        cmocka_unit_test(environment_is_added_to_ours),
        cmocka_unit_test(a_large_log_file_is_rotated_while_it_is_written),
        cmocka_unit_test(destroying_kills_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
