/* test_site.c - the site's folder: found, locked by one, and left by nobody */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "site/sync.h"
#include "sitedir/site.h"
#include "sitedir/workdir.h"
#include "sweep/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t clock_ahead_sec;

static char root[64];

static char *at(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *out = paths[turn++ % 4];
    snprintf(out, sizeof(paths[0]), "%s/%s", root, name);
    return out;
}

static void put(const char *name, const char *text)
{
    assert_int_equal(ab_file_write(at(name), text, strlen(text), 0600, NULL), 0);
}

static int fresh(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/abies-site-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    put(".abies-site", "42\n");
    return ab_mkdirs(at("run"), 0700, NULL);
}

static int drop(void **state)
{
    (void)state;
    unsetenv("ABIES_SITE_PATH");
    if (chdir("/") < 0)
        return -1;
    return ab_remove_tree(root, NULL);
}

static struct ab_site found(void)
{
    struct ab_site site;
    assert_int_equal(ab_site_find(&site, root, NULL), 0);
    return site;
}

/* ------------------------------------------------------------------ finding */

static void the_nearest_folder_upwards_is_the_site(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = {0};
    struct ab_error err = {0};

    assert_int_equal(ab_mkdirs(at("data/a/b"), 0755, NULL), 0);
    assert_int_equal(chdir(at("data/a/b")), 0);
    assert_int_equal(ab_site_find(&site, NULL, &err), 0);
    assert_string_equal(site.path, root);
    assert_int_equal(site.id, 42);
    ab_site_free(&site);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(ab_site_find(&site, NULL, &err), -1);
    assert_int_equal(err.code, AB_ENOENT);
    setenv("ABIES_SITE_PATH", root, 1);
    assert_int_equal(ab_site_find(&site, NULL, &err), 0);
}

static void a_folder_without_a_number_is_no_site(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "x", "0", "-1", "42 43", "99999999999999999999999"};

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        struct ab_site site;
        put(".abies-site", wrong[i]);
        assert_int_equal(ab_site_find(&site, root, NULL), -1);
    }
    unlink(at(".abies-site"));
    struct ab_site site;
    assert_int_equal(ab_site_find(&site, root, NULL), -1);
}

