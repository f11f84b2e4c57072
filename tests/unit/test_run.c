/* test_run.c - processes of jobs, and the guard behind them */
#include "launcher/guard.h"
#include "launcher/order.h"
#include "launcher/run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct seen {
    int n;
    struct run_exit last;
    char tail[5000];
};

static char folder[64];
static const char *const env[] = {"PATH=/usr/bin:/bin", "GREETING=hello", NULL};

static void on_exit_of(void *arg, const struct run_exit *e)
{
    struct seen *seen = arg;
    seen->n++;
    seen->last = *e;
    snprintf(seen->tail, sizeof(seen->tail), "%s", e->tail);
}

static void wait_for_end(runs_t *runs)
{
    int64_t until = ab_now_ms() + 20000;
    while (runs_count(runs) > 0 && ab_now_ms() < until) {
        int64_t next = runs_step(runs, ab_now_ms());
        struct pollfd p = {.fd = runs_fd(runs), .events = POLLIN};
        if (runs_count(runs) > 0)
            (void)poll(&p, 1, (int)next);
    }
    assert_int_equal(runs_count(runs), 0);
}

static struct run_spec shell(const char **argv, const char *script, char output[128])
{
    argv[0] = "sh";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = NULL;
    snprintf(output, 128, "%s/job.out", folder);
    return (struct run_spec){.job = 7, .argv = argv, .env = env, .cwd = folder, .output = output};
}

static struct seen run(const char *script, int64_t limit_ms, struct run_exit *last)
{
    struct seen seen = {0};
    struct ab_error err = {0};
    const char *argv[4];
    char output[128];
    struct run_spec spec = shell(argv, script, output);
    spec.limit_ms = limit_ms;
    runs_t *runs = runs_new(2, on_exit_of, &seen, &err);
    assert_int_equal(run_start(runs, &spec, &err), 0);
    wait_for_end(runs);
    runs_destroy(&runs);
    assert_int_equal(seen.n, 1);
    *last = seen.last;
    return seen;
}

static void an_exit_code_and_the_last_lines_are_reported(void **state)
{
    struct run_exit e;
    (void)state;
    struct seen seen = run("echo one; echo two; echo $GREETING >&2; exit 3", 0, &e);
    assert_int_equal(e.end, RUN_ENDED);
    assert_int_equal(e.code, 3);
    assert_string_equal(seen.tail, "two\nhello\n");
}

static void a_signal_is_a_negative_code(void **state)
{
    struct run_exit e;
    (void)state;
    run("kill -9 $$", 0, &e);
    assert_int_equal(e.end, RUN_ENDED);
    assert_int_equal(e.code, -SIGKILL);
}

