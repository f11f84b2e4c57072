/* parcel.c - see parcel.h */
#include "parcel.h"
#include "base/log.h"
#include "frame.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    JOINED_SINCE = 2, /* bus version */
    HEAD_BYTES = 3,   /* command, length of the header */
};

bool ab_parcel_is_joined(int version, char command)
{
    return version >= JOINED_SINCE && (command == AB_CMD_REQUEST || command == AB_CMD_REPLY);
}

/* ------------------------------------------------------------------ out */

/* Command, header and as much of the body as goes with them. */
static int pack_joined(zmq_msg_t *out, char command, const struct ab_buf *header, zmq_msg_t *body,
                       bool with_body)
{
    size_t len = with_body ? zmq_msg_size(body) : 0;

    if (zmq_msg_init_size(out, HEAD_BYTES + header->len + len) < 0)
        return -1;
    uint8_t *p = zmq_msg_data(out);
    p[0] = (uint8_t)command;
    p[1] = (uint8_t)(header->len >> 8);
    p[2] = (uint8_t)header->len;
    memcpy(p + HEAD_BYTES, header->data, header->len);
    if (len)
        memcpy(p + HEAD_BYTES + header->len, zmq_msg_data(body), len);
    return 0;
}

static int pack_command(zmq_msg_t *out, char command)
{
    if (zmq_msg_init_size(out, 1) < 0)
        return -1;
    *(char *)zmq_msg_data(out) = command;
    return 0;
}

static int send_frames(void *socket, bool is_first, zmq_msg_t *frame, const struct ab_buf *header,
                       zmq_msg_t *body)
{
    if (ab_send_msg(socket, frame, header || body) < 0) {
        if (is_first)
            return -1;
    } else if ((!header || ab_send_frame(socket, header->data, header->len, body != NULL) == 0)
               && (!body || ab_send_msg(socket, body, false) == 0)) {
        return 0;
    }
    ab_log(AB_ERROR, "bus.send.torn", AB_KV("error", zmq_strerror(errno)));
    abort();
}

int ab_parcel_send(void *socket, bool is_first, int version, char command,
                   const struct ab_buf *header, zmq_msg_t *body)
{
    bool joined = ab_parcel_is_joined(version, command) && header->len <= AB_BUS_HEADER_MAX;
    bool with_body = joined && body && zmq_msg_size(body) <= AB_PARCEL_JOINED;
    zmq_msg_t frame;

    int rc = joined ? pack_joined(&frame, command, header, body, with_body)
                    : pack_command(&frame, command);
    if (rc == 0)
        rc = send_frames(socket, is_first, &frame, joined ? NULL : header, with_body ? NULL : body);
    int error = errno;
    if (body)
        zmq_msg_close(body); /* empty, if it has left */
    errno = error;
    return rc;
}

/* ------------------------------------------------------------------ in */

static int read_joined(struct ab_parts *m, int at, struct ab_parcel *out)
{
    const uint8_t *p = zmq_msg_data(&m->part[at]);
    size_t len = zmq_msg_size(&m->part[at]);

    if (len < HEAD_BYTES)
        return -1;
    size_t header_len = (size_t)p[1] << 8 | p[2];
    if (header_len > len - HEAD_BYTES)
        return -1;
    *out = (struct ab_parcel){
        .command = (char)p[0], .header = p + HEAD_BYTES, .header_len = header_len};
    if (m->n > at + 1) {
        out->frame = &m->part[at + 1];
    } else if (len > HEAD_BYTES + header_len) {
        out->frame = &m->part[at];
        out->body_at = HEAD_BYTES + header_len;
    }
    return 0;
}

int ab_parcel_read(struct ab_parts *m, int at, struct ab_parcel *out)
{
    if (m->n <= at)
        return -1;
    if (zmq_msg_size(&m->part[at]) != 1)
        return read_joined(m, at, out);
    if (m->n < at + 2)
        return -1;
    *out = (struct ab_parcel){
        .command = *(const char *)zmq_msg_data(&m->part[at]),
        .header = zmq_msg_data(&m->part[at + 1]),
        .header_len = zmq_msg_size(&m->part[at + 1]),
        .frame = m->n > at + 2 ? &m->part[at + 2] : NULL,
    };
    return 0;
}

const void *ab_parcel_body(const struct ab_parcel *self, size_t *len)
{
    if (!self->frame) {
        *len = 0;
        return NULL;
    }
    *len = zmq_msg_size(self->frame) - self->body_at;
    return (const char *)zmq_msg_data(self->frame) + self->body_at;
}
