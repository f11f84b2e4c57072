/* test_client_tokens.c - tokens of a client that end, are renewed, and are kept in its file */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "client/renewal.h"
#include "client_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_token_that_somebody_else_renewed_is_read_from_the_file(void **state)
{
    (void)state;
    struct server s = {.answers = {OK_A}};
    rig_start(&s);
    rig_write_client(s.port, "token: old\n");
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(false);
    AB_AUTO(ab_free) char *path = rig_client_path();
    struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};

    rig_write_client(s.port, "token: new\n");
    utimensat(AT_FDCWD, path, later, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
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
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_old(&s);
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    struct stat st;

    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
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
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};

    rig_start(&s);
    if (left_sec > 300 + 300 * !late)
        s.answers[0] = OK_A;
    ab_time_format(ab_utc_us() + left_sec * 1000000, false, when);
    snprintf(more, sizeof(more), "token: old\nrefresh_token: r1\ntoken_expiry: %s\n", when);
    rig_write_client(s.port, more);
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    AB_AUTO(ab_api_destroy)
    ab_api_t *api = late ? ab_api_new_late(&file, NULL) : ab_api_new(&file, true, NULL);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
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
    AB_AUTO(ab_free) char *path = rig_client_path();
    struct timespec then[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};

    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_old(&s);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    utimensat(AT_FDCWD, path, then, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_write_client(s.port, "token: new\nrefresh_token: r2\n");
    utimensat(AT_FDCWD, path, then, 0);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
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
    rig_write_client(self->server->port, self->more);
    return NULL;
}

static void a_renewal_that_others_have_passed_is_not_written(void **state)
{
    (void)state;
    struct server s = {.answers = {DENIED, FRESH, OK_A}, .hold_ms = 200};
    struct intruder other = {&s, "token: newest\nrefresh_token: r9\n"};
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    pthread_t thread;

    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_old(&s);
    pthread_create(&thread, NULL, intrude, &other);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    pthread_join(thread, NULL);
    rig_stop(&s);
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

    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_old(&s);
    fill_disk(true);
    int status = ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL);
    fill_disk(false);
    assert_int_equal(status, 401);
    rig_stop(&s);
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
    AB_AUTO(ab_free) char *path = rig_client_path();
    AB_AUTO(ab_client_file_free) struct ab_client_file file = {0};
    pthread_t thread;

    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_old(&s);
    pthread_create(&thread, NULL, fill_disk_in_mid_renewal, &s);
    int status = ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL);
    pthread_join(thread, NULL);
    fill_disk(false);
    assert_int_equal(status, 200);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
    assert_non_null(strstr(s.seen[3], "Bearer fresh"));
    assert_int_equal(ab_client_file_load_path(&file, path, NULL), 0);
    assert_string_equal(file.refresh_token, "r2");
}

/* What a request carries in this header. */
static const char *header_of(const char *request, const char *name, char out[128])
{
    const char *at = strstr(request, name);
    if (!at)
        fail_msg("no %s in %s", name, request);
    at += strlen(name) + 2;
    snprintf(out, 128, "%.*s", (int)strcspn(at, "\r"), at);
    return out;
}

static char *renewal_path(void)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/client.yml.renewal", rig_home);
    return ab_buf_take(&path);
}

/* One renewal, in a process that is killed while the answer is under way. */
static void renew_and_die(struct server *s)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(true);
        (void)ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL);
        _exit(1);
    }
    while (s->served < 2)
        usleep(1000);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void who_dies_in_mid_renewal_asks_again_under_the_same_key(void **state)
{
    (void)state;
    struct server s = {.answers = {DENIED, FRESH, DENIED, FRESH, OK_A, DENIED, FRESH, OK_A},
                       .hold_ms = 200};
    AB_AUTO(ab_free) char *key = renewal_path();
    char first[128], second[128], third[128];
    struct stat st;

    signal(SIGPIPE, SIG_IGN);
    rig_start(&s);
    rig_write_client(s.port, "token: old\nrefresh_token: r1\n");
    renew_and_die(&s);
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    AB_AUTO(ab_api_destroy) ab_api_t *api = rig_open_api(true);
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    header_of(s.seen[1], "Idempotency-Key", first);
    assert_string_equal(header_of(s.seen[3], "Idempotency-Key", second), first);
    assert_true(strlen(first) >= 32);
    assert_int_equal(stat(key, &st),
                     -1); /* it is in the client file, so nobody needs to ask again */
    /* the next one is another one */
    assert_int_equal(ab_api_call(api, "GET", "/x", NULL, 0, NULL, NULL, NULL), 200);
    rig_stop(&s);
    assert_non_null(strstr(s.seen[6], "\"r2\""));
    assert_string_not_equal(header_of(s.seen[6], "Idempotency-Key", third), first);
}

static void a_key_that_is_not_of_this_token_or_open_to_others_is_not_used(void **state)
{
    (void)state;
    AB_AUTO(ab_free) char *path = renewal_path();
    struct ab_error err = {0};
    char mine[RENEWAL_KEY], again[RENEWAL_KEY], other[RENEWAL_KEY];
    AB_AUTO(ab_free) char *client = rig_client_path();

    assert_int_equal(renewal_key(client, "r1", mine, &err), 0);
    assert_int_equal(renewal_key(client, "r1", again, &err), 0);
    assert_string_equal(mine, again);
    assert_int_equal(renewal_key(client, "r2", other, &err), 0);
    assert_string_not_equal(other, mine);
    assert_int_equal(renewal_key(client, "r2", again, &err), 0);
    assert_string_equal(other, again);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(renewal_key(client, "r2", again, &err), 0);
    assert_string_not_equal(other, again);
    for (size_t cut = 0; cut < 77; cut += 7) { /* a file system that lost its end */
        assert_int_equal(truncate(path, (off_t)cut), 0);
        snprintf(other, sizeof(other), "%s", again);
        assert_int_equal(renewal_key(client, "r2", again, &err), 0);
        assert_string_not_equal(other, again);
        assert_int_equal(strlen(again), RENEWAL_KEY - 1);
    }
    renewal_done(client);
    assert_int_equal(access(path, F_OK), -1);
    renewal_done(client);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_token_that_somebody_else_renewed_is_read_from_the_file),
        TEST(a_token_at_its_end_is_renewed_and_written_to_the_file),
        TEST(a_launcher_renews_later_than_its_agent),
        TEST(a_file_that_looks_old_is_read_before_a_refresh_token_is_used),
        TEST(a_renewal_that_others_have_passed_is_not_written),
        TEST(with_a_full_disk_no_refresh_token_is_used_up),
        TEST(tokens_that_cannot_be_written_are_used_and_written_later),
        TEST(who_dies_in_mid_renewal_asks_again_under_the_same_key),
        TEST(a_key_that_is_not_of_this_token_or_open_to_others_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
