/* test_request.c - whole requests: what is packed, and every error of the contract's tables */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */ /* tables of requests and their answers */
#define MISSING(...) "{\"loc\":[" __VA_ARGS__ "],\"msg\":\"field required\",\"type\":\"value_error.missing\"}"
#define NOT_NULL(...)                                                                              \
    "{\"loc\":[" __VA_ARGS__                                                                       \
    "],\"msg\":\"none is not an allowed value\",\"type\":\"type_error.none.not_allowed\"}"
#define NOT_DICT(...)                                                                              \
    "{\"loc\":[" __VA_ARGS__ "],\"msg\":\"value is not a valid dict\",\"type\":\"type_error.dict\"}"
#define NOT_INT(...)                                                                               \
    "{\"loc\":[" __VA_ARGS__                                                                       \
    "],\"msg\":\"value is not a valid integer\",\"type\":\"type_error.integer\"}"
#define TEXT(place, message)                                                                       \
    "{\"loc\":[" place "],\"msg\":\"" message "\",\"type\":\"value_error\"}"

static void a_body_is_an_object_or_a_list(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"site.create", NULL, NULL, NULL, 0, NULL}, "!" MISSING("\"body\"")},
        {{"site.create", NULL, NULL, "", 0, NULL}, "!" MISSING("\"body\"")},
        {{"site.create", NULL, NULL, " null ", 0, NULL}, "!" MISSING("\"body\"")},
        {{"site.create", NULL, NULL, "[]", 0, NULL}, "!" NOT_DICT("\"body\"")},
        {{"site.create", NULL, NULL, "3", 0, NULL}, "!" NOT_DICT("\"body\"")},
        {{"site.create", NULL, NULL, "{}", 0, "text"}, "!" NOT_DICT("\"body\"")},
        {{"site.create", NULL, NULL, "{}", 0, NULL},
         "!" MISSING("\"body\",\"name\"") "," MISSING("\"body\",\"path\"")},
        {{"job.create", NULL, NULL, "{}", 0, NULL},
         "!{\"loc\":[\"body\"],\"msg\":\"value is not a valid list\",\"type\":\"type_error.list\"}"},
        {{"job.create", NULL, NULL, "[1,{}]", 0, NULL},
         "!" NOT_DICT("\"body\",0") "," MISSING("\"body\",1,\"workdir\"") "," MISSING(
             "\"body\",1,\"app_id\"")},
        {{"job.create", NULL, NULL, "[]", 0, NULL}, "{\"b\":[]}"},
        {{"job.cancel", "4", NULL, NULL, 0, NULL}, "{\"id\":4,\"b\":{}}"},
        {{"job.cancel", "4", NULL, "{\"reason\":\"x\"}", 0, NULL}, "{\"id\":4,\"b\":{\"reason\":\"x\"}}"},
        {{"session.touch", "4", NULL, "not even JSON", 0, NULL}, "{\"id\":4}"},
        {{"session.heartbeat", "4", NULL, "{\"jobs\":[1,1,2]}", 0, NULL},
         "{\"id\":4,\"b\":{\"jobs\":[1,2]}}"},
    };
    CHECK_ROWS(rows);
}

