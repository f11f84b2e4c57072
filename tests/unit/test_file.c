/* test_file.c - whole files and trees */
#include "base/cleanup.h"
#include "base/file.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static char path_buf[4096];

static const char *at(const char *name)
{
    snprintf(path_buf, sizeof(path_buf), "%s/%s", dir, name);
    return path_buf;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/abies-test-file-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    struct ab_error err = {0};
    return ab_remove_tree(dir, &err);
}

static void a_file_is_written_whole_with_its_mode(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct stat st;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    assert_int_equal(ab_file_write(at("f"), "one", 3, 0640, &err), 0);
    assert_int_equal(ab_file_write(at("f"), "second", 6, 0600, &err), 0);
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(ab_file_read(at("f"), 100, &text, &err), 0);
    assert_string_equal(text.data, "second");
    assert_int_equal(ab_file_read(at("f"), 5, &text, &err), -1);
    assert_int_equal(err.code, AB_ETOOBIG);
    assert_int_equal(ab_file_read(at("none"), 5, &text, &err), -1);
    assert_int_equal(err.code, AB_ENOENT);
    assert_int_equal(ab_file_write(at("no/such/folder"), "x", 1, 0600, &err), -1);
}

static void a_failed_write_leaves_the_old_file_and_no_other(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(mkdir(at("busy"), 0700), 0);
    assert_int_equal(mkdir(at("busy/in"), 0700), 0);
    assert_int_equal(ab_file_write(at("busy"), "x", 1, 0600, &err), -1); /* a folder is there */
    assert_int_equal(rmdir(at("busy/in")), 0);
    assert_int_equal(rmdir(at("busy")), 0);
    assert_int_equal(rmdir(dir), 0); /* no temporary file was left */
    assert_int_equal(mkdir(dir, 0700), 0);
}

static void folders_are_made_and_existing_ones_left_alone(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(ab_mkdirs(at("a/b/c"), 0700, &err), 0);
    assert_int_equal(ab_mkdirs(at("a/b/c/"), 0700, &err), 0);
    assert_int_equal(ab_file_write(at("a/f"), "", 0, 0600, &err), 0);
    assert_int_equal(ab_mkdirs(at("a/f/x"), 0700, &err), -1);
    assert_int_equal(ab_mkdirs("", 0700, &err), -1);
}

static void removing_a_tree_does_not_follow_links(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char outside[4096], tree[4096];
    snprintf(outside, sizeof(outside), "%s", at("outside"));
    snprintf(tree, sizeof(tree), "%s", at("tree"));
    assert_int_equal(ab_mkdirs(at("tree/x/y"), 0700, &err), 0);
    assert_int_equal(ab_mkdirs(outside, 0700, &err), 0);
    assert_int_equal(ab_file_write(at("outside/kept"), "k", 1, 0600, &err), 0);
    assert_int_equal(symlink(outside, at("tree/x/link")), 0);
    assert_int_equal(ab_file_write(at("tree/x/y/f"), "k", 1, 0600, &err), 0);
    assert_int_equal(ab_remove_tree(tree, &err), 0);
    assert_int_equal(access(tree, F_OK), -1);
    assert_int_equal(access(at("outside/kept"), F_OK), 0);
    assert_int_equal(ab_remove_tree(tree, &err), 0);
    assert_int_equal(symlink(outside, at("link")), 0);
    assert_int_equal(ab_remove_tree(at("link"), &err), 0);
    assert_int_equal(access(at("outside/kept"), F_OK), 0);
}

static void a_tree_that_is_too_deep_is_an_error_not_a_crash(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char deep[4096];
    int n = snprintf(deep, sizeof(deep), "%s", dir);
    for (int i = 0; i < 300; i++)
        n += snprintf(deep + n, sizeof(deep) - (size_t)n, "/d");
    assert_int_equal(ab_mkdirs(deep, 0700, &err), 0);
    assert_int_equal(ab_remove_tree(at("d"), &err), -1);
    for (; n > (int)strlen(dir); n -= 2) {
        deep[n] = '\0';
        assert_int_equal(rmdir(deep), 0);
    }
}

static void a_secret_that_others_may_read_is_refused(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(ab_file_write(at("key"), "k", 1, 0600, &err), 0);
    assert_int_equal(ab_file_private(at("key"), &err), 0);
    assert_int_equal(chmod(at("key"), 0640), 0);
    assert_int_equal(ab_file_private(at("key"), &err), -1);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(ab_file_private(at("none"), &err), -1);
    assert_int_equal(err.code, AB_ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_written_whole_with_its_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_the_old_file_and_no_other, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(folders_are_made_and_existing_ones_left_alone, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(removing_a_tree_does_not_follow_links, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tree_that_is_too_deep_is_an_error_not_a_crash, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_secret_that_others_may_read_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
