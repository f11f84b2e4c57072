/* test_crew.c - serial mode: what a node's worker got, did not get yet, or took along into death */
#include "apprun/apprun.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "launcher/crew.h"
#include "node/node.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static const int cpus[] = {0};
static const struct node_info node = {
    .id = "localhost", .host = "localhost", .cpus = cpus, .n_cpus = 1};

static struct {
    int n;
    int64_t job;
    enum run_end end;
    int code;
    int killed, of_code[256];
} last;

static void on_exit_of(void *arg, const struct run_exit *e)
{
    (void)arg;
    last.n++;
    last.job = e->job;
    last.end = e->end;
    last.code = e->code;
    last.killed += e->end == RUN_KILLED;
    if (e->end == RUN_ENDED && e->code >= 0 && e->code < 256)
        last.of_code[e->code]++;
}

static size_t room;

static void on_room(void *arg, size_t at, size_t jobs)
{
    (void)arg;
    assert_int_equal(at, 0);
    room = jobs;
}

static crew_t *open_crew(void)
{
    struct ab_error err = {0};
    struct crew_options options = {folder, folder,     &node,   1,   apprun_find("local", &err),
                                   5,      on_exit_of, on_room, NULL};
    crew_t *crew = crew_new(&options, &err);
    if (!crew)
        fail_msg("%s", err.text);
    memset(&last, 0, sizeof(last));
    return crew;
}

static void start(crew_t *crew, int64_t job, const char *script)
{
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    const char *argv[] = {"/bin/sh", "-c", script, NULL};
    char output[128];
    struct ab_error err = {0};
    snprintf(output, sizeof(output), "%s/job.out", folder);
    struct run_spec spec = {.job = job, .argv = argv, .env = env, .cwd = folder, .output = output};
    if (crew_start(crew, 0, &spec, &err) < 0)
        fail_msg("%s", err.text);
}

static void step(crew_t *crew)
{
    int fds[2];
    crew_fds(crew, fds);
    struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
    int64_t wait = crew_step(crew, ab_now_ms());
    (void)poll(p, 2, wait < 100 ? (int)wait : 100);
}

static void wait_for_exits(crew_t *crew, int n)
{
    for (int64_t end = ab_now_ms() + 30000; last.n < n && ab_now_ms() < end;)
        step(crew);
    assert_int_equal(last.n, n);
}

static void wait_for_file(crew_t *crew, const char *path)
{
    struct ab_buf text = {0};
    for (int64_t end = ab_now_ms() + 30000; ab_now_ms() < end; step(crew)) {
        ab_buf_clear(&text);
        if (access(path, F_OK) == 0 && ab_file_read(path, 100, &text, NULL) == 0 && text.len > 1)
            break;
    }
    assert_true(text.len > 1);
    ab_buf_free(&text);
}

static void a_job_killed_before_its_worker_is_there_never_starts(void **state)
{
    (void)state;
    char path[128];
    AB_AUTO(crew_destroy) crew_t *crew = open_crew();
    start(crew, 7, "echo x > started; sleep 60");
    crew_kill(crew, 7, 1000);
    assert_int_equal(last.n, 0); /* not from within */
    wait_for_exits(crew, 1);
    assert_int_equal(last.job, 7);
    assert_int_equal(last.end, RUN_KILLED);
    assert_int_equal(crew_count(crew), 0);
    start(crew, 8, "exit 3"); /* and the worker comes */
    wait_for_exits(crew, 2);
    assert_int_equal(last.job, 8);
    assert_int_equal(last.end, RUN_ENDED);
    assert_int_equal(last.code, 3);
    snprintf(path, sizeof(path), "%s/started", folder);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_worker_takes_its_jobs_along_and_they_can_run_again(void **state)
{
    (void)state;
    char path[128];
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(crew_destroy) crew_t *crew = open_crew();
    snprintf(path, sizeof(path), "%s/worker", folder);
    start(crew, 9, "echo $PPID > worker; sleep 60");
    wait_for_file(crew, path);
    assert_int_equal(ab_file_read(path, 100, &text, NULL), 0);
    ab_buf_char(&text, '\0');
    assert_int_equal(kill((pid_t)strtol(text.data, NULL, 10), SIGKILL), 0);
    wait_for_exits(crew, 1);
    assert_int_equal(last.job, 9);
    assert_int_equal(last.end, RUN_KILLED);
    start(crew, 9, "exit 4"); /* the same job: its result is of this run */
    wait_for_exits(crew, 2);
    assert_int_equal(last.end, RUN_ENDED);
    assert_int_equal(last.code, 4);
}

static void a_job_that_runs_is_killed(void **state)
{
    (void)state;
    char path[128];
    AB_AUTO(crew_destroy) crew_t *crew = open_crew();
    snprintf(path, sizeof(path), "%s/runs", folder);
    start(crew, 5, "echo runs > runs; exec sleep 60");
    wait_for_file(crew, path);
    crew_kill(crew, 5, 1000);
    wait_for_exits(crew, 1);
    assert_int_equal(last.job, 5);
    assert_int_equal(last.end, RUN_KILLED);
}

static void a_worker_with_64_files_runs_all_its_jobs_some_at_a_time(void **state)
{
    (void)state;
    enum {
        JOBS = 60
    };
    struct rlimit few = {64, 64}; /* for good: the last test */
    struct order_figures f = {0};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    AB_AUTO(crew_destroy) crew_t *crew = open_crew();
    for (int i = 0; i < JOBS; i++) /* more than there is room for: the head would not ask for it */
        start(crew, 100 + i, "sleep 0.4; exit 7");
    for (int64_t end = ab_now_ms() + 10000; f.v[FIGURE_WAITING] == 0 && ab_now_ms() < end;
         step(crew))
        (void)crew_figures(crew, 0, &f);
    assert_true(f.v[FIGURE_WAITING] > 0);
    assert_true(room > 5 && room < JOBS);
    crew_kill(crew, 100 + JOBS - 1, 1000); /* one that waits */
    wait_for_exits(crew, JOBS);
    assert_int_equal(last.killed, 1);
    assert_int_equal(last.of_code[7], JOBS - 1);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/abies-crew-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return ab_remove_tree(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_killed_before_its_worker_is_there_never_starts),
        cmocka_unit_test(a_worker_takes_its_jobs_along_and_they_can_run_again),
        cmocka_unit_test(a_job_that_runs_is_killed),
        cmocka_unit_test(a_worker_with_64_files_runs_all_its_jobs_some_at_a_time),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
