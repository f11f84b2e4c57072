/* test_scheduler.c - batch jobs on this machine, after a module that was killed in mid-submission
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "scheduler/record.h"
#include "scheduler/scheduler.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_submitted_is_found_by_the_batch_jobs_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
