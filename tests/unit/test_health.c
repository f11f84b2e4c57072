/* test_health.c - the health port answers three paths and nothing hurts it */
#include "base/cleanup.h"
#include "base/clock.h"
#include "http/health.h"
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
#include <unistd.h>

#include <cmocka.h>

static int well = 0;

static int ready(void *arg, struct ab_buf *out)
{
    (void)arg;
    if (__atomic_load_n(&well, __ATOMIC_SEQ_CST) < 0)
        ab_buf_str(out, "no database\n");
    return __atomic_load_n(&well, __ATOMIC_SEQ_CST);
}

static void metrics(void *arg, struct ab_buf *out)
{
    (void)arg;
    ab_metric_type(out, "abies_x_total", "counter", "things");
    ab_metric(out, "abies_x_total", "kind=\"a\"", 12345678901.0);
    ab_metric(out, "abies_x_total", NULL, 0.5);
}

static ab_health_t *health;

static int start(void **state)
{
    const struct ab_health_options options = {
        .listen = "127.0.0.1:0", .ready = ready, .metrics = metrics};
    struct ab_error err = {0};

    (void)state;
    health = ab_health_new(&options, &err);
    return health ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    ab_health_destroy(&health);
    return 0;
}

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 15};

    to.sin_port = htons((uint16_t)atoi(strrchr(ab_health_address(health), ':') + 1));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Everything until the other side closes. */
static void ask(const char *request, size_t len, char *out, size_t size)
{
    int fd = dial();
    size_t n = 0;
    ssize_t got;

    (void)send(fd, request, len, MSG_NOSIGNAL);
    while (n < size - 1 && (got = recv(fd, out + n, size - 1 - n, 0)) > 0)
        n += (size_t)got;
    out[n] = '\0';
    close(fd);
}

static void answers(const char *line, const char *status, const char *part)
{
    char request[256], out[4096];

    (void)snprintf(request, sizeof(request), "%s HTTP/1.1\r\nHost: x\r\n\r\n", line);
    ask(request, strlen(request), out, sizeof(out));
    if (strncmp(out, status, strlen(status)) != 0 || !strstr(out, part))
        fail_msg("%s: %s", line, out);
}

static void three_paths_are_answered(void **state)
{
    (void)state;
    answers("GET /healthz", "HTTP/1.1 200", "\r\n\r\nok\n");
    answers("GET /readyz", "HTTP/1.1 200", "ok");
    answers("GET /metrics", "HTTP/1.1 200",
            "abies_x_total{kind=\"a\"} 12345678901\nabies_x_total 0.5\n");
    __atomic_store_n(&well, -1, __ATOMIC_SEQ_CST);
    answers("GET /readyz", "HTTP/1.1 503", "no database");
    __atomic_store_n(&well, 0, __ATOMIC_SEQ_CST);
    answers("GET /x", "HTTP/1.1 404", "/metrics");
    answers("POST /healthz", "HTTP/1.1 405", "allow: GET");
    answers("GET /healthz HTTP/1.1\r\nHost : y\r\nA:", "HTTP/1.1 400", "");
}

static void a_request_that_is_too_long_is_431(void **state)
{
    char request[9000], out[1024];

    (void)state;
    memset(request, 'a', sizeof(request));
    memcpy(request, "GET /", 5);
    ask(request, sizeof(request), out, sizeof(out));
    assert_memory_equal(out, "HTTP/1.1 431", 12);
}

static void silent_visitors_do_not_keep_others_out(void **state)
{
    int fds[AB_HEALTH_CONNECTIONS + 4];

    (void)state;
    for (size_t i = 0; i < AB_COUNT(fds); i++)
        fds[i] = dial();
    int64_t from_ms = ab_now_ms();
    answers("GET /healthz", "HTTP/1.1 200",
            "ok"); /* waits until the silent ones have had their 5 s */
    assert_true(ab_now_ms() - from_ms < 14000);
    for (size_t i = 0; i < AB_COUNT(fds); i++)
        close(fds[i]);
}

static void an_address_that_is_taken_is_an_error_with_a_remedy(void **state)
{
    struct ab_error err = {0};
    const struct ab_health_options taken = {.listen = ab_health_address(health)};
    const struct ab_health_options wrong = {.listen = "nonsense"};

    (void)state;
    assert_null(ab_health_new(&taken, &err));
    assert_non_null(strstr(err.text, "choose another port"));
    assert_null(ab_health_new(&wrong, &err));
    assert_non_null(strstr(err.text, "HOST:PORT"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_paths_are_answered),
        cmocka_unit_test(a_request_that_is_too_long_is_431),
        cmocka_unit_test(silent_visitors_do_not_keep_others_out),
        cmocka_unit_test(an_address_that_is_taken_is_an_error_with_a_remedy),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
