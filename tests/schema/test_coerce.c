/* test_coerce.c - every row of the contract's table of scalars */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field of an update, or of a creation, with the value it becomes. */
static void becomes(const char *verb, const char *field, const char *in, const char *out)
{
    char body[256], expected[512];
    snprintf(body, sizeof(body), "{\"%s\": %s}", field, in);
    snprintf(expected, sizeof(expected), "{\"id\":1,\"b\":{\"%s\":%s}}", field, out);
    struct row row = {{.verb = verb, .id = "1", .body = body}, expected};
    check_rows(&row, 1);
}

static void refused(const char *verb, const char *field, const char *in, const char *type,
                    const char *msg)
{
    char body[256], expected[512];
    snprintf(body, sizeof(body), "{\"%s\": %s}", field, in);
    snprintf(expected, sizeof(expected),
             "!{\"loc\":[\"body\",\"%s\"],\"msg\":\"%s\",\"type\":\"%s\"", field, msg, type);
    struct asked asked = {.verb = verb, .id = "1", .body = body};
    char *answer = answer_of(&asked);
    if (strncmp(answer, expected, strlen(expected)) != 0)
        fail_msg("%s\n  expected %s\n  got      %s", body, expected, answer);
    free(answer);
}

static void integers_come_from_floats_booleans_and_digits(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"3", "3"},      {"3.7", "3"},     {"58.93", "58"},      {"-3.7", "-3"},
        {"true", "1"},   {"false", "0"},   {"\"3\"", "3"},       {"\" 3 \"", "3"},
        {"\"+3\"", "3"}, {"\"-3\"", "-3"}, {"\"0012\"", "12"},   {"\"1_000\"", "1000"},
        {"1e3", "1000"}, {"-0", "0"},      {"\"\\u0033\"", "3"}, {"2147483647", "2147483647"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        becomes("job.update", "return_code", good[i][0], good[i][1]);
    static const char *const bad[] = {"\"3.5\"", "\"\"",     "\"x\"", "\"1__0\"",
                                      "\"_1\"",  "\"0x10\"", "[]",    "[1]",
                                      "{}",      "\"3 4\"",  "\"-\"", "\"1\\u0000\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "return_code", bad[i], "type_error.integer",
                "value is not a valid integer");
}

static void integers_have_limits(void **state)
{
    (void)state;
    refused("job.update", "return_code", "2147483648", "value_error.number.not_le",
            "ensure this value is less than or equal to 2147483647");
    refused("job.update", "return_code", "-2147483649", "value_error.number.not_ge",
            "ensure this value is greater than or equal to -2147483648");
    refused("job.update", "batch_job_id", "1e30", "value_error.number.not_le",
            "ensure this value is less than or equal to 9223372036854775807");
    refused("job.update", "batch_job_id", "9223372036854775808", "value_error.number.not_le",
            "ensure this value is less than or equal to 9223372036854775807");
    refused("job.update", "batch_job_id", "-1234567890123456789012345678901234567890",
            "value_error.number.not_ge", "ensure this value is greater than or equal to 1");
    becomes("job.update", "batch_job_id", "9223372036854775807", "9223372036854775807");
    refused("job.update", "num_nodes", "0", "value_error.number.not_ge",
            "ensure this value is greater than or equal to 1");
    refused("job.update", "node_packing_count", "0", "value_error.number.not_ge",
            "ensure this value is greater than or equal to 1");
    refused("job.update", "wall_time_min", "-1", "value_error.number.not_ge",
            "ensure this value is greater than or equal to 0");
    refused("job.update", "gpus_per_rank", "-0.5", "value_error.number.not_ge",
            "ensure this value is greater than or equal to 0");
}

static void floats_come_from_numbers_and_their_texts(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"0", "0.0"},           {"0.5", "0.5"},  {"\"0.5\"", "0.5"},
        {"\" 1e2 \"", "100.0"}, {"true", "1.0"}, {"\"1_0.5\"", "10.5"},
        {"1e-7", "1e-07"},      {"0.1", "0.1"},  {"123456789.125", "123456789.125"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        becomes("job.update", "gpus_per_rank", good[i][0], good[i][1]);
    static const char *const bad[] = {"\"x\"",   "\"\"",    "[]",    "{}",
                                      "\"nan\"", "\"inf\"", "1e999", "\"0x1p3\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "gpus_per_rank", bad[i], "type_error.float",
                "value is not a valid float");
}

