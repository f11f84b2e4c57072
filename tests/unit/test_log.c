/* test_log.c - log lines and fault points */
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char text[4 << 20];

/* What fn writes to stderr. */
static const char *lines_of(void (*fn)(void))
{
    char path[] = "/tmp/abies-test-log-XXXXXX";
    int fd = mkstemp(path), kept = dup(STDERR_FILENO);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    fn();
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void write_typical(void)
{
    ab_log_open("sessions", "sessions-h-1", AB_INFO);
    ab_log_request("7f3a");
    ab_log(AB_DEBUG, "not.seen");
    ab_log(AB_INFO, "lease.taken", AB_KV("session", (int64_t)7), AB_KV("ok", (bool)true),
           AB_KV("part", 0.5), AB_KV("big", UINT64_MAX), AB_KV("text", "two words \"q\"\n\x01"),
           AB_KV("none", (const char *)NULL), AB_KV("empty", ""));
    ab_log_request(NULL);
}

static void a_line_is_logfmt_with_time_service_and_request(void **state)
{
    (void)state;
    const char *line = lines_of(write_typical);
    assert_memory_equal(line, "ts=20", 5);
    assert_string_equal(
        strstr(line, "Z level"),
        "Z level=info svc=sessions inst=sessions-h-1 req=7f3a event=lease.taken session=7 ok=true "
        "part=0.5 "
        "big=18446744073709551615 text=\"two words \\\"q\\\"\\n\\x01\" none=null empty=\"\"\n");
}

static void write_long(void)
{
    static char word[20000];
    memset(word, 'x', sizeof(word) - 1);
    ab_log(AB_INFO, "long", AB_KV("word", (const char *)word));
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
    (void)state;
    const char *line = lines_of(write_long);
    assert_int_equal(strlen(line), 4096);
    assert_int_equal(line[4095], '\n');
}

static void *many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        ab_log(AB_INFO, "many", AB_KV("thread", (const char *)arg), AB_KV("tail", "end"));
    return NULL;
}

static void write_from_threads(void)
{
    pthread_t threads[4];
    char *names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, many, names[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    int n = 0;
    char *rest = (char *)lines_of(write_from_threads), *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        assert_memory_equal(line, "ts=20", 5);
        assert_string_equal(line + strlen(line) - 9, " tail=end");
        n++;
    }
    assert_int_equal(n, 4000);
}

static void write_while_full(void)
{
    int kept = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY);
    ab_log_open("jobs", "jobs-1", AB_INFO);
    ab_log(AB_INFO, "first");
    dup2(full, STDERR_FILENO);
    ab_log(AB_INFO, "nobody.sees.it");
    ab_log(AB_INFO, "nor.this");
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(full);
    ab_log(AB_INFO, "there.is.room");
    ab_log(AB_INFO, "last");
}

static void lines_that_a_full_disk_lost_are_counted(void **state)
{
    (void)state;
    const char *lines = lines_of(write_while_full);
    const char *first = strstr(lines, "event=first\n"),
               *lost = strstr(lines, "event=log.lost lines=2\n"),
               *room = strstr(lines, "event=there.is.room\n"),
               *last = strstr(lines, "event=last\n");
    assert_true(first && lost && room && last && first < lost && lost < room && room < last);
    assert_null(strstr(lines, "nobody"));
    assert_null(strstr(lost + 10, "log.lost"));
}

static void write_over_the_limit(void)
{
    struct rlimit limit, small;
    struct stat st;
    getrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
    fstat(STDERR_FILENO, &st);
    small = (struct rlimit){(rlim_t)st.st_size + 20, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    ab_log(AB_INFO, "cut.off");
    ab_log(AB_INFO, "lost");
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    ab_log(AB_INFO, "whole");
}

static void a_line_that_was_cut_off_is_ended_before_the_next(void **state)
{
    (void)state;
    const char *lines = lines_of(write_over_the_limit);
    assert_int_equal(strcspn(lines, "\n"), 20);
    assert_memory_equal(lines + 21, "ts=", 3);
    assert_non_null(strstr(lines, "event=log.lost lines=2\n"));
    assert_non_null(strstr(lines, "event=whole\n"));
}

static void levels_have_names(void **state)
{
    (void)state;
    assert_int_equal(ab_level_of("debug"), AB_DEBUG);
    assert_int_equal(ab_level_of("error"), AB_ERROR);
    assert_int_equal(ab_level_of("loud"), -1);
}

static void the_nth_place_fails_once_when_armed(void **state)
{
    (void)state;
    ab_fault_arm(3);
    assert_false(ab_fault("a"));
    assert_false(ab_fault("b"));
    assert_false(ab_fault_fired());
    assert_true(ab_fault("c"));
    assert_true(ab_fault_fired());
    assert_false(ab_fault("d"));
    ab_fault_arm(0);
    assert_false(ab_fault_fired());
    assert_false(ab_fault("a"));
}

/* How a process ends that reaches place "x" five times. */
static int with_fault(const char *value)
{
    pid_t pid = fork();
    if (pid == 0) {
        int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC), failed = 0;
        dup2(quiet, STDERR_FILENO);
        setenv("ABIES_FAULT", value, 1);
        ab_fault_init();
        for (int i = 1; i <= 5; i++)
            if (ab_fault("x"))
                failed = failed * 10 + i;
        _exit(failed);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void faults_of_the_environment_hit_the_named_place(void **state)
{
    (void)state;
    assert_int_equal(with_fault("x:fail:4"), 4);
    assert_int_equal(with_fault("y:kill:1,x:fail:2"), 2);
    assert_int_equal(with_fault("x"), 1);
    assert_int_equal(with_fault("x:kill:3"), -SIGKILL);
    assert_int_equal(with_fault("y:kill"), 0);
    assert_int_equal(with_fault("x:explode:1"), 2); /* refused at the start */
    assert_int_equal(with_fault("x:fail:0"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_logfmt_with_time_service_and_request),
        cmocka_unit_test(a_long_line_is_cut_and_still_ends),
        cmocka_unit_test(lines_of_threads_do_not_mix),
        cmocka_unit_test(lines_that_a_full_disk_lost_are_counted),
        cmocka_unit_test(a_line_that_was_cut_off_is_ended_before_the_next),
        cmocka_unit_test(levels_have_names),
        cmocka_unit_test(the_nth_place_fails_once_when_armed),
        cmocka_unit_test(faults_of_the_environment_hit_the_named_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
