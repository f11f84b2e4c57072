/* test_outbox.c - updates wait on disk, in order, and nothing that a crash leaves makes one be lost
 * or sent as another call than before
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/file.h"
#include "site/outbox.h"
#include "site/outbox_file.h"
#include "site/post.h"

#include <inttypes.h>
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

static char folder[64];

static int fresh_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/abies-outbox-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    return ab_remove_tree(folder, NULL);
}

static outbox_t *reopen(void)
{
    struct ab_error err = {0};
    outbox_t *box = outbox_open(folder, OUTBOX_LIMIT, &err);
    if (!box)
        fail_msg("%s", err.text);
    return box;
}

static int put(outbox_t *box, enum outbox_target target, int64_t id, const char *state)
{
    char json[128];
    snprintf(json, sizeof(json), "{\"id\":%" PRId64 ",\"state\":\"%s\"}", id, state);
    return outbox_put(box, target, json, strlen(json), NULL);
}

static int next(outbox_t *box, struct outbox_call *call)
{
    int rc = outbox_next(box, call, NULL);
    if (rc > 0)
        ab_buf_char(&call->body, '\0');
    return rc;
}

static void free_body(struct outbox_call *call)
{
    ab_buf_free(&call->body);
}

static size_t waiting(outbox_t *box)
{
    struct outbox_figures figures;
    outbox_figures(box, &figures);
    return figures.updates;
}

static void the_second_update_of_a_job_goes_in_a_later_call(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};

    assert_int_equal(next(box, &call), 0);
    put(box, OUTBOX_JOBS, 1, "A");
    put(box, OUTBOX_JOBS, 2, "A");
    put(box, OUTBOX_TRANSFERS, 1, "T");
    put(box, OUTBOX_JOBS, 1, "B");
    put(box, OUTBOX_JOBS, 3, "A");
    assert_int_equal(next(box, &call), 1);
    assert_string_equal(
        call.body.data,
        "[{\"id\":1,\"state\":\"A\"},{\"id\":2,\"state\":\"A\"},{\"id\":3,\"state\":\"A\"}]");
    assert_int_equal(outbox_done(box, call.number, NULL), 0);
    assert_int_equal(next(box, &call), 1);
    assert_int_equal(call.target, OUTBOX_TRANSFERS);
    assert_int_equal(outbox_done(box, call.number, NULL), 0);
    assert_int_equal(next(box, &call), 1);
    assert_string_equal(call.body.data, "[{\"id\":1,\"state\":\"B\"}]");
    assert_int_equal(outbox_done(box, call.number, NULL), 0);
    assert_int_equal(next(box, &call), 0);
    assert_int_equal(waiting(box), 0);
}

static void a_call_that_was_not_confirmed_is_the_same_after_a_restart(void **state)
{
    (void)state;
    outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call before = {0}, after = {0};

    for (int i = 1; i <= 10; i++)
        put(box, OUTBOX_JOBS, i, "A");
    assert_int_equal(outbox_sync(box, NULL), 0);
    assert_int_equal(next(box, &before), 1);
    for (int i = 11; i <= 20; i++)
        put(box, OUTBOX_JOBS, i, "A");
    outbox_close(&box);
    box = reopen();
    assert_int_equal(waiting(box), 20);
    assert_int_equal(next(box, &after), 1);
    assert_string_equal(before.key, after.key);
    assert_string_equal(before.body.data, after.body.data);
    assert_int_equal(outbox_done(box, after.number, NULL), 0);
    assert_int_equal(next(box, &after), 1);
    assert_string_not_equal(before.key, after.key);
    assert_int_equal(after.n, 10);
    outbox_close(&box);
}

static void updates_that_can_never_be_done_are_dropped_and_the_rest_is_a_new_call(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call first = {0}, second = {0};
    bool bad[3] = {false, true, false};

    for (int i = 1; i <= 3; i++)
        put(box, OUTBOX_JOBS, i, "A");
    assert_int_equal(next(box, &first), 1);
    assert_int_equal(outbox_drop(box, first.number, bad, NULL), 0);
    outbox_close(&box);
    box = reopen();
    assert_int_equal(next(box, &second), 1);
    assert_string_not_equal(first.key, second.key);
    assert_string_equal(second.body.data,
                        "[{\"id\":1,\"state\":\"A\"},{\"id\":3,\"state\":\"A\"}]");
}

static void halves_take_the_place_of_a_call_that_is_split(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};
    size_t seen = 0, calls = 0;

    for (int i = 1; i <= 5; i++)
        put(box, OUTBOX_JOBS, i, "A");
    assert_int_equal(next(box, &call), 1);
    assert_int_equal(outbox_split(box, call.number, NULL), 0);
    outbox_close(&box);
    box = reopen();
    while (next(box, &call) > 0) {
        assert_true(call.n == 2 || call.n == 3);
        seen += call.n;
        calls++;
        assert_int_equal(outbox_done(box, call.number, NULL), 0);
    }
    assert_int_equal(seen, 5);
    assert_int_equal(calls, 2);
}

static void a_parked_call_lets_others_pass_but_not_later_updates_of_its_job(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};

    put(box, OUTBOX_JOBS, 1, "A");
    assert_int_equal(next(box, &call), 1);
    outbox_park(box, call.number, 100000);
    put(box, OUTBOX_JOBS, 1, "B");
    put(box, OUTBOX_JOBS, 2, "A");
    assert_int_equal(next(box, &call), 1);
    assert_string_equal(call.body.data, "[{\"id\":2,\"state\":\"A\"}]");
    assert_int_equal(outbox_done(box, call.number, NULL), 0);
    assert_int_equal(next(box, &call), 0);
    assert_int_equal(waiting(box), 2);
}

static void park_all(outbox_t *box)
{
    AB_AUTO(free_body) struct outbox_call call = {0};
    while (next(box, &call) == 1)
        outbox_park(box, call.number, 100000);
}

static void any_number_of_parked_updates_lets_others_pass(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};

    for (int64_t id = 1; id <= 12000; id++)
        put(box, OUTBOX_JOBS, id, "A");
    park_all(box);
    for (int64_t id = 1; id <= 12000; id++) /* these wait for the first ones */
        put(box, OUTBOX_JOBS, id, "B");
    assert_int_equal(next(box, &call), 0);
    put(box, OUTBOX_JOBS, 12001, "A");
    assert_int_equal(next(box, &call), 1);
    assert_string_equal(call.body.data, "[{\"id\":12001,\"state\":\"A\"}]");
    assert_int_equal(waiting(box), 24001);
}

