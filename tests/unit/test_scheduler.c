/* test_scheduler.c - batch jobs on this machine, after a module that was killed in mid-submission
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "scheduler/record.h"
#include "scheduler/scheduler.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Killed between the record and the word to the centre: the user may cancel it meanwhile. */
static void what_was_submitted_is_found_by_the_batch_jobs_number(void **state)
{
    (void)state;
    char folder[] = "/tmp/abies-scheduler-XXXXXX";
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    struct record r = {.id = 7,
                       .script = "/bin/true",
                       .project = "local",
                       .queue = "local",
                       .num_nodes = 1,
                       .wall_time_min = 1};
    assert_non_null(mkdtemp(folder));
    assert_int_equal(scheduler_local.find(folder, 7), 0);
    assert_int_equal(record_make(folder, arena, &r, &err), 0);
    assert_int_equal(scheduler_local.find(folder, 7), 7);
    assert_int_equal(scheduler_local.find(folder, 8), 0);
    assert_int_equal(ab_remove_tree(folder, NULL), 0);
}

static const struct scheduler_job *listed(const char *folder, ab_arena_t *arena, int64_t id)
{
    struct scheduler_job *jobs;
    size_t n;
    assert_int_equal(scheduler_local.list(folder, arena, &jobs, &n, NULL), 0);
    for (size_t i = 0; i < n; i++)
        if (jobs[i].id == id)
            return &jobs[i];
    return NULL;
}

/* A record that is older than any start may take: as after a module that was away, or on a machine
 * that is so busy that the job's process needs a minute to come up. */
static void a_job_is_listed_from_its_submission_on_however_slowly_it_starts(void **state)
{
    (void)state;
    char folder[] = "/tmp/abies-scheduler-XXXXXX";
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf script = {0};
    struct ab_error err = {0};
    struct scheduler_past past = {0};
    int64_t id = 0;

    assert_non_null(mkdtemp(folder));
    ab_buf_printf(&script, "%s/script.sh", folder);
    static const char text[] = "echo run >> runs\nuntil [ -e go ]; do sleep 0.05; done\n";
    assert_int_equal(ab_file_write(script.data, text, sizeof(text) - 1, 0700, NULL), 0);
    struct record r = {.id = 7,
                       .script = script.data,
                       .project = "local",
                       .queue = "local",
                       .num_nodes = 1,
                       .wall_time_min = 1,
                       .submitted_us = ab_utc_us() - INT64_C(3600) * 1000000};
    struct scheduler_submit job = {.batch_job_id = 7,
                                   .script = script.data,
                                   .project = "local",
                                   .queue = "local",
                                   .num_nodes = 1,
                                   .wall_time_min = 1};
    assert_int_equal(record_make(folder, arena, &r, &err), 0);
    assert_null(listed(folder, arena, 7));
    assert_int_equal(scheduler_local.submit(folder, &job, &id, &err), 0);
    assert_non_null(listed(folder, arena, 7));                            /* at once */
    assert_int_equal(scheduler_local.submit(folder, &job, &id, &err), 0); /* no second one */
    ab_buf_clear(&script);
    ab_buf_printf(&script, "%s/go", folder);
    assert_int_equal(ab_file_write(script.data, "", 0, 0600, NULL), 0);
    for (int64_t end = ab_now_ms() + 20000; ab_now_ms() < end && listed(folder, arena, 7);)
        (void)poll(NULL, 0, 20);
    assert_int_equal(scheduler_local.past(folder, 7, &past, &err), 0);
    assert_true(past.known && past.has_exit && past.exit_code == 0 && past.end_us > 0);
    ab_buf_clear(&script);
    ab_buf_printf(&script, "%s/runs", folder);
    AB_AUTO(ab_buf_free) struct ab_buf runs = {0};
    assert_int_equal(ab_file_read(script.data, 100, &runs, NULL), 0);
    assert_int_equal(runs.len, 4);
    assert_int_equal(ab_remove_tree(folder, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_submitted_is_found_by_the_batch_jobs_number),
        cmocka_unit_test(a_job_is_listed_from_its_submission_on_however_slowly_it_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
