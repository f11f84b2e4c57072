/* test_relay.c - the PROXY line of a balancer: what is one, what is not, and where it ends */
#include "gateway/relay.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char peer[INET6_ADDRSTRLEN];

static int parse(const char *text)
{
    return relay_parse(text, strlen(text), peer);
}

static void a_line_names_the_client(void **state)
{
    static const struct {
        const char *line, *peer;
    } rows[] = {
        {"PROXY TCP4 192.0.2.7 198.51.100.1 51234 8443\r\n", "192.0.2.7"},
        {"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255"},
        {"PROXY TCP6 2001:DB8:0:0::7 ::1 1 0\r\n", "2001:db8::7"},
        {"PROXY UNKNOWN\r\n", ""},
        {"PROXY UNKNOWN ffff:: whatever else\r\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse(rows[i].line), strlen(rows[i].line));
        assert_string_equal(peer, rows[i].peer);
    }
}

static void what_comes_behind_it_is_left_alone(void **state)
{
    const char *text = "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\r\n\x16\x03\x01\r\n";
    (void)state;
    assert_int_equal(relay_parse(text, strlen(text), peer), strchr(text, '\n') - text + 1);
    assert_string_equal(peer, "192.0.2.7");
}

static void a_part_of_a_line_is_waited_for(void **state)
{
    const char *line = "PROXY TCP6 2001:db8::7 2001:db8::1 51234 8443\r\n";
    (void)state;
    for (size_t n = 1; n < strlen(line); n++)
        assert_int_equal(relay_parse(line, n, peer), 0);
}

static void anything_else_is_refused(void **state)
{
    static const char *const rows[] = {
        "G",
        "\x16\x03\x01",
        "PROXX",
        "proxy TCP4 192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY\r\n",
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 \r\n",
        "PROXY TCP5 192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY TCP 192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY UDP4 192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY TCP4  192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 2 \r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 \r\n",
        "PROXY TCP4 192.0.2.7\r\n",
        "PROXY TCP4 192.0.2.256 192.0.2.1 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.7 192.0.2.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 nonsense 1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 65536 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 123456\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 -1 2\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\t\r\n",
        "PROXY TCP4 192.0.2.7 192.0.2.1 1 2\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (parse(rows[i]) != -1)
            fail_msg("taken: %s", rows[i]);
    static const char nul[] = "PROXY TCP4 192.0.2.7\0 192.0.2.1 1 2\r\n";
    assert_int_equal(relay_parse(nul, sizeof(nul) - 1, peer), -1);
}

static void a_line_without_an_end_is_refused_at_the_longest_length(void **state)
{
    char text[RELAY_LINE + 50];
    (void)state;
    memset(text, 'x', sizeof(text));
    memcpy(text, "PROXY UNKNOWN ", 14);
    assert_int_equal(relay_parse(text, RELAY_LINE - 1, peer), 0);
    assert_int_equal(relay_parse(text, RELAY_LINE, peer), -1);
    memcpy(text + RELAY_LINE - 1, "\r\n", 2); /* one byte too late */
    assert_int_equal(relay_parse(text, sizeof(text), peer), -1);
    memcpy(text + RELAY_LINE - 2, "\r\n", 2);
    assert_int_equal(relay_parse(text, sizeof(text), peer), RELAY_LINE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_names_the_client),
        cmocka_unit_test(what_comes_behind_it_is_left_alone),
        cmocka_unit_test(a_part_of_a_line_is_waited_for),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(a_line_without_an_end_is_refused_at_the_longest_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
