/* test_settings.c - settings.yml: strict, complete, with the defaults of the contract */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "settings/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct ab_settings *load(const char *text, struct ab_error *err)
{
    char path[] = "/tmp/abies-settings-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ab_file_write(path, text, strlen(text), 0600, NULL), 0);
    struct ab_settings *out = ab_settings_load(path, err);
    unlink(path);
    return out;
}

static void an_empty_file_gives_the_defaults_of_the_contract(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_settings_destroy) struct ab_settings *s = load("", &err);

    assert_non_null(s);
    assert_int_equal(s->transfers.service_period_ms, 5000);
    assert_int_equal(s->transfers.batch_size, 100);
    assert_int_equal(s->processing.prefetch_depth, 1000);
    assert_int_equal(s->launcher.idle_ttl_ms, 60000);
    assert_true(s->scheduler.on && s->processing.on && s->transfers.on);
    assert_false(s->elastic_queue.on || s->queue_maintainer.on || s->file_cleaner.on);
    assert_non_null(ab_settings_queue(s, "local"));
    assert_null(ab_settings_queue(s, "other"));
}

static void the_file_that_site_init_writes_is_right(void **state)
{
    (void)state;
    struct ab_error err = {0};
    AB_AUTO(ab_settings_destroy)
    struct ab_settings *s = ab_settings_load("site/share/settings.yml", &err);

    assert_string_equal(err.text, "");
    assert_non_null(s);
    assert_int_equal(s->scheduler.queues[0].max_walltime, 1440);
}

static void null_switches_a_module_off(void **state)
{
    (void)state;
    AB_AUTO(ab_settings_destroy)
    struct ab_settings *s = load("scheduler: null\ntransfers: null\nelastic_queue: {}\n", NULL);

    assert_non_null(s);
    assert_false(s->scheduler.on || s->transfers.on);
    assert_true(s->processing.on && s->elastic_queue.on);
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};
    ab_settings_site_json(s, &json);
    assert_string_equal(json.data, "{}");
}

static void a_misspelt_key_is_refused_with_its_place_and_a_near_match(void **state)
{
    (void)state;
    struct ab_error err = {0};

    assert_null(load("processing:\n  prefetch_dept: 4\n", &err));
    assert_non_null(strstr(err.text, ":2:"));
    assert_non_null(strstr(err.text, "prefetch_depth"));
    assert_null(load("processsing: {}\n", &err));
    assert_non_null(strstr(err.text, "processing"));
}

static void a_value_out_of_its_bounds_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "processing: {num_workers: 0}",
        "processing: {num_workers: many}",
        "processing: [1]",
        "processing: {poll_period: 0}",
        "launcher: {sort_by: fastest}",
        "transfers: {transfer_locations: {beamline: /data}}",
        "transfers: {transfer_locations: {beamline: 'local:///data'}}",
        "transfers: {transfer_locations: {beamline: 'local://localhost/my data'}}",
        "scheduler: {allowed_queues: {debug: {max_nodes: 1}}}",
        "scheduler: {allowed_queues: {q: {max_nodes: -1, max_walltime: 1, max_queued_jobs: 1}}}",
        "elastic_queue: {min_wall_time_min: 5, wall_time_pad_min: 5}",
        "elastic_queue: {job_mode: both}",
        "filter_tags: [a]",
        "- a",
    };

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        struct ab_error err = {0};
        AB_AUTO(ab_settings_destroy) struct ab_settings *s = load(wrong[i], &err);
        if (s)
            fail_msg("accepted: %s", wrong[i]);
        assert_true(*err.text);
    }
}

static void what_follows_the_file_at_the_centre_is_written_as_json(void **state)
{
    (void)state;
    AB_AUTO(ab_settings_destroy)
    struct ab_settings *s =
        load("scheduler:\n"
             "  allowed_projects: ['a \"b\"']\n"
             "  allowed_queues: {q: {max_nodes: 2, max_walltime: 30, max_queued_jobs: 4}}\n"
             "  optional_batch_job_params: {mem: 8}\n"
             "transfers: {transfer_locations: {lab: 'local://localhost/x'}}\n",
             NULL);
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};

    assert_non_null(s);
    ab_settings_site_json(s, &json);
    assert_string_equal(
        json.data,
        "{\"allowed_projects\":[\"a \\\"b\\\"\"],\"allowed_queues\":{\"q\":{\"max_nodes\":2,"
        "\"max_walltime\":30,\"max_queued_jobs\":4}},\"optional_batch_job_params\":"
        "{\"mem\":\"8\"},\"transfer_locations\":{\"lab\":\"local://localhost/x\"},"
        "\"globus_endpoint_id\":null}");
    assert_string_equal(ab_settings_location(s, "lab"), "local://localhost/x");
    assert_null(ab_settings_location(s, "bal"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_file_gives_the_defaults_of_the_contract),
        cmocka_unit_test(the_file_that_site_init_writes_is_right),
        cmocka_unit_test(null_switches_a_module_off),
        cmocka_unit_test(a_misspelt_key_is_refused_with_its_place_and_a_near_match),
        cmocka_unit_test(a_value_out_of_its_bounds_is_refused),
        cmocka_unit_test(what_follows_the_file_at_the_centre_is_written_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
