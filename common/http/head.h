/* head.h - the head of an HTTP/1.1 request, strictly
 *
 * Bytes come in pieces into the caller's buffer; ab_http_head_parse is called again with all of
 * them and goes on where it stopped. What two parsers could read in two ways is refused, since that
 * is how requests are smuggled past a proxy: bare CR or LF, NUL, folded lines, a space before the
 * colon, two of a header that counts, Content-Length that is not plain digits, any
 * Transfer-Encoding, a target that is not a path. No allocation, no copy: results are offsets into
 * the buffer, which may move.
 */
#ifndef AB_HTTP_HEAD_H
#define AB_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AB_HTTP_LINE_MAX ((size_t)1 << 20)     /* request line: 414 */
#define AB_HTTP_HEADERS_MAX ((size_t)64 << 10) /* all header lines together: 431 */
#define AB_HTTP_FIELDS_MAX 128                 /* header lines: 431 */

/* Headers that mean something to us. A second one of the same name is refused. */
enum ab_http_field {
    AB_H_HOST,
    AB_H_CONTENT_LENGTH,
    AB_H_TRANSFER_ENCODING,
    AB_H_CONTENT_TYPE,
    AB_H_AUTHORIZATION,
    AB_H_EXPECT,
    AB_H_CONNECTION,
    AB_H_UPGRADE,
    AB_H_IDEMPOTENCY_KEY,
    AB_H_REQUEST_ID,
    AB_H_TRACEPARENT,
    AB_H_WS_KEY,
    AB_H_WS_VERSION,
    AB_H_WS_PROTOCOL,
    AB_H_FIELDS
};

struct ab_http_span {
    uint32_t at, n; /* n == 0: absent or empty */
};

struct ab_http_head {
    /* results, valid after 1 */
    struct ab_http_span method, target, path,
        query; /* query without '?'; n == 0 if there is none */
    struct ab_http_span field[AB_H_FIELDS];
    uint32_t present;       /* bit per enum ab_http_field */
    int minor;              /* HTTP/1.minor: 0 or 1 */
    bool close;             /* Connection: close, or HTTP/1.0 */
    bool upgrade;           /* Connection names upgrade */
    bool expect;            /* Expect: 100-continue */
    int64_t content_length; /* 0 if there is none */
    size_t length;          /* bytes of the head, with its empty line */

    /* after -1 */
    int status;      /* 400 411 414 417 431 505 */
    const char *why; /* one sentence for the client */

    /* where parsing goes on */
    size_t line_at, scan_at, headers_at;
    int lines;
    bool done;
};

/* 1 the head is complete, 0 more bytes are needed, -1 refused. Zero-initialise before the first
 * byte. */
int ab_http_head_parse(struct ab_http_head *self, const char *bytes, size_t len);

/* Whether the header is there at all (it may be empty). */
static inline bool ab_http_has(const struct ab_http_head *self, enum ab_http_field field)
{
    return (self->present >> field) & 1;
}

/* Is `token` in this comma-separated list? Any case. */
bool ab_http_list_has(const char *list, size_t n, const char *token);

/* "GET" == span? Exact. */
bool ab_http_span_is(const char *bytes, struct ab_http_span span, const char *text);

/* Reason phrase of a status ("Not Found"). */
const char *ab_http_reason(int status);

#endif
