/* test_metric.c - figures as Prometheus reads them, and the files of a site's processes put together */
#include "base/cleanup.h"
#include "base/file.h"
#include "http/metric.h"
#include "sitedir/figures.h"
#include <fcntl.h>
#include <math.h>
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

static void numbers_and_labels_are_written_as_the_format_wants_them(void **state)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0}, labels = {0};
    (void)state;
    ab_metric_label(&labels, "a", "x");
    ab_metric_label(&labels, "b", "q\"\\\n");
    assert_string_equal(labels.data, "a=\"x\",b=\"q\\\"\\\\\\n\"");
    ab_metric(&out, "n", NULL, 12345678901234.0);
    ab_metric(&out, "n", "", 0.25);
    ab_metric(&out, "n", labels.data, INFINITY);
    ab_metric(&out, "n", NULL, 1e300);
    assert_string_equal(out.data, "n 12345678901234\nn 0.25\nn{a=\"x\",b=\"q\\\"\\\\\\n\"} +Inf\n"
                                  "n 1e+300\n");
}

static void a_histogram_counts_upwards_and_ends_with_everything(void **state)
{
    static struct ab_histogram h;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    (void)state;
    ab_histogram_add(&h, 500);
    ab_histogram_add(&h, 501);
    ab_histogram_add(&h, INT64_C(3600) * 1000000);
    ab_histogram_add(&h, -5); /* a clock that was set back */
    ab_histogram_write(&out, "h", "v=\"w\"", &h);
    assert_non_null(strstr(out.data, "h_bucket{v=\"w\",le=\"0.0005\"} 2\n"));
    assert_non_null(strstr(out.data, "h_bucket{v=\"w\",le=\"0.001\"} 3\n"));
    assert_non_null(strstr(out.data, "h_bucket{v=\"w\",le=\"10\"} 3\n"));
    assert_non_null(strstr(out.data, "h_bucket{v=\"w\",le=\"+Inf\"} 4\n"));
    assert_non_null(strstr(out.data, "h_count{v=\"w\"} 4\n"));
    assert_int_equal(ab_histogram_count(&h), 4);
}

static void calls_by_name_have_a_bound_and_lose_none(void **state)
{
    AB_AUTO(ab_calls_destroy) ab_calls_t *calls = ab_calls_new(2);
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    (void)state;
    ab_calls_add(calls, "one", 200, 10);
    ab_calls_add(calls, "two", -1, 10);
    ab_calls_add(calls, "three", 418, 10);
    ab_calls_add(calls, "one", 503, 10);
    ab_calls_add(calls, "a name that is much too long for an entry of this table, and then some",
                 200, 1);
    ab_calls_write(calls, &out, "t_total", "t_seconds", "calls", "p=\"q\"");
    assert_non_null(strstr(out.data, "t_total{p=\"q\",verb=\"one\",code=\"200\"} 1\n"));
    assert_non_null(strstr(out.data, "t_total{p=\"q\",verb=\"one\",code=\"503\"} 1\n"));
    assert_non_null(strstr(out.data, "t_total{p=\"q\",verb=\"two\",code=\"none\"} 1\n"));
    assert_non_null(strstr(out.data, "t_total{p=\"q\",verb=\"other\",code=\"other\"} 1\n"));
    assert_non_null(strstr(out.data, "t_seconds_count{p=\"q\",verb=\"other\"} 2\n"));
}

static const char *merged(const char *const *texts, size_t n, struct ab_buf *out)
{
    struct ab_buf in[8] = {0};
    for (size_t i = 0; i < n; i++)
        ab_buf_str(&in[i], texts[i]);
    ab_figures_merge(in, n, out);
    for (size_t i = 0; i < n; i++)
        ab_buf_free(&in[i]);
    return out->data ? out->data : "";
}

#define HEAD(name) "# HELP " name " text\n# TYPE " name " counter\n"

static void the_families_of_several_processes_come_once_each(void **state)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const char *const texts[] = {HEAD("a") HEAD("b") "b{x=\"1\"} 1\n",
                                 HEAD("b") "b{x=\"2\"} 2\n" HEAD("a") "a 3\n", "", HEAD("a")};
    (void)state;
    assert_string_equal(merged(texts, 4, &out),
                        HEAD("a") "a 3\n" HEAD("b") "b{x=\"1\"} 1\nb{x=\"2\"} 2\n");
}

static void what_is_no_sample_of_its_family_is_left_out(void **state)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const char *const texts[] = {
        "nobody 1\n" HEAD("a") "a 1\nab 2\na_bucket{le=\"1\"} 3\n\n# a comment\n<html>\na",
        "# HELP a\n# TYPE  \nb 1\n", "half a line"};
    (void)state;
    assert_string_equal(merged(texts, 3, &out), HEAD("a") "a 1\na_bucket{le=\"1\"} 3\n");
}

static void a_file_is_read_while_its_process_lives_and_removed_when_it_is_old(void **state)
{
    char folder[] = "/tmp/abies-test-metric-XXXXXX", path[128];
    (void)state;
    assert_non_null(mkdtemp(folder));
    struct ab_site site = {.path = folder, .id = 7};
    AB_AUTO(ab_figures_destroy) ab_figures_t *one = ab_figures_new(&site, "one");
    AB_AUTO(ab_figures_destroy) ab_figures_t *two = ab_figures_new(&site, "two");
    AB_AUTO(ab_buf_free) struct ab_buf text = {0}, out = {0}, later = {0};
    assert_int_equal(ab_figures_due(one, 1000), 0);
    ab_buf_str(&text, HEAD("a") "a{p=\"1\"} 1\n");
    ab_figures_write(one, &text, 1000);
    assert_int_equal(ab_figures_due(one, 1000), AB_FIGURES_MS);
    ab_buf_clear(&text);
    ab_buf_str(&text, HEAD("a") "a{p=\"2\"} 1\n");
    ab_figures_write(two, &text, 1000);
    ab_figures_gather(&site, &out);
    assert_non_null(strstr(out.data, "a{p=\"1\"} 1\n"));
    assert_non_null(strstr(out.data, "a{p=\"2\"} 1\n"));

    snprintf(path, sizeof(path), "%s/run/metrics/one.prom", folder);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    ab_figures_gather(&site, &later);
    assert_string_equal(later.data, HEAD("a") "a{p=\"2\"} 1\n");
    assert_int_equal(access(path, F_OK), -1);
    ab_figures_destroy(&two);
    snprintf(path, sizeof(path), "%s/run/metrics/two.prom", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof(path), "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_labels_are_written_as_the_format_wants_them),
        cmocka_unit_test(a_histogram_counts_upwards_and_ends_with_everything),
        cmocka_unit_test(calls_by_name_have_a_bound_and_lose_none),
        cmocka_unit_test(the_families_of_several_processes_come_once_each),
        cmocka_unit_test(what_is_no_sample_of_its_family_is_left_out),
        cmocka_unit_test(a_file_is_read_while_its_process_lives_and_removed_when_it_is_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
