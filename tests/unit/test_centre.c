/* test_centre.c - the folder of a local centre: centre.yml, ports, passwords, certificates */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "centre/centre.h"
#include "centre/certificate.h"
#include "centre/ports.h"
#include "centre/secrets.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static struct ab_error err;

static int setup(void **state)
{
    (void)state;
    err = (struct ab_error){0};
    snprintf(dir, sizeof(dir), "/tmp/abies-test-centre-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return ab_remove_tree(dir, &err);
}

static struct centre *load(void)
{
    struct centre *c = centre_load(dir, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

static void what_is_saved_is_read_back(void **state)
{
    (void)state;
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_false(centre_exists(c));
    assert_int_equal(c->port, 8443);
    assert_int_equal(centre_make_folders(c, &err), 0);
    assert_int_equal(centre_set(c, "session-ttl=3s", &err), 0);
    assert_int_equal(centre_set(c, "login_methods=a, b: #c", &err), 0);
    assert_int_equal(centre_set_replicas(c, "jobs=2,sessions=3", &err), 0);
    assert_int_equal(centre_set_gateways(c, 2, &err), 0);
    c->port = 9443;
    c->bus_ports[1] = 7777;
    assert_true(c->changed);
    assert_int_equal(centre_save(c, &err), 0);

    AB_AUTO(centre_destroy) struct centre *d = load();
    assert_true(centre_exists(d));
    assert_false(d->changed);
    assert_int_equal(d->port, 9443);
    assert_int_equal(d->gateways, 2);
    assert_int_equal(d->bus_ports[0], 7440);
    assert_int_equal(d->bus_ports[1], 7777);
    assert_int_equal(d->replicas[0], 1);
    assert_int_equal(d->replicas[1], 2);
    assert_int_equal(d->replicas[2], 3);
    assert_int_equal(d->n_settings, 2);
    assert_string_equal(d->settings[0].name, "session_ttl");
    assert_string_equal(d->settings[1].value, "a, b: #c");
    assert_string_equal(centre_url(d), "https://127.0.0.1:9443");
}

static void the_same_again_is_no_change_and_an_empty_value_forgets(void **state)
{
    (void)state;
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_int_equal(centre_set(c, "a=1", &err), 0);
    assert_int_equal(centre_set(c, "b=2", &err), 0);
    c->changed = false;
    assert_int_equal(centre_set(c, "a=1", &err), 0);
    assert_int_equal(centre_set(c, "no_such=", &err), 0);
    assert_int_equal(centre_set_replicas(c, "jobs=1", &err), 0);
    assert_int_equal(centre_set_gateways(c, 1, &err), 0);
    assert_false(c->changed);
    assert_int_equal(centre_set(c, "a=", &err), 0);
    assert_true(c->changed);
    assert_int_equal(c->n_settings, 1);
    assert_string_equal(c->settings[0].name, "b");
}

static void what_up_decides_itself_cannot_be_set(void **state)
{
    (void)state;
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_int_equal(centre_set(c, "listen=0.0.0.0:1", &err), -1);
    assert_non_null(strstr(err.text, "--host"));
    assert_int_equal(centre_set(c, "nothing", &err), -1);
    assert_int_equal(centre_set(c, "=x", &err), -1);
    assert_int_equal(centre_set_replicas(c, "jobs=0", &err), -1);
    assert_int_equal(centre_set_replicas(c, "jobs", &err), -1);
    assert_int_equal(centre_set_replicas(c, "job=2", &err), -1);
    assert_non_null(strstr(err.text, "did you mean `jobs`?"));
    assert_int_equal(centre_set_gateways(c, 0, &err), -1);
    assert_int_equal(centre_set_gateways(c, 99, &err), -1);
}

static void a_broken_file_stops_with_its_line(void **state)
{
    (void)state;
    AB_AUTO(centre_destroy) struct centre *c = load();
    const char *text = "port: 8443\nreplcas: {jobs: 2}\n";
    assert_int_equal(ab_file_write(centre_path(c, "centre.yml"), text, strlen(text), 0600, &err),
                     0);
    assert_null(centre_load(dir, &err));
    assert_non_null(
        strstr(err.text, "centre.yml:2: unknown key `replcas`; did you mean `replicas`?"));
    text = "port: 99999\n";
    assert_int_equal(ab_file_write(centre_path(c, "centre.yml"), text, strlen(text), 0600, &err),
                     0);
    assert_null(centre_load(dir, &err));
}

static void folders_are_private(void **state)
{
    (void)state;
    struct stat st;
    AB_AUTO(centre_destroy) struct centre *c = load();
    chmod(dir, 0755);
    assert_int_equal(centre_make_folders(c, &err), 0);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(stat(centre_path(c, "secrets"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

/* A socket that listens on some port of loopback. */
static int listener(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static void taken_ports_are_passed_over_and_the_choice_is_held(void **state)
{
    (void)state;
    int taken;
    AB_AUTO(ab_close) int a = listener(&taken);
    assert_true(a >= 0);
    AB_AUTO(centre_destroy) struct centre *c = load();
    c->port = taken;
    c->bus_ports[0] = taken;
    c->gateways = 2;
    assert_int_equal(ports_choose(c, &err), 0);
    assert_true(c->changed);
    assert_true(c->port > taken);
    assert_true(c->bus_ports[0] != taken && c->bus_ports[0] + 1 != taken);
    assert_true(abs(c->bus_ports[1] - c->bus_ports[0]) >= 2);

    /* who holds it keeps it from another centre */
    AB_AUTO(ab_close) int held = ports_hold(c, &err);
    assert_true(held >= 0);
    AB_AUTO(centre_destroy) struct centre *d = load();
    d->port = c->port;
    assert_int_equal(ports_choose(d, &err), 0);
    assert_true(d->port != c->port);

    c->port = 0;
    assert_int_equal(ports_choose(c, &err), 0);
    assert_true(c->port > 1024);
    c->host = "192.0.2.77";
    assert_int_equal(ports_choose(c, &err), -1);
    assert_non_null(strstr(err.text, "192.0.2.77"));
}

static void secrets_are_made_once_and_private(void **state)
{
    (void)state;
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_int_equal(centre_make_folders(c, &err), 0);
    assert_int_equal(secrets_make(c, &err), 0);
    const char *first = secret_read(c, "db-abies_jobs", &err);
    assert_int_equal(strlen(first), 32);
    assert_string_not_equal(first, secret_read(c, "db-abies_auth", &err));
    assert_int_equal(secrets_make(c, &err), 0);
    assert_string_equal(secret_read(c, "db-abies_jobs", &err), first);
    assert_int_equal(secrets_write_urls(c, "/tmp/it's a folder", &err), 0);
    const char *url = secret_read(c, "url-abies_jobs", &err);
    assert_non_null(
        strstr(url, "host='/tmp/it\\'s a folder' user='abies_jobs' dbname='abies' password='"));
    assert_int_equal(ab_file_private(centre_path(c, "secrets/url-abies_jobs"), &err), 0);
    chmod(centre_path(c, "secrets/db-abies_jobs"), 0644);
    assert_int_equal(secrets_make(c, &err), -1);
    assert_non_null(strstr(err.text, "chmod 600"));
}

static const char *openssl_says(struct ab_buf *out, const char *const *argv)
{
    int status;
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1};
    ab_buf_clear(out);
    assert_int_equal(ab_run_command(&what, 30000, out, &status, &err), 0);
    assert_int_equal(ab_exit_code(status), 0);
    ab_buf_str(out, "");
    return out->data;
}

static void the_certificate_is_for_loopback_and_made_again_for_another_host(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    AB_AUTO(ab_buf_free) struct ab_buf first = {0};
    AB_AUTO(ab_buf_free) struct ab_buf second = {0};
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_int_equal(centre_make_folders(c, &err), 0);
    if (certificate_make(c, &err) < 0)
        fail_msg("%s", err.text);
    const char *ca = centre_path(c, "tls/ca.pem"), *server = centre_path(c, "tls/server.pem");
    const char *verify[] = {"openssl",    "verify",    "-x509_strict", "-CAfile", ca,
                            "-verify_ip", "127.0.0.1", server,         NULL};
    assert_non_null(strstr(openssl_says(&out, verify), ": OK"));
    const char *show[] = {"openssl", "x509", "-in", server, "-noout", "-text", NULL};
    assert_non_null(strstr(openssl_says(&out, show), "DNS:localhost, IP Address:127.0.0.1"));
    assert_non_null(strstr(out.data, "P-256"));
    assert_int_equal(ab_file_private(centre_path(c, "tls/server.key"), &err), 0);
    assert_int_equal(ab_file_private(centre_path(c, "tls/ca.key"), &err), 0);

    assert_int_equal(ab_file_read(server, 65536, &first, &err), 0);
    assert_int_equal(certificate_make(c, &err), 0);
    assert_int_equal(ab_file_read(server, 65536, &second, &err), 0);
    assert_string_equal(first.data, second.data); /* good as it is */
    c->host = "192.0.2.1";
    assert_int_equal(certificate_make(c, &err), 1);
    assert_non_null(strstr(openssl_says(&out, show), "IP Address:192.0.2.1"));
    assert_non_null(strstr(openssl_says(&out, verify), ": OK"));
}

/* The key of the pair and the certificate's key are one. */
static void assert_a_pair(const struct centre *c)
{
    AB_AUTO(ab_buf_free) struct ab_buf a = {0};
    AB_AUTO(ab_buf_free) struct ab_buf b = {0};
    const char *of_cert[] = {"openssl", "x509",    "-in", centre_path(c, "tls/server.pem"),
                             "-noout",  "-pubkey", NULL};
    const char *of_key[] = {"openssl", "pkey", "-in", centre_path(c, "tls/server.key"),
                            "-pubout", NULL};
    assert_string_equal(openssl_says(&a, of_cert), openssl_says(&b, of_key));
}

static void a_certificate_that_ends_soon_or_was_half_made_is_made_again(void **state)
{
    (void)state;
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    AB_AUTO(centre_destroy) struct centre *c = load();
    assert_int_equal(centre_make_folders(c, &err), 0);
    assert_int_equal(certificate_make(c, &err), 1);
    assert_a_pair(c);
    const char *server = centre_path(c, "tls/server.pem");
    const char *until[] = {"openssl", "x509",      "-in",     server,
                           "-noout",  "-checkend", "2592000", NULL};
    const char *ten_days[] = {
        "openssl", "req", "-x509", "-key",          centre_path(c, "tls/server.key"),
        "-days",   "10",  "-subj", "/CN=localhost", "-out",
        server,    NULL};
    openssl_says(&out, ten_days);
    assert_int_equal(certificate_make(c, &err), 1);
    openssl_says(&out, until); /* a month is left again */
    assert_a_pair(c);

    /* a crash between the two files: another's key, and no server.ext */
    const char *key = centre_path(c, "tls/server.key");
    const char *other[] = {"openssl", "genpkey",  "-algorithm",
                           "EC",      "-pkeyopt", "ec_paramgen_curve:P-256",
                           "-out",    key,        NULL};
    openssl_says(&out, other);
    assert_int_equal(unlink(centre_path(c, "tls/server.ext")), 0);
    assert_int_equal(certificate_make(c, &err), 1);
    assert_a_pair(c);
    assert_int_not_equal(access(centre_path(c, "tls/server.key.new"), F_OK), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    unsetenv("ABIES_HOME");
    const struct CMUnitTest tests[] = {
        TEST(what_is_saved_is_read_back),
        TEST(the_same_again_is_no_change_and_an_empty_value_forgets),
        TEST(what_up_decides_itself_cannot_be_set),
        TEST(a_broken_file_stops_with_its_line),
        TEST(folders_are_private),
        TEST(taken_ports_are_passed_over_and_the_choice_is_held),
        TEST(secrets_are_made_once_and_private),
        TEST(the_certificate_is_for_loopback_and_made_again_for_another_host),
        TEST(a_certificate_that_ends_soon_or_was_half_made_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
