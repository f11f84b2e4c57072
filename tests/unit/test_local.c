/* test_local.c - a hub and its links */
#include "base/clock.h"
#include "bus/curve.h"
#include "bus/local.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BEAT 50
#define DEAD 400
#define SOON 5000

static char endpoint[128];

static int make_folder(void **state)
{
    static char folder[64];
    snprintf(folder, sizeof(folder), "/tmp/abies-local-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(endpoint, sizeof(endpoint), "ipc://%s/broker.sock", folder);
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    (void)unlink(endpoint + 6);
    return rmdir(*state);
}

static ab_hub_t *hub_at(const struct ab_local_options *options)
{
    struct ab_error err = {0};
    ab_hub_t *hub = ab_hub_new(options, &err);
    if (!hub)
        fail_msg("%s", err.text);
    return hub;
}

static ab_hub_t *hub_on_ipc(void)
{
    return hub_at(
        &(struct ab_local_options){.endpoint = endpoint, .beat_ms = BEAT, .dead_ms = DEAD});
}

static ab_link_t *link_named(const char *name)
{
    struct ab_error err = {0};
    struct ab_local_options options = {
        .endpoint = endpoint, .name = name, .beat_ms = BEAT, .dead_ms = DEAD};
    ab_link_t *link = ab_link_new(&options, &err);
    if (!link)
        fail_msg("%s", err.text);
    return link;
}

/* The hub's next message within ms, or false. `beating` links tick meanwhile. */
static bool hub_next(ab_hub_t *hub, ab_link_t *beating, struct ab_message *out, int64_t ms)
{
    int64_t until = ab_now_ms() + ms;
    while (ab_hub_receive(hub, out) == 0) {
        int64_t now = ab_now_ms(), wait = ab_hub_tick(hub, now);
        if (now >= until)
            return false;
        if (beating)
            ab_link_tick(beating, now);
        assert_int_equal(ab_hub_wait(hub, NULL, 0, wait < BEAT ? wait : BEAT), 0);
    }
    return true;
}

static int link_next(ab_link_t *link, ab_hub_t *beating, struct ab_message *out, int64_t ms)
{
    int64_t until = ab_now_ms() + ms;
    int rc;
    while ((rc = ab_link_receive(link, out)) == 0 && ab_now_ms() < until) {
        int64_t wait = ab_link_tick(link, ab_now_ms());
        if (beating) {
            struct ab_message beat;
            assert_int_equal(ab_hub_receive(beating, &beat), 0);
            ab_hub_tick(beating, ab_now_ms());
        }
        assert_int_equal(ab_link_wait(link, NULL, 0, wait < BEAT ? wait : BEAT), 0);
    }
    return rc;
}

static void expect(ab_hub_t *hub, ab_link_t *link, const char *from, const char *kind)
{
    struct ab_message m;
    assert_true(hub_next(hub, link, &m, SOON));
    assert_string_equal(m.kind, kind);
    assert_string_equal(m.link, from);
}

/* ------------------------------------------------------------------ talking */

static void a_link_comes_talks_and_goes(void **state)
{
    (void)state;
    struct ab_message m;
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *link = link_named("processing");
    assert_int_equal(ab_link_send(link, "call", 7, "body", 4), 0);
    expect(hub, link, "processing", "+");
    assert_true(hub_next(hub, link, &m, SOON));
    assert_string_equal(m.kind, "call");
    assert_int_equal(m.number, 7);
    assert_int_equal(m.len, 4);
    assert_memory_equal(m.body, "body", 4);
    assert_int_equal(ab_hub_send(hub, "processing", "reply", 7, "", 0), 0);
    assert_int_equal(link_next(link, hub, &m, SOON), 1);
    assert_string_equal(m.kind, "reply");
    assert_int_equal(m.number, 7);
    assert_int_equal(m.len, 0);
    ab_link_destroy(&link);
    expect(hub, NULL, "processing", "-");
    assert_int_equal(ab_hub_send(hub, "processing", "reply", 8, "", 0), -1);
    ab_hub_destroy(&hub);
}

static void a_first_message_follows_the_arrival(void **state)
{
    (void)state;
    ab_link_t *link = link_named("transfer"); /* before there is a hub */
    assert_int_equal(ab_link_send(link, "call", 1, NULL, 0), 0);
    ab_hub_t *hub = hub_on_ipc();
    expect(hub, link, "transfer", "+");
    expect(hub, link, "transfer", "call");
    ab_link_destroy(&link);
    ab_hub_destroy(&hub);
}

static void kinds_of_our_own_cannot_be_sent(void **state)
{
    (void)state;
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *link = link_named("a");
    expect(hub, link, "a", "+");
    const char *const bad[] = {
        "", "+", "-", ".", "-x", "two words", "a-kind-of-more-than-31-characters"};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(ab_link_send(link, bad[i], 0, NULL, 0), -1);
        assert_int_equal(ab_hub_send(hub, "a", bad[i], 0, NULL, 0), -1);
    }
    ab_link_destroy(&link);
    ab_hub_destroy(&hub);
}