static void broken_json_is_said_with_place_and_words_of_the_parser(void **state)
{
    (void)state;
#define BROKEN(msg, doc, pos, line, column)                                                        \
    "!!{\"loc\":[\"body\"," #pos "],\"msg\":\"" msg ": line " #line " column " #column             \
    " (char " #pos ")\",\"type\":\"value_error.jsondecode\",\"ctx\":{\"msg\":\"" msg               \
    "\",\"doc\":\"" doc "\",\"pos\":" #pos ",\"lineno\":" #line ",\"colno\":" #column "}}"
#define BROKEN_ROW(body, ...) {{"site.create", NULL, NULL, body, sizeof(body) - 1, NULL}, BROKEN(__VA_ARGS__)}
    static const struct row rows[] = {
        BROKEN_ROW("{", "Expecting property name enclosed in double quotes", "{", 1, 1, 2),
        BROKEN_ROW("{\n a", "Expecting property name enclosed in double quotes", "{\\n a", 3, 2, 2),
        BROKEN_ROW("x", "Expecting value", "x", 0, 1, 1),
        BROKEN_ROW(" ", "Expecting value", " ", 1, 1, 2),
        BROKEN_ROW("[1,]", "Expecting value", "[1,]", 3, 1, 4),
        BROKEN_ROW("[1 2]", "Expecting ',' delimiter", "[1 2]", 3, 1, 4),
        BROKEN_ROW("[1", "Expecting ',' delimiter", "[1", 2, 1, 3),
        BROKEN_ROW("{\"a\" 1}", "Expecting ':' delimiter", "{\\\"a\\\" 1}", 5, 1, 6),
        BROKEN_ROW("{\"a\":1,}", "Expecting property name enclosed in double quotes", "{\\\"a\\\":1,}", 7, 1, 8),
        BROKEN_ROW("{} {}", "Extra data", "{} {}", 3, 1, 4),
        BROKEN_ROW("\"abc", "Unterminated string starting at", "\\\"abc", 0, 1, 1),
        BROKEN_ROW("[\"\xc3\xa9\", x]", "Expecting value", "[\\\"\xc3\xa9\\\", x]", 6, 1, 7),
        BROKEN_ROW("{\"a\":01}", "Expecting ',' delimiter", "{\\\"a\\\":01}", 6, 1, 7),
        BROKEN_ROW("{\"a\":NaN}", "Expecting value", "{\\\"a\\\":NaN}", 5, 1, 6),
        BROKEN_ROW("{\"a\":-}", "Expecting value", "{\\\"a\\\":-}", 5, 1, 6),
        BROKEN_ROW("\"a\nb\"", "Invalid control character at", "\\\"a\\nb\\\"", 2, 1, 3),
        BROKEN_ROW("{}\0", "Extra data", "{}\\u0000", 2, 1, 3),
        BROKEN_ROW("{\"a\":\"\xff\"}", "Invalid UTF-8", "{\\\"a\\\":\\\"\xef\xbf\xbd\\\"}", 0, 1, 1),
    };
    CHECK_ROWS(rows);
    char deep[400], *answer;
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    struct asked asked = {.verb = "job.create", .body = deep, .body_len = 400};
    answer = answer_of(&asked);
    assert_string_equal(answer, "!!" TEXT("\"body\"", "nested deeper than 64 levels"));
    free(answer);
}

static void errors_of_path_query_and_body_come_together_in_order(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"job.update_where", NULL, "state=x1&limit=-1&id=1&id=b&app_id=y", "{\"num_nodes\":null,\"workdir\":\"/x\"}", 0, NULL},
         "!{\"loc\":[\"query\",\"limit\"],\"msg\":\"ensure this value is greater than or equal to 0\",\"type\":"
         "\"value_error.number.not_ge\",\"ctx\":{\"limit_value\":0}}," NOT_INT("\"query\",\"id\",1") "," NOT_INT(
             "\"query\",\"app_id\"") ",{\"loc\":[\"query\",\"state\",0],\"msg\":\"value is not a valid enumeration "
         "member; permitted: 'AWAITING_PARENTS', 'CREATED', 'FAILED', 'JOB_FINISHED', 'POSTPROCESSED', "
         "'PREPROCESSED', 'READY', 'RESTART_READY', 'RUNNING', 'RUN_DONE', 'RUN_ERROR', 'RUN_TIMEOUT', 'STAGED_IN', "
         "'STAGED_OUT'\",\"type\":\"type_error.enum\",\"ctx\":{\"enum_values\":[\"AWAITING_PARENTS\",\"CREATED\","
         "\"FAILED\",\"JOB_FINISHED\",\"POSTPROCESSED\",\"PREPROCESSED\",\"READY\",\"RESTART_READY\",\"RUNNING\","
         "\"RUN_DONE\",\"RUN_ERROR\",\"RUN_TIMEOUT\",\"STAGED_IN\",\"STAGED_OUT\"]}}," TEXT(
             "\"body\",\"workdir\"", "path must be relative") "," NOT_NULL("\"body\",\"num_nodes\"")},
        {{"site.update", "x", NULL, "[]", 0, NULL},
         "!" NOT_INT("\"path\",\"site_id\"") "," NOT_DICT("\"body\"")},
        {{"batch_job.get", "1.5", NULL, NULL, 0, NULL}, "!" NOT_INT("\"path\",\"batch_job_id\"")},
        {{"job.get", "99999999999999999999", NULL, NULL, 0, NULL},
         "!{\"loc\":[\"path\",\"job_id\"],\"msg\":\"ensure this value is less than or equal to "
         "9223372036854775807\",\"type\":\"value_error.number.not_le\",\"ctx\":{\"limit_value\":9223372036854775807}}"},
        {{"job.get", "%31%32", NULL, NULL, 0, NULL}, "{\"id\":12}"},
        {{"job.list", NULL, "limit=100001", NULL, 0, NULL},
         "!{\"loc\":[\"query\",\"limit\"],\"msg\":\"ensure this value is less than or equal to 100000\",\"type\":"
         "\"value_error.number.not_le\",\"ctx\":{\"limit_value\":100000}}"},
        {{"job.list", NULL, "offset=-1", NULL, 0, NULL},
         "!{\"loc\":[\"query\",\"offset\"],\"msg\":\"ensure this value is greater than or equal to 0\",\"type\":"
         "\"value_error.number.not_ge\",\"ctx\":{\"limit_value\":0}}"},
        {{"batch_job.list", NULL, "ordering=id", NULL, 0, NULL},
         "!{\"loc\":[\"query\",\"ordering\"],\"msg\":\"value is not a valid enumeration member; permitted: "
         "'start_time', '-start_time'\",\"type\":\"type_error.enum\",\"ctx\":{\"enum_values\":[\"start_time\","
         "\"-start_time\"]}}"},
        {{"event.list", NULL, "timestamp_after=2026-01-02", NULL, 0, NULL},
         "!{\"loc\":[\"query\",\"timestamp_after\"],\"msg\":\"invalid datetime format\",\"type\":\"value_error.datetime\"}"},
    };
    CHECK_ROWS(rows);
}

