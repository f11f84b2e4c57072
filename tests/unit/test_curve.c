/* test_curve.c - keys, and who gets in: CURVE fails open, so each way of failing is tried */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/spawn.h"
#include "bus/certs.h"
#include "bus/probe.h"
#include "bus/socket.h"
#include "bus/zap.h"
#include "bus_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BEAT 100
#define DEAD 600

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    ab_bus_init();
    snprintf(folder, sizeof(folder), "/tmp/abies-keys-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return ab_remove_tree(folder, NULL);
}

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void copy_key(const char *from, const char *to)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    assert_int_equal(ab_file_read(in_folder(from), 65536, &text, NULL), 0);
    assert_int_equal(ab_file_write(in_folder(to), text.data, text.len, 0600, NULL), 0);
}

/* ------------------------------------------------------------------ files */

static void a_pair_is_made_once_and_the_secret_is_private(void **state)
{
    (void)state;
    struct stat st;
    char before[41], after[41];
    struct ab_error err = {0};
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    assert_int_equal(stat(in_folder("jobs.key_secret"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(in_folder("jobs.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(ab_cert_public(folder, "jobs", before, &err), 0);
    assert_int_equal(strlen(before), 40);
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    assert_int_equal(ab_cert_public(folder, "jobs", after, &err), 0);
    assert_string_equal(before, after);
    zcert_t *cert = ab_cert_own(folder, "jobs", &err);
    assert_non_null(cert);
    assert_string_equal(zcert_meta(cert, "name"), "jobs");
    assert_string_equal(zcert_public_txt(cert), before);
    zcert_destroy(&cert);
}

static void a_public_file_holds_no_secret(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct ab_error err = {0};
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    assert_int_equal(ab_file_read(in_folder("jobs.key"), 65536, &text, &err), 0);
    assert_null(strstr(text.data, "secret-key"));
    assert_non_null(strstr(text.data, "public-key"));
}

static void a_secret_that_others_may_read_is_refused(void **state)
{
    (void)state;
    struct ab_error err = {0};
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    assert_int_equal(chmod(in_folder("jobs.key_secret"), 0644), 0);
    assert_null(ab_cert_own(folder, "jobs", &err));
    assert_non_null(strstr(err.text, "jobs.key_secret"));
}

static void a_missing_or_broken_key_is_named(void **state)
{
    (void)state;
    struct ab_error err = {0};
    char key[41];
    assert_null(ab_cert_own(folder, "jobs", &err));
    assert_non_null(strstr(err.text, "jobs.key_secret"));
    assert_int_equal(ab_cert_public(folder, "gateway", key, &err), -1);
    assert_non_null(strstr(err.text, "gateway.key"));
    assert_int_equal(ab_file_write(in_folder("jobs.key_secret"), "junk", 4, 0600, &err), 0);
    assert_null(ab_cert_own(folder, "jobs", &err));
}

static void a_key_under_a_false_name_stops_the_start(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct ab_bus_options options = {
        .listen = "tcp://127.0.0.1:*", .curve_dir = folder, .beat_ms = BEAT, .dead_ms = DEAD};
    assert_int_equal(ab_curve_make(folder, "gateway", &err), 0);
    assert_int_equal(ab_curve_make(folder, "transfers", &err), 0);
    assert_int_equal(ab_mkdirs(in_folder("allowed"), 0700, &err), 0);
    assert_null(ab_bus_new(&options, &err)); /* nobody is allowed */
    assert_non_null(strstr(err.text, "allowed"));
    copy_key("transfers.key", "allowed/jobs.key");
    assert_null(ab_bus_new(&options, &err));
    assert_non_null(strstr(err.text, "transfers"));
}

static void fresh_pairs_differ(void **state)
{
    (void)state;
    char a[41], b[41], secret[41];
    ab_curve_pair(a, secret);
    ab_curve_pair(b, secret);
    assert_int_equal(strlen(a), 40);
    assert_string_not_equal(a, b);
}

static void the_environment_of_czmq_is_forgotten(void **state)
{
    (void)state;
    char *argv[] = {"/proc/self/exe", "environment", NULL},
         *env[] = {"ZSYS_LINGER=1", "ZSYS_SNDHWM=3", "KEPT=1", NULL};
    const struct ab_spawn what = {.argv = (const char *const *)argv,
                                  .env = (const char *const *)env,
                                  .in = -1,
                                  .out = 1,
                                  .err = 2};
    pid_t pid;
    int status;
    assert_int_equal(ab_spawn(&what, &pid, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(ab_exit_code(status), 0);
}

static int environment_is_clean(void)
{
    if (!getenv("ZSYS_LINGER") || !getenv("ZSYS_SNDHWM"))
        return 2;
    ab_bus_init();
    return getenv("ZSYS_LINGER") || getenv("ZSYS_SNDHWM") || !getenv("KEPT");
}

/* ------------------------------------------------------------------ the door */

static void without_a_key_check_the_self_test_fails(void **state)
{
    (void)state;
    struct ab_error err = {0};
    zcert_t *own = zcert_new();
    zsock_t *open = ab_socket_new(ZMQ_ROUTER);
    zcert_apply(own, open);
    zsock_set_curve_server(open, 1); /* no domain, no ZAP: anybody who knows the server's key */
    assert_int_equal(ab_probe_prove(open, zcert_public_txt(own), &err), -1);
    assert_non_null(strstr(err.text, "stranger"));
    zsock_destroy(&open);
    zcert_destroy(&own);
}

static void a_key_check_that_has_ended_is_found_by_the_self_test(void **state)
{
    (void)state;
    struct ab_error err = {0};
    zcert_t *own = zcert_new();
    zactor_t *zap = zactor_new(zauth, NULL);
    zstr_sendx(zap, "CURVE", folder, NULL);
    zsock_wait(zap);
    zsock_t *router = ab_socket_new(ZMQ_ROUTER);
    ab_socket_serve_curve(router, own);
    assert_int_equal(ab_probe_prove(router, zcert_public_txt(own), &err), 0);
    zactor_destroy(&zap);
    assert_int_equal(ab_probe_prove(router, zcert_public_txt(own), &err), -1);
    zsock_destroy(&router);
    zcert_destroy(&own);
}

static void strangers_and_false_names_get_no_work(void **state)
{
    (void)state;
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", rig_curve_dir(), BEAT, DEAD);
    struct rig_replica stranger, impostor, honest;
    struct rig_call call = {0};
    struct ab_error err = {0};
    const char *gateways[] = {ab_bus_endpoint(bus), NULL};
    char from[128];

    /* a key of its own making, and the key of auth under the name of jobs */
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    snprintf(from, sizeof(from), "%s/gateway.key", rig_curve_dir());
    assert_int_equal(ab_file_read(from, 65536, &text, &err), 0);
    assert_int_equal(ab_file_write(in_folder("gateway.key"), text.data, text.len, 0644, &err), 0);
    rig_replica_start(&stranger, "jobs", "jobs-stranger", gateways, folder, 1, BEAT, DEAD);
    char other[96];
    snprintf(other, sizeof(other), "%s/as-auth", folder);
    assert_int_equal(ab_mkdirs(other, 0700, &err), 0);
    copy_key("gateway.key", "as-auth/gateway.key");
    ab_buf_clear(&text);
    snprintf(from, sizeof(from), "%s/auth.key_secret", rig_curve_dir());
    assert_int_equal(ab_file_read(from, 65536, &text, &err), 0);
    assert_int_equal(
        ab_file_write(in_folder("as-auth/jobs.key_secret"), text.data, text.len, 0600, &err), 0);
    rig_replica_start(&impostor, "jobs", "jobs-impostor", gateways, other, 1, BEAT, DEAD);
    assert_false(rig_wait_live(bus, "jobs", 1, 1000));
    rig_ask(bus, &call, "jobs", "who", "", 0, 5000);
    rig_turn(bus, &call.done, 300);
    assert_int_equal(call.status, 503);
    rig_call_free(&call);

    rig_replica_start(&honest, "jobs", "jobs-honest", gateways, rig_curve_dir(), 1, BEAT, DEAD);
    assert_true(rig_wait_live(bus, "jobs", 1, 5000));
    for (int i = 0; i < 20; i++) {
        rig_ask(bus, &call, "jobs", "who", "", 0, 5000);
        assert_true(rig_turn(bus, &call.done, 5000));
        assert_string_equal(call.body, "jobs-honest");
        rig_call_free(&call);
    }
    rig_replica_stop(&stranger);
    rig_replica_stop(&impostor);
    rig_replica_stop(&honest);
    ab_bus_destroy(&bus);
}

static bool hinted(ab_bus_t *bus, void *arg)
{
    (void)bus;
    ab_replica_hint(arg, 'k', 0, "", 0);
    return rig_hint.calls > 0;
}

static void a_key_added_while_all_run_is_taken(void **state)
{
    (void)state;
    struct ab_error err = {0};
    struct rig_replica r;
    assert_int_equal(ab_curve_make(folder, "gateway", &err), 0);
    assert_int_equal(ab_curve_make(folder, "jobs", &err), 0);
    assert_int_equal(ab_curve_make(folder, "auth", &err), 0);
    assert_int_equal(ab_mkdirs(in_folder("allowed"), 0700, &err), 0);
    copy_key("jobs.key", "allowed/jobs.key");
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", folder, BEAT, DEAD);
    const char *gateways[] = {ab_bus_endpoint(bus), NULL};
    rig_replica_start(&r, "auth", "auth-1", gateways, folder, 1, BEAT, DEAD);
    assert_false(rig_wait_live(bus, "auth", 1, 500));
    copy_key("auth.key", "allowed/auth.key");
    assert_true(rig_wait_live(bus, "auth", 1, 10000));
    memset(&rig_hint, 0, sizeof(rig_hint));
    assert_true(
        rig_turn_until(bus, hinted, r.replica, 10000)); /* the hint socket was refused too */
    rig_replica_stop(&r);
    ab_bus_destroy(&bus);
}

static void one_key_check_can_follow_another_at_once_but_not_run_beside_it(void **state)
{
    const char *key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    struct ab_error err = {0};
    (void)state;
    for (int i = 0; i < 300; i++) {
        zactor_t *zap = ab_zap_new(key, &err);
        assert_non_null(zap);
        zactor_destroy(&zap);
    }
    zactor_t *zap = ab_zap_new(key, &err);
    assert_non_null(zap);
    for (int i = 0; i < 3; i++)
        assert_null(ab_zap_new(key, &err));
    assert_non_null(strstr(err.text, "another one runs"));
    zactor_destroy(&zap);
    zap = ab_zap_new(key, &err);
    assert_non_null(zap);
    zactor_destroy(&zap);
}

/* The gateway process whose key check ends must end too. */
static void a_gateway_whose_key_check_ends_ends(void **state)
{
    (void)state;
    char *argv[] = {"/proc/self/exe", "gateway", (char *)(uintptr_t)rig_curve_dir(), NULL},
         *env[] = {"ABIES_FAULT=bus.zap.end:fail:5", NULL};
    const struct ab_spawn what = {.argv = (const char *const *)argv,
                                  .env = (const char *const *)env,
                                  .in = -1,
                                  .out = 1,
                                  .err = 2};
    pid_t pid;
    int status;
    assert_int_equal(ab_spawn(&what, &pid, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(ab_exit_code(status), 70);
}

static int be_a_gateway(const char *dir)
{
    ab_fault_init();
    ab_bus_t *bus = rig_bus("tcp://127.0.0.1:*", dir, 50, DEAD);
    rig_turn(bus, NULL, 10000);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_pair_is_made_once_and_the_secret_is_private),
        TEST(a_public_file_holds_no_secret),
        TEST(a_secret_that_others_may_read_is_refused),
        TEST(a_missing_or_broken_key_is_named),
        TEST(a_key_under_a_false_name_stops_the_start),
        TEST(fresh_pairs_differ),
        TEST(the_environment_of_czmq_is_forgotten),
        TEST(without_a_key_check_the_self_test_fails),
        TEST(a_key_check_that_has_ended_is_found_by_the_self_test),
        TEST(strangers_and_false_names_get_no_work),
        TEST(a_key_added_while_all_run_is_taken),
        TEST(one_key_check_can_follow_another_at_once_but_not_run_beside_it),
        TEST(a_gateway_whose_key_check_ends_ends),
    };
    if (argc == 2 && strcmp(argv[1], "environment") == 0)
        return environment_is_clean();
    if (argc == 3 && strcmp(argv[1], "gateway") == 0)
        return be_a_gateway(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
