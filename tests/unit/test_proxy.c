/* test_proxy.c - which proxy a URL goes through */
#include "client/proxy.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void goes(const char *url, const char *setting, const char *want)
{
    char out[128];
    bool has = ab_proxy_for(url, setting, out, sizeof(out));

    if (!want) {
        assert_false(has);
        return;
    }
    assert_true(has);
    assert_string_equal(out, want);
}

static void the_setting_wins_over_the_environment_and_loopback_over_both(void **state)
{
    (void)state;
    setenv("https_proxy", "http://env.example:8080/", 1);
    setenv("no_proxy", "example.org, .lab.example", 1);
    goes("https://centre.example:8443", NULL, "env.example:8080");
    goes("https://centre.example:8443", "http://set.example:1", "set.example:1");
    goes("https://centre.example:8443", "set.example", "set.example:3128");
    goes("https://centre.example:8443", "", NULL);
    goes("https://127.0.0.1:8443", "http://set.example:1", NULL);
    goes("https://localhost", NULL, NULL);
    goes("https://[::1]:8443/x", NULL, NULL);
    unsetenv("https_proxy");
    goes("https://centre.example", NULL, NULL);
}

static void exempt_names_cover_what_lies_below_them(void **state)
{
    (void)state;
    setenv("https_proxy", "env.example:8080", 1);
    setenv("no_proxy", "example.org, .lab.example", 1);
    goes("https://example.org", NULL, NULL);
    goes("https://a.example.org/", NULL, NULL);
    goes("https://notexample.org", NULL, "env.example:8080");
    goes("https://x.lab.example:1", NULL, NULL);
    setenv("no_proxy", "*", 1);
    goes("https://other.example", NULL, NULL);
    unsetenv("https_proxy");
    unsetenv("no_proxy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_setting_wins_over_the_environment_and_loopback_over_both),
        cmocka_unit_test(exempt_names_cover_what_lies_below_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
