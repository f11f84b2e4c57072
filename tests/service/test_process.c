/* test_process.c - a service as a process: two replicas of `auth` behind a gateway's bus, and what
 * happens to them */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rand.h"
#include "base/spawn.h"
#include "bus_rig.h"
#include "crypt/crypt.h"
#include "pg.h"
#include "schema/json.h"
#include "schema/pack.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    BEAT_MS = 200,
    DEAD_MS = 2000,
    PATIENCE_MS = 60 * 1000
};

static ab_db_t *owner;
static ab_bus_t *bus;
static char dir[] = "/tmp/abies-test-XXXXXX", seal[64];

/* ---- a replica as a process */

struct process {
    pid_t pid;
    char run_file[80], health[64], instance[128];
    int number;
};
static int n_started;
static pid_t started[64]; /* for the end of a test that failed */

/* Ours, and then the settings; the strings live as long as the test. */
static const char *const *environment(const struct process *self, const char *extra)
{
    static const char *env[24];
    static char text[24][512];
    int n = 0;
    const char *lines[][2] = {
        {"ABIES_DATABASE_URL", pg_url_as("abies_auth")},
        {"ABIES_GATEWAYS", ab_bus_endpoint(bus)},
        {"ABIES_CURVE_DIR", rig_curve_dir()},
        {"ABIES_SEAL_KEY", seal},
        {"ABIES_RUN_FILE", self->run_file},
        {"ABIES_WORKERS", "1"},
        {"ABIES_BEAT", "200ms"},
        {"ABIES_DEAD", "2s"},
        {"PATH", getenv("PATH")},
        {"ASAN_OPTIONS", getenv("ASAN_OPTIONS") ? getenv("ASAN_OPTIONS") : ""},
        {"TSAN_OPTIONS", getenv("TSAN_OPTIONS") ? getenv("TSAN_OPTIONS") : ""},
    };
    for (; n < (int)AB_COUNT(lines); n++) {
        snprintf(text[n], sizeof(text[n]), "%s=%s", lines[n][0], lines[n][1]);
        env[n] = text[n];
    }
    if (extra)
        env[n++] = extra;
    env[n] = NULL;
    return env;
}

static const char *program(void)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/../bin/abies-auth", ab_self_dir());
    return path;
}

static void launch(struct process *self, const char *extra)
{
    struct ab_error err = {0};
    assert_true(n_started < (int)AB_COUNT(started));
    self->number = n_started++;
    snprintf(self->run_file, sizeof(self->run_file), "%s/run.%d", dir, self->number);
    const char *argv[] = {program(), NULL};
    struct ab_spawn what = {.argv = argv,
                            .env = environment(self, extra),
                            .in = -1,
                            .out = -1,
                            .err = STDERR_FILENO,
                            .die_with_parent = true};
    if (ab_spawn(&what, &self->pid, &err) < 0)
        fail_msg("%s", err.text);
    started[self->number] = self->pid;
}

static bool is_up(ab_bus_t *self, void *arg)
{
    (void)self;
    struct process *process = arg;
    return access(process->run_file, R_OK) == 0 || waitpid(process->pid, NULL, WNOHANG) != 0;
}

static void read_run_file(struct process *self)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct ab_error err = {0};
    assert_int_equal(ab_file_read(self->run_file, 4096, &text, &err), 0);
    const struct ab_value *v = ab_value_parse(arena, text.data, text.len, &err);
    assert_int_equal(ab_value_int(ab_value_get(v, "pid"), 0), self->pid);
    snprintf(self->health, sizeof(self->health), "%s",
             ab_value_text(ab_value_get(v, "health"), ""));
    snprintf(self->instance, sizeof(self->instance), "%s",
             ab_value_text(ab_value_get(v, "instance"), ""));
}

static void start(struct process *self, const char *extra)
{
    int before = rig_live(bus, "auth");
    launch(self, extra);
    assert_true(rig_turn_until(bus, is_up, self, PATIENCE_MS));
    assert_int_equal(kill(self->pid, 0), 0);
    read_run_file(self);
    assert_true(rig_wait_live(bus, "auth", before + 1, PATIENCE_MS));
}

static bool has_ended(ab_bus_t *self, void *arg)
{
    (void)self;
    struct process *process = arg;
    int status;
    if (waitpid(process->pid, &status, WNOHANG) != process->pid)
        return false;
    started[process->number] = 0;
    process->number = ab_exit_code(status);
    process->pid = 0;
    return true;
}

/* Its exit code. */
static int wait_for_end(struct process *self)
{
    assert_true(rig_turn_until(bus, has_ended, self, PATIENCE_MS));
    return self->number;
}

