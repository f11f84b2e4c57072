/* fuzz_bus.c - what a peer of the mesh can send: first byte the command, the rest its header
 *
 * Whatever is accepted survives a round trip; a gateway that gets it stays on its feet.
 */
#include "base/arena.h"
#include "bus/dispatch.h"
#include "bus/message.h"
#include "bus/task.h"
#include "fuzz.h"

static int wire(void *arg, uint64_t peer, int version, char command, const struct ab_buf *header,
                struct ab_shared *body)
{
    (void)arg;
    (void)peer;
    (void)version;
    (void)command;
    (void)body;
    if (header->failed || ab_frame_version(header->data, header->len) < 1)
        abort(); /* what we send is always a header */
    return 0;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void check_request(const void *header, size_t len)
{
    struct ab_frame_request one, two;
    char *text = malloc(len + AB_FRAME_TEXTS);

    if (ab_frame_read_request(header, len, &one, text) == 0) {
        struct ab_buf packed = {0};
        ab_frame_pack_request(&packed, AB_BUS_VERSION, &one);
        char *again = malloc(packed.len + AB_FRAME_TEXTS);
        if (ab_frame_read_request(packed.data, packed.len, &two, again) < 0
            || one.number != two.number || !same(one.verb, two.verb) || one.user != two.user
            || one.remaining_ms != two.remaining_ms || !same(one.key, two.key)
            || one.scopes != two.scopes || memcmp(one.uuid, two.uuid, 16) != 0
            || !same(one.trace, two.trace) || !same(one.peer, two.peer)
            || !same(one.username, two.username) || one.token_site != two.token_site
            || one.try != two.try)
            abort();
        free(again);
        ab_buf_free(&packed);
    }
    free(text);
}

static void check_error(const void *body, size_t len)
{
    ab_arena_t *arena = ab_arena_new();
    struct ab_error one, two;

    if (ab_bus_error_unpack(body, len, 400, arena, &one) == 0) {
        struct ab_buf packed = {0};
        ab_bus_error_pack(&packed, &one);
        if (ab_bus_error_unpack(packed.data, packed.len, 400, arena, &two) < 0
            || one.n_items != two.n_items || strcmp(one.text, two.text) != 0)
            abort();
        ab_buf_free(&packed);
    }
    ab_arena_destroy(&arena);
}

static void check_envelope(const void *header, size_t len)
{
    struct ab_parts m = {.n = 2};
    struct ab_envelope e;

    zmq_msg_init_size(&m.part[0], 4);
    memcpy(zmq_msg_data(&m.part[0]), "call", 4);
    zmq_msg_init_size(&m.part[1], len);
    if (len)
        memcpy(zmq_msg_data(&m.part[1]), header, len);
    if (ab_envelope_read(&m, 0, &e) == 0 && strlen(e.name) >= sizeof(e.name))
        abort();
    ab_parts_close(&m);
}

/* All of it as one frame of a message, as joined ones come. */
static void check_parcel(const uint8_t *data, size_t size)
{
    struct ab_parts m = {.n = 1};
    struct ab_parcel parcel;
    size_t body_len;

    zmq_msg_init_size(&m.part[0], size);
    memcpy(zmq_msg_data(&m.part[0]), data, size);
    if (ab_parcel_read(&m, 0, &parcel) == 0) {
        const char *end = (const char *)parcel.header + parcel.header_len;
        const void *body = ab_parcel_body(&parcel, &body_len);
        if ((body && body != end) || parcel.header_len + body_len + 3 != size)
            abort();
        ab_task_t *task = ab_task_new(&parcel, 1000);
        if (task && ab_task_info(task)->body_len != body_len)
            abort();
        ab_task_destroy(&task);
    }
    ab_parts_close(&m);
}

static void check_dispatch(char command, const void *header, size_t len)
{
    struct ab_dispatch_options options = {.beat_ms = 10, .dead_ms = 50, .send = wire};
    ab_dispatch_t *dispatch = ab_dispatch_new(&options, 1000);

    for (uint64_t peer = 1; peer <= 2; peer++) {
        struct ab_dispatch_message m = {.peer = peer,
                                        .key_name = peer == 1 ? NULL : "jobs",
                                        .command = command,
                                        .header = header,
                                        .header_len = len,
                                        .body = header,
                                        .body_len = len};
        ab_dispatch_receive(dispatch, &m, 1000);
        ab_dispatch_receive(dispatch, &m, 1001);
    }
    for (int64_t now = 1002; now < 1100; now += 10)
        ab_dispatch_tick(dispatch, now);
    ab_dispatch_destroy(&dispatch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ab_frame_ready ready;
    uint64_t number;
    int64_t owner;
    int status;
    char text[128], topic;

    if (size == 0)
        return 0;
    size_t len = size - 1;
    char *header =
        malloc(len ? len : 1); /* exactly this size: the sanitizer sees one byte too many */
    memcpy(header, data + 1, len);
    check_parcel(data, size);
    check_request(header, len);
    check_error(header, len);
    check_envelope(header, len);
    if (ab_frame_read_ready(header, len, &ready) == 0 && (!ready.service[0] || ready.capacity < 0))
        abort();
    if (ab_frame_read_reply(header, len, &number, &status) == 0 && (number == 0 || status < 200))
        abort();
    (void)ab_frame_read_refused(header, len, text, sizeof(text));
    (void)ab_frame_read_hint(header, len, &topic, &owner);
    check_dispatch((char)data[0], header, len);
    free(header);
    return 0;
}
