/* frame.c - headers of the mesh, packed and read */
#include "frame.h"
#include "base/str.h"
#include "schema/pack.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

int ab_bus_version(void)
{
#ifdef AB_FAULTS
    static atomic_int pretended; /* 0: not looked yet */
    int version = atomic_load(&pretended);
    if (version == 0) {
        const char *text = getenv("AB_PRETEND_BUS_VERSION");
        int64_t number = AB_BUS_VERSION;
        if (text)
            (void)ab_parse_i64(text, strlen(text), 1, 1000, &number);
        version = (int)number;
        atomic_store(&pretended, version);
    }
    return version;
#else
    return AB_BUS_VERSION;
#endif
}

int ab_frame_common_version(int theirs)
{
    int ours = ab_bus_version(), gap = theirs - ours;
    if (theirs < 1 || gap > 1 || gap < -1)
        return 0;
    return gap < 0 ? theirs : ours;
}

void ab_frame_pack_request(struct ab_buf *out, int version, const struct ab_frame_request *request)
{
    ab_pack_array(out, request->host ? 14 : 13);
    ab_pack_int(out, version);
    ab_pack_int(out, (int64_t)request->number);
    ab_pack_str(out, request->verb);
    ab_pack_int(out, request->user);
    ab_pack_int(out, request->remaining_ms);
    ab_pack_str(out, request->key);
    ab_pack_int(out, request->scopes);
    ab_pack_bin(out, request->uuid, sizeof(request->uuid));
    ab_pack_str(out, request->trace);
    ab_pack_str(out, request->peer);
    ab_pack_str(out, request->username);
    ab_pack_int(out, request->token_site);
    ab_pack_int(out, request->try);
    if (request->host)
        ab_pack_str(out, request->host);
}

void ab_frame_pack_ready(struct ab_buf *out, int version, const struct ab_frame_ready *ready)
{
    ab_pack_array(out, 6);
    ab_pack_int(out, version);
    ab_pack_str(out, ready->service);
    ab_pack_str(out, ready->instance);
    ab_pack_int(out, ready->capacity);
    ab_pack_int(out, ready->queued);
    ab_pack_int(out, ready->oldest_ms);
}

void ab_frame_pack_reply(struct ab_buf *out, int version, uint64_t number, int status)
{
    ab_pack_array(out, 3);
    ab_pack_int(out, version);
    ab_pack_int(out, (int64_t)number);
    ab_pack_int(out, status);
}

void ab_frame_pack_ping(struct ab_buf *out, int version)
{
    ab_pack_array(out, 1);
    ab_pack_int(out, version);
}

void ab_frame_pack_refused(struct ab_buf *out, int version, const char *text)
{
    ab_pack_array(out, 2);
    ab_pack_int(out, version);
    ab_pack_str(out, text);
}

/* ------------------------------------------------------------------ reading */

/* The array's head and the version in it; `more` elements must follow at least. */
static int open_header(struct ab_cursor *at, const void *header, size_t len, uint32_t more)
{
    uint32_t n;
    int64_t version;

    if (len > AB_BUS_HEADER_MAX)
        return -1;
    *at = ab_cursor(header, len);
    if (ab_cursor_array(at, &n) < 0 || n < 1 + more || ab_cursor_int(at, &version) < 0)
        return -1;
    if (version < 1 || version > INT32_MAX)
        return -1;
    return (int)version;
}

static uint32_t elements(const void *header, size_t len)
{
    struct ab_cursor at = ab_cursor(header, len);
    uint32_t n = 0;
    return ab_cursor_array(&at, &n) < 0 ? 0 : n;
}

static int64_t take_int(struct ab_cursor *at, int64_t min, int64_t max)
{
    int64_t v = min;
    if (ab_cursor_int(at, &v) < 0 || v < min || v > max)
        at->broken = true;
    return v;
}

/* A text or nil -> NUL-terminated at *to, which moves on. A NUL inside would cut it: refused. */
static const char *take_text(struct ab_cursor *at, char **to)
{
    const char *p = NULL;
    size_t n = 0;

    if (ab_cursor_nil(at) == 1)
        return NULL;
    if (ab_cursor_str(at, &p, &n) < 0 || memchr(p, 0, n)) {
        at->broken = true;
        return NULL;
    }
    char *text = *to;
    memcpy(text, p, n);
    text[n] = '\0';
    *to += n + 1;
    return text;
}