static void jobs_that_wait_for_a_parked_call_do_not_keep_transfers_back(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};

    put(box, OUTBOX_JOBS, 1, "A");
    park_all(box);
    put(box, OUTBOX_JOBS, 1, "B");
    put(box, OUTBOX_TRANSFERS, 1, "done");
    assert_int_equal(next(box, &call), 1);
    assert_int_equal(call.target, OUTBOX_TRANSFERS);
    assert_string_equal(call.body.data, "[{\"id\":1,\"state\":\"done\"}]");
}

static void a_full_outbox_says_so(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(outbox_close) outbox_t *box = outbox_open(folder, 100, &err);

    assert_int_equal(put(box, OUTBOX_JOBS, 1, "A"), 0);
    char json[128];
    snprintf(json, sizeof(json), "{\"id\":2,\"data\":\"%080d\"}", 0);
    assert_int_equal(outbox_put(box, OUTBOX_JOBS, json, strlen(json), &err), -1);
    assert_int_equal(err.code, AB_EBUSY);
    assert_string_equal(err.kind, "outbox_full");
    assert_int_equal(waiting(box), 1);
}

static void what_is_no_update_is_refused(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    static const char *const wrong[] = {"",          "{}",  "[]", "{\"id\":0}", "{\"id\":\"1\"}",
                                        "{\"id\":1", "null"};

    for (size_t i = 0; i < AB_COUNT(wrong); i++)
        assert_int_equal(outbox_put(box, OUTBOX_JOBS, wrong[i], strlen(wrong[i]), NULL), -1);
    assert_int_equal(waiting(box), 0);
}

static void draining_looks_at_one_target_up_to_a_number(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};

    put(box, OUTBOX_JOBS, 1, "A");
    uint64_t last = outbox_last(box);
    put(box, OUTBOX_TRANSFERS, 1, "A");
    assert_true(outbox_waits(box, OUTBOX_JOBS, last));
    assert_false(outbox_waits(box, OUTBOX_TRANSFERS, last));
    assert_true(outbox_waits(box, OUTBOX_TRANSFERS, outbox_last(box)));
    next(box, &call);
    outbox_done(box, call.number, NULL);
    assert_false(outbox_waits(box, OUTBOX_JOBS, last));
}

/* ------------------------------------------------------------------ crashes */

static void copy_prefix(const char *from, const char *to, size_t n)
{
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    assert_int_equal(ab_file_read(from, 1 << 20, &bytes, NULL), 0);
    assert_true(n <= bytes.len);
    assert_int_equal(ab_file_write(to, bytes.data, n, 0600, NULL), 0);
}

