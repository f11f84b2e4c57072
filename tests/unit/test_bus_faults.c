/* test_bus_faults.c - what clients see while a replica is killed, frozen, or stopped: nothing but a
 * delay
 *
 * Two replica processes of four workers and 2 ms a request, 32 clients that ask again as soon as
 * they are answered, CURVE. A fault in the middle; then every answer is 200, and none took longer
 * than the fault allows: a beat when the link breaks, dead + beat when the replica is silent (and
 * some slack for a busy machine).
 */
#include "base/clock.h"
#include "bus_rig.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#define BEAT 250
#define DEAD 1500
#define SLACK 700
#define CLIENTS 32

struct load {
    ab_bus_t *bus;
    int64_t until, longest, after; /* the longest of those asked or running after `after` */
    int answered, failed, last_status, open;
    bool stop;
    struct client {
        struct load *load;
        int64_t asked;
    } clients[CLIENTS];
};

static void ask(struct client *client);

static void on_answer(void *arg, int status, const void *body, size_t len)
{
    struct client *client = arg;
    struct load *load = client->load;
    int64_t took = ab_now_ms() - client->asked;

    (void)body;
    (void)len;
    load->open--;
    load->answered++;
    if (took > load->longest)
        load->longest = took;
    if (status != 200) {
        load->failed++;
        load->last_status = status;
    }
    if (!load->stop)
        ask(client);
}

static void ask(struct client *client)
{
    static uint64_t count;
    struct ab_bus_request request = {
        .service = "jobs",
        .verb = "sleep",
        .user = 1,
        .deadline_ms = ab_now_ms() + 30000,
        .body = strdup("2"),
        .body_len = 1,
        .done = on_answer,
        .arg = client,
    };
    count++;
    memcpy(request.uuid, &count, sizeof(count));
    client->asked = ab_now_ms();
    client->load->open++;
    ab_bus_submit(client->load->bus, &request);
}

static void begin(struct load *load, ab_bus_t *bus)
{
    memset(load, 0, sizeof(*load));
    load->bus = bus;
    for (int i = 0; i < CLIENTS; i++) {
        load->clients[i].load = load;
        ask(&load->clients[i]);
    }
}

static bool quiet(ab_bus_t *bus, void *arg)
{
    (void)bus;
    return ((struct load *)arg)->open == 0;
}

static void end(struct load *load, const char *what)
{
    load->stop = true;
    assert_true(rig_turn_until(load->bus, quiet, load, 35000));
    print_message("%s: %d answers, %d failed, the longest %d ms\n", what, load->answered,
                  load->failed, (int)load->longest);
    if (load->failed)
        fail_msg("%d of %d failed, the last with %d", load->failed, load->answered,
                 load->last_status);
    assert_true(load->answered > 500);
}

struct pair {
    ab_bus_t *bus;
    pid_t pid[2];
};

static int set_up(void **state)
{
    static struct pair pair;
    pair.bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    for (int i = 0; i < 2; i++) {
        char instance[16];
        snprintf(instance, sizeof(instance), "jobs-%c", "ab"[i]);
        pair.pid[i] = rig_replica_spawn("jobs", instance, ab_bus_endpoint(pair.bus),
                                        rig_curve_dir(), 4, BEAT, DEAD);
    }
    assert_true(rig_wait_live(pair.bus, "jobs", 2, 10000));
    *state = &pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    for (int i = 0; i < 2; i++) {
        if (pair->pid[i] > 0) {
            kill(pair->pid[i], SIGKILL);
            waitpid(pair->pid[i], NULL, 0);
        }
    }
    ab_bus_destroy(&pair->bus);
    return 0;
}

static struct ab_bus_service_stats stats(const struct pair *pair)
{
    struct ab_bus_service_stats s = {0};
    assert_true(ab_bus_stats(pair->bus, 0, &s));
    return s;
}

static void a_killed_replica_delays_nothing_longer_than_a_beat(void **state)
{
    struct pair *pair = *state;
    struct load load;
    begin(&load, pair->bus);
    rig_turn(pair->bus, NULL, 700);
    kill(pair->pid[0], SIGKILL);
    waitpid(pair->pid[0], NULL, 0);
    pair->pid[0] = 0;
    rig_turn(pair->bus, NULL, 1000);
    end(&load, "kill -9");
    assert_true(load.longest <= BEAT + SLACK);
    assert_int_equal(stats(pair).replicas, 1);
    assert_true(stats(pair).resent > 0); /* it was hit while it worked */
}

static void a_frozen_replica_delays_nothing_longer_than_dead_and_a_beat(void **state)
{
    struct pair *pair = *state;
    struct load load;
    begin(&load, pair->bus);
    rig_turn(pair->bus, NULL, 700);
    kill(pair->pid[1], SIGSTOP);
    rig_turn(pair->bus, NULL, 3500);
    assert_int_equal(stats(pair).replicas, 1);
    kill(pair->pid[1], SIGCONT);
    rig_turn(pair->bus, NULL, 1000);
    assert_int_equal(stats(pair).replicas, 2);
    end(&load, "SIGSTOP, SIGCONT");
    assert_true(load.longest <= DEAD + BEAT + SLACK);
    assert_true(load.longest >= DEAD - BEAT); /* or nothing was frozen */
    assert_true(stats(pair).resent > 0);
    assert_true(stats(pair).late > 0); /* it thawed and answered: dropped */
}

static void a_stopped_replica_delays_nothing(void **state)
{
    struct pair *pair = *state;
    struct load load;
    int status;
    begin(&load, pair->bus);
    rig_turn(pair->bus, NULL, 700);
    kill(pair->pid[0], SIGTERM);
    rig_turn(pair->bus, NULL, 1500);
    assert_int_equal(waitpid(pair->pid[0], &status, WNOHANG), pair->pid[0]);
    pair->pid[0] = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    end(&load, "SIGTERM");
    assert_true(load.longest <= SLACK);
    assert_int_equal(stats(pair).resent, 0);
}

static void replicas_replaced_one_after_the_other_are_not_noticed(void **state)
{
    struct pair *pair = *state;
    struct load load;
    begin(&load, pair->bus);
    for (int round = 0; round < 4; round++) {
        char instance[24];
        int i = round % 2;
        rig_turn(pair->bus, NULL, 300);
        kill(pair->pid[i], SIGKILL);
        waitpid(pair->pid[i], NULL, 0);
        snprintf(instance, sizeof(instance), "jobs-%c%d", "ab"[i], round);
        pair->pid[i] = rig_replica_spawn("jobs", instance, ab_bus_endpoint(pair->bus),
                                         rig_curve_dir(), 4, BEAT, DEAD);
        rig_turn(pair->bus, NULL, BEAT + 100);
        assert_true(rig_wait_live(pair->bus, "jobs", 2, 10000));
    }
    end(&load, "four kills, four restarts");
    assert_true(load.longest <= 2 * BEAT + SLACK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_killed_replica_delays_nothing_longer_than_a_beat),
        TEST(a_frozen_replica_delays_nothing_longer_than_dead_and_a_beat),
        TEST(a_stopped_replica_delays_nothing),
        TEST(replicas_replaced_one_after_the_other_are_not_noticed),
    };
    rig_replica_main(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