static void waiting_ends_with_a_descriptor(void **state)
{
    (void)state;
    int p[2];
    ab_link_t *link = link_named("a");
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    int64_t before = ab_now_ms();
    assert_int_equal(ab_link_wait(link, p, 1, 10000), 0);
    assert_in_range(ab_now_ms() - before, 0, 2000);
    close(p[0]);
    close(p[1]);
    ab_link_destroy(&link);
}

/* ------------------------------------------------------------------ coming, going */

static void a_silent_link_is_forgotten_and_may_come_back(void **state)
{
    (void)state;
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *link = link_named("a");
    expect(hub, link, "a", "+");
    int64_t before = ab_now_ms();
    expect(hub, NULL, "a", "-");
    assert_in_range(ab_now_ms() - before, DEAD - 2 * BEAT, DEAD + 10 * BEAT);
    ab_link_tick(link, ab_now_ms());
    expect(hub, link, "a", "+");
    ab_link_destroy(&link);
    ab_hub_destroy(&hub);
}

static void a_link_notices_that_the_hub_is_silent(void **state)
{
    (void)state;
    struct ab_message m;
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *link = link_named("a");
    expect(hub, link, "a", "+");
    assert_int_equal(link_next(link, hub, &m, 2 * DEAD), 0); /* the hub beats */
    assert_int_equal(link_next(link, NULL, &m, SOON), -1);   /* it does not */
    assert_false(hub_next(hub, link, &m, 2 * BEAT)); /* what the link said meanwhile keeps it */
    assert_int_equal(link_next(link, hub, &m, 2 * BEAT), 0); /* both are back */
    ab_link_destroy(&link);
    ab_hub_destroy(&hub);
}

static void a_hub_that_restarts_learns_its_links_again(void **state)
{
    (void)state;
    ab_link_t *link = link_named("a");
    for (int i = 0; i < 3; i++) {
        ab_hub_t *hub = hub_on_ipc();
        expect(hub, link, "a", "+");
        ab_hub_destroy(&hub);
    }
    ab_link_destroy(&link);
}

static void a_name_belongs_to_who_has_it_while_it_lives(void **state)
{
    (void)state;
    struct ab_message m;
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *first = link_named("a"), *second = NULL;
    expect(hub, first, "a", "+");
    second = link_named("a");
    assert_int_equal(ab_link_send(second, "call", 2, NULL, 0), 0);
    assert_false(hub_next(hub, first, &m, DEAD / 2));
    ab_link_destroy(&first);
    expect(hub, second, "a", "-");
    expect(hub, second, "a", "+");
    ab_link_destroy(&second);
    ab_hub_destroy(&hub);
}

/* A child that is killed: its name is free for the next one at once. */
static void a_killed_process_is_noticed_and_its_name_is_free(void **state)
{
    (void)state;
    ab_hub_t *hub = hub_on_ipc();
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_local", "link", endpoint, "a", NULL);
        _exit(127);
    }
    expect(hub, NULL, "a", "+");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    int64_t before = ab_now_ms();
    expect(hub, NULL, "a", "-");
    assert_in_range(ab_now_ms() - before, 0, DEAD); /* a beat, not the silence */
    ab_link_t *next = link_named("a");
    expect(hub, next, "a", "+");
    ab_link_destroy(&next);
    ab_hub_destroy(&hub);
}

static int be_a_link(const char *where, const char *name)
{
    struct ab_message m;
    snprintf(endpoint, sizeof(endpoint), "%s", where);
    ab_link_t *link = link_named(name);
    while (link_next(link, NULL, &m, BEAT) >= 0)
        ;
    return 0;
}

/* ------------------------------------------------------------------ many, large */

static void many_messages_of_many_links_arrive_in_order(void **state)
{
    (void)state;
    enum {
        LINKS = 20,
        EACH = 100
    };
    ab_hub_t *hub = hub_on_ipc();
    ab_link_t *links[LINKS];
    uint64_t next[LINKS] = {0};
    struct ab_message m;
    char *big = calloc(1, 100000);
    for (int i = 0; i < LINKS; i++) {
        char name[24];
        snprintf(name, sizeof(name), "node-%d", i);
        links[i] = link_named(name);
        for (uint64_t k = 1; k <= EACH; k++)
            assert_int_equal(ab_link_send(links[i], "done", k, big, k * 1000), 0);
    }
    for (int left = LINKS * EACH; left > 0;) {
        assert_true(hub_next(hub, NULL, &m, SOON));
        int i = atoi(m.link + 5);
        if (strcmp(m.kind, "done") != 0)
            continue;
        assert_int_equal(m.number, ++next[i]);
        assert_int_equal(m.len, m.number * 1000);
        left--;
    }
    for (int i = 0; i < LINKS; i++)
        ab_link_destroy(&links[i]);
    free(big);
    ab_hub_destroy(&hub);
}