/* The file as it was after the first n bytes: what is whole is there, in order, nothing else. */
static void a_file_cut_at_any_byte_gives_a_prefix_of_the_updates(void **state)
{
    (void)state;
    outbox_t *box = reopen();
    AB_AUTO(ab_free) char *file = outbox_file_name(folder, 1);
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    AB_AUTO(free_body) struct outbox_call call = {0};

    for (int i = 1; i <= 4; i++)
        put(box, OUTBOX_JOBS, i, "A");
    next(box, &call);
    put(box, OUTBOX_JOBS, 1, "B");
    outbox_sync(box, NULL);
    outbox_close(&box);
    assert_int_equal(ab_file_read(file, 1 << 20, &bytes, NULL), 0);
    char name[] = "/tmp/abies-cut-XXXXXX";
    assert_non_null(mkdtemp(name));
    size_t most = 0;
    for (size_t n = 0; n <= bytes.len; n++) {
        AB_AUTO(ab_free) char *cut = outbox_file_name(name, 1);
        copy_prefix(file, cut, n);
        outbox_t *torn = outbox_open(name, OUTBOX_LIMIT, NULL);
        assert_non_null(torn);
        size_t there = waiting(torn);
        assert_true(there >= most && there <= 5);
        most = there;
        AB_AUTO(free_body) struct outbox_call got = {0};
        if (next(torn, &got) > 0 && there == 5) {
            assert_string_equal(got.key, call.key);
            assert_string_equal(got.body.data, call.body.data);
        }
        outbox_close(&torn);
        assert_int_equal(ab_remove_tree(name, NULL), 0);
        assert_int_equal(ab_mkdirs(name, 0700, NULL), 0);
    }
    assert_int_equal(most, 5);
    assert_int_equal(ab_remove_tree(name, NULL), 0);
}

/* Any byte of it turned over: it opens or says which file is wrong, and never invents an update. */
static void a_damaged_file_never_invents_updates(void **state)
{
    (void)state;
    outbox_t *box = reopen();
    AB_AUTO(ab_free) char *file = outbox_file_name(folder, 1);
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    AB_AUTO(free_body) struct outbox_call call = {0};

    for (int i = 1; i <= 3; i++)
        put(box, OUTBOX_JOBS, i, "A");
    next(box, &call);
    outbox_close(&box);
    assert_int_equal(ab_file_read(file, 1 << 20, &bytes, NULL), 0);
    for (size_t i = 0; i < bytes.len; i++) {
        char name[] = "/tmp/abies-bad-XXXXXX";
        assert_non_null(mkdtemp(name));
        AB_AUTO(ab_free) char *bad = outbox_file_name(name, 1);
        bytes.data[i] = (char)~bytes.data[i];
        assert_int_equal(ab_file_write(bad, bytes.data, bytes.len, 0600, NULL), 0);
        bytes.data[i] = (char)~bytes.data[i];
        struct ab_error err = {0};
        AB_AUTO(outbox_close) outbox_t *torn = outbox_open(name, OUTBOX_LIMIT, &err);
        assert_true(torn ? waiting(torn) <= 3 : *err.text != '\0');
        assert_int_equal(ab_remove_tree(name, NULL), 0);
    }
}

/* A child puts updates and says each number when it is on disk; it is killed at some moment. */
static void what_was_confirmed_before_a_kill_is_there_after_it(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        int pipe_fds[2];
        assert_int_equal(pipe(pipe_fds), 0);
        outbox_t *before = reopen();
        size_t old = waiting(before);
        outbox_close(&before);
        pid_t pid = fork();
        if (pid == 0) {
            outbox_t *box = outbox_open(folder, OUTBOX_LIMIT, NULL);
            for (int i = 1; box; i++) {
                if (put(box, OUTBOX_JOBS, i, "A") < 0 || outbox_sync(box, NULL) < 0
                    || write(pipe_fds[1], "x", 1) != 1)
                    break;
            }
            _exit(1);
        }
        close(pipe_fds[1]);
        char c;
        size_t confirmed = 0;
        for (int i = 0; i < 1 + round * 7 && read(pipe_fds[0], &c, 1) == 1; i++)
            confirmed++;
        kill(pid, SIGKILL);
        while (read(pipe_fds[0], &c, 1) == 1)
            confirmed++;
        close(pipe_fds[0]);
        waitpid(pid, NULL, 0);
        outbox_t *box = reopen();
        size_t there = waiting(box);
        assert_true(there >= old + confirmed && there <= old + confirmed + 1);
        outbox_close(&box);
    }
}