static void booleans_come_from_words_in_any_case(void **state)
{
    (void)state;
    static const char *const yes[] = {"true",     "1",     "1.0",     "\"on\"", "\"T\"",
                                      "\"True\"", "\"Y\"", "\"YES\"", "\"1\""};
    static const char *const no[] = {"false",     "0",     "0.0",    "\"off\"", "\"F\"",
                                     "\"False\"", "\"n\"", "\"NO\"", "\"0\""};
    static const char *const bad[] = {"2", "\"\"", "\"maybe\"", "[]", "{}", "\"1.0\"", "0.5"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        becomes("job.update", "pending_file_cleanup", yes[i], "true");
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        becomes("job.update", "pending_file_cleanup", no[i], "false");
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "pending_file_cleanup", bad[i], "type_error.bool",
                "value could not be parsed to a boolean");
}

static void texts_come_from_scalars_the_python_way(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"\"a\"", "\"a\""},
        {"1", "\"1\""},
        {"2.0", "\"2.0\""},
        {"1e16", "\"1e+16\""},
        {"1e15", "\"1000000000000000.0\""},
        {"true", "\"True\""},
        {"false", "\"False\""},
        {"0.1", "\"0.1\""},
        {"1e-5", "\"1e-05\""},
        {"0.0001", "\"0.0001\""},
        {"-0.0", "\"-0.0\""},
        {"1.5e300", "\"1.5e+300\""},
        {"123456789012345678", "\"123456789012345678\""},
        {"12345678901234567890123", "\"12345678901234567890123\""},
        {"-0", "\"0\""},
        {"3.141592653589793", "\"3.141592653589793\""},
        {"1234567.875", "\"1234567.875\""},
        {"\"\\u00e9\\ud83c\\udf32\"", "\"\xc3\xa9\xf0\x9f\x8c\xb2\""},
        {"\"\"", "\"\""},
        {"\"a\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "\"a\\n\\t\\\"\\\\/\\b\\f\\r\""},
        {"5e-324", "\"5e-324\""},
        {"1.7976931348623157e308", "\"1.7976931348623157e+308\""},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        becomes("job.update", "serialized_parameters", good[i][0], good[i][1]);
    static const char *const bad[] = {"[]", "{}", "[\"a\"]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "serialized_parameters", bad[i], "type_error.str",
                "str type expected");
    static const char *const unstorable[] = {"\"a\\u0000b\"", "\"\\ud800\"", "\"\\udc00\"",
                                             "\"\\ud800\\u0041\"", "\"\\ud800x\""};
    for (size_t i = 0; i < sizeof(unstorable) / sizeof(*unstorable); i++)
        refused("job.update", "serialized_parameters", unstorable[i], "value_error",
                "text with NUL or half a surrogate pair cannot be stored");
}

static void values_of_tags_follow_the_rule_of_texts(void **state)
{
    (void)state;
    becomes("job.update", "tags", "{\"mass\": 1.0, \"n\": 3, \"ok\": true, \"s\": \"x:y\"}",
            "{\"mass\":\"1.0\",\"n\":\"3\",\"ok\":\"True\",\"s\":\"x:y\"}");
    becomes("job.update", "tags", "{}", "{}");
    becomes("job.update", "tags", "{\"a\": 1, \"b\": 2, \"a\": 3}", "{\"b\":\"2\",\"a\":\"3\"}");
    refused("job.update", "tags", "[]", "type_error.dict", "value is not a valid dict");
    refused("job.update", "tags", "\"a\"", "type_error.dict", "value is not a valid dict");
    static const struct row rows[] = {
        {{"job.update", "1", NULL, "{\"tags\":{\"a\":[],\"b\":null,\"c\":{}}}", 0, NULL},
         "!{\"loc\":[\"body\",\"tags\",\"a\"],\"msg\":\"str type "
         "expected\",\"type\":\"type_error.str\"},"
         "{\"loc\":[\"body\",\"tags\",\"b\"],\"msg\":\"none is not an allowed "
         "value\",\"type\":\"type_error.none.not_allowed\"},"
         "{\"loc\":[\"body\",\"tags\",\"c\"],\"msg\":\"str type "
         "expected\",\"type\":\"type_error.str\"}"},
    };
    CHECK_ROWS(rows);
}

static void paths_are_normalised(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"./in//x.dat", "in/x.dat"},
        {"", "."},
        {"a/./b/", "a/b"},
        {"a/../b", "a/../b"},
        {".", "."},
        {"./", "."},
        {"..", ".."},
        {"a//b///c", "a/b/c"},
        {"a", "a"},
        {"a b", "a b"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        char in[64], out[64];
        snprintf(in, sizeof(in), "\"%s\"", good[i][0]);
        snprintf(out, sizeof(out), "\"%s\"", good[i][1]);
        becomes("job.update", "workdir", in, out);
    }
    becomes("site.update", "path", "\"//a//b/\"", "\"/a/b\"");
    becomes("site.update", "path", "\"/\"", "\"/\"");
    refused("job.update", "workdir", "\"/a\"", "value_error", "path must be relative");
    refused("site.update", "path", "\"a\"", "value_error", "path must be absolute");
    refused("job.update", "workdir", "3", "type_error.path", "value is not a valid path");
    refused("job.update", "workdir", "null", "type_error.none.not_allowed",
            "none is not an allowed value");
}

