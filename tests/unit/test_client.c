/* test_client.c - the API client against a server of a few lines that says what it is told to */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "client/api.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SCRIPT_MAX 16

/* One connection per answer: whole responses, or NULL: hang up without one. */
struct server {
    int fd, port;
    pthread_t thread;
    const char *answers[SCRIPT_MAX];
    int n;
    char seen[SCRIPT_MAX][8192];
    atomic_int served;
    int hold_ms; /* before each answer */
};

static void read_request(int fd, char *into, size_t room)
{
    size_t len = 0, want = 0;

    while (len + 1 < room) {
        ssize_t n = read(fd, into + len, room - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        into[len] = '\0';
        const char *body = strstr(into, "\r\n\r\n"), *length = strstr(into, "Content-Length: ");
        want = length ? (size_t)atol(length + 16) : 0;
        if (body && len >= (size_t)(body + 4 - into) + want)
            break;
    }
    into[len] = '\0';
}

static void *serve(void *arg)
{
    struct server *s = arg;

    for (int i = 0; i < s->n; i++) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            break;
        read_request(fd, s->seen[i], sizeof(s->seen[i]));
        s->served = i + 1;
        if (s->hold_ms)
            usleep((useconds_t)s->hold_ms * 1000);
        if (s->answers[i])
            (void)!write(fd, s->answers[i], strlen(s->answers[i]));
        shutdown(fd, SHUT_RDWR);
        close(fd);
    }
    return NULL;
}

static void start(struct server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);

    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(s->fd, 16), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &len), 0);
    s->port = ntohs(at.sin_port);
    while (s->n < SCRIPT_MAX && (s->answers[s->n] || s->n == 0))
        s->n++;
    pthread_create(&s->thread, NULL, serve, s);
}

static void stop(struct server *s)
{
    shutdown(s->fd, SHUT_RDWR);
    close(s->fd);
    pthread_join(s->thread, NULL);
}

#define REPLY(status, extra, body) "HTTP/1.1 " status "\r\nConnection: close\r\n" extra "\r\n" body
#define OK_A REPLY("200 OK", "", "{\"a\":1}")
#define BUSY REPLY("503 Service Unavailable", "Retry-After: 0\r\n", "{\"detail\":\"no\"}")

static char home[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(home, sizeof(home), "/tmp/abies-client-XXXXXX");
    return mkdtemp(home) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("ABIES_CLIENT_PATH");
    return ab_remove_tree(home, NULL);
}

static char *client_path(void)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/client.yml", home);
    return ab_buf_take(&path);
}

static void write_client(int port, const char *more)
{
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    ab_buf_printf(&text, "api_root: http://127.0.0.1:%d/\n%s", port, more);
    assert_int_equal(ab_file_write(path, text.data, text.len, 0600, NULL), 0);
}

static ab_api_t *open_api(bool renew)
{
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct ab_error err = {0};

    if (ab_client_file_load_path(&file, path, &err) < 0)
        fail_msg("%s", err.text);
    ab_api_t *api = ab_api_new(&file, renew, &err);
    assert_non_null(api);
    return api;
}

/* A client whose token the centre will not take. */
static ab_api_t *open_old(struct server *s)
{
    start(s);
    write_client(s->port, "token: old\nrefresh_token: r1\n");
    return open_api(true);
}

/* ------------------------------------------------------------------ calls */

static void an_answer_comes_back_with_its_status_and_body(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}};
    start(&s);
    write_client(s.port, "token: secret\n");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_error err = {0};

    assert_int_equal(ab_api_call(api, "POST", "/jobs/", "[]", 2, NULL, &reply, &err), 200);
    assert_int_equal(reply.len, 7);
    assert_memory_equal(reply.data, "{\"a\":1}", 7);
    stop(&s);
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
    start(&s);
    write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);
    char first[64], other[64];

    assert_int_equal(ab_api_call(api, "PATCH", "/jobs/", "[]", 2, NULL, NULL, NULL), 200);
    stop(&s);
    assert_int_equal(s.served, 3);
    key_of(s.seen[0], first);
    assert_string_equal(key_of(s.seen[1], other), first);
    assert_string_equal(key_of(s.seen[2], other), first);
}