static void a_job_past_its_limit_is_killed_with_its_children(void **state)
{
    struct run_exit e;
    char text[64], path[128];
    (void)state;
    run("sleep 600 & echo $! > child; wait", 150, &e);
    assert_int_equal(e.end, RUN_LIMIT);
    snprintf(path, sizeof(path), "%s/child", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    pid_t child = (pid_t)strtol(text, NULL, 10);
    for (int i = 0; i < 200 && kill(child, 0) == 0; i++) /* init reaps it in its own time */
        (void)poll(NULL, 0, 10);
    assert_true(kill(child, 0) < 0 || ab_pid_start_time(child) == 0);
}

static void output_that_is_no_text_becomes_text(void **state)
{
    struct run_exit e;
    (void)state;
    struct seen seen = run("printf 'a\\377\\000b\\n'; exit 1", 0, &e);
    assert_string_equal(seen.tail, "a??b\n");
}

static void the_output_of_the_run_before_is_kept(void **state)
{
    struct run_exit e;
    struct ab_buf text = {0};
    struct ab_error err = {0};
    char path[128];
    (void)state;
    run("echo first", 0, &e);
    run("echo second", 0, &e);
    snprintf(path, sizeof(path), "%s/job.out.prev", folder);
    assert_int_equal(ab_file_read(path, 1000, &text, &err), 0);
    assert_int_equal(text.len, 6);
    assert_memory_equal(text.data, "first\n", 6);
    ab_buf_free(&text);
}

static void a_program_that_is_not_there_is_an_error_at_once(void **state)
{
    struct seen seen = {0};
    struct ab_error err = {0};
    const char *argv[] = {"no-such-program-here", NULL};
    char output[128];
    (void)state;
    snprintf(output, sizeof(output), "%s/job.out", folder);
    struct run_spec spec = {.job = 1, .argv = argv, .env = env, .cwd = folder, .output = output};
    runs_t *runs = runs_new(2, on_exit_of, &seen, &err);
    assert_int_equal(run_start(runs, &spec, &err), -1);
    assert_non_null(strstr(err.text, "no-such-program-here"));
    assert_int_equal(runs_count(runs), 0);
    runs_destroy(&runs);
}

/* A launcher is killed with a job in hand: the job must not live on. */
static void the_guard_kills_what_its_launcher_left(void **state)
{
    int report[2];
    pid_t job = 0;
    (void)state;
    assert_int_equal(pipe(report), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        struct ab_error err = {0};
        struct seen seen = {0};
        const char *argv[4];
        char output[128];
        if (guard_start(&err) < 0)
            _exit(1);
        runs_t *runs = runs_new(2, on_exit_of, &seen, &err);
        struct run_spec spec = shell(argv, "echo $$ > pid; mv pid ready; sleep 600", output);
        if (run_start(runs, &spec, &err) < 0)
            _exit(2);
        (void)!write(report[1], "x", 1);
        pause();
        _exit(3);
    }
    char x, path[128], text[32] = "";
    assert_int_equal(read(report[0], &x, 1), 1);
    snprintf(path, sizeof(path), "%s/ready", folder);
    for (int i = 0; i < 500 && access(path, R_OK) < 0; i++)
        (void)poll(NULL, 0, 10);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    job = (pid_t)strtol(text, NULL, 10);
    assert_int_equal(kill(job, 0), 0);
    kill(launcher, SIGKILL);
    (void)waitpid(launcher, NULL, 0);
    for (int i = 0; i < 500 && kill(-job, 0) == 0 && ab_pid_start_time(job) != 0; i++)
        (void)poll(NULL, 0, 10);
    char stat_path[64], line[512] = "";
    snprintf(stat_path, sizeof(stat_path), "/proc/%d/stat", (int)job);
    f = fopen(stat_path, "r");
    if (f) {
        (void)!fgets(line, sizeof(line), f);
        fclose(f);
    }
    assert_true(!f || strstr(line, ") Z ") != NULL);
    close(report[0]);
    close(report[1]);
}

static void orders_survive_the_wire_and_broken_ones_are_refused(void **state)
{
    struct ab_buf body = {0};
    struct ab_error err = {0};
    ab_arena_t *arena = ab_arena_new();
    const char *argv[] = {"prog", "a b", "$(x)", NULL};
    int cpus[] = {1, 3};
    struct run_spec spec = {.job = 9,
                            .argv = argv,
                            .env = env,
                            .cwd = "/w",
                            .output = "/w/job.out",
                            .cpus = cpus,
                            .n_cpus = 2,
                            .limit_ms = 60000},
                    got;
    (void)state;
    order_pack_run(&body, &spec);
    assert_int_equal(order_unpack_run(body.data, body.len, 9, arena, &got, &err), 0);
    assert_string_equal(got.argv[2], "$(x)");
    assert_null(got.argv[3]);
    assert_string_equal(got.env[1], env[1]);
    assert_int_equal(got.cpus[1], 3);
    assert_int_equal(got.limit_ms, 60000);
    for (size_t cut = 0; cut < body.len; cut++)
        assert_int_equal(order_unpack_run(body.data, cut, 9, arena, &got, &err), -1);
    ab_buf_free(&body);
    ab_arena_destroy(&arena);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/abies-test-run-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    struct ab_error err = {0};
    (void)state;
    return ab_remove_tree(folder, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exit_code_and_the_last_lines_are_reported),
        cmocka_unit_test(a_signal_is_a_negative_code),
        cmocka_unit_test(a_job_past_its_limit_is_killed_with_its_children),
        cmocka_unit_test(output_that_is_no_text_becomes_text),
        cmocka_unit_test(the_output_of_the_run_before_is_kept),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error_at_once),
        cmocka_unit_test(the_guard_kills_what_its_launcher_left),
        cmocka_unit_test(orders_survive_the_wire_and_broken_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