static void filters_that_are_falsy_do_not_filter(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"job.list", NULL, "app_id=0&batch_job_id=%200&workdir__contains=&pending_file_cleanup=false&tags=novalue", NULL, 0, NULL},
         "{\"q\":{}}"},
        {{"job.list", NULL, "pending_file_cleanup=True&limit=0&offset=0", NULL, 0, NULL},
         "{\"q\":{\"limit\":0,\"offset\":0,\"pending_file_cleanup\":true}}"},
        {{"app.list", NULL, "name=&site_name=", NULL, 0, NULL}, "{\"q\":{\"name\":\"\"}}"},
        {{"job.list", NULL, "", NULL, 0, NULL}, "{\"q\":{}}"},
        {{"job.list", NULL, "&&=&=x&a&", NULL, 0, NULL}, "{\"q\":{}}"},
    };
    CHECK_ROWS(rows);
}

static void queries_are_decoded_like_forms(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"job.list", NULL, "id=1&id=2&ids=9&unknown=%ff&tags=a:b&tags=c%3Ad:e&tags=a:z&id=%33", NULL, 0, NULL},
         "{\"q\":{\"id\":[1,2,3],\"tags\":{\"c\":\"d:e\",\"a\":\"z\"}}}"},
        {{"job.list", NULL, "last_update_after=2026-01-02+03:04:05.000678&workdir__contains=a+b%2Bc%25", NULL, 0, NULL},
         "{\"q\":{\"last_update_after\":\"2026-01-02T03:04:05.000678+00:00\",\"workdir__contains\":\"a b+c%\"}}"},
        {{"job.list", NULL, "workdir__contains=50%zz%", NULL, 0, NULL}, "{\"q\":{\"workdir__contains\":\"50%zz%\"}}"},
        {{"job.list", NULL, "workdir__contains=a%00b", NULL, 0, NULL},
         "!" TEXT("\"query\",\"workdir__contains\"", "text with NUL or half a surrogate pair cannot be stored")},
        {{"job.list", NULL, "workdir__contains=%ff", NULL, 0, NULL},
         "!" TEXT("\"query\",\"workdir__contains\"", "text with NUL or half a surrogate pair cannot be stored")},
        {{"job.list", NULL, "tags=a%00:b", NULL, 0, NULL},
         "!" TEXT("\"query\",\"tags\",\"__key__\"", "text with NUL or half a surrogate pair cannot be stored")},
        {{"job.list", NULL, "app_id=1&app_id=2", NULL, 0, NULL}, "{\"q\":{\"app_id\":2}}"},
        {{"job.list", NULL, "state=FAILED&state=READY&ordering=-id&state__ne=RUNNING", NULL, 0, NULL},
         "{\"q\":{\"state__ne\":\"RUNNING\",\"state\":[\"FAILED\",\"READY\"],\"ordering\":\"-id\"}}"},
        {{"batch_job.list", NULL, "state=no_such_state&filter_tags=k:v:w", NULL, 0, NULL},
         "{\"q\":{\"state\":[\"no_such_state\"],\"filter_tags\":{\"k\":\"v:w\"}}}"},
        {{"event.list", NULL, "data=num_nodes:0.5&since=1-2", NULL, 0, NULL},
         "{\"q\":{\"data\":{\"num_nodes\":\"0.5\"},\"since\":\"1-2\"}}"},
    };
    CHECK_ROWS(rows);
}

