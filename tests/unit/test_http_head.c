/* test_http_head.c - what the head parser takes, and all that it must not take */
#include "http/head.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int parse(struct ab_http_head *head, const char *text)
{
    *head = (struct ab_http_head){0};
    return ab_http_head_parse(head, text, strlen(text));
}

static void refused(int status, const char *text, size_t len)
{
    struct ab_http_head head = {0};
    int rc = ab_http_head_parse(&head, text, len);

    if (rc != -1 || head.status != status)
        fail_msg("expected %d, got rc %d status %d (%s) for: %.60s", status, rc, head.status,
                 head.why ? head.why : "-", text);
    assert_non_null(head.why);
    assert_int_equal(ab_http_head_parse(&head, text, len), -1); /* and it stays refused */
}

static void same(const char *bytes, struct ab_http_span span, const char *text)
{
    assert_int_equal(span.n, strlen(text));
    assert_memory_equal(bytes + span.at, text, span.n);
}

static const char typical[] = "POST /jobs/?tags=a%3Ab&x HTTP/1.1\r\n"
                              "Host: centre:8443\r\n"
                              "authorization:  Bearer abc.def.ghi \t\r\n"
                              "Content-Type: application/json\r\n"
                              "content-length: 12\r\n"
                              "X-Unknown: whatever, \xc3\xa9\r\n"
                              "Expect: 100-Continue\r\n"
                              "Connection: keep-alive, Upgrade\r\n"
                              "\r\n";

static void check_typical(const struct ab_http_head *head, const char *bytes)
{
    same(bytes, head->method, "POST");
    same(bytes, head->target, "/jobs/?tags=a%3Ab&x");
    same(bytes, head->path, "/jobs/");
    same(bytes, head->query, "tags=a%3Ab&x");
    same(bytes, head->field[AB_H_AUTHORIZATION], "Bearer abc.def.ghi");
    same(bytes, head->field[AB_H_HOST], "centre:8443");
    assert_int_equal(head->content_length, 12);
    assert_true(head->expect);
    assert_true(head->upgrade);
    assert_false(head->close);
    assert_int_equal(head->minor, 1);
    assert_int_equal(head->length, sizeof(typical) - 1);
}

static void a_typical_head_is_taken_apart(void **state)
{
    (void)state;
    struct ab_http_head head;
    assert_int_equal(parse(&head, typical), 1);
    check_typical(&head, typical);
    assert_false(ab_http_has(&head, AB_H_IDEMPOTENCY_KEY));
    assert_true(ab_http_has(&head, AB_H_CONTENT_TYPE));
}

static void pieces_of_any_size_give_the_same_result(void **state)
{
    (void)state;
    for (size_t piece = 1; piece < sizeof(typical); piece++) {
        struct ab_http_head head = {0};
        int rc = 0;
        for (size_t have = piece; rc == 0; have += piece) {
            size_t len = have < sizeof(typical) - 1 ? have : sizeof(typical) - 1;
            rc = ab_http_head_parse(&head, typical, len);
            if (len < sizeof(typical) - 1)
                assert_int_equal(rc, 0);
        }
        assert_int_equal(rc, 1);
        check_typical(&head, typical);
    }
}

static void the_head_ends_where_the_body_begins(void **state)
{
    (void)state;
    const char *two =
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n";
    struct ab_http_head head;
    assert_int_equal(parse(&head, two), 1);
    assert_memory_equal(two + head.length, "abcGET", 6);
}

static void old_and_closing_clients_are_told_apart(void **state)
{
    (void)state;
    struct ab_http_head head;
    assert_int_equal(parse(&head, "GET / HTTP/1.0\r\n\r\n"), 1);
    assert_true(head.close);
    assert_int_equal(parse(&head, "GET / HTTP/1.1\r\nHost: x\r\nConnection: foo , CLOSE\r\n\r\n"),
                     1);
    assert_true(head.close);
    assert_int_equal(parse(&head, "GET / HTTP/1.1\r\nHost: x\r\nConnection: closed\r\n\r\n"), 1);
    assert_false(head.close);
    assert_int_equal(parse(&head, "\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n"), 1); /* RFC 9112 2.2 */
}

