/* test_parcel.c - commands, headers and bodies as frames, between peers of each version
 */
#include "bus/frame.h"
#include "bus/parcel.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct pair {
    zsock_t *out, *in;
};

static int set_up(void **state)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    struct ab_error err = {0};
    char *endpoint = NULL, name[40];
    static int n; /* a socket that is destroyed keeps its name for a while */

    snprintf(name, sizeof(name), "inproc://parcel-%d", n++);
    pair->in = ab_socket_new(ZMQ_PAIR);
    pair->out = ab_socket_new(ZMQ_PAIR);
    assert_int_equal(ab_socket_bind(pair->in, name, &endpoint, &err), 0);
    assert_int_equal(ab_socket_connect(pair->out, endpoint), 0);
    free(endpoint);
    *state = pair;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *pair = *state;
    zsock_destroy(&pair->out);
    zsock_destroy(&pair->in);
    free(pair);
    return 0;
}

static void fill(char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)(i * 7 + 1);
}

/* Send it, and see that the same comes out, in so many frames. */
static void travels(struct pair *pair, int version, char command, size_t header_len,
                    const size_t *body_len, int frames)
{
    char *header = malloc(header_len + 1), *body = malloc((body_len ? *body_len : 0) + 1);
    struct ab_buf packed = {0};
    struct ab_parts m;
    struct ab_parcel parcel;
    zmq_msg_t msg;
    size_t len;

    fill(header, header_len);
    ab_buf_add(&packed, header, header_len);
    if (body_len) {
        fill(body, *body_len);
        zmq_msg_init_size(&msg, *body_len);
        if (*body_len)
            memcpy(zmq_msg_data(&msg), body, *body_len);
    }
    assert_int_equal(ab_parcel_send(zsock_resolve(pair->out), true, version, command, &packed,
                                    body_len ? &msg : NULL),
                     0);
    assert_int_equal(ab_parts_receive(zsock_resolve(pair->in), 4, &m), 1);
    assert_int_equal(m.n, frames);
    assert_int_equal(ab_parcel_read(&m, 0, &parcel), 0);
    assert_int_equal(parcel.command, command);
    assert_int_equal(parcel.header_len, header_len);
    assert_memory_equal(parcel.header, header, header_len);
    const void *got = ab_parcel_body(&parcel, &len);
    assert_int_equal(len, body_len ? *body_len : 0);
    if (len)
        assert_memory_equal(got, body, len);
    ab_parts_close(&m);
    ab_buf_free(&packed);
    free(header);
    free(body);
}

static void a_small_request_is_one_frame_and_a_large_body_another(void **state)
{
    const size_t none = 0, one = 1, most = AB_PARCEL_JOINED, more = AB_PARCEL_JOINED + 1;
    travels(*state, 2, AB_CMD_REQUEST, 120, NULL, 1);
    travels(*state, 2, AB_CMD_REQUEST, 120, &none, 1);
    travels(*state, 2, AB_CMD_REQUEST, 1, &one, 1);
    travels(*state, 2, AB_CMD_REPLY, 12, &most, 1);
    travels(*state, 2, AB_CMD_REPLY, 12, &more, 2);
    travels(*state, 2, AB_CMD_REQUEST, AB_BUS_HEADER_MAX, &most, 1);
}

static void a_peer_of_version_1_gets_a_frame_for_each_part(void **state)
{
    const size_t some = 300;
    travels(*state, 1, AB_CMD_REQUEST, 120, NULL, 2);
    travels(*state, 1, AB_CMD_REQUEST, 120, &some, 3);
    travels(*state, 1, AB_CMD_REPLY, 12, &some, 3);
}

static void what_concerns_the_bus_itself_looks_the_same_in_every_version(void **state)
{
    const char commands[] = {AB_CMD_READY, AB_CMD_LEAVE, AB_CMD_PING, AB_CMD_REFUSED};
    for (size_t i = 0; i < sizeof(commands); i++)
        for (int version = 1; version < 5; version++)
            travels(*state, version, commands[i], 40, NULL, 2);
}

static void half_a_parcel_is_none(void **state)
{
    struct {
        const char *first;
        size_t n;
    } bad[] = {{"", 0},
               {"P", 1},
               {"P\0", 2},
               {"P\0\1", 3},
               {"P\xff\xff"
                "abc",
                6}};
    struct ab_parcel parcel;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ab_parts m = {.n = 1};
        zmq_msg_init_size(&m.part[0], bad[i].n);
        if (bad[i].n)
            memcpy(zmq_msg_data(&m.part[0]), bad[i].first, bad[i].n);
        assert_int_equal(ab_parcel_read(&m, 0, &parcel), -1);
        assert_int_equal(ab_parcel_read(&m, 1, &parcel), -1);
        ab_parts_close(&m);
    }
}

static void what_cannot_be_sent_is_an_error_and_nothing_leaks(void **state)
{
    struct pair *pair = *state;
    struct ab_buf header = {0};
    zmq_msg_t body;

    zsock_destroy(&pair->in); /* nobody takes it */
    zsock_set_sndhwm(pair->out, 1);
    ab_buf_str(&header, "header");
    int rc = 0;
    for (int i = 0; rc == 0 && i < 3 * AB_SOCKET_HWM; i++) {
        zmq_msg_init_size(&body, 100);
        rc = ab_parcel_send(zsock_resolve(pair->out), true, 2, AB_CMD_REPLY, &header, &body);
    }
    assert_int_equal(rc, -1);
    ab_buf_free(&header);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_small_request_is_one_frame_and_a_large_body_another,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peer_of_version_1_gets_a_frame_for_each_part, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            what_concerns_the_bus_itself_looks_the_same_in_every_version, set_up, tear_down),
        cmocka_unit_test(half_a_parcel_is_none),
        cmocka_unit_test_setup_teardown(what_cannot_be_sent_is_an_error_and_nothing_leaks, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