static void a_query_of_a_megabyte_of_ids_is_read(void **state)
{
    (void)state;
    struct ab_buf query = {0};
    for (int i = 0; i < 99999; i++)
        ab_buf_printf(&query, "%sid=%d", i > 0 ? "&" : "", i + 1);
    struct asked asked = {.verb = "job.delete_where", .query = query.data};
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    packed_of(&asked, &packed);
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_request request;
    struct ab_error err = {0};
    assert_int_equal(ab_unpack_request(ab_route_of_verb(asked.verb), packed.data, packed.len, arena, &request, &err), 0);
    const struct job_query *q = request.query;
    assert_int_equal(q->id.n, 99999);
    assert_int_equal(q->id.v[99998], 99999);
    ab_buf_free(&query);
}

static void a_form_is_checked_like_any_body(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"user.login", NULL, NULL, "username=a%20b&password=p%26q&grant_type=password&x=y", 0, "form"},
         "{\"b\":{\"grant_type\":\"password\",\"username\":\"a b\",\"password\":\"p&q\"}}"},
        {{"user.login", NULL, NULL, "username=a&password=b&refresh=1", 0, "form"},
         "{\"b\":{\"username\":\"a\",\"password\":\"b\",\"refresh\":true}}"},
        {{"user.login", NULL, NULL, "username=a&grant_type=implicit", 0, "form"},
         "!{\"loc\":[\"body\",\"grant_type\"],\"msg\":\"string does not match regex \\\"password\\\"\",\"type\":"
         "\"value_error.str.regex\",\"ctx\":{\"pattern\":\"password\"}}," MISSING("\"body\",\"password\"")},
        {{"user.login", NULL, NULL, NULL, 0, NULL},
         "!" MISSING("\"body\",\"username\"") "," MISSING("\"body\",\"password\"")},
        {{"user.login", NULL, NULL, "{\"username\":\"a\",\"password\":\"b\"}", 0, NULL},
         "!" MISSING("\"body\",\"username\"") "," MISSING("\"body\",\"password\"")},
    };
    CHECK_ROWS(rows);
}

static void a_job_is_created_from_what_clients_send(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"job.create", NULL, NULL,
          "[{\"app_id\":\"3\",\"workdir\":\"./a//b/\",\"tags\":{\"m\":1.0},\"parent_ids\":[5,5,4],\"state\":\"RUNNING\","
          "\"batch_job_id\":7,\"unknown\":{\"x\":[1]},\"transfers\":{\"in\":{\"location_alias\":\"lab\",\"path\":\"/x//y\","
          "\"key\":3,\"more\":1}},\"parameters\":{\"n\":3},\"id\":9}]", 0, NULL},
         "{\"b\":[{\"workdir\":\"a/b\",\"tags\":{\"m\":\"1.0\"},\"parameters\":{\"n\":3},\"app_id\":3,\"parent_ids\":[5,4],"
         "\"transfers\":{\"in\":{\"location_alias\":\"lab\",\"path\":\"/x/y\"}}}]}"},
        {{"job.create", NULL, NULL,
          "[{\"app_id\":1,\"workdir\":\"a\",\"transfers\":{\"in\":{\"location_alias\":\"lab\",\"path\":\"x\"},"
          "\"out\":\"lab:/x\",\"q\":{}},\"retry\":{\"max_attempts\":0,\"on\":[\"exit\",\"bad\"]},\"priority\":1001}]", 0, NULL},
         "!{\"loc\":[\"body\",0,\"priority\"],\"msg\":\"ensure this value is less than or equal to 1000\",\"type\":"
         "\"value_error.number.not_le\",\"ctx\":{\"limit_value\":1000}},{\"loc\":[\"body\",0,\"retry\",\"max_attempts\"],"
         "\"msg\":\"ensure this value is greater than or equal to 1\",\"type\":\"value_error.number.not_ge\",\"ctx\":"
         "{\"limit_value\":1}},{\"loc\":[\"body\",0,\"retry\",\"on\",1],\"msg\":\"value is not a valid enumeration "
         "member; permitted: 'exit', 'signal', 'node_loss', 'walltime', 'stage_in'\",\"type\":\"type_error.enum\",\"ctx\":"
         "{\"enum_values\":[\"exit\",\"signal\",\"node_loss\",\"walltime\",\"stage_in\"]}}," TEXT(
             "\"body\",0,\"transfers\",\"in\",\"path\"", "path must be absolute") "," NOT_DICT(
             "\"body\",0,\"transfers\",\"out\"") "," MISSING("\"body\",0,\"transfers\",\"q\",\"location_alias\"") "," MISSING(
             "\"body\",0,\"transfers\",\"q\",\"path\"")},
        {{"job.create", NULL, NULL, "[{\"app_id\":1,\"workdir\":\"a\",\"retry\":{\"max_attempts\":3,\"backoff_sec\":30}}]", 0, NULL},
         "{\"b\":[{\"workdir\":\"a\",\"retry\":{\"max_attempts\":3,\"on\":[\"exit\",\"signal\",\"node_loss\"],"
         "\"backoff_sec\":30},\"app_id\":1}]}"},
        {{"job.create", NULL, NULL, "[{\"app_id\":1,\"workdir\":\"a\",\"return_code\":null,\"retry\":null,\"num_nodes\":null}]", 0, NULL},
         "!" NOT_NULL("\"body\",0,\"num_nodes\"")},
        {{"job.create", NULL, NULL, "[{\"app_id\":1,\"workdir\":\"a\",\"app_id\":2}]", 0, NULL},
         "{\"b\":[{\"workdir\":\"a\",\"app_id\":2}]}"},
        {{"job.create", NULL, NULL, "[{\"app\\u005fid\":1,\"w\\u006Frkdir\":\"a\"}]", 0, NULL},
         "{\"b\":[{\"workdir\":\"a\",\"app_id\":1}]}"},
    };
    CHECK_ROWS(rows);
}

