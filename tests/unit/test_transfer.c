/* test_transfer.c - files in and out, by copy and by rsync over ssh: the right ones, whole, and
 * nowhere else */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "transfer/transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];
static struct ab_site site;
static char location[128]; /* folder of the location */
static const char *ssh_config;
static const struct transfer_kind *kind;

static char *at(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *at(const char *format, ...)
{
    static char paths[8][512];
    static int turn;
    char *out = paths[turn++ % 8];
    va_list args;

    va_start(args, format);
    vsnprintf(out, sizeof(paths[0]), format, args);
    va_end(args);
    return out;
}

static void put_file(const char *path, const char *text)
{
    char *folder = strdup(path);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(ab_mkdirs(folder, 0755, NULL), 0);
    assert_int_equal(ab_file_write(path, text, strlen(text), 0640, NULL), 0);
    free(folder);
}

static bool holds(const char *path, const char *text)
{
    AB_AUTO(ab_buf_free) struct ab_buf bytes = {0};
    return ab_file_read(path, 1 << 20, &bytes, NULL) == 0 && bytes.len == strlen(text)
           && memcmp(bytes.data ? bytes.data : "", text, bytes.len) == 0;
}

static int fresh(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/abies-transfer-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    site.path = strdup(at("%s/site", root));
    site.id = 1;
    snprintf(location, sizeof(location), "%s/lab", root);
    ab_mkdirs(at("%s/site/data", root), 0755, NULL);
    ab_mkdirs(at("%s/site/run", root), 0755, NULL);
    return ab_mkdirs(location, 0755, NULL);
}

static int drop(void **state)
{
    (void)state;
    ab_site_free(&site);
    return ab_remove_tree(root, NULL);
}

/* Runs one task; the arena is the task's. */
static void move(struct transfer_task *task, bool out, struct transfer_item *items, size_t n)
{
    struct ab_error err = {0};
    AB_AUTO(ab_buf_free) struct ab_buf url = {0};

    task->arena = ab_arena_new();
    if (kind == &transfer_local)
        ab_buf_printf(&url, "local://localhost%s", location);
    else
        ab_buf_printf(&url, "rsync://ci%s", location);
    task->site = &site;
    task->id = "t";
    task->dir = ab_strdup(task->arena, at("%s/site/run/spool/t", root));
    assert_int_equal(ab_mkdirs(task->dir, 0700, NULL), 0);
    task->location = ab_strdup(task->arena, url.data);
    task->ssh_config = ssh_config;
    task->out = out;
    task->items = items;
    task->n = n;
    assert_int_equal(transfer_url_parse(task->location, task->arena, &task->url, &err), 0);
    kind->move(task);
    for (size_t i = 0; i < n; i++)
        assert_true(items[i].done == !items[i].error);
}

static void finish(struct transfer_task *task)
{
    ab_arena_destroy(&task->arena);
}

static void files_come_in_under_the_names_of_their_slots(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task task = {0};
    struct transfer_item items[] = {
        {.id = 1,
         .workdir = "a/1",
         .local_path = "matrix.bin",
         .remote_path = "/run 1/it's $HOME.bin"},
        {.id = 2,
         .workdir = "a/2",
         .local_path = "sub/matrix.bin",
         .remote_path = "/run 1/second;.bin"},
        {.id = 3, .workdir = "a/3", .local_path = ".", .remote_path = "/third.bin"},
    };
    struct stat st;

    put_file(at("%s/run 1/it's $HOME.bin", location), "one");
    put_file(at("%s/run 1/second;.bin", location), "two");
    put_file(at("%s/third.bin", location), "three");
    put_file(at("%s/data/a/1/matrix.bin", site.path), "an old one");
    move(&task, false, items, 3);
    assert_true(items[0].done && items[1].done && items[2].done);
    assert_true(holds(at("%s/data/a/1/matrix.bin", site.path), "one"));
    assert_true(holds(at("%s/data/a/2/sub/matrix.bin", site.path), "two"));
    assert_true(holds(at("%s/data/a/3/third.bin", site.path), "three"));
    assert_int_equal(stat(at("%s/data/a/1/matrix.bin", site.path), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(items[2].bytes, 5);
}

static void files_go_out_to_folders_that_are_made(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task task = {0};
    struct transfer_item items[] = {
        {.id = 1, .workdir = "a/1", .local_path = "values.txt", .remote_path = "/out/x/1.txt"},
        {.id = 2, .workdir = "a/2", .local_path = "values.txt", .remote_path = "/out/x/2 *.txt"},
    };

    put_file(at("%s/data/a/1/values.txt", site.path), "1");
    put_file(at("%s/data/a/2/values.txt", site.path), "2");
    move(&task, true, items, 2);
    assert_true(items[0].done && items[1].done);
    assert_true(holds(at("%s/out/x/1.txt", location), "1"));
    assert_true(holds(at("%s/out/x/2 *.txt", location), "2"));
    assert_true(holds(at("%s/data/a/1/values.txt", site.path), "1"));
}

static void folders_come_and_go_with_all_that_is_in_them(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task in = {0}, out = {0};
    struct transfer_item first = {
        .id = 1, .workdir = "w", .local_path = "tree", .remote_path = "/src", .recursive = true};
    struct transfer_item second = {.id = 2,
                                   .workdir = "w",
                                   .local_path = "tree",
                                   .remote_path = "/dst/deep",
                                   .recursive = true};

    put_file(at("%s/src/a.txt", location), "a");
    put_file(at("%s/src/b/c/d.txt", location), "d");
    move(&in, false, &first, 1);
    assert_true(first.done);
    assert_true(holds(at("%s/data/w/tree/a.txt", site.path), "a"));
    assert_true(holds(at("%s/data/w/tree/b/c/d.txt", site.path), "d"));
    move(&out, true, &second, 1);
    assert_true(second.done);
    assert_true(holds(at("%s/dst/deep/b/c/d.txt", location), "d"));
}

static void one_missing_file_fails_alone_and_says_why(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task in = {0}, out = {0};
    struct transfer_item coming[] = {
        {.id = 1, .workdir = "w1", .local_path = "x", .remote_path = "/there"},
        {.id = 2, .workdir = "w2", .local_path = "x", .remote_path = "/nowhere"},
    };
    struct transfer_item going[] = {
        {.id = 3, .workdir = "w1", .local_path = "x", .remote_path = "/copy"},
        {.id = 4, .workdir = "w2", .local_path = "x", .remote_path = "/copy2"},
    };

    put_file(at("%s/there", location), "1");
    move(&in, false, coming, 2);
    assert_true(coming[0].done);
    assert_false(coming[1].done);
    assert_non_null(strstr(coming[1].error, "nowhere"));
    move(&out, true, going, 2);
    assert_true(going[0].done);
    assert_false(going[1].done);
}

static void nothing_leaves_its_folder(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task in = {0}, out = {0};
    struct transfer_item coming[] = {
        {.id = 1, .workdir = "../evil", .local_path = "x", .remote_path = "/f"},
        {.id = 2, .workdir = "w", .local_path = "../../evil", .remote_path = "/f"},
        {.id = 3, .workdir = "w", .local_path = "/tmp/evil", .remote_path = "/f"},
        {.id = 4, .workdir = "w", .local_path = "x", .remote_path = "/../secret"},
        {.id = 5, .workdir = "/tmp/evil", .local_path = "x", .remote_path = "/f"},
        {.id = 6, .workdir = "linked", .local_path = "x", .remote_path = "/f"},
        {.id = 7, .workdir = "w", .local_path = "away/x", .remote_path = "/f"},
        {.id = 8, .workdir = ".", .local_path = "x", .remote_path = "/f"},
    };
    struct transfer_item going[] = {
        {.id = 1, .workdir = "w", .local_path = "secret", .remote_path = "/stolen"},
        {.id = 2, .workdir = "w", .local_path = "away/secret", .remote_path = "/stolen"},
        {.id = 3, .workdir = "w", .local_path = "f", .remote_path = "/a/../../stolen"},
    };

    put_file(at("%s/f", location), "f");
    put_file(at("%s/secret", root), "secret");
    put_file(at("%s/data/w/f", site.path), "f");
    assert_int_equal(symlink(root, at("%s/data/linked", site.path)), 0);
    assert_int_equal(symlink(root, at("%s/data/w/away", site.path)), 0);
    assert_int_equal(symlink(at("%s/secret", root), at("%s/data/w/secret", site.path)), 0);
    move(&in, false, coming, AB_COUNT(coming));
    for (size_t i = 0; i < AB_COUNT(coming); i++)
        if (coming[i].done)
            fail_msg("item %zu came in", i);
    move(&out, true, going, AB_COUNT(going));
    for (size_t i = 0; i < AB_COUNT(going); i++)
        if (going[i].done)
            fail_msg("item %zu went out", i);
    assert_int_not_equal(access(at("%s/x", root), F_OK), 0);
    assert_int_not_equal(access(at("%s/evil", root), F_OK), 0);
    assert_int_not_equal(access(at("%s/site/evil", root), F_OK), 0);
    assert_int_not_equal(access(at("%s/stolen", location), F_OK), 0);
    assert_int_not_equal(access(at("%s/stolen", root), F_OK), 0);
}

static void a_folder_needs_a_recursive_slot(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task task = {0};
    struct transfer_item item = {.id = 1, .workdir = "w", .local_path = "x", .remote_path = "/src"};

    put_file(at("%s/src/a", location), "a");
    move(&task, false, &item, 1);
    assert_false(item.done);
    assert_non_null(strstr(item.error, "recursive"));
}

static void a_fifo_does_not_hold_the_worker(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task task = {0};
    struct transfer_item item = {
        .id = 1, .workdir = "w", .local_path = "pipe", .remote_path = "/x"};

    assert_int_equal(ab_mkdirs(at("%s/data/w", site.path), 0755, NULL), 0);
    assert_int_equal(mkfifo(at("%s/data/w/pipe", site.path), 0600), 0);
    move(&task, true, &item, 1);
    assert_false(item.done);
}

static void running_a_task_twice_gives_the_same_files(void **state)
{
    (void)state;
    struct transfer_item item = {.id = 1, .workdir = "w", .local_path = "x", .remote_path = "/f"};

    put_file(at("%s/f", location), "f");
    for (int i = 0; i < 2; i++) {
        AB_AUTO(finish) struct transfer_task task = {0};
        move(&task, false, &item, 1);
        assert_true(item.done);
        assert_true(holds(at("%s/data/w/x", site.path), "f"));
    }
}

/* ------------------------------------------------------------------ without moving anything */

static void only_plain_urls_are_taken(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_url url;
    static const char *const wrong[] = {
        "nothing",
        "://x",
        "rsync://-oProxyCommand=x/y",
        "rsync://a b/y",
        "rsync://u;x@h/y",
        "rsync://h:0/y",
        "rsync://h:x/y",
        "rsync://h/../y",
        "rsync://h/a/..",
        "rsync://h/a\nb",
        "rsync://-u@h/y",
        "rsync://h/a b",
        "rsync://h/a%2",
        "rsync://h/a%zz",
        "rsync://h/a%00b",
        "rsync://h/%2e%2e/etc",
        "rsync://h/a%2f..",
        "rsync://h/a%0ab",
    };

    for (size_t i = 0; i < AB_COUNT(wrong); i++)
        if (transfer_url_parse(wrong[i], arena, &url, NULL) == 0)
            fail_msg("accepted: %s", wrong[i]);
    assert_int_equal(
        transfer_url_parse("rsync://ana@dtn.example.org:2222/data/x", arena, &url, NULL), 0);
    assert_string_equal(url.user, "ana");
    assert_string_equal(url.host, "dtn.example.org");
    assert_int_equal(url.port, 2222);
    assert_string_equal(url.path, "/data/x");
    assert_int_equal(transfer_url_parse("rsync://alias", arena, &url, NULL), 0);
    assert_string_equal(url.path, "/");
    assert_int_equal(transfer_url_parse("local://localhost/my%20data%2Fx%25", arena, &url, NULL),
                     0);
    assert_string_equal(url.path, "/my data/x%");
    assert_null(transfer_of("globus"));
}

static void another_machines_folder_is_no_local_location(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_url url;
    struct ab_error err = {0};

    assert_int_equal(transfer_url_parse("local://elsewhere.example.org/data", arena, &url, NULL),
                     0);
    assert_int_equal(transfer_local.check(&url, &err), -1);
    assert_non_null(strstr(err.text, "rsync://"));
}

static void a_task_survives_its_file(void **state)
{
    (void)state;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_item item = {.id = 7,
                                 .job_id = 8,
                                 .workdir = "w \"x\"",
                                 .local_path = "l",
                                 .remote_path = "/r",
                                 .recursive = true};
    struct transfer_task task = {.arena = arena,
                                 .id = "t",
                                 .location = "local://localhost/x",
                                 .out = true,
                                 .retries = 2,
                                 .items = &item,
                                 .n = 1};
    struct transfer_task back = {.arena = arena};
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};

    transfer_task_json(&task, &json);
    assert_int_equal(transfer_task_read(&back, json.data, json.len, NULL), 0);
    assert_string_equal(back.items[0].workdir, item.workdir);
    assert_true(back.out && back.items[0].recursive && back.n == 1 && back.items[0].job_id == 8);
    assert_string_equal(back.url.path, "/x");
    for (size_t n = 0; n < json.len - 2; n++) {
        struct transfer_task torn = {.arena = arena};
        assert_int_equal(transfer_task_read(&torn, json.data, n, NULL), -1);
    }
}

static void a_host_that_cannot_be_reached_fails_the_items_with_its_answer(void **state)
{
    (void)state;
    AB_AUTO(finish) struct transfer_task task = {0};
    struct transfer_item item = {.id = 1, .workdir = "w", .local_path = "x", .remote_path = "/f"};
    const char *config = ssh_config;

    ssh_config = "/dev/null"; /* "ci" is no host then */
    move(&task, false, &item, 1);
    ssh_config = config;
    assert_false(item.done);
    assert_non_null(strstr(item.error, "rsync ended with status"));
}

/* ------------------------------------------------------------------ */

static void run_sshd(const char *folder, const char *what)
{
    const char *argv[] = {"tests/lib/sshd.sh", folder, what, NULL};
    struct ab_spawn spawn = {.argv = argv, .in = -1, .out = -1, .err = 2};
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_error err = {0};
    int status;

    if (ab_run_command(&spawn, 20000, &out, &status, &err) < 0 || ab_exit_code(status) != 0)
        fail_msg("sshd.sh %s: %s %.*s", what, err.text, (int)out.len, out.data ? out.data : "");
}

static char sshd[] = "/tmp/abies-sshd-XXXXXX";

static int use_copy(void **state)
{
    (void)state;
    kind = &transfer_local;
    return 0;
}

static int use_rsync(void **state)
{
    (void)state;
    kind = &transfer_rsync;
    if (!mkdtemp(sshd))
        return -1;
    run_sshd(sshd, "start");
    ssh_config = strdup(at("%s/ssh_config", sshd));
    return 0;
}

static int stop_sshd(void **state)
{
    (void)state;
    run_sshd(sshd, "stop");
    free((void *)(uintptr_t)ssh_config);
    return ab_remove_tree(sshd, NULL);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh, drop)
#define BOTH                                                                                       \
    TEST(files_come_in_under_the_names_of_their_slots),                                            \
        TEST(files_go_out_to_folders_that_are_made),                                               \
        TEST(folders_come_and_go_with_all_that_is_in_them),                                        \
        TEST(one_missing_file_fails_alone_and_says_why), TEST(nothing_leaves_its_folder),          \
        TEST(a_folder_needs_a_recursive_slot), TEST(a_fifo_does_not_hold_the_worker),              \
        TEST(running_a_task_twice_gives_the_same_files)

int main(void)
{
    const struct CMUnitTest copy[] = {
        BOTH,
        cmocka_unit_test(only_plain_urls_are_taken),
        cmocka_unit_test(another_machines_folder_is_no_local_location),
        cmocka_unit_test(a_task_survives_its_file),
    };
    const struct CMUnitTest rsync[] = {
        BOTH,
        TEST(a_host_that_cannot_be_reached_fails_the_items_with_its_answer),
    };
    int failed = cmocka_run_group_tests_name("copy", copy, use_copy, NULL);
    return failed + cmocka_run_group_tests_name("rsync", rsync, use_rsync, stop_sshd);
}