static void a_connection_that_breaks_is_tried_again(void **state)
{
    (void)state;
    struct server s = {.answers = {NULL, OK_A}, .n = 2};
    start(&s);
    write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);

    assert_int_equal(ab_api_call(api, "POST", "/jobs/", "[]", 2, NULL, NULL, NULL), 200);
    stop(&s);
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
        start(&s);
        write_client(s.port, "");
        AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);
        assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, &err), cases[i].status);
        stop(&s);
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
    start(&s);
    write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);

    int64_t before = ab_now_ms();
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, &options, NULL, &err), -1);
    assert_true(ab_now_ms() - before < 1200);
    assert_int_equal(err.code, AB_ETIMEOUT);
    stop(&s);
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
    write_client(1, ""); /* nobody listens there */
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);

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
    start(&s);
    write_client(s.port, "");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);
    AB_AUTO(ab_buf_free) struct ab_buf reply = {.limit = 3};
    struct ab_error err = {0};

    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, &reply, &err), -1);
    assert_int_equal(err.code, AB_ETOOBIG);
    stop(&s);
}

/* ------------------------------------------------------------------ tokens */

static void a_token_that_somebody_else_renewed_is_read_from_the_file(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}};
    start(&s);
    write_client(s.port, "token: old\n");
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_api(false);
    AB_AUTO(ab_free) char *path = client_path();
    struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};

    write_client(s.port, "token: new\n");
    utimensat(AT_FDCWD, path, later, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    stop(&s);
    assert_non_null(strstr(s.seen[s.served - 1], "Bearer new"));
}

static void a_token_at_its_end_is_renewed_and_written_to_the_file(void **state)
{
    (void)state;
    struct server s = {.answers = {
                           REPLY("401 Unauthorized", "", "{}"),
                           REPLY("200 OK", "",
                                 "{\"access_token\":\"fresh\",\"refresh_token\":\"r2\","
                                 "\"expiration\":\"2099-01-01T00:00:00\",\"x\":123}"),
                           OK_A,
                       }};
    AB_AUTO(ab_api_destroy) ab_api_t *api = open_old(&s);
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct stat st;

    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    stop(&s);
    assert_true(ab_str_starts(s.seen[1], "POST /auth/token/refresh "));
    assert_null(strstr(s.seen[1], "Authorization"));
    assert_non_null(strstr(s.seen[1], "\"r1\""));
    assert_non_null(strstr(s.seen[2], "Bearer fresh"));
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    assert_string_equal(file.token, "fresh");
    assert_string_equal(file.refresh_token, "r2");
    assert_true(file.token_expiry_us > 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

#define FRESH REPLY("200 OK", "", "{\"access_token\":\"fresh\",\"refresh_token\":\"r2\"}")
#define DENIED REPLY("401 Unauthorized", "", "{}")

/* How many requests it takes to make one call with a token that lives for so long still. */
static int requests_at(int64_t left_sec, bool late)
{
    struct server s = {.answers = {FRESH, OK_A}};
    char more[160], when[AB_TIME_TEXT];
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};

    start(&s);
    if (left_sec > 300 + 300 * !late)
        s.answers[0] = OK_A;
    ab_time_format(ab_utc_us() + left_sec * 1000000, false, when);
    snprintf(more, sizeof(more), "token: old\nrefresh_token: r1\ntoken_expiry: %s\n", when);
    write_client(s.port, more);
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    AB_AUTO(ab_api_destroy)
    ab_api_t *api = late ? ab_api_new_late(&file, NULL) : ab_api_new(&file, true, NULL);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    stop(&s);
    return s.served;
}

static void a_launcher_renews_later_than_its_agent(void **state)
{
    (void)state;
    assert_int_equal(requests_at(660, false), 1);
    assert_int_equal(requests_at(540, false), 2);
    assert_int_equal(requests_at(540, true), 1);
    assert_int_equal(requests_at(240, true), 2);
    assert_int_equal(requests_at(-9, true), 2);
}

static void a_file_that_looks_old_is_read_before_a_refresh_token_is_used(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A, OK_A, DENIED, OK_A}};
    AB_AUTO(ab_free) char *path = client_path();
    struct timespec then[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};

    AB_AUTO(ab_api_destroy) ab_api_t *api = open_old(&s);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    utimensat(AT_FDCWD, path, then, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    write_client(s.port, "token: new\nrefresh_token: r2\n");
    utimensat(AT_FDCWD, path, then, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    stop(&s);
    assert_non_null(strstr(s.seen[3], "Bearer new"));
}

struct intruder {
    struct server *server;
    const char *more;
};

/* Another process writes the file while the answer to our renewal is under way. */
static void *intrude(void *arg)
{
    struct intruder *self = arg;
    while (self->server->served < 2)
        usleep(1000);
    write_client(self->server->port, self->more);
    return NULL;
}

static void a_renewal_that_others_have_passed_is_not_written(void **state)
{
    (void)state;
    struct server s = {.answers = {DENIED, FRESH, OK_A}, .hold_ms = 200};
    struct intruder other = {&s, "token: newest\nrefresh_token: r9\n"};
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    pthread_t thread;

    AB_AUTO(ab_api_destroy) ab_api_t *api = open_old(&s);
    pthread_create(&thread, NULL, intrude, &other);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    pthread_join(thread, NULL);
    stop(&s);
    assert_non_null(strstr(s.seen[2], "Bearer newest"));
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    assert_string_equal(file.refresh_token, "r9");
}

/* No byte can be written to any file: as with a full disk, and for root as well. */
static void fill_disk(bool full)
{
    static struct rlimit before;
    struct rlimit none;

    signal(SIGXFSZ, SIG_IGN);
    if (full)
        getrlimit(RLIMIT_FSIZE, &before);
    none = (struct rlimit){full ? 0 : before.rlim_cur, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
}

static void with_a_full_disk_no_refresh_token_is_used_up(void **state)
{
    (void)state;
    struct server s = {.answers = {DENIED, FRESH, OK_A}};

    AB_AUTO(ab_api_destroy) ab_api_t *api = open_old(&s);
    fill_disk(true);
    int status = ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL);
    fill_disk(false);
    assert_int_equal(status, 401);
    stop(&s);
    assert_int_equal(s.served, 1);
}

static void *fill_disk_in_mid_renewal(void *arg)
{
    struct server *s = arg;
    while (s->served < 2)
        usleep(1000);
    fill_disk(true);
    return NULL;
}

static void tokens_that_cannot_be_written_are_used_and_written_later(void **state)
{
    (void)state;
    struct server s = {.answers = {DENIED, FRESH, OK_A, OK_A}, .hold_ms = 200};
    AB_AUTO(ab_free) char *path = client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    pthread_t thread;

    AB_AUTO(ab_api_destroy) ab_api_t *api = open_old(&s);
    pthread_create(&thread, NULL, fill_disk_in_mid_renewal, &s);
    int status = ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL);
    pthread_join(thread, NULL);
    fill_disk(false);
    assert_int_equal(status, 200);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    stop(&s);
    assert_non_null(strstr(s.seen[3], "Bearer fresh"));
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    assert_string_equal(file.refresh_token, "r2");
}