static int stop(struct process *self)
{
    kill(self->pid, SIGTERM);
    return wait_for_end(self);
}

/* ---- asking */

static void on_answer(void *arg, int status, const void *body, size_t len)
{
    struct rig_call *call = arg;
    (void)body;
    (void)len;
    call->done = 1;
    call->status = status;
    call->took_ms = ab_now_ms() - call->asked_ms;
}

/* Somebody without a token. */
static void ask(struct rig_call *call, const char *verb, const void *body_struct)
{
    struct ab_buf body = {0};
    ab_pack_request(&body, ab_route_of_verb(verb), 0, NULL, body_struct, body_struct ? 1 : 0);
    struct ab_bus_request request = {
        .service = "auth",
        .verb = verb,
        .peer = "192.0.2.7",
        .deadline_ms = ab_now_ms() + 30 * 1000,
        .body_len = body.len,
        .done = on_answer,
        .arg = call,
    };
    request.body = ab_buf_take(&body);
    ab_uuid7(request.uuid);
    call->asked_ms = ab_now_ms();
    ab_bus_submit(bus, &request);
}

static int answer(struct rig_call *call)
{
    assert_true(rig_turn(bus, &call->done, PATIENCE_MS));
    return call->status;
}

static int ask_once(const char *verb, const void *body_struct)
{
    static struct rig_call call; /* the bus may answer after a test that failed */
    call = (struct rig_call){0};
    ask(&call, verb, body_struct);
    return answer(&call);
}

static struct user_register new_user(const char *name)
{
    struct user_register in = {.username = name, .password = "secret"};
    AB_SET(user_register, &in, username);
    AB_SET(user_register, &in, password);
    return in;
}

static struct login login_of(const char *name, const char *password)
{
    struct login in = {.username = name, .password = password};
    AB_SET(login, &in, username);
    AB_SET(login, &in, password);
    return in;
}

/* The status of GET, the text in *out. */
static int get(const char *address, const char *path, struct ab_buf *out)
{
    char host[64], request[128];
    int port = 0, status = 0;
    struct sockaddr_in to = {.sin_family = AF_INET};
    assert_int_equal(sscanf(address, "%63[^:]:%d", host, &port), 2);
    to.sin_port = htons((uint16_t)port);
    inet_pton(AF_INET, host, &to.sin_addr);
    AB_AUTO(ab_close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    int n = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_int_equal(write(fd, request, (size_t)n), n);
    ab_buf_clear(out);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char piece[4096];
    ssize_t got;
    while (poll(&p, 1, PATIENCE_MS) > 0 && (got = read(fd, piece, sizeof(piece))) > 0)
        ab_buf_add(out, piece, (size_t)got);
    ab_buf_str(out, "");
    assert_int_equal(sscanf(out->data, "HTTP/1.1 %d", &status), 1);
    return status;
}

struct wanted {
    const struct process *process;
    int status;
};

static bool readyz_is(ab_bus_t *self, void *arg)
{
    (void)self;
    const struct wanted *wanted = arg;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    return get(wanted->process->health, "/readyz", &text) == wanted->status;
}

/* ---- setting up */

static int open_all(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_crypt_init();
    owner = pg_open();
    assert_non_null(mkdtemp(dir));
    snprintf(seal, sizeof(seal), "%s/seal.key", dir);
    assert_int_equal(ab_seal_key_make(seal, &err), 0);
    bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT_MS, DEAD_MS);
    assert_non_null(bus);
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (int i = 0; i < n_started; i++) {
        if (started[i] == 0)
            continue;
        kill(started[i], SIGKILL);
        waitpid(started[i], NULL, 0);
        started[i] = 0;
    }
    rig_wait_live(bus, "auth", 0, PATIENCE_MS); /* and whoever asked it got an answer */
    pg_exec(owner, "ALTER ROLE abies_auth LOGIN");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    struct ab_error err = {0};
    ab_bus_destroy(&bus);
    ab_remove_tree(dir, &err);
    ab_db_close(&owner);
    return 0;
}

/* ---- tests */

static void a_replica_says_where_it_is_and_how_it_is(void **state)
{
    (void)state;
    struct process one = {0};
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    start(&one, NULL);
    assert_non_null(strstr(one.instance, "auth-"));
    assert_int_equal(ask_once("auth.how", NULL), 200);
    assert_int_equal(get(one.health, "/healthz", &text), 200);
    struct wanted ready = {&one, 200};
    assert_true(rig_turn_until(bus, readyz_is, &ready, PATIENCE_MS));
    assert_int_equal(get(one.health, "/metrics", &text), 200);
    assert_non_null(strstr(
        text.data, "abies_requests_total{service=\"auth\",verb=\"auth.how\",code=\"200\"} 1"));
    assert_non_null(strstr(text.data, "abies_request_seconds_bucket{"));
    assert_non_null(strstr(text.data, "abies_gateways{service=\"auth\"} 1"));
    assert_int_equal(get(one.health, "/nonsense", &text), 404);
    assert_int_equal(stop(&one), 0);
    assert_int_equal(rig_live(bus, "auth"), 0);
}

