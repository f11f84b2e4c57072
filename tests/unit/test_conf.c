/* test_conf.c - settings from four places */
#include "base/cleanup.h"
#include "base/conf.h"
#include "base/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct ab_setting bus[] = {
    {"bus_port", AB_CONF_INT, "7440", "port of the bus"},
    {"gateways", AB_CONF_LIST, NULL, "where gateways are"},
    {0},
};
static const struct ab_setting rest[] = {
    {"session_ttl", AB_CONF_DURATION, "5m", "life of a session"},
    {"body_max", AB_CONF_SIZE, "64MiB", "largest body"},
    {"tls", AB_CONF_BOOL, "true", "use TLS"},
    {"database_url", AB_CONF_SECRET, NULL, "where the database is"},
    {"listen", AB_CONF_TEXT, "0.0.0.0:8443", "address"},
    {0},
};
static const struct ab_setting *const tables[] = {bus, rest};

static int clear_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"ABIES_BUS_PORT", "ABIES_DATABASE_URL",
                                        "ABIES_DATABASE_URL_FILE", "ABIES_CONFIG", "ABIES_NO_SUCH"};
    for (size_t i = 0; i < AB_COUNT(names); i++)
        unsetenv(names[i]);
    return 0;
}

static int from_file(ab_conf_t *conf, const char *path, struct ab_error *err)
{
    assert_string_equal(path, "/some/centre.yml");
    return ab_conf_set(conf, AB_CONF_FILE, "centre.yml:1", "bus_port", "2", err) < 0
                   || ab_conf_set(conf, AB_CONF_FILE, "centre.yml:2", "gateways",
                                  " tcp://a:1, tcp://b:2 ,", err)
                          < 0
               ? -1
               : 0;
}

static int run(ab_conf_t *conf, struct ab_error *err, const char *a, const char *b, const char *c)
{
    char *argv[] = {"abies-x", (char *)a, (char *)b, (char *)c, NULL};
    int argc = c ? 4 : b ? 3 : a ? 2 : 1;
    *err = (struct ab_error){0};
    return ab_conf_main(conf, "abies-x", "Does x", from_file, argc, argv, err);
}

static void defaults_hold_when_nothing_is_said(void **state)
{
    (void)state;
    struct ab_error err;
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, NULL, NULL, NULL), 0);
    assert_int_equal(ab_conf_int(conf, "bus_port"), 7440);
    assert_int_equal(ab_conf_ms(conf, "session_ttl"), 300000);
    assert_int_equal(ab_conf_int(conf, "body_max"), 64 << 20);
    assert_true(ab_conf_bool(conf, "tls"));
    assert_null(ab_conf_text(conf, "database_url"));
    assert_null(ab_conf_list(conf, "gateways")[0]);
}

static void a_flag_beats_the_environment_and_that_beats_the_file(void **state)
{
    (void)state;
    struct ab_error err;
    AB_AUTO(ab_conf_destroy) ab_conf_t *file = ab_conf_new(tables, 2);
    assert_int_equal(run(file, &err, "--config", "/some/centre.yml", NULL), 0);
    assert_int_equal(ab_conf_int(file, "bus_port"), 2);
    const char *const *list = ab_conf_list(file, "gateways");
    assert_string_equal(list[0], "tcp://a:1");
    assert_string_equal(list[1], "tcp://b:2");
    assert_null(list[2]);

    setenv("ABIES_BUS_PORT", "3", 1);
    setenv("ABIES_CONFIG", "/some/centre.yml", 1);
    AB_AUTO(ab_conf_destroy) ab_conf_t *env = ab_conf_new(tables, 2);
    assert_int_equal(run(env, &err, NULL, NULL, NULL), 0);
    assert_int_equal(ab_conf_int(env, "bus_port"), 3);

    AB_AUTO(ab_conf_destroy) ab_conf_t *flag = ab_conf_new(tables, 2);
    assert_int_equal(run(flag, &err, "--bus-port=4", "--tls", "false"), 0);
    assert_int_equal(ab_conf_int(flag, "bus_port"), 4);
    assert_false(ab_conf_bool(flag, "tls"));
}

static void what_is_wrong_is_said_with_a_remedy(void **state)
{
    (void)state;
    struct ab_error err;
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, "--sesion-ttl", "3s", NULL), -1);
    assert_non_null(strstr(err.text, "did you mean `session_ttl`?"));
    assert_int_equal(run(conf, &err, "--session-ttl", "3", NULL), -1);
    assert_non_null(strstr(err.text, "a duration such as"));
    assert_int_equal(run(conf, &err, "--bus-port", NULL, NULL), -1);
    assert_non_null(strstr(err.text, "needs a value"));
    assert_int_equal(run(conf, &err, "--bus-port", "7x", NULL), -1);
    assert_int_equal(run(conf, &err, "--tls", "yes", NULL), -1);
    assert_int_equal(run(conf, &err, "stray", NULL, NULL), -1);
    assert_int_equal(run(conf, &err, "--bus-port", "--tls", "true"), -1);
}

static void a_secret_never_stands_in_a_flag(void **state)
{
    (void)state;
    struct ab_error err;
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, "--database-url", "postgresql://u:p@h/d", NULL), -1);
    assert_null(strstr(err.text, "u:p"));
    assert_null(ab_conf_text(conf, "database_url"));
}

static void a_secret_comes_from_a_private_file(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char path[] = "/tmp/abies-test-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ab_file_write(path, "postgresql:///abies\n", 20, 0644, &err), 0);
    setenv("ABIES_DATABASE_URL_FILE", path, 1);
    AB_AUTO(ab_conf_destroy) ab_conf_t *open = ab_conf_new(tables, 2);
    assert_int_equal(run(open, &err, NULL, NULL, NULL), -1);
    assert_non_null(strstr(err.text, "chmod 600"));

    assert_int_equal(ab_file_write(path, "postgresql:///abies\n", 20, 0600, &err), 0);
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, NULL, NULL, NULL), 0);
    assert_string_equal(ab_conf_text(conf, "database_url"), "postgresql:///abies");
    unlink(path);
}

static void an_unknown_variable_is_no_error(void **state)
{
    (void)state;
    struct ab_error err;
    setenv("ABIES_NO_SUCH", "1", 1);
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, NULL, NULL, NULL), 0);
}

static void a_bad_value_in_the_environment_names_the_variable(void **state)
{
    (void)state;
    struct ab_error err;
    setenv("ABIES_BUS_PORT", "seven", 1);
    AB_AUTO(ab_conf_destroy) ab_conf_t *conf = ab_conf_new(tables, 2);
    assert_int_equal(run(conf, &err, NULL, NULL, NULL), -1);
    assert_non_null(strstr(err.text, "ABIES_BUS_PORT"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, clear_environment, clear_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_hold_when_nothing_is_said),
        TEST(a_flag_beats_the_environment_and_that_beats_the_file),
        TEST(what_is_wrong_is_said_with_a_remedy),
        TEST(a_secret_never_stands_in_a_flag),
        TEST(a_secret_comes_from_a_private_file),
        TEST(an_unknown_variable_is_no_error),
        TEST(a_bad_value_in_the_environment_names_the_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