static void take_name(struct ab_cursor *at, char *out, size_t size)
{
    const char *p = NULL;
    size_t n = 0;

    if (ab_cursor_str(at, &p, &n) < 0 || n == 0 || n >= size) {
        at->broken = true;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] > '~') {
            at->broken = true;
            return;
        }
    }
    memcpy(out, p, n);
    out[n] = '\0';
}

int ab_frame_version(const void *header, size_t len)
{
    struct ab_cursor at;
    return open_header(&at, header, len, 0);
}

int ab_frame_read_request(const void *header, size_t len, struct ab_frame_request *out, char *text)
{
    struct ab_cursor at;
    const void *uuid = NULL;
    size_t n = 0;

    memset(out, 0, sizeof(*out));
    int version = open_header(&at, header, len, 12);
    if (version < 0 || ab_frame_common_version(version) == 0)
        return -1;
    out->number = (uint64_t)take_int(&at, 1, INT64_MAX);
    out->verb = take_text(&at, &text);
    out->user = take_int(&at, 0, INT64_MAX);
    out->remaining_ms = take_int(&at, INT64_MIN, INT64_MAX);
    out->key = take_text(&at, &text);
    out->scopes = (unsigned)take_int(&at, 0, UINT32_MAX);
    if (ab_cursor_bin(&at, &uuid, &n) < 0 || n != sizeof(out->uuid))
        return -1;
    memcpy(out->uuid, uuid, n);
    out->trace = take_text(&at, &text);
    out->peer = take_text(&at, &text);
    out->username = take_text(&at, &text);
    out->token_site = take_int(&at, 0, INT64_MAX);
    out->try = (int)take_int(&at, 0, INT32_MAX);
    if (elements(header, len) > 13) /* this one came later than the others */
        out->host = take_text(&at, &text);
    return at.broken || !out->verb ? -1 : 0;
}

int ab_frame_read_ready(const void *header, size_t len, struct ab_frame_ready *out)
{
    struct ab_cursor at;

    memset(out, 0, sizeof(*out));
    if (open_header(&at, header, len, 5) < 0)
        return -1;
    take_name(&at, out->service, sizeof(out->service));
    take_name(&at, out->instance, sizeof(out->instance));
    out->capacity = (int)take_int(&at, 0, 65536);
    out->queued = (int)take_int(&at, 0, INT32_MAX);
    out->oldest_ms = take_int(&at, 0, INT64_MAX);
    return at.broken ? -1 : 0;
}

int ab_frame_read_reply(const void *header, size_t len, uint64_t *number, int *status)
{
    struct ab_cursor at;

    int version = open_header(&at, header, len, 2);
    if (version < 0 || ab_frame_common_version(version) == 0)
        return -1;
    *number = (uint64_t)take_int(&at, 1, INT64_MAX);
    *status = (int)take_int(&at, 200, 1299); /* 1200 and more: AB_BUS_REPLAYED */
    return at.broken || (*status > 599 && *status < 1200) ? -1 : 0;
}

int ab_frame_read_refused(const void *header, size_t len, char *text, size_t size)
{
    struct ab_cursor at;
    const char *p = NULL;
    size_t n = 0;

    if (open_header(&at, header, len, 1) < 0 || ab_cursor_str(&at, &p, &n) < 0)
        return -1;
    if (n >= size)
        n = size - 1;
    for (size_t i = 0; i < n; i++)
        text[i] = p[i] < ' ' ? ' ' : p[i]; /* it goes to a log line */
    text[n] = '\0';
    return 0;
}

void ab_frame_pack_hint(char out[AB_HINT_HEAD], char topic, int64_t owner)
{
    out[0] = topic;
    for (int i = 0; i < 8; i++)
        out[1 + i] = (char)((uint64_t)owner >> (56 - 8 * i));
}

int ab_frame_read_hint(const void *bytes, size_t len, char *topic, int64_t *owner)
{
    const uint8_t *p = bytes;
    uint64_t v = 0;

    if (len != AB_HINT_HEAD)
        return -1;
    for (int i = 0; i < 8; i++)
        v = v << 8 | p[1 + i];
    *topic = (char)p[0];
    *owner = (int64_t)v;
    return 0;
}