static void an_update_carries_only_what_was_sent(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"job.update", "5", NULL, "{}", 0, NULL}, "{\"id\":5,\"b\":{}}"},
        {{"job.update", "5", NULL, "{\"state\":null,\"state_timestamp\":null,\"lease\":null,\"app_id\":\"x\",\"parent_ids\":3}", 0, NULL},
         "{\"id\":5,\"b\":{}}"},
        {{"job.patch", NULL, NULL, "[{\"id\":1,\"state\":\"RUNNING\",\"state_data\":{\"num_nodes\":0.5}},{\"state\":\"READY\"}]", 0, NULL},
         "!" MISSING("\"body\",1,\"id\"")},
        {{"job.patch", NULL, NULL, "[{\"id\":1,\"state\":\"RUNNING\",\"state_data\":{\"num_nodes\": 0.5},\"state_message\":\"x\"}]", 0, NULL},
         "{\"b\":[{\"state\":\"RUNNING\",\"state_data\":{\"num_nodes\": 0.5},\"id\":1}]}"},
        {{"job.update", "5", NULL, "{\"return_code\":null,\"batch_job_id\":null,\"serialized_parameters\":null,\"data\":null,"
                                   "\"state_data\":null,\"gpus_per_rank\":null}", 0, NULL},
         "!" NOT_NULL("\"body\",\"serialized_parameters\"") "," NOT_NULL("\"body\",\"data\"") "," NOT_NULL(
             "\"body\",\"gpus_per_rank\"") "," NOT_NULL("\"body\",\"state_data\"")},
        {{"job.update", "5", NULL, "{\"return_code\":null,\"batch_job_id\":null}", 0, NULL},
         "{\"id\":5,\"b\":{\"return_code\":null,\"batch_job_id\":null}}"},
        {{"site.update", "5", NULL, "{\"name\":null}", 0, NULL}, "!" NOT_NULL("\"body\",\"name\"")},
        {{"batch_job.update", "5", NULL, "{\"status\":\"x\",\"site_id\":\"y\",\"start_time\":null,\"end_time\":\"2026-01-02T03:04:05+01:00\","
                                         "\"scheduler_id\":null,\"status_info\":{\"a\":1}}", 0, NULL},
         "{\"id\":5,\"b\":{\"scheduler_id\":null,\"status_info\":{\"a\":\"1\"},\"start_time\":null,"
         "\"end_time\":\"2026-01-02T02:04:05+00:00\"}}"},
        {{"batch_job.update", "5", NULL, "{\"state\":null,\"status_info\":null}", 0, NULL},
         "!" NOT_NULL("\"body\",\"state\"") "," NOT_NULL("\"body\",\"status_info\"")},
        {{"transfer.patch", NULL, NULL, "[{\"id\":1,\"state\":\"done\",\"task_id\":5,\"transfer_info\":{}}]", 0, NULL},
         "{\"b\":[{\"state\":\"done\",\"task_id\":\"5\",\"transfer_info\":{},\"id\":1}]}"},
    };
    CHECK_ROWS(rows);
}