static void a_disk_that_fails_in_the_middle_loses_nothing_later(void **state)
{
    (void)state;
    outbox_t *box = reopen();

    assert_int_equal(put(box, OUTBOX_JOBS, 1, "A"), 0);
    ab_fault_arm(1);
    assert_int_equal(put(box, OUTBOX_JOBS, 2, "A"), -1);
    assert_true(ab_fault_fired());
    ab_fault_arm(0);
    assert_int_equal(put(box, OUTBOX_JOBS, 3, "A"), 0);
    assert_int_equal(outbox_sync(box, NULL), 0);
    outbox_close(&box);
    box = reopen();
    assert_int_equal(waiting(box), 2);
    outbox_close(&box);
}

static void files_of_finished_updates_go_away(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    uint64_t *files;
    size_t n;

    for (int round = 1; round <= 12; round++) {
        ab_buf_clear(&json);
        ab_buf_printf(&json, "{\"id\":%d,\"data\":\"%01000000d\"}", round, 0);
        assert_int_equal(outbox_put(box, OUTBOX_JOBS, json.data, json.len, NULL), 0);
        assert_int_equal(outbox_sync(box, NULL), 0);
        assert_int_equal(outbox_next(box, &call, NULL), 1);
        assert_int_equal(outbox_done(box, call.number, NULL), 0);
        assert_int_equal(outbox_sync(box, NULL), 0);
    }
    assert_int_equal(outbox_files(folder, &files, &n, NULL), 0);
    assert_true(n <= 2);
    free(files);
}

/* ------------------------------------------------------------------ who is to blame */

static void an_answer_names_the_updates_that_can_never_be_done(void **state)
{
    (void)state;
    AB_AUTO(outbox_close) outbox_t *box = reopen();
    AB_AUTO(free_body) struct outbox_call call = {0};
    static const struct {
        const char *body;
        bool any, bad[3];
    } cases[] = {
        {"{\"detail\":\"no\",\"items\":[{\"index\":1,\"reason\":\"gone\"}]}",
         true,
         {false, true, false}},
        {"{\"detail\":\"no\",\"items\":[{\"id\":30,\"reason\":\"gone\"},{\"index\":0}]}",
         true,
         {true, false, true}},
        {"{\"detail\":[{\"loc\":[\"body\",2,\"state\"],\"msg\":\"x\"}]}",
         true,
         {false, false, true}},
        {"{\"detail\":[{\"loc\":[\"body\"],\"msg\":\"x\"}]}", false, {false, false, false}},
        {"{\"detail\":\"no\"}", false, {false, false, false}},
        {"{\"detail\":\"no\",\"items\":[{\"index\":7},{\"id\":99},{\"index\":-1},3]}",
         false,
         {false, false, false}},
        {"<html>", false, {false, false, false}},
        {"", false, {false, false, false}},
    };

    put(box, OUTBOX_JOBS, 10, "A");
    put(box, OUTBOX_JOBS, 20, "A");
    put(box, OUTBOX_JOBS, 30, "A");
    assert_int_equal(next(box, &call), 1);
    for (size_t i = 0; i < AB_COUNT(cases); i++) {
        bool bad[3] = {false};
        assert_int_equal(post_blame(cases[i].body, strlen(cases[i].body), box, &call, bad),
                         cases[i].any);
        assert_memory_equal(bad, cases[i].bad, sizeof(bad));
    }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_second_update_of_a_job_goes_in_a_later_call),
        TEST(a_call_that_was_not_confirmed_is_the_same_after_a_restart),
        TEST(updates_that_can_never_be_done_are_dropped_and_the_rest_is_a_new_call),
        TEST(halves_take_the_place_of_a_call_that_is_split),
        TEST(a_parked_call_lets_others_pass_but_not_later_updates_of_its_job),
        TEST(any_number_of_parked_updates_lets_others_pass),
        TEST(jobs_that_wait_for_a_parked_call_do_not_keep_transfers_back),
        TEST(a_full_outbox_says_so),
        TEST(what_is_no_update_is_refused),
        TEST(draining_looks_at_one_target_up_to_a_number),
        TEST(a_file_cut_at_any_byte_gives_a_prefix_of_the_updates),
        TEST(a_damaged_file_never_invents_updates),
        TEST(what_was_confirmed_before_a_kill_is_there_after_it),
        TEST(a_disk_that_fails_in_the_middle_loses_nothing_later),
        TEST(files_of_finished_updates_go_away),
        TEST(an_answer_names_the_updates_that_can_never_be_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