static void refused_logins_are_held_back_and_keep_no_worker(void **state)
{
    (void)state;
    struct process one = {0};
    struct login wrong = login_of("nobody", "x");
    static struct rig_call calls[4];
    start(&one, NULL); /* one worker */
    for (size_t i = 0; i < AB_COUNT(calls); i++)
        ask(&calls[i], "user.login", &wrong);
    assert_int_equal(ask_once("auth.how", NULL), 200); /* behind them in the queue */
    assert_false(calls[3].done);
    for (size_t i = 0; i < AB_COUNT(calls); i++) {
        assert_int_equal(answer(&calls[i]), 401);
        assert_true(calls[i].took_ms >= 1000);
    }
    assert_int_equal(stop(&one), 0);
}

static void a_replica_that_dies_behind_its_commit_costs_nothing(void **state)
{
    (void)state;
    struct process one = {0}, two = {0};
    struct user_register in = new_user("tenant");
    start(&one, "ABIES_FAULT=user.register.after_commit:kill:1");
    static struct rig_call call; /* the bus may answer after a test that failed */
    call = (struct rig_call){0};
    ask(&call, "user.register", &in);
    assert_int_equal(wait_for_end(&one), -SIGKILL);
    assert_true(rig_wait_live(bus, "auth", 0, PATIENCE_MS));
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM users WHERE username = 'tenant'"), 1);
    start(&two, NULL);
    assert_int_equal(answer(&call), 201 + AB_BUS_REPLAYED);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM users WHERE username = 'tenant'"), 1);
    assert_int_equal(stop(&two), 0);
}

static void a_replica_that_dies_before_its_commit_costs_nothing(void **state)
{
    (void)state;
    struct process one = {0}, two = {0};
    struct user_register in = new_user("stranger");
    start(&one, "ABIES_FAULT=user.register.before_commit:kill:1");
    static struct rig_call call; /* the bus may answer after a test that failed */
    call = (struct rig_call){0};
    ask(&call, "user.register", &in);
    assert_int_equal(wait_for_end(&one), -SIGKILL);
    assert_true(rig_wait_live(bus, "auth", 0, PATIENCE_MS));
    start(&two, NULL);
    assert_int_equal(answer(&call), 201);
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM users WHERE username = 'stranger'"), 1);
    assert_int_equal(stop(&two), 0);
}

static void two_replicas_share_the_key_and_the_work(void **state)
{
    (void)state;
    struct process one = {0}, two = {0};
    struct user_register in = new_user("intruder");
    pg_exec(owner, "DELETE FROM signing_keys");
    launch(&one, NULL); /* at the same moment: who makes the key? */
    launch(&two, NULL);
    assert_true(rig_turn_until(bus, is_up, &one, PATIENCE_MS));
    assert_true(rig_turn_until(bus, is_up, &two, PATIENCE_MS));
    assert_true(rig_wait_live(bus, "auth", 2, PATIENCE_MS));
    assert_int_equal(pg_int(owner, "SELECT count(*) FROM signing_keys"), 1);
    assert_int_equal(ask_once("user.register", &in), 201);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ask_once("auth.how", NULL), 200);
    assert_int_equal(stop(&one), 0);
    assert_int_equal(ask_once("auth.how", NULL), 200);
    assert_int_equal(stop(&two), 0);
}

