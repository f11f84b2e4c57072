/* test_client.c - calls of the API client, and the file that says where the centre is */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "client_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ calls */

static void an_answer_comes_back_with_its_status_and_body(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}};
    rig_start(&s);
    rig_write_client(s.port, "token: secret\n");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_error err = {0};

    assert_int_equal(ab_api_call(api, "POST", "/jobs/", "[]", 2, NULL, &reply, &err), 200);
    assert_int_equal(reply.len, 7);
    assert_memory_equal(reply.data, "{\"a\":1}", 7);
    rig_stop(&s);
    assert_true(ab_str_starts(s.seen[0], "POST /jobs/ HTTP/1.1\r\n"));
    assert_non_null(strstr(s.seen[0], "Authorization: Bearer secret\r\n"));
    assert_non_null(strstr(s.seen[0], "Content-Type: application/json\r\n"));
    assert_non_null(strstr(s.seen[0], "Idempotency-Key: "));
    assert_null(strstr(s.seen[0], "Expect:"));
    assert_true(ab_str_ends(s.seen[0], "\r\n\r\n[]"));
}

static const char *key_of(const char *request, char out[64])
{
    const char *at = strstr(request, "Idempotency-Key: ");
    assert_non_null(at);
    snprintf(out, 64, "%.36s", at + 17);
    return out;
}

static void all_tries_of_a_changing_call_carry_the_same_key(void **state)
{
    (void)state;
    struct server s = {.answers = {BUSY, BUSY, OK_A}};
    rig_start(&s);
    rig_write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);
    char first[64], other[64];

    assert_int_equal(ab_api_call(api, "PATCH", "/jobs/", "[]", 2, NULL, NULL, NULL), 200);
    rig_stop(&s);
    assert_int_equal(s.served, 3);
    key_of(s.seen[0], first);
    assert_string_equal(key_of(s.seen[1], other), first);
    assert_string_equal(key_of(s.seen[2], other), first);
}

static void a_connection_that_breaks_is_tried_again(void **state)
{
    (void)state;
    struct server s = {.answers = {NULL, OK_A}, .n = 2};
    rig_start(&s);
    rig_write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);

    assert_int_equal(ab_api_call(api, "POST", "/jobs/", "[]", 2, NULL, NULL, NULL), 200);
    rig_stop(&s);
    assert_int_equal(s.served, 2);
}

static void a_refusal_is_final_and_its_text_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *answer, *text;
        int status;
    } cases[] = {
        {REPLY("400 Bad Request", "", "{\"detail\":\"no such x\"}"), "no such x", 400},
        {REPLY("404 Not Found", "", "{\"error\":\"Not found\",\"message\":\"no job 3\"}"),
         "no job 3", 404},
        {REPLY("404 Not Found", "", "{\"error\":\"Not found\"}"), "Not found", 404},
        {REPLY("422 X", "",
               "{\"detail\":[{\"loc\":[\"body\",0,\"state\"],\"msg\":\"bad\",\"type\":"
               "\"x\"}]}"),
         "body.0.state: bad", 422},
        {REPLY("409 Conflict", "", "oops"), "HTTP status 409", 409},
        {REPLY("307 Temporary Redirect", "Location: http://127.0.0.1:1/\r\n", ""),
         "HTTP status 307", 307},
    };

    for (size_t i = 0; i < AB_COUNT(cases); i++) {
        struct server s = {.answers = {cases[i].answer}};
        struct ab_error err = {0};
        rig_start(&s);
        rig_write_client(s.port, "");
        AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);
        assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, &err), cases[i].status);
        rig_stop(&s);
        assert_int_equal(s.served, 1);
        assert_int_equal(err.code, cases[i].status);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s", err.text);
    }
}

static void no_answer_within_the_time_is_an_error_not_a_hang(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}, .hold_ms = 1500};
    struct ab_api_options options = {.timeout_ms = 300, .retries = 5};
    struct ab_error err = {0};
    rig_start(&s);
    rig_write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);

    int64_t before = ab_now_ms();
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, &options, NULL, &err), -1);
    assert_true(ab_now_ms() - before < 1200);
    assert_int_equal(err.code, AB_ETIMEOUT);
    rig_stop(&s);
}

static void *raise_flag(void *flag)
{
    usleep(200000);
    atomic_store((atomic_int *)flag, 1);
    return NULL;
}

