/* test_spawn.c - child processes */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct ab_spawn command(const char *const *argv)
{
    return (struct ab_spawn){.argv = argv, .in = -1, .out = -1, .err = -1};
}

#define ARGV(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Output of a command that must end well. */
static const char *output_of(const struct ab_spawn *what, struct ab_buf *out)
{
    struct ab_error err = {0};
    int status = -1;
    ab_buf_clear(out);
    if (ab_run_command(what, 20000, out, &status, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ab_exit_code(status), 0);
    ab_buf_str(out, "");
    return out->data;
}

static void arguments_are_words_not_shell_text(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_spawn what = command(ARGV("printf", "%s|", "a b", "$HOME", "; echo x", ""));
    assert_string_equal(output_of(&what, &out), "a b|$HOME|; echo x||");
}

static void output_and_errors_are_collected_up_to_the_limit(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {.limit = 10};
    struct ab_spawn what =
        command(ARGV("sh", "-c", "echo out; echo err >&2; head -c 300000 /dev/zero"));
    output_of(&what, &out);
    assert_int_equal(out.len, 10);
    assert_memory_equal(out.data, "out\nerr\n", 8);
}

static void an_exec_failure_is_reported_at_once(void **state)
{
    (void)state;
    struct ab_error err = {0};
    pid_t pid = 0;
    struct ab_spawn what = command(ARGV("/no/such/program"));
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_non_null(strstr(err.text, "/no/such/program"));
    assert_non_null(strstr(err.text, "No such file"));
    what = command(ARGV("no-such-program-at-all"));
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_non_null(strstr(err.text, "not in PATH"));
    what = command(ARGV("/etc/passwd"));
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_non_null(strstr(err.text, "is it executable?"));
    what = command(ARGV("/bin/true"));
    what.cwd = "/no/such/folder";
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    const int cpus[] = {4000};
    what = command(ARGV("/bin/true"));
    what.cpus = cpus;
    what.n_cpus = 1;
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_non_null(strstr(err.text, "affinity"));
    what = command(ARGV(NULL));
    assert_int_equal(ab_spawn(&what, &pid, &err), -1);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no zombie was left */
    assert_int_equal(errno, ECHILD);
}

static void nothing_is_inherited_but_the_three_streams(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    int leak = open("/dev/null", O_RDONLY); /* on purpose without O_CLOEXEC */
    assert_true(leak >= 0);
    struct ab_spawn what = command(ARGV(
        "sh", "-c", "for f in /proc/$$/fd/*; do [ -e $f ] && printf '%s ' ${f##*/}; done; true"));
    const char *text = output_of(&what, &out);
    close(leak);
    assert_string_equal(text, "0 1 2 ");
}

static void signals_are_back_at_their_defaults(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    struct ab_spawn what = command(ARGV("sed", "-n", "/^Sig[BIC]/p", "/proc/self/status"));
    const char *text = output_of(&what, &out);
    sigprocmask(SIG_SETMASK, &before, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    assert_string_equal(
        text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n");
}

static void streams_may_be_given_in_any_order(void **state)
{
    (void)state;
    struct ab_error err = {0};
    int a[2], b[2], status;
    char got[16] = {0};
    pid_t pid;
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    int kept1 = dup(1), kept2 = dup(2);
    /* our own 1 and 2 are the two pipes, and the child gets them crossed */
    dup2(a[1], 1);
    dup2(b[1], 2);
    struct ab_spawn what = command(ARGV("sh", "-c", "printf out; printf err >&2"));
    what.out = 2;
    what.err = 1;
    int rc = ab_spawn(&what, &pid, &err);
    dup2(kept1, 1);
    dup2(kept2, 2);
    close(kept1);
    close(kept2);
    close(a[1]);
    close(b[1]);
    assert_int_equal(rc, 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(read(a[0], got, sizeof(got)), 3);
    assert_memory_equal(got, "err", 3);
    assert_int_equal(read(b[0], got, sizeof(got)), 3);
    assert_memory_equal(got, "out", 3);
    close(a[0]);
    close(b[0]);
}

static void folder_environment_and_cpus_are_set(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    cpu_set_t ours;
    int cpu = 0;
    sched_getaffinity(0, sizeof(ours), &ours);
    while (!CPU_ISSET((size_t)cpu, &ours))
        cpu++;
    struct ab_spawn what = command(
        ARGV("sh", "-c", "echo $PWD $ONE ${HOME-none}; grep Cpus_allowed_list /proc/$$/status"));
    what.cwd = "/usr";
    what.env = ARGV("ONE=1", "PATH=/bin:/usr/bin");
    what.cpus = &cpu;
    what.n_cpus = 1;
    char wanted[100];
    snprintf(wanted, sizeof(wanted), "/usr 1 none\nCpus_allowed_list:\t%d\n", cpu);
    assert_string_equal(output_of(&what, &out), wanted);
}

static void a_command_that_takes_too_long_is_killed_with_its_children(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    int status = 0;
    int64_t began = ab_now_ms();
    struct ab_spawn what = command(ARGV("sh", "-c", "sleep 100 & echo $!; wait"));
    assert_int_equal(ab_run_command(&what, 300, &out, &status, &err), -1);
    assert_int_equal(err.code, AB_ETIMEOUT);
    assert_int_equal(ab_exit_code(status), -SIGKILL);
    assert_true(ab_now_ms() - began < 10000);
    pid_t grandchild = (pid_t)strtol(out.data, NULL, 10);
    assert_true(grandchild > 1);
    /* it is init's to reap now: wait for its end, not for a while */
    for (int64_t until = ab_now_ms() + 10000; kill(grandchild, 0) == 0 && ab_now_ms() < until;) {
        AB_AUTO(ab_close) int fd = ab_pidfd(grandchild);
        struct pollfd p = {fd, POLLIN, 0};
        if (fd >= 0 && poll(&p, 1, 10000) == 1)
            break;
    }
    char path[64], line[256] = {0};
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)grandchild);
    FILE *f = fopen(path, "re");
    if (f) {
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
        assert_non_null(strstr(line, ") Z")); /* dead, not reaped yet */
    }
}

static void a_grandchild_that_keeps_the_pipe_does_not_hold_us(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    int64_t began = ab_now_ms();
    struct ab_spawn what = command(ARGV("sh", "-c", "sleep 30 & echo $!"));
    const char *text = output_of(&what, &out);
    assert_true(ab_now_ms() - began < 10000);
    kill((pid_t)strtol(text, NULL, 10), SIGKILL);
}

static void a_child_dies_with_its_parent(void **state)
{
    (void)state;
    int ends[2];
    pid_t grandchild = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t middle = fork();
    if (middle == 0) {
        struct ab_spawn what = command(ARGV("sleep", "100"));
        what.die_with_parent = true;
        if (ab_spawn(&what, &grandchild, NULL) < 0)
            _exit(1);
        (void)!write(ends[1], &grandchild, sizeof(grandchild));
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
    close(ends[0]);
    AB_AUTO(ab_close) int fd = ab_pidfd(grandchild);
    assert_true(fd >= 0);
    struct pollfd p = {fd, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 100), 0);
    kill(middle, SIGKILL);
    waitpid(middle, NULL, 0);
    assert_int_equal(poll(&p, 1, 10000), 1);
}

static void start_times_tell_processes_apart(void **state)
{
    (void)state;
    assert_true(ab_pid_start_time(getpid()) > 0);
    assert_true(ab_pid_start_time(getpid()) >= ab_pid_start_time(1));
    assert_int_equal(ab_pid_start_time(0x7FFFFFF), 0);
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(ab_pid_start_time(zombie), 0);
    waitpid(zombie, NULL, 0);
}

static void programs_and_shared_files_are_found_from_our_own_place(void **state)
{
    (void)state;
    assert_true(ab_self_dir()[0] == '/');
    char self[4096];
    snprintf(self, sizeof(self), "%s/test_spawn", ab_self_dir());
    assert_string_equal(ab_find_program("test_spawn"), self);
    assert_ptr_equal(ab_find_program("test_spawn"), ab_find_program("test_spawn"));
    assert_null(ab_find_program("no-such-program"));
    assert_null(ab_find_share("no-such-file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_words_not_shell_text),
        cmocka_unit_test(output_and_errors_are_collected_up_to_the_limit),
        cmocka_unit_test(an_exec_failure_is_reported_at_once),
        cmocka_unit_test(nothing_is_inherited_but_the_three_streams),
        cmocka_unit_test(signals_are_back_at_their_defaults),
        cmocka_unit_test(streams_may_be_given_in_any_order),
        cmocka_unit_test(folder_environment_and_cpus_are_set),
        cmocka_unit_test(a_command_that_takes_too_long_is_killed_with_its_children),
        cmocka_unit_test(a_grandchild_that_keeps_the_pipe_does_not_hold_us),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(start_times_tell_processes_apart),
        cmocka_unit_test(programs_and_shared_files_are_found_from_our_own_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