static void the_socket_folder_is_short_private_and_the_sites_own(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    struct ab_site other = {.path = (char *)"/elsewhere", .id = 42};
    AB_AUTO(ab_free) char *one = ab_site_runtime_dir(&site, NULL);
    AB_AUTO(ab_free) char *two = ab_site_runtime_dir(&other, NULL);
    struct stat st;

    assert_non_null(one);
    assert_string_not_equal(one, two);
    assert_true(strlen(one) + strlen("/broker.sock") < 107);
    assert_int_equal(stat(one, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(rmdir(two), 0);
    assert_int_equal(chmod(one, 0777), 0);
    assert_null(ab_site_runtime_dir(&site, NULL));
    assert_int_equal(chmod(one, 0700), 0);
}

/* ------------------------------------------------------------------ the lock */

static void one_holder_at_a_time(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    struct ab_site_owner owner;
    struct ab_error err = {0};

    assert_int_equal(ab_site_owner(&site, &owner, NULL), 0);
    ab_site_lock_t *lock = ab_site_lock(&site, &err);
    assert_non_null(lock);
    assert_int_equal(ab_site_owner(&site, &owner, NULL), 1);
    assert_true(owner.alive && owner.here && owner.pid == getpid());
    assert_null(ab_site_lock(&site, &err));
    assert_int_equal(err.code, AB_ECONFLICT);
    assert_int_equal(ab_site_lock_touch(lock, NULL), 0);
    ab_site_unlock(&lock);
    assert_int_equal(ab_site_owner(&site, &owner, NULL), 0);
    lock = ab_site_lock(&site, &err);
    assert_non_null(lock);
    ab_site_unlock(&lock);
}

static void the_lock_of_a_killed_process_is_taken_over(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        ab_site_lock_t *held = ab_site_lock(&site, NULL);
        (void)!write(ready[1], held ? "y" : "n", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    assert_null(ab_site_lock(&site, NULL));
    kill(pid, SIGKILL);
    ab_site_lock_t *lock =
        ab_site_lock(&site, NULL); /* it may be a zombie still: we have not waited */
    assert_non_null(lock);
    waitpid(pid, NULL, 0);
    ab_site_unlock(&lock);
    close(ready[0]);
    close(ready[1]);
}

/* In place of libc's: a machine whose clock is an hour ahead of the file server's. */
time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += clock_ahead_sec;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

static void a_clock_that_is_wrong_takes_no_lock_over(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    struct ab_error err = {0};

    put("run/lock", "login7.example.org\n1234\n5678\n");
    clock_ahead_sec = 3600;
    ab_site_lock_t *lock = ab_site_lock(&site, &err);
    clock_ahead_sec = 0;
    assert_null(lock);
    assert_non_null(strstr(err.text, "login7.example.org"));
    struct timeval old[2] = {{.tv_sec = time(NULL) - 300}, {.tv_sec = time(NULL) - 300}};
    assert_int_equal(utimes(at("run/lock"), old), 0);
    clock_ahead_sec = -3600;
    lock = ab_site_lock(&site, &err);
    clock_ahead_sec = 0;
    assert_non_null(lock);
    ab_site_unlock(&lock);
}

static void the_lock_of_another_host_counts_while_it_is_touched(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    struct timeval old[2] = {{.tv_sec = time(NULL) - 300}, {.tv_sec = time(NULL) - 300}};
    struct ab_error err = {0};

    put("run/lock", "login7.example.org\n1234\n5678\n");
    assert_null(ab_site_lock(&site, &err));
    assert_non_null(strstr(err.text, "login7.example.org"));
    assert_int_equal(utimes(at("run/lock"), old), 0);
    ab_site_lock_t *lock = ab_site_lock(&site, &err);
    assert_non_null(lock);
    /* the other one wakes up and takes it back: ours is lost, and not removed by us */
    put("run/lock", "login7.example.org\n1234\n5678\n");
    assert_int_equal(ab_site_lock_touch(lock, &err), -1);
    assert_int_equal(err.code, AB_ECONFLICT);
    ab_site_unlock(&lock);
    assert_int_equal(access(at("run/lock"), F_OK), 0);
}

static void a_reused_pid_is_not_the_holder(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    char text[400], host[256];

    gethostname(host, sizeof(host));
    snprintf(text, sizeof(text), "%s\n%d\n%" PRIu64 "\n", host, (int)getppid(),
             ab_pid_start_time(getppid()) + 1);
    put("run/lock", text);
    ab_site_lock_t *lock = ab_site_lock(&site, NULL);
    assert_non_null(lock);
    ab_site_unlock(&lock);
}

static void of_many_starters_one_gets_the_lock(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    int wins = 0, go[2];

    put("run/lock", "gone\n1\n1\n");
    struct timeval old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimes(at("run/lock"), old), 0);
    assert_int_equal(pipe(go), 0);
    for (int i = 0; i < 12; i++) {
        if (fork() == 0) {
            char c;
            (void)!read(go[0], &c, 1);
            ab_site_lock_t *lock = ab_site_lock(&site, NULL);
            usleep(1500000); /* longer than the others wait */
            _exit(lock ? 1 : 0);
        }
    }
    (void)!write(go[1], "xxxxxxxxxxxx", 12);
    for (int i = 0, status; i < 12; i++) {
        assert_true(wait(&status) > 0);
        wins += WEXITSTATUS(status);
    }
    assert_int_equal(wins, 1);
    close(go[0]);
    close(go[1]);
}

/* ------------------------------------------------------------------ work directories */

static void a_work_directory_is_made_below_data(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    AB_AUTO(ab_free) char *path = NULL;
    AB_AUTO(ab_close) int fd = ab_workdir_open(&site, "a//b/./c", true, &path, NULL);
    struct stat one, two;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &one), 0);
    assert_int_equal(stat(at("data/a/b/c"), &two), 0);
    assert_true(one.st_ino == two.st_ino);
    assert_int_equal(stat(path, &two), 0);
    assert_true(one.st_ino == two.st_ino);
    AB_AUTO(ab_close) int missing = ab_workdir_open(&site, "a/x", false, NULL, NULL);
    assert_int_equal(missing, -1);
}

static void no_name_leads_out_of_data(void **state)
{
    (void)state;
    AB_AUTO(ab_site_free) struct ab_site site = found();
    static const char *const wrong[] = {"..", "../x", "a/../../x", "/tmp",   "",    ".",
                                        "./", "link", "link/x",    "file/x", "a/.."};
    char name[400];

    assert_int_equal(ab_mkdirs(at("data/a"), 0755, NULL), 0);
    assert_int_equal(symlink("/tmp", at("data/link")), 0);
    put("data/file", "");
    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        struct ab_error err = {0};
        int fd = ab_workdir_open(&site, wrong[i], true, NULL, &err);
        if (fd >= 0)
            fail_msg("opened: %s", wrong[i]);
        assert_true(*err.text);
    }
    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(ab_workdir_open(&site, name, true, NULL, NULL), -1);
}

/* ------------------------------------------------------------------ cleaning up */