static void uuids_come_in_any_common_form(void **state)
{
    (void)state;
    static const char *const good[] = {
        "0123456789abcdef0123456789ABCDEF", "01234567-89ab-cdef-0123-456789abcdef",
        "{01234567-89AB-CDEF-0123-456789ABCDEF}", "urn:uuid:01234567-89ab-cdef-0123-456789abcdef"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        char in[80];
        snprintf(in, sizeof(in), "\"%s\"", good[i]);
        becomes("site.update", "globus_endpoint_id", in,
                "\"01234567-89ab-cdef-0123-456789abcdef\"");
    }
    becomes("site.update", "globus_endpoint_id", "null", "null");
    static const char *const bad[] = {"\"\"",
                                      "\"0123\"",
                                      "5",
                                      "[]",
                                      "\"0123456789abcdef0123456789abcdeg\"",
                                      "\"0123456789abcdef0123456789abcdef0\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("site.update", "globus_endpoint_id", bad[i], "type_error.uuid",
                "value is not a valid uuid");
}

static void urls_have_scheme_and_host(void **state)
{
    (void)state;
    static const char *const good[] = {"globus://08925f04-569f-11e7-bef8-22000b9a448b",
                                       "rsync://user@host",
                                       "rsync://user@host.org/a/b",
                                       "local://localhost",
                                       "https://h:8443/x?y=1#z",
                                       "a+b-c.1://host",
                                       "file://[::1]:80/x"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        char in[128];
        snprintf(in, sizeof(in), "{\"a\":\"%s\"}", good[i]);
        becomes("site.update", "transfer_locations", in, in);
    }
    static const struct {
        const char *url, *type, *msg;
    } bad[] = {
        {"\"/path\"", "value_error.url.scheme", "invalid or missing URL scheme"},
        {"\"Globus://x\"", "value_error.url.scheme", "invalid or missing URL scheme"},
        {"\"1a://x\"", "value_error.url.scheme", "invalid or missing URL scheme"},
        {"\"globus://\"", "value_error.url.host", "URL host invalid"},
        {"\"globus:///path\"", "value_error.url.host", "URL host invalid"},
        {"\"globus://-x\"", "value_error.url.host", "URL host invalid"},
        {"\"globus://a b\"", "value_error.url.host", "URL host invalid"},
        {"\"globus://h:99999\"", "value_error.url.port",
         "URL port invalid, port cannot exceed 65535"},
        {"\"\"", "value_error.any_str.min_length", "ensure this value has at least 1 characters"},
        {"[]", "type_error.str", "str type expected"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char body[128], expected[256];
        snprintf(body, sizeof(body), "{\"transfer_locations\":{\"a\":%s}}", bad[i].url);
        snprintf(
            expected, sizeof(expected),
            "!{\"loc\":[\"body\",\"transfer_locations\",\"a\"],\"msg\":\"%s\",\"type\":\"%s\"%s}",
            bad[i].msg, bad[i].type,
            strstr(bad[i].type, "min") ? ",\"ctx\":{\"limit_value\":1}" : "");
        struct row row = {{.verb = "site.update", .id = "1", .body = body}, expected};
        check_rows(&row, 1);
    }
}

static void times_are_read_as_utc(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"\"2026-01-02T03:04:05\"", "2026-01-02T03:04:05+00:00"},
        {"\"2026-01-02 03:04:05.000678\"", "2026-01-02T03:04:05.000678+00:00"},
        {"\"2026-01-02t03:04\"", "2026-01-02T03:04:00+00:00"},
        {"\"2026-01-02T03:04:05Z\"", "2026-01-02T03:04:05+00:00"},
        {"\"2026-01-02T03:04:05.5+01:30\"", "2026-01-02T01:34:05.500000+00:00"},
        {"\"2026-01-02T03:04:05-0100\"", "2026-01-02T04:04:05+00:00"},
        {"\"2026-01-02T03:04:05.1234567\"", "2026-01-02T03:04:05.123456+00:00"},
        {"0", "1970-01-01T00:00:00+00:00"},
        {"1.5", "1970-01-01T00:00:01.500000+00:00"},
        {"\"1.5\"", "1970-01-01T00:00:01.500000+00:00"},
        {"1767322245000", "2026-01-02T02:50:45+00:00"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        char out[64];
        snprintf(out, sizeof(out), "\"%s\"", good[i][1]);
        becomes("job.update", "state_timestamp", good[i][0], out);
    }
    static const char *const bad[] = {"\"2026-01-02\"",
                                      "\"\"",
                                      "\"x\"",
                                      "[]",
                                      "{}",
                                      "\"2026-13-02T00:00\"",
                                      "\"2026-01-02T25:00\"",
                                      "\"2026-01-02T03:04:05+99\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "state_timestamp", bad[i], "value_error.datetime",
                "invalid datetime format");
}