static void a_site_holds_only_what_its_shapes_allow(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {{"site.create", NULL, NULL,
          "{\"name\":\"s\",\"path\":\"/p\",\"backfill_windows\":{\"q\":[{\"num_nodes\":\"4\",\"wall_time_min\":3.9,\"x\":1}]},"
          "\"queued_jobs\":{\"12\":{\"scheduler_id\":12,\"state\":\"queued\",\"queue\":\"q\",\"num_nodes\":1,\"wall_time_min\":2,"
          "\"project\":\"p\",\"time_remaining_min\":1,\"queued_time_min\":0}},\"optional_batch_job_params\":{\"a\":1},"
          "\"allowed_projects\":[\"p\",1],\"allowed_queues\":{\"q\":{\"max_nodes\":1,\"max_walltime\":2,\"max_queued_jobs\":3}},"
          "\"transfer_locations\":{\"lab\":\"rsync://u@h\"},\"owner_id\":9,\"id\":\"z\"}", 0, NULL},
         "{\"b\":{\"name\":\"s\",\"path\":\"/p\",\"backfill_windows\":{\"q\":[{\"num_nodes\":4,\"wall_time_min\":3}]},"
         "\"queued_jobs\":{\"12\":{\"scheduler_id\":12,\"state\":\"queued\",\"queue\":\"q\",\"num_nodes\":1,\"wall_time_min\":2,"
         "\"project\":\"p\",\"time_remaining_min\":1,\"queued_time_min\":0}},\"optional_batch_job_params\":{\"a\":\"1\"},"
         "\"allowed_projects\":[\"p\",\"1\"],\"allowed_queues\":{\"q\":{\"max_nodes\":1,\"max_walltime\":2,\"max_queued_jobs\":3}},"
         "\"transfer_locations\":{\"lab\":\"rsync://u@h\"}}}"},
        {{"site.create", NULL, NULL,
          "{\"name\":1.0,\"path\":\"p\",\"backfill_windows\":{\"q\":{}},\"queued_jobs\":{\"x\":null},\"allowed_projects\":\"p\","
          "\"allowed_queues\":{\"q\":{\"max_nodes\":null}},\"optional_batch_job_params\":[]}", 0, NULL},
         "!" TEXT("\"body\",\"path\"", "path must be absolute")
         ",{\"loc\":[\"body\",\"backfill_windows\",\"q\"],\"msg\":\"value is not a valid list\",\"type\":\"type_error.list\"}," NOT_INT(
             "\"body\",\"queued_jobs\",\"__key__\"") "," NOT_NULL("\"body\",\"queued_jobs\",\"x\"") "," NOT_DICT(
             "\"body\",\"optional_batch_job_params\"")
         ",{\"loc\":[\"body\",\"allowed_projects\"],\"msg\":\"value is not a valid list\",\"type\":\"type_error.list\"}," NOT_NULL(
             "\"body\",\"allowed_queues\",\"q\",\"max_nodes\"") "," MISSING("\"body\",\"allowed_queues\",\"q\",\"max_walltime\"") "," MISSING(
             "\"body\",\"allowed_queues\",\"q\",\"max_queued_jobs\"")},
    };
    CHECK_ROWS(rows);
}