static void a_raised_flag_ends_the_call_soon(void **state)
{
    (void)state;
    atomic_int flag = 0;
    struct ab_api_options options = {.timeout_ms = 60000, .retries = 100, .stop = &flag};
    pthread_t thread;
    rig_write_client(1, ""); /* nobody listens there */
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);

    pthread_create(&thread, NULL, raise_flag, &flag);
    int64_t before = ab_now_ms();
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, &options, NULL, NULL), -1);
    assert_true(ab_now_ms() - before < 3000);
    pthread_join(thread, NULL);
}

static void an_answer_past_its_limit_is_refused(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}};
    rig_start(&s);
    rig_write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 3};
    struct ab_error err = {0};

    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, &reply, &err), -1);
    assert_int_equal(err.code, AB_ETOOBIG);
    rig_stop(&s);
}

/* ------------------------------------------------------------------ the client file */

static void a_client_file_survives_writing_and_reading(void **state)
{
    (void)state;
    AB_AUTO(ab_free) char *path = rig_client_path();
    struct ab_client_file file = {
        .path = path,
        .api_root = (char *)"https://centre.example.org:8443",
        .ca_file = (char *)"/etc/ca.pem",
        .proxy = (char *)"",
        .token = (char *)"a.b: #c",
        .token_expiry_us = 1900000000000000,
        .connect_timeout_ms = 6200,
        .read_timeout_ms = 120000,
        .retry_count = 3,
    };
    AB_AUTO(ab_client_file_free) struct ab_client_file back = {0};
    struct ab_error err = {0};

    assert_int_equal(ab_client_file_save(&file, &err), 0);
    if (ab_client_file_load_path(&back, path, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(back.api_root, file.api_root);
    assert_string_equal(back.token, file.token);
    assert_string_equal(back.proxy, "");
    assert_null(back.refresh_token);
    assert_true(back.token_expiry_us == file.token_expiry_us);
    assert_int_equal(back.connect_timeout_ms, 6200);
    assert_int_equal(back.retry_count, 3);
}

static void a_client_file_that_is_wrong_or_open_to_others_is_refused(void **state)
{
    (void)state;
    AB_AUTO(ab_free) char *path = rig_client_path();
    static const char *const wrong[] = {
        "",
        "api_root: http://example.org\n",
        "api_root: ftp://x\n",
        "api_root: https://\n",
        "api_root: http://127.0.0.1.evil.example\n",
        "api_root: http://localhost.evil.example\n",
        "api_root: https://x\ntokn: y\n",
        "api_root: https://x\nretry_count: many\n",
        "api_root: https://x\nconnect_timeout: 0\n",
        "api_root: https://x\ntoken_expiry: soon\n",
    };

    for (size_t i = 0; i < AB_COUNT(wrong); i++) {
        struct ab_client_file file;
        struct ab_error err = {0};
        assert_int_equal(ab_file_write(path, wrong[i], strlen(wrong[i]), 0600, NULL), 0);
        if (ab_client_file_load_path(&file, path, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
        assert_true(*err.text);
    }
    rig_write_client(80, "");
    assert_int_equal(chmod(path, 0644), 0);
    struct ab_client_file file;
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), -1);
}

static void the_client_file_of_a_site_comes_before_the_users(void **state)
{
    (void)state;
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};

    rig_write_client(1234, "");
    assert_int_equal(ab_client_file_load(&file, rig_home, NULL), 0);
    assert_string_equal(file.api_root, "http://127.0.0.1:1234");
    ab_client_file_free(&file);
    setenv("ABIES_CLIENT_PATH", "/nowhere/client.yml", 1);
    struct ab_error err = {0};
    assert_int_equal(ab_client_file_load(&file, rig_home, &err), -1);
    assert_int_equal(err.code, AB_ENOENT);
}

static void query_values_are_percent_encoded(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};

    ab_buf_str(&path, "/jobs/");
    ab_api_query(&path, "tags", "a:b c&d=é");
    ab_api_query_int(&path, "id", -3);
    ab_buf_char(&path, '\0');
    assert_string_equal(path.data, "/jobs/?tags=a%3Ab%20c%26d%3D%C3%A9&id=-3");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_comes_back_with_its_status_and_body),
        TEST(all_tries_of_a_changing_call_carry_the_same_key),
        TEST(a_connection_that_breaks_is_tried_again),
        TEST(a_refusal_is_final_and_its_text_is_kept),
        TEST(no_answer_within_the_time_is_an_error_not_a_hang),
        TEST(a_raised_flag_ends_the_call_soon),
        TEST(an_answer_past_its_limit_is_refused),
        TEST(a_client_file_survives_writing_and_reading),
        TEST(a_client_file_that_is_wrong_or_open_to_others_is_refused),
        TEST(the_client_file_of_a_site_comes_before_the_users),
        TEST(query_values_are_percent_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