static void names_must_be_exact(void **state)
{
    (void)state;
    becomes("transfer.update", "state", "\"done\"", "\"done\"");
    static const char *const bad[] = {"\"DONE\"", "\"\"",      "1",
                                      "[]",       "\"done \"", "\"done\\u0000\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("transfer.update", "state", bad[i], "type_error.enum",
                "value is not a valid enumeration member; permitted: 'awaiting_job', 'pending', "
                "'active', 'inactive', 'done', 'error'");
}

static void sets_drop_what_is_repeated(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"session.acquire", "7", NULL,
          "{\"max_num_jobs\":5,\"filter_tags\":{},\"app_ids\":[3,\"1\",3,2,1.9],"
          "\"states\":[\"RUN_DONE\",\"RUN_DONE\"]}",
          0, NULL},
         "{\"id\":7,\"b\":{\"max_num_jobs\":5,\"filter_tags\":{},\"states\":[\"RUN_DONE\"],"
         "\"app_ids\":[3,1,2]}}"},
        {{"session.acquire", "7", NULL,
          "{\"max_num_jobs\":0,\"filter_tags\":{},\"app_ids\":\"x\",\"states\":[\"x\"]}", 0, NULL},
         "!{\"loc\":[\"body\",\"max_num_jobs\"],\"msg\":\"ensure this value is greater than or "
         "equal to 1\","
         "\"type\":\"value_error.number.not_ge\",\"ctx\":{\"limit_value\":1}},"
         "{\"loc\":[\"body\",\"states\",0],\"msg\":\"value is not a valid enumeration member; "
         "permitted: "
         "'AWAITING_PARENTS', 'CREATED', 'FAILED', 'JOB_FINISHED', 'POSTPROCESSED', "
         "'PREPROCESSED', 'READY', "
         "'RESTART_READY', 'RUNNING', 'RUN_DONE', 'RUN_ERROR', 'RUN_TIMEOUT', 'STAGED_IN', "
         "'STAGED_OUT'\","
         "\"type\":\"type_error.enum\",\"ctx\":{\"enum_values\":[\"AWAITING_PARENTS\",\"CREATED\","
         "\"FAILED\","
         "\"JOB_FINISHED\",\"POSTPROCESSED\",\"PREPROCESSED\",\"READY\",\"RESTART_READY\","
         "\"RUNNING\",\"RUN_DONE\","
         "\"RUN_ERROR\",\"RUN_TIMEOUT\",\"STAGED_IN\",\"STAGED_OUT\"]}},"
         "{\"loc\":[\"body\",\"app_ids\"],\"msg\":\"value is not a valid "
         "set\",\"type\":\"type_error.set\"}"},
    };
    CHECK_ROWS(rows);
}

static void free_json_is_passed_on_byte_by_byte(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}", "{\"a\" : [1, 2.50, 12345678901234567890123, 1e-300, null, {\"b\":\"\\u00e9\"}]}",
        "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        becomes("job.update", "data", good[i], good[i]);
    refused("job.update", "data", "[]", "type_error.dict", "value is not a valid dict");
    refused("job.update", "data", "null", "type_error.none.not_allowed",
            "none is not an allowed value");
    static const char *const bad[] = {"{\"a\":\"\\u0000\"}", "{\"a\":[\"\\ud800\"]}",
                                      "{\"a\":1e999}", "{\"a\":1e-20000}", "{\"\\u0000\":1}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused("job.update", "data", bad[i], "value_error",
                "holds NUL, half a surrogate pair or a number without end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_come_from_floats_booleans_and_digits),
        cmocka_unit_test(integers_have_limits),
        cmocka_unit_test(floats_come_from_numbers_and_their_texts),
        cmocka_unit_test(booleans_come_from_words_in_any_case),
        cmocka_unit_test(texts_come_from_scalars_the_python_way),
        cmocka_unit_test(values_of_tags_follow_the_rule_of_texts),
        cmocka_unit_test(paths_are_normalised),
        cmocka_unit_test(uuids_come_in_any_common_form),
        cmocka_unit_test(urls_have_scheme_and_host),
        cmocka_unit_test(times_are_read_as_utc),
        cmocka_unit_test(names_must_be_exact),
        cmocka_unit_test(sets_drop_what_is_repeated),
        cmocka_unit_test(free_json_is_passed_on_byte_by_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
