/* test_resolve.c - names of gateways become addresses */
#include "bus/resolve.h"
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

static int wake;
static struct ab_addresses found;

static int set_up(void **state)
{
    (void)state;
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    memset(&found, 0, sizeof(found));
    return wake < 0;
}

static int tear_down(void **state)
{
    (void)state;
    return close(wake);
}

static ab_resolver_t *resolver(const char *const *endpoints)
{
    struct ab_error err = {0};
    ab_resolver_t *self = ab_resolver_new(endpoints, wake, &err);
    if (!self)
        fail_msg("%s", err.text);
    return self;
}

static bool found_has(const char *endpoint)
{
    for (size_t i = 0; i < found.n; i++) {
        if (strcmp(found.endpoint[i], endpoint) == 0)
            return true;
    }
    return false;
}

static void numbers_need_no_waiting_and_twins_become_one(void **state)
{
    (void)state;
    const char *const endpoints[] = {"tcp://127.0.0.1:7440", "tcp://[::1]:7440",
                                     "tcp://127.0.0.1:7442", "tcp://127.0.0.1:7440", NULL};
    ab_resolver_t *self = resolver(endpoints);
    assert_true(ab_resolver_take(self, &found));
    assert_int_equal(found.n, 3);
    assert_true(found_has("tcp://127.0.0.1:7440"));
    assert_true(found_has("tcp://[::1]:7440"));
    assert_true(found_has("tcp://127.0.0.1:7442"));
    assert_false(ab_resolver_take(self, &found)); /* nothing new */
    ab_resolver_destroy(&self);
    assert_null(self);
}

static void a_name_is_looked_up_on_a_thread_that_wakes_us(void **state)
{
    (void)state;
    const char *const endpoints[] = {"tcp://localhost:7440", NULL};
    ab_resolver_t *self = resolver(endpoints);
    struct pollfd p = {wake, POLLIN, 0};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_true(ab_resolver_take(self, &found));
    assert_true(found_has("tcp://127.0.0.1:7440") || found_has("tcp://[::1]:7440"));
    ab_resolver_destroy(&self);
}

static void a_name_that_fails_does_not_hide_the_others(void **state)
{
    (void)state;
    const char *const endpoints[] = {"tcp://no-such-host.invalid:7440", "tcp://127.0.0.1:7440",
                                     NULL};
    ab_resolver_t *self = resolver(endpoints);
    assert_true(ab_resolver_take(self, &found));
    assert_int_equal(found.n, 1);
    assert_true(found_has("tcp://127.0.0.1:7440"));
    ab_resolver_destroy(&self); /* though its thread may be asking */
}

static void an_endpoint_that_is_none_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "127.0.0.1:7440",   "tcp://127.0.0.1", "tcp://:7440",   "tcp://host:0",
        "tcp://host:65535", /* hints need the next port */
        "tcp://host:http",  "ipc:///tmp/x:1",  "tcp://[]:7440", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ab_error err = {0};
        const char *const endpoints[] = {bad[i], NULL};
        assert_null(ab_resolver_new(endpoints, wake, &err));
        assert_non_null(strstr(err.text, bad[i]));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_need_no_waiting_and_twins_become_one),
        TEST(a_name_is_looked_up_on_a_thread_that_wakes_us),
        TEST(a_name_that_fails_does_not_hide_the_others),
        TEST(an_endpoint_that_is_none_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