static void a_parameter_of_an_app_is_required_or_has_a_default(void **state)
{
    (void)state;
#define APP(parameters)                                                                            \
    "{\"site_id\":1,\"name\":\"A\",\"serialized_class\":\"\",\"source_code\":\"\",\"parameters\":{" parameters "}}"
#define APP_OUT(parameters)                                                                        \
    "{\"b\":{\"site_id\":1,\"name\":\"A\",\"serialized_class\":\"\",\"source_code\":\"\",\"parameters\":{" parameters "}}}"
    static const struct row rows[] = {
        {{"app.create", NULL, NULL, APP("\"n\":{\"required\":\"True\"},\"m\":{\"required\":false,\"default\":1,\"help\":\"h\"}"), 0, NULL},
         APP_OUT("\"n\":{\"required\":true,\"default\":null,\"help\":\"\"},\"m\":{\"required\":false,\"default\":\"1\",\"help\":\"h\"}")},
        {{"app.create", NULL, NULL, APP("\"n\":{\"required\":true,\"default\":\"\"}"), 0, NULL},
         APP_OUT("\"n\":{\"required\":true,\"default\":\"\",\"help\":\"\"}")},
        {{"app.create", NULL, NULL, APP("\"n\":{\"required\":true,\"default\":\"x\"}"), 0, NULL},
         "!" TEXT("\"body\",\"parameters\",\"n\",\"default\"", "a required parameter has no default")},
        {{"app.create", NULL, NULL, APP("\"n\":{\"required\":false,\"default\":\"\"},\"m\":{\"required\":false},\"k\":{\"required\":0,\"default\":null}"), 0, NULL},
         "!" TEXT("\"body\",\"parameters\",\"n\",\"default\"", "a parameter that is not required needs a default") "," TEXT(
             "\"body\",\"parameters\",\"m\",\"default\"", "a parameter that is not required needs a default") "," TEXT(
             "\"body\",\"parameters\",\"k\",\"default\"", "a parameter that is not required needs a default")},
        {{"app.create", NULL, NULL, APP("\"n\":{},\"m\":3"), 0, NULL},
         "!" MISSING("\"body\",\"parameters\",\"n\",\"required\"") "," NOT_DICT("\"body\",\"parameters\",\"m\"")},
        {{"app.update", "1", NULL, "{\"transfers\":{\"i\":{\"required\":true,\"direction\":\"in\",\"local_path\":\"./x\"}}}", 0, NULL},
         "{\"id\":1,\"b\":{\"transfers\":{\"i\":{\"required\":true,\"direction\":\"in\",\"local_path\":\"x\",\"description\":\"\",\"recursive\":false}}}}"},
        {{"app.update", "1", NULL, "{\"transfers\":{\"i\":{\"required\":true,\"direction\":\"IN\",\"local_path\":\"/x\"}}}", 0, NULL},
         "!{\"loc\":[\"body\",\"transfers\",\"i\",\"direction\"],\"msg\":\"value is not a valid enumeration member; permitted: "
         "'in', 'out'\",\"type\":\"type_error.enum\",\"ctx\":{\"enum_values\":[\"in\",\"out\"]}}," TEXT(
             "\"body\",\"transfers\",\"i\",\"local_path\"", "path must be relative")},
    };
    CHECK_ROWS(rows);
}

static void the_name_of_an_app_is_an_identifier(void **state)
{
    (void)state;
    static const char *const good[] = {"A", "_", "a1", "Caf\xc3\xa9", "\xe6\xb5\x8b\xe8\xaf\x95", "\xce\xb1_1"};
    static const char *const bad[] = {"", "1a", "a-b", "a b", "a.b", "\xe2\x82\xac", "\xf0\x9f\x8c\xb2", ("a\xe2\x80\x93" "b")};
    for (size_t i = 0; i < sizeof(good) / sizeof(*good) + sizeof(bad) / sizeof(*bad); i++) {
        bool is_good = i < sizeof(good) / sizeof(*good);
        const char *name = is_good ? good[i] : bad[i - sizeof(good) / sizeof(*good)];
        char body[64], expected[200];
        snprintf(body, sizeof(body), "{\"name\":\"%s\"}", name);
        if (is_good)
            snprintf(expected, sizeof(expected), "{\"id\":1,\"b\":{\"name\":\"%s\"}}", name);
        else
            snprintf(expected, sizeof(expected), "!%s", TEXT("\"body\",\"name\"", "must be an identifier: letters, digits and _, no digit in front"));
        struct row row = {{.verb = "app.update", .id = "1", .body = body}, expected};
        check_rows(&row, 1);
    }
}