static void a_database_that_goes_and_comes_back_is_found_again(void **state)
{
    (void)state;
    struct process one = {0};
    struct login in = login_of("stranger", "secret");
    start(&one, NULL);
    assert_int_equal(ask_once("user.login", &in), 200);
    /* connections cut: the next call notices nothing */
    pg_exec(owner,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'abies_auth'");
    assert_int_equal(ask_once("user.login", &in), 200);
    /* the server lets nobody in: refused quickly, and /readyz says so */
    pg_exec(owner, "ALTER ROLE abies_auth NOLOGIN");
    pg_exec(owner,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'abies_auth'");
    static struct rig_call call; /* the bus may answer after a test that failed */
    call = (struct rig_call){0};
    ask(&call, "user.login", &in);
    assert_int_equal(answer(&call), 503);
    assert_true(call.took_ms < 10 * 1000);
    struct wanted away = {&one, 503}, back = {&one, 200};
    assert_true(rig_turn_until(bus, readyz_is, &away, PATIENCE_MS));
    assert_int_equal(ask_once("auth.how", NULL), 503);
    pg_exec(owner, "ALTER ROLE abies_auth LOGIN");
    assert_true(rig_turn_until(bus, readyz_is, &back, PATIENCE_MS));
    int status = 0;
    for (int i = 0; i < 50 && status != 200; i++) {
        status = ask_once("user.login", &in);
        rig_turn(bus, NULL, 100); /* workers come back with a back-off of their own */
    }
    assert_int_equal(status, 200);
    assert_int_equal(stop(&one), 0);
}

static void a_service_that_starts_before_its_database_waits_for_it(void **state)
{
    (void)state;
    struct process one = {0};
    pg_exec(owner, "ALTER ROLE abies_auth NOLOGIN");
    launch(&one, NULL);
    rig_turn(bus, NULL, 1000);
    assert_int_equal(waitpid(one.pid, NULL, WNOHANG), 0);
    assert_int_not_equal(access(one.run_file, F_OK), 0);
    pg_exec(owner, "ALTER ROLE abies_auth LOGIN");
    assert_true(rig_turn_until(bus, is_up, &one, PATIENCE_MS));
    assert_true(rig_wait_live(bus, "auth", 1, PATIENCE_MS));
    assert_int_equal(stop(&one), 0);
    /* and it ends when it is told to, waiting or not */
    pg_exec(owner, "ALTER ROLE abies_auth NOLOGIN");
    struct process two = {0};
    launch(&two, NULL);
    rig_turn(bus, NULL, 500);
    int code = stop(&two);
    pg_exec(owner, "ALTER ROLE abies_auth LOGIN");
    assert_int_equal(code, 0);
}

static void sigterm_answers_what_is_in_hand_and_leaves(void **state)
{
    (void)state;
    struct process one = {0};
    struct login wrong = login_of("nobody", "x");
    start(&one, NULL);
    static struct rig_call call; /* the bus may answer after a test that failed */
    call = (struct rig_call){0};
    ask(&call, "user.login", &wrong);
    rig_turn(bus, NULL, 300); /* held back for a second by now */
    int64_t from = ab_now_ms();
    kill(one.pid, SIGTERM);
    assert_int_equal(answer(&call), 401);
    assert_int_equal(wait_for_end(&one), 0);
    assert_true(ab_now_ms() - from < 8 * 1000);
}

static int run_once(const char *const *argv, struct ab_buf *out)
{
    struct ab_error err = {0};
    struct process nobody = {0};
    int status;
    struct ab_spawn what = {
        .argv = argv, .env = environment(&nobody, NULL), .in = -1, .out = -1, .err = -1};
    ab_buf_clear(out);
    if (ab_run_command(&what, PATIENCE_MS, out, &status, &err) < 0)
        fail_msg("%s", err.text);
    ab_buf_str(out, "");
    return ab_exit_code(status);
}

static void settings_are_shown_without_their_secrets(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const char *const print[] = {program(), "--print-config", NULL};
    const char *const wrong[] = {program(), "--wokers=3", NULL};
    const char *const zero[] = {program(), "--workers=0", NULL};
    assert_int_equal(run_once(print, &out), 0);
    assert_non_null(strstr(out.data, "login_limit"));
    assert_non_null(strstr(out.data, "workers: 1"));
    assert_null(strstr(out.data, pg_url_as("abies_auth")));
    assert_int_not_equal(run_once(wrong, &out), 0);
    assert_non_null(strstr(out.data, "workers"));
    assert_int_not_equal(run_once(zero, &out), 0);
    assert_non_null(strstr(out.data, "between 1 and"));
}

#define TEST(name) cmocka_unit_test_teardown(name, end_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(settings_are_shown_without_their_secrets),
        TEST(a_replica_says_where_it_is_and_how_it_is),
        TEST(refused_logins_are_held_back_and_keep_no_worker),
        TEST(a_replica_that_dies_behind_its_commit_costs_nothing),
        TEST(a_replica_that_dies_before_its_commit_costs_nothing),
        TEST(two_replicas_share_the_key_and_the_work),
        TEST(a_database_that_goes_and_comes_back_is_found_again),
        TEST(a_service_that_starts_before_its_database_waits_for_it),
        TEST(sigterm_answers_what_is_in_hand_and_leaves),
    };
    pg_alone(); /* it takes rights from a role */
    return cmocka_run_group_tests(tests, open_all, close_all);
}