static void what_could_be_read_two_ways_is_refused(void **state)
{
    (void)state;
#define GET "GET /x HTTP/1.1\r\nHost: x\r\n"
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"},
        {400, GET "Content-Length: 1\r\ncontent-length: 2\r\n\r\n"},
        {400, GET "Content-Length: 1, 1\r\n\r\n"},
        {400, GET "Content-Length: +1\r\n\r\n"},
        {400, GET "Content-Length: -1\r\n\r\n"},
        {400, GET "Content-Length: 0x1\r\n\r\n"},
        {400, GET "Content-Length: 1 2\r\n\r\n"},
        {400, GET "Content-Length:\r\n\r\n"},
        {400, GET "Content-Length: 99999999999999999999\r\n\r\n"},
        {400, GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"},
        {411, GET "Transfer-Encoding: chunked\r\n\r\n"},
        {411, GET "Transfer-Encoding: identity\r\n\r\n"},
        {411, GET "Transfer-Encoding:\r\n\r\n"},
        {400, GET "Content-Length : 1\r\n\r\n"},
        {400, GET "A: b\r\n folded\r\n\r\n"},
        {400, GET "A: b\r\n\tfolded\r\n\r\n"},
        {400, GET "A: b\rc\r\n\r\n"},
        {400, GET "A: b\n\r\n"},
        {400, "GET /x HTTP/1.1\nHost: x\n\n"},
        {400, "GET /x HTTP/1.1\r\nHost: x\r\n\n"},
        {400, GET ": b\r\n\r\n"},
        {400, GET "no colon\r\n\r\n"},
        {400, GET "A b: c\r\n\r\n"},
        {400, GET "A: \x7f\r\n\r\n"},
        {400, GET "A: \x01\r\n\r\n"},
        {400, GET "Host: y\r\n\r\n"},
        {400, GET "Authorization: a\r\nAuthorization: a\r\n\r\n"},
        {400, GET "Idempotency-Key: a\r\nIDEMPOTENCY-KEY: b\r\n\r\n"},
        {400, "GET /x HTTP/1.1\r\n\r\n"}, /* no Host */
        {400, "GET  /x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x  HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x HTTP/1.1 \r\nHost: x\r\n\r\n"},
        {400, " GET /x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET\t/x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x\r\nHost: x\r\n\r\n"}, /* HTTP/0.9 */
        {400, "GET /x#f HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x\x01 HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET http://other/x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x http/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /x HTTP/11\r\nHost: x\r\n\r\n"},
        {400, "G\"T /x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {505, "GET /x HTTP/1.2\r\nHost: x\r\n\r\n"},
        {417, GET "Expect: 200-ok\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refused(cases[i].status, cases[i].text, strlen(cases[i].text));

    static const char nul_in_value[] = GET "A: b\0c\r\n\r\n";
    static const char nul_in_target[] = "GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n";
    refused(400, nul_in_value, sizeof(nul_in_value) - 1);
    refused(400, nul_in_target, sizeof(nul_in_target) - 1);
}

/* `prefix` + n bytes of 'a' + `suffix` */
static char *padded(const char *prefix, size_t n, const char *suffix, size_t *len)
{
    size_t a = strlen(prefix), b = strlen(suffix);
    char *text = malloc(a + n + b);
    memcpy(text, prefix, a);
    memset(text + a, 'a', n);
    memcpy(text + a + n, suffix, b);
    *len = a + n + b;
    return text;
}

static void a_line_of_one_mebibyte_passes_and_one_more_byte_is_414(void **state)
{
    (void)state;
    const char *prefix = "GET /?x=", *suffix = " HTTP/1.1\r\nHost: x\r\n\r\n";
    size_t fits = AB_HTTP_LINE_MAX - strlen(prefix) - strlen(" HTTP/1.1\r");
    size_t len;

    char *text = padded(prefix, fits, suffix, &len);
    struct ab_http_head head = {0};
    assert_int_equal(ab_http_head_parse(&head, text, len), 1);
    assert_int_equal(head.query.n, fits + 2);
    free(text);

    text = padded(prefix, fits + 1, suffix, &len);
    refused(414, text, len);
    refused(414, text, AB_HTTP_LINE_MAX + 1); /* known before the line ends */
    free(text);
}

static void headers_over_the_limit_are_431(void **state)
{
    (void)state;
    size_t len;
    char *text = padded(GET "A: ", 60000, "\r\n\r\n", &len);
    struct ab_http_head head = {0};
    assert_int_equal(ab_http_head_parse(&head, text, len), 1);
    free(text);

    text = padded(GET "A: ", 70000, "\r\n\r\n", &len);
    refused(431, text, len);
    free(text);

    char many[8192] = GET;
    for (int i = 0; i < AB_HTTP_FIELDS_MAX; i++)
        strcat(many, "a: b\r\n");
    strcat(many, "\r\n");
    refused(431, many, strlen(many));
}

static void lists_are_searched_by_whole_words(void **state)
{
    (void)state;
    const char *list = "a, Bee ,\tclose,,x";
    assert_true(ab_http_list_has(list, strlen(list), "bee"));
    assert_true(ab_http_list_has(list, strlen(list), "close"));
    assert_true(ab_http_list_has(list, strlen(list), "x"));
    assert_false(ab_http_list_has(list, strlen(list), "clos"));
    assert_false(ab_http_list_has("", 0, "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_typical_head_is_taken_apart),
        cmocka_unit_test(pieces_of_any_size_give_the_same_result),
        cmocka_unit_test(the_head_ends_where_the_body_begins),
        cmocka_unit_test(old_and_closing_clients_are_told_apart),
        cmocka_unit_test(what_could_be_read_two_ways_is_refused),
        cmocka_unit_test(a_line_of_one_mebibyte_passes_and_one_more_byte_is_414),
        cmocka_unit_test(headers_over_the_limit_are_431),
        cmocka_unit_test(lists_are_searched_by_whole_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