/* ------------------------------------------------------------------ the client file */

static void a_client_file_survives_writing_and_reading(void **state)
{
    (void)state;
    AB_AUTO(ab_free) char *path = client_path();
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
    AB_AUTO(ab_free) char *path = client_path();
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
    write_client(80, "");
    assert_int_equal(chmod(path, 0644), 0);
    struct ab_client_file file;
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), -1);
}

static void the_client_file_of_a_site_comes_before_the_users(void **state)
{
    (void)state;
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};

    write_client(1234, "");
    assert_int_equal(ab_client_file_load(&file, home, NULL), 0);
    assert_string_equal(file.api_root, "http://127.0.0.1:1234");
    ab_client_file_free(&file);
    setenv("ABIES_CLIENT_PATH", "/nowhere/client.yml", 1);
    struct ab_error err = {0};
    assert_int_equal(ab_client_file_load(&file, home, &err), -1);
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

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

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
        TEST(a_token_that_somebody_else_renewed_is_read_from_the_file),
        TEST(a_token_at_its_end_is_renewed_and_written_to_the_file),
        TEST(a_launcher_renews_later_than_its_agent),
        TEST(a_file_that_looks_old_is_read_before_a_refresh_token_is_used),
        TEST(a_renewal_that_others_have_passed_is_not_written),
        TEST(with_a_full_disk_no_refresh_token_is_used_up),
        TEST(tokens_that_cannot_be_written_are_used_and_written_later),
        TEST(a_client_file_survives_writing_and_reading),
        TEST(a_client_file_that_is_wrong_or_open_to_others_is_refused),
        TEST(the_client_file_of_a_site_comes_before_the_users),
        TEST(query_values_are_percent_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