static void patterns_match_as_in_a_shell_with_globstar(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool ok;
    } cases[] = {
        {"*.tmp", "a.tmp", true},
        {"*.tmp", "b/a.tmp", false},
        {"**/*.tmp", "a.tmp", true},
        {"**/*.tmp", "b/c/a.tmp", true},
        {"b/**", "b/c/d", true},
        {"b/**", "c/d", false},
        {"b/**/d", "b/d", true},
        {"b/**/d", "b/x/y/d", true},
        {"b/**/d", "b/x/y/e", false},
        {"**/x/**/y", "a/x/b/x/c/y", true},
        {"?", "ab", false},
        {"*", ".hidden", false},
        {"a", "a/b", false},
        {"a/b", "a", false},
        {"[ab].txt", "b.txt", true},
        {"**/a/**/a/**/a/**/a/b", "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/c", false},
    };

    for (size_t i = 0; i < AB_COUNT(cases); i++)
        if (sweep_match(cases[i].pattern, cases[i].path) != cases[i].ok)
            fail_msg("%s and %s", cases[i].pattern, cases[i].path);
}

static void only_matching_files_below_the_folder_go(void **state)
{
    (void)state;
    const char *patterns[] = {"*.tmp", "scratch/**"};

    assert_int_equal(ab_mkdirs(at("w/scratch/deep"), 0755, NULL), 0);
    assert_int_equal(ab_mkdirs(at("other"), 0755, NULL), 0);
    put("w/a.tmp", "");
    put("w/keep.txt", "");
    put("w/scratch/deep/x", "");
    put("other/precious.tmp", "");
    assert_int_equal(symlink(at("other"), at("w/scratch/link")), 0);
    AB_AUTO(ab_close) int folder = open(at("w"), O_RDONLY | O_DIRECTORY);
    assert_int_equal(sweep_folder(folder, patterns, 2), 3);
    assert_int_not_equal(access(at("w/a.tmp"), F_OK), 0);
    assert_int_not_equal(access(at("w/scratch/deep/x"), F_OK), 0);
    assert_int_equal(access(at("w/keep.txt"), F_OK), 0);
    assert_int_equal(access(at("other/precious.tmp"), F_OK), 0);
}

/* ------------------------------------------------------------------ the site's fields */

static void the_centre_is_told_only_what_differs(void **state)
{
    (void)state;
    static const struct {
        const char *have, *want;
        bool same;
    } cases[] = {
        {"{\"a\":[\"x\"],\"b\":1,\"id\":3}", "{\"a\":[\"x\"]}", true},
        {"{\"a\":{\"q\":{\"n\":1,\"m\":2}}}", "{\"a\":{\"q\":{\"m\":2,\"n\":1}}}", true},
        {"{\"a\":{\"q\":1,\"r\":2}}", "{\"a\":{\"q\":1}}", false},
        {"{\"a\":[\"x\",\"y\"]}", "{\"a\":[\"y\",\"x\"]}", false},
        {"{\"a\":null}", "{\"a\":null}", true},
        {"{}", "{\"a\":null}", false},
        {"{\"a\":1}", "{\"a\":\"1\"}", false},
        {"", "{}", false},
        {"[]", "{}", false},
    };

    for (size_t i = 0; i < AB_COUNT(cases); i++)
        if (sync_equal(cases[i].have, strlen(cases[i].have), cases[i].want, strlen(cases[i].want))
            != cases[i].same)
            fail_msg("%s and %s", cases[i].have, cases[i].want);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fresh, drop)

/* EMFILE stands for all that passes: a full disk, a file server that is away. */
static void trouble_of_the_site_is_not_told_as_the_jobs_fault(void **state)
{
    (void)state;
    struct ab_site site = {0};
    struct ab_error err = {0};
    struct rlimit before, few;
    assert_int_equal(ab_site_find(&site, root, &err), 0);
    int fd = ab_workdir_open(&site, "busy/one", true, NULL, &err);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    fd = ab_workdir_open(&site, "busy/one", true, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fd, -1);
    assert_true(err.code == AB_EBUSY || err.code == AB_EINTERNAL);
    assert_int_equal(ab_errno_code(ENOSPC), AB_EBUSY);
    assert_int_equal(ab_errno_code(EACCES), AB_EINVAL);
    ab_site_free(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_nearest_folder_upwards_is_the_site),
        TEST(a_folder_without_a_number_is_no_site),
        TEST(the_socket_folder_is_short_private_and_the_sites_own),
        TEST(one_holder_at_a_time),
        TEST(the_lock_of_a_killed_process_is_taken_over),
        TEST(the_lock_of_another_host_counts_while_it_is_touched),
        TEST(a_clock_that_is_wrong_takes_no_lock_over),
        TEST(a_reused_pid_is_not_the_holder),
        TEST(of_many_starters_one_gets_the_lock),
        TEST(a_work_directory_is_made_below_data),
        TEST(no_name_leads_out_of_data),
        TEST(trouble_of_the_site_is_not_told_as_the_jobs_fault),
        TEST(patterns_match_as_in_a_shell_with_globstar),
        TEST(only_matching_files_below_the_folder_go),
        TEST(the_centre_is_told_only_what_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
