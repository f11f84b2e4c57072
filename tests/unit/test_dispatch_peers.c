/* test_dispatch_peers.c - who may speak to a gateway, and that no message makes it lose a request
 */
#include "dispatch_rig.h"
#include "schema/pack.h"

/* ------------------------------------------------------------------ who may speak */

static void a_version_too_far_away_is_refused_naming_both(void **state)
{
    struct rig *rig = *state;
    say_as(rig, 1, NULL, AB_CMD_READY, AB_BUS_VERSION + 2, "jobs", "jobs-1", 4, 0);
    struct sent *x = last(rig, AB_CMD_REFUSED);
    assert_non_null(x);
    char ours[32], theirs[32];
    snprintf(ours, sizeof(ours), "version %d", AB_BUS_VERSION);
    snprintf(theirs, sizeof(theirs), "speak %d", AB_BUS_VERSION + 2);
    assert_non_null(strstr(x->text, ours));
    assert_non_null(strstr(x->text, theirs));
    struct answer a = {0};
    ask(rig, &a);
    assert_int_equal(requests_to(rig, 1), 0);
}

static void of_a_version_too_far_away_nothing_but_its_number_is_read(void **state)
{
    struct rig *rig = *state;
    struct ab_buf header = {0};
    ab_pack_array(&header, 2);
    ab_pack_int(&header, AB_BUS_VERSION + 7);
    ab_pack_str(&header, "whatever a READY will be then");
    const struct ab_dispatch_message message = {
        .peer = 1, .command = AB_CMD_READY, .header = header.data, .header_len = header.len};
    ab_dispatch_receive(rig->dispatch, &message, rig->now);
    struct sent *x = last(rig, AB_CMD_REFUSED);
    assert_non_null(x);
    char theirs[32];
    snprintf(theirs, sizeof(theirs), "speak %d", AB_BUS_VERSION + 7);
    assert_non_null(strstr(x->text, theirs));
    assert_int_equal(ab_dispatch_strays(rig->dispatch), 0);
    ab_buf_free(&header);
}

static void the_next_version_is_spoken_with_in_ours(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    say_as(rig, 1, NULL, AB_CMD_READY, AB_BUS_VERSION + 1, "jobs", "jobs-1", 4, 0);
    ask(rig, &a);
    assert_int_equal(requests_to(rig, 1), 1);
}

static void a_ready_must_name_the_service_whose_key_the_link_has(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    say_as(rig, 1, "transfers", AB_CMD_READY, AB_BUS_VERSION, "jobs", "jobs-1", 4, 0);
    say_as(rig, 2, "", AB_CMD_READY, AB_BUS_VERSION, "jobs", "jobs-2", 4, 0);
    assert_non_null(last(rig, AB_CMD_REFUSED));
    ask(rig, &a);
    assert_int_equal(requests_to(rig, 1) + requests_to(rig, 2), 0);
    say_as(rig, 3, "jobs", AB_CMD_READY, AB_BUS_VERSION, "jobs", "jobs-3", 4, 0);
    assert_int_equal(requests_to(rig, 3), 1);
}

static void a_reply_of_another_service_is_ignored(void **state)
{
    struct rig *rig = *state;
    struct answer a = {0};
    ready(rig, 1, 4);
    say_as(rig, 2, NULL, AB_CMD_READY, AB_BUS_VERSION, "auth", "auth-2", 4, 0);
    uint64_t number = ask(rig, &a);
    reply(rig, 2, number, 200, "forged");
    reply(rig, 77, number, 200, "forged");
    assert_int_equal(a.calls, 0);
    reply(rig, 1, number, 200, "true");
    assert_string_equal(a.body, "true");
    assert_int_equal(ab_dispatch_strays(rig->dispatch), 2);
}

static void nonsense_is_counted_and_changes_nothing(void **state)
{
    struct rig *rig = *state;
    static const char junk[][8] = {"",     "\xdd\xff\xff\xff\xff", "\x93\x01",
                                   "\xc0", "\x96\x01\xa1x",        "{}"};
    static const char commands[] = "RDPQHXZ";
    ready(rig, 1, 4);
    for (size_t i = 0; i < 6; i++) {
        for (const char *c = commands; *c; c++) {
            struct ab_dispatch_message m = {
                .peer = 1 + i % 2, .command = *c, .header = junk[i], .header_len = strlen(junk[i])};
            ab_dispatch_receive(rig->dispatch, &m, rig->now);
        }
    }
    assert_int_equal(ab_dispatch_strays(rig->dispatch), 42);
    assert_int_equal(stats(rig).replicas, 1);
}

/* A thousand random steps; each request is answered exactly once, whatever happens. */
static void every_request_is_answered_exactly_once(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct rig *rig = calloc(1, sizeof(*rig));
        struct answer *a = calloc(400, sizeof(*a));
        struct ab_dispatch_options options = {
            .beat_ms = BEAT, .dead_ms = DEAD, .queue_limit = 16, .send = wire_send, .arg = rig};
        unsigned random = seed;
        size_t n = 0;
        rig->now = 5000;
        rig->dispatch = ab_dispatch_new(&options, rig->now);
        for (int step = 0; step < 1500; step++) {
            uint64_t peer = 1 + (uint64_t)(rand_r(&random) % 4);
            switch (rand_r(&random) % 8) {
            case 0:
            case 1:
                if (n < 400)
                    ask(rig, &a[n++]);
                break;
            case 2:
            case 3:
                if (rig->n > 0) {
                    const struct sent *s = &rig->log[(size_t)rand_r(&random) % rig->n];
                    if (s->command == AB_CMD_REQUEST)
                        reply(rig, s->peer, s->number, 200, "");
                }
                break;
            case 4:
                if (peer != rig->gone)
                    ready(rig, peer, 3);
                break;
            case 5:
                leave(rig, peer);
                break;
            case 6:
                rig->gone = rand_r(&random) % 3 ? 0 : peer;
                break;
            default:
                pass(rig, rand_r(&random) % 400);
                if (rig->n > 2000)
                    rig->n = 0;
            }
        }
        rig->gone = 0;
        rig->n = 0;
        pass(rig, 40000);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(a[i].calls, 1);
        assert_int_equal(stats(rig).outstanding + stats(rig).queued, 0);
        ab_dispatch_destroy(&rig->dispatch);
        free(a);
        free(rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_version_too_far_away_is_refused_naming_both),
        TEST(of_a_version_too_far_away_nothing_but_its_number_is_read),
        TEST(the_next_version_is_spoken_with_in_ours),
        TEST(a_ready_must_name_the_service_whose_key_the_link_has),
        TEST(a_reply_of_another_service_is_ignored),
        TEST(nonsense_is_counted_and_changes_nothing),
        TEST(every_request_is_answered_exactly_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
