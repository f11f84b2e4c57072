/* frame.h - what travels between gateway and services: one letter, a msgpack array, a body
 * (parcel.h says how they become frames)
 *
 *   gateway -> service   Q   [v, number, verb, user, remaining_ms, key, scopes, uuid, trace, peer,
 *                             username, token_site, try, host?] + body
 *                        H   [v] ping
 *                        X   [v, text] refused
 *   service -> gateway   R D [v, service, instance, capacity, queued, oldest_ms]
 *                        P   [v, number, status] + body
 *
 * A reader takes more elements than it knows and skips them. What is left of a deadline travels,
 * never a time of day: the clocks of hosts differ.
 */
#ifndef AB_FRAME_H
#define AB_FRAME_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A process speaks this version and the one before; see ab_frame_common_version. */
#define AB_BUS_VERSION 2
/* What this process says that it speaks. A build with fault points can pretend to be another
 * version, by AB_PRETEND_BUS_VERSION in its environment: tests of an upgrade. */
int ab_bus_version(void);
#define AB_BUS_HEADER_MAX ((size_t)16 * 1024)
#define AB_BUS_BODY_MAX ((size_t)64 * 1024 * 1024)

enum ab_command {
    AB_CMD_REQUEST = 'Q',
    AB_CMD_PING = 'H',
    AB_CMD_REFUSED = 'X',
    AB_CMD_READY = 'R',
    AB_CMD_LEAVE = 'D',
    AB_CMD_REPLY = 'P',
};

struct ab_frame_request {
    uint64_t number;
    const char *verb;
    int64_t user;
    int64_t remaining_ms;
    const char *key; /* NULL none; so are trace, peer, username */
    unsigned scopes;
    uint8_t uuid[16];
    const char *trace, *peer, *username;
    int64_t token_site;
    int try;
    const char *host; /* the address that the client used; only where somebody needs it */
};

struct ab_frame_ready {
    char service[32];
    char instance[128];
    int capacity, queued;
    int64_t oldest_ms; /* age of the oldest running request; 0: none runs */
};

/* What both sides speak, or 0 when the gap is greater than one. */
int ab_frame_common_version(int theirs);

/* First element of any header; -1 when it is none. */
int ab_frame_version(const void *header, size_t len);

void ab_frame_pack_request(struct ab_buf *out, int version, const struct ab_frame_request *request);
void ab_frame_pack_ready(struct ab_buf *out, int version, const struct ab_frame_ready *ready);
void ab_frame_pack_reply(struct ab_buf *out, int version, uint64_t number, int status);
void ab_frame_pack_ping(struct ab_buf *out, int version);
void ab_frame_pack_refused(struct ab_buf *out, int version, const char *text);

/* 0, or -1 for a header that is not one. Texts of a request are copied to `text`, which has at
 * least len + AB_FRAME_TEXTS bytes, and end with NUL there. */
#define AB_FRAME_TEXTS 8
int ab_frame_read_request(const void *header, size_t len, struct ab_frame_request *out, char *text);
int ab_frame_read_ready(const void *header, size_t len, struct ab_frame_ready *out);
int ab_frame_read_reply(const void *header, size_t len, uint64_t *number, int *status);
int ab_frame_read_refused(const void *header, size_t len, char *text, size_t size);

/* A hint's first frame: its topic and 8 bytes of owner, big endian. */
#define AB_HINT_HEAD 9
void ab_frame_pack_hint(char out[AB_HINT_HEAD], char topic, int64_t owner);
int ab_frame_read_hint(const void *bytes, size_t len, char *topic, int64_t *owner);

#endif