static void texts_and_lists_have_limits(void **state)
{
    (void)state;
    struct ab_buf body = {0};
    ab_buf_str(&body, "{\"workdir\":\"");
    for (int i = 0; i < 256; i++)
        ab_buf_str(&body, "\xc3\xa9"); /* 256 characters, 512 bytes */
    ab_buf_str(&body, "\"}");
    struct asked asked = {.verb = "job.update", .id = "1", .body = body.data};
    char *answer = answer_of(&asked);
    assert_int_equal(answer[0], '{');
    free(answer);
    body.len -= 2;
    ab_buf_str(&body, "x\"}");
    asked.body = body.data;
    answer = answer_of(&asked);
    assert_string_equal(answer, "!{\"loc\":[\"body\",\"workdir\"],\"msg\":\"ensure this value has at most 256 characters\","
                                "\"type\":\"value_error.any_str.max_length\",\"ctx\":{\"limit_value\":256}}");
    free(answer);

    ab_buf_clear(&body);
    ab_buf_str(&body, "{\"site_id\":1,\"name\":\"A\",\"source_code\":\"\",\"serialized_class\":\"");
    for (int i = 0; i < 262145; i++)
        ab_buf_char(&body, 'x');
    ab_buf_str(&body, "\"}");
    asked = (struct asked){.verb = "app.create", .body = body.data};
    answer = answer_of(&asked);
    assert_string_equal(answer, "!{\"loc\":[\"body\",\"serialized_class\"],\"msg\":\"text is too long\",\"type\":\"assertion_error\"}");
    free(answer);

    ab_buf_clear(&body);
    ab_buf_str(&body, "{\"tags\":{");
    for (int i = 0; i < 1001; i++)
        ab_buf_printf(&body, "%s\"k%d\":1", i > 0 ? "," : "", i);
    ab_buf_str(&body, "}}");
    asked = (struct asked){.verb = "job.update", .id = "1", .body = body.data};
    answer = answer_of(&asked);
    assert_string_equal(answer, "!{\"loc\":[\"body\",\"tags\"],\"msg\":\"ensure this value has at most 1000 items\","
                                "\"type\":\"value_error.list.max_items\",\"ctx\":{\"limit_value\":1000}}");
    free(answer);
    ab_buf_free(&body);
}

static void past_a_hundred_issues_each_bad_item_is_still_named_once(void **state)
{
    (void)state;
    struct ab_buf body = {0};
    ab_buf_char(&body, '[');
    for (int i = 0; i < 6000; i++)
        ab_buf_printf(&body, "%s{\"id\":\"x\",\"num_nodes\":\"y\"}", i > 0 ? "," : "");
    ab_buf_char(&body, ']');
    struct ab_http_parts parts = {.body = body.data, .body_len = body.len, .has_body = true, .content_json = true};
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    assert_int_equal(ab_json_request(ab_route_of_verb("job.patch"), &parts, &packed, &issues), -1);
    int shown = 0;
    for (const char *p = issues.list.data; (p = strstr(p, "\"loc\"")); p++)
        shown++;
    assert_int_equal(shown, 50 * 2 + 4950); /* both of the first fifty, one of each other; a call takes 5000 */
    assert_true(issues.n > (size_t)shown);
    assert_non_null(strstr(issues.list.data, "[\"body\",49,\"id\"]"));
    assert_non_null(strstr(issues.list.data, "[\"body\",4999,"));
    assert_null(strstr(issues.list.data, "[\"body\",5000,"));
    ab_buf_free(&body);
}

static void of_one_item_a_hundred_issues_are_shown(void **state)
{
    (void)state;
    struct ab_buf body = {0};
    ab_buf_str(&body, "{\"tags\":{");
    for (int i = 0; i < 500; i++)
        ab_buf_printf(&body, "%s\"%d\":[]", i > 0 ? "," : "", i);
    ab_buf_str(&body, "}}");
    struct ab_http_parts parts = {
        .path_id = "1", .path_id_len = 1, .body = body.data, .body_len = body.len, .has_body = true, .content_json = true};
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    assert_int_equal(ab_json_request(ab_route_of_verb("job.update"), &parts, &packed, &issues), -1);
    int shown = 0;
    for (const char *p = issues.list.data; (p = strstr(p, "\"loc\"")); p++)
        shown++;
    assert_int_equal(shown, 100);
    assert_int_equal(issues.n, 500);
    ab_buf_free(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_an_object_or_a_list),
        cmocka_unit_test(broken_json_is_said_with_place_and_words_of_the_parser),
        cmocka_unit_test(errors_of_path_query_and_body_come_together_in_order),
        cmocka_unit_test(filters_that_are_falsy_do_not_filter),
        cmocka_unit_test(queries_are_decoded_like_forms),
        cmocka_unit_test(a_query_of_a_megabyte_of_ids_is_read),
        cmocka_unit_test(a_form_is_checked_like_any_body),
        cmocka_unit_test(a_job_is_created_from_what_clients_send),
        cmocka_unit_test(an_update_carries_only_what_was_sent),
        cmocka_unit_test(a_site_holds_only_what_its_shapes_allow),
        cmocka_unit_test(a_parameter_of_an_app_is_required_or_has_a_default),
        cmocka_unit_test(the_name_of_an_app_is_an_identifier),
        cmocka_unit_test(texts_and_lists_have_limits),
        cmocka_unit_test(past_a_hundred_issues_each_bad_item_is_still_named_once),
        cmocka_unit_test(of_one_item_a_hundred_issues_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
