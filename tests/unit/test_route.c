/* test_route.c - method and path find their row, whatever the spelling */
#include "gateway/route.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct route_match find(const char *method, const char *path)
{
    struct route_match m;
    route_find(method, strlen(method), path, strlen(path), &m);
    return m;
}

static void is_verb(const char *method, const char *path, const char *verb)
{
    struct route_match m = find(method, path);
    if (!m.route)
        fail_msg("%s %s: no route", method, path);
    assert_string_equal(m.route->verb, verb);
}

static int start(void **state)
{
    struct ab_error err = {0};
    (void)state;
    return route_init(&err);
}

static int stop(void **state)
{
    (void)state;
    route_free();
    return 0;
}

static void every_row_of_the_api_is_found_in_both_spellings(void **state)
{
    (void)state;
    for (size_t i = 0; i < ab_n_routes; i++) {
        const struct ab_route *r = &ab_routes[i];
        char path[256] = "";
        if (!r->method)
            continue;
        for (const char *p = r->path; *p; p++) { /* parameters become 7 */
            size_t n = strlen(path);
            if (*p == '{') {
                strcat(path, "7");
                p = strchr(p, '}');
            } else {
                path[n] = *p;
                path[n + 1] = '\0';
            }
        }
        is_verb(r->method, path, r->verb);
        size_t n = strlen(path);
        if (path[n - 1] == '/')
            path[n - 1] = '\0';
        else
            strcat(path, "/");
        is_verb(r->method, path, r->verb);
    }
}

static void literals_go_before_parameters(void **state)
{
    (void)state;
    is_verb("POST", "/jobs/cancel", "job.cancel_where");
    is_verb("POST", "/jobs/5/cancel", "job.cancel");
    is_verb("GET", "/jobs/cancel", "job.get"); /* and 422 for its number later */
}

static void parameters_are_pointed_at_still_encoded(void **state)
{
    (void)state;
    const char *path = "/jobs/%31/cancel";
    struct route_match m = find("POST", path);
    assert_string_equal(m.route->verb, "job.cancel");
    assert_int_equal(m.id_n, 3);
    assert_memory_equal(path + m.id_at, "%31", 3);
}

static void own_pages_are_for_get(void **state)
{
    (void)state;
    assert_int_equal(find("GET", "/").page, PAGE_ROOT);
    assert_int_equal(find("GET", "/readyz/").page, PAGE_READYZ);
    assert_int_equal(find("GET", "/events/stream").page, PAGE_EVENTS_STREAM);
    assert_int_equal(find("POST", "/docs").page, PAGE_NONE);
    assert_int_equal(find("POST", "/docs").allow, M_GET);
}

static void unknown_paths_and_wrong_methods_are_told_apart(void **state)
{
    (void)state;
    static const char *const unknown[] = {"",        "x",
                                          "//",      "/jobs//",
                                          "/job",    "/jobs/5/6",
                                          "/JOBS/",  "/jobs/5/cancel/x",
                                          "/./jobs", "/a/b/c/d/e/f/g/h/i/j/k"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        struct route_match m = find("GET", unknown[i]);
        assert_null(m.route);
        assert_int_equal(m.page, PAGE_NONE);
        assert_int_equal(m.allow, 0);
    }
    char allow[64];
    struct route_match m = find("PATCH", "/jobs/5");
    assert_null(m.route);
    route_allow_text(m.allow, allow, sizeof(allow));
    assert_string_equal(allow, "GET, PUT, DELETE");
    assert_int_equal(find("get", "/jobs/").allow, find("FOO", "/jobs/").allow);
    assert_null(find("get", "/jobs/").route); /* methods are in capitals */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_api_is_found_in_both_spellings),
        cmocka_unit_test(literals_go_before_parameters),
        cmocka_unit_test(parameters_are_pointed_at_still_encoded),
        cmocka_unit_test(own_pages_are_for_get),
        cmocka_unit_test(unknown_paths_and_wrong_methods_are_told_apart),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
