/* message.c - envelopes between a hub and its links */
#include "message.h"
#include "base/log.h"
#include "schema/pack.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define HEADER_MAX 256
#define WAIT_FEW 32

static bool visible(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return true;
}

bool ab_kind_ok(const char *kind)
{
    size_t n = strlen(kind);
    return n > 0 && n < sizeof(((struct ab_envelope *)0)->kind) && visible(kind, n)
           && !strchr("+-.", kind[0]);
}

int ab_envelope_send(void *socket, const struct ab_envelope *envelope, const void *body, size_t len)
{
    struct ab_buf header = {0};

    if (len > AB_BUS_BODY_MAX) {
        errno = EMSGSIZE; /* the other side would cut the connection */
        return -1;
    }
    ab_pack_array(&header, 4);
    ab_pack_int(&header, VERSION);
    ab_pack_int(&header, (int64_t)envelope->number);
    ab_pack_str(&header, envelope->name);
    ab_pack_int(&header, (int64_t)envelope->token);
    int rc = ab_send_frame(socket, envelope->kind, strlen(envelope->kind), true);
    if (rc == 0
        && (ab_send_frame(socket, header.data, header.len, true) < 0
            || ab_send_frame(socket, body, len, false) < 0)) {
        ab_log(AB_ERROR, "bus.send.torn", AB_KV("error", zmq_strerror(errno)));
        abort(); /* half a message is on its way: nothing after it could be read */
    }
    int error = errno;
    ab_buf_free(&header);
    errno = error;
    return rc;
}

int ab_envelope_read(struct ab_parts *m, int at, struct ab_envelope *out)
{
    int64_t version, number, token;
    const char *name;
    uint32_t count;
    size_t n;

    memset(out, 0, sizeof(*out));
    if (m->n < at + 2)
        return -1;
    n = zmq_msg_size(&m->part[at]);
    if (n == 0 || n >= sizeof(out->kind) || !visible(zmq_msg_data(&m->part[at]), n))
        return -1;
    memcpy(out->kind, zmq_msg_data(&m->part[at]), n);
    n = zmq_msg_size(&m->part[at + 1]);
    if (n > HEADER_MAX)
        return -1;
    struct ab_cursor c = ab_cursor(zmq_msg_data(&m->part[at + 1]), n);
    if (ab_cursor_array(&c, &count) < 0 || count < 4 || ab_cursor_int(&c, &version) < 0
        || ab_cursor_int(&c, &number) < 0 || ab_cursor_str(&c, &name, &n) < 0
        || ab_cursor_int(&c, &token) < 0)
        return -1;
    if (version < 1 || n >= sizeof(out->name) || !visible(name, n))
        return -1;
    out->number = (uint64_t)number;
    memcpy(out->name, name, n);
    out->token = (uint64_t)token;
    return 0;
}

int ab_local_wait(void *socket, const int *fds, size_t n, int64_t timeout_ms)
{
    zmq_pollitem_t few[WAIT_FEW + 1], *items = few;

    if (n > WAIT_FEW) {
        items = calloc(n + 1, sizeof(*items));
        if (!items)
            return -1;
    }
    items[0] = (zmq_pollitem_t){socket, 0, ZMQ_POLLIN, 0};
    for (size_t i = 0; i < n; i++)
        items[i + 1] = (zmq_pollitem_t){NULL, fds[i], ZMQ_POLLIN, 0};
    long wait = timeout_ms < 0 ? -1 : timeout_ms > INT_MAX ? INT_MAX : (long)timeout_ms;
    int rc = zmq_poll(items, (int)n + 1, wait);
    int error = errno;
    if (items != few)
        free(items);
    errno = error;
    return rc < 0 && error != EINTR ? -1 : 0;
}