/* ------------------------------------------------------------------ CURVE */

static void with_curve_only_the_allowed_key_gets_in(void **state)
{
    (void)state;
    char hub_public[41], hub_secret[41], link_public[41], link_secret[41], bad_public[41],
        bad_secret[41];
    struct ab_error err = {0};
    struct ab_message m;
    ab_bus_init();
    ab_curve_pair(hub_public, hub_secret);
    ab_curve_pair(link_public, link_secret);
    ab_curve_pair(bad_public, bad_secret);
    struct ab_local_options options = {.endpoint = "tcp://127.0.0.1:*",
                                       .public_key = hub_public,
                                       .secret_key = hub_secret,
                                       .allow = link_public,
                                       .beat_ms = BEAT,
                                       .dead_ms = DEAD};
    ab_hub_t *hub = hub_at(&options);
    struct ab_local_options good = {.endpoint = ab_hub_endpoint(hub),
                                    .name = "node-1",
                                    .public_key = link_public,
                                    .secret_key = link_secret,
                                    .server_key = hub_public,
                                    .beat_ms = BEAT,
                                    .dead_ms = DEAD};
    struct ab_local_options bad = good, plain = good;
    bad.name = "stranger";
    bad.public_key = bad_public;
    bad.secret_key = bad_secret;
    plain.name = "plain";
    plain.server_key = NULL;
    ab_link_t *stranger = ab_link_new(&bad, &err), *naked = ab_link_new(&plain, &err),
              *link = ab_link_new(&good, &err);
    assert_non_null(stranger);
    assert_non_null(naked);
    assert_non_null(link);
    expect(hub, link, "node-1", "+");
    assert_int_equal(ab_hub_send(hub, "node-1", "run", 3, "secret", 6), 0);
    assert_int_equal(link_next(link, hub, &m, SOON), 1);
    assert_string_equal(m.kind, "run");
    assert_false(hub_next(hub, link, &m, 600)); /* nobody else came */
    ab_link_destroy(&stranger);
    ab_link_destroy(&naked);
    ab_link_destroy(&link);
    ab_hub_destroy(&hub);
}

static void half_a_pair_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char public_key[41], secret_key[41];
    ab_bus_init();
    ab_curve_pair(public_key, secret_key);
    struct ab_local_options options = {.endpoint = "tcp://127.0.0.1:*",
                                       .public_key = public_key,
                                       .secret_key = secret_key,
                                       .beat_ms = BEAT,
                                       .dead_ms = DEAD};
    assert_null(ab_hub_new(&options, &err));
    assert_non_null(strstr(err.text, "allow"));
    options.name = "a";
    options.endpoint = "tcp://127.0.0.1:9";
    options.server_key = public_key;
    options.secret_key = NULL;
    assert_null(ab_link_new(&options, &err));
    assert_non_null(strstr(err.text, "pair"));
}

static void an_endpoint_that_is_too_long_is_an_error_that_says_so(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char deep[256];
    snprintf(deep, sizeof(deep), "ipc:///tmp/%0200d/broker.sock", 0);
    struct ab_local_options options = {.endpoint = deep, .beat_ms = BEAT, .dead_ms = DEAD};
    assert_null(ab_hub_new(&options, &err));
    assert_non_null(strstr(err.text, "107"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_link_comes_talks_and_goes),
        TEST(a_first_message_follows_the_arrival),
        TEST(kinds_of_our_own_cannot_be_sent),
        TEST(waiting_ends_with_a_descriptor),
        TEST(a_silent_link_is_forgotten_and_may_come_back),
        TEST(a_link_notices_that_the_hub_is_silent),
        TEST(a_hub_that_restarts_learns_its_links_again),
        TEST(a_name_belongs_to_who_has_it_while_it_lives),
        TEST(a_killed_process_is_noticed_and_its_name_is_free),
        TEST(many_messages_of_many_links_arrive_in_order),
        TEST(with_curve_only_the_allowed_key_gets_in),
        TEST(half_a_pair_is_an_error_that_says_so),
        TEST(an_endpoint_that_is_too_long_is_an_error_that_says_so),
    };
    if (argc == 4 && strcmp(argv[1], "link") == 0)
        return be_a_link(argv[2], argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
