/* head.c - line by line, each line once */
#include "head.h"
#include <string.h>
#include <strings.h>

static const char *const field_names[AB_H_FIELDS] = {
    [AB_H_HOST] = "host",
    [AB_H_CONTENT_LENGTH] = "content-length",
    [AB_H_TRANSFER_ENCODING] = "transfer-encoding",
    [AB_H_CONTENT_TYPE] = "content-type",
    [AB_H_AUTHORIZATION] = "authorization",
    [AB_H_EXPECT] = "expect",
    [AB_H_CONNECTION] = "connection",
    [AB_H_UPGRADE] = "upgrade",
    [AB_H_IDEMPOTENCY_KEY] = "idempotency-key",
    [AB_H_REQUEST_ID] = "x-request-id",
    [AB_H_TRACEPARENT] = "traceparent",
    [AB_H_WS_KEY] = "sec-websocket-key",
    [AB_H_WS_VERSION] = "sec-websocket-version",
    [AB_H_WS_PROTOCOL] = "sec-websocket-protocol",
};

static int refuse(struct ab_http_head *self, int status, const char *why)
{
    self->status = status;
    self->why = why;
    return -1;
}

/* RFC 9110 token: what a method and a header's name are made of. */
static bool is_token(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

/* What may stand in a header's value: no control characters but tab. */
static bool is_value(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static struct ab_http_span span(size_t at, size_t n)
{
    return (struct ab_http_span){(uint32_t)at, (uint32_t)n};
}

bool ab_http_span_is(const char *bytes, struct ab_http_span s, const char *text)
{
    return s.n == strlen(text) && memcmp(bytes + s.at, text, s.n) == 0;
}

bool ab_http_list_has(const char *list, size_t n, const char *token)
{
    size_t want = strlen(token);
    size_t at = 0;

    while (at < n) {
        size_t end = at;
        while (end < n && list[end] != ',')
            end++;
        size_t from = at, to = end;
        while (from < to && (list[from] == ' ' || list[from] == '\t'))
            from++;
        while (to > from && (list[to - 1] == ' ' || list[to - 1] == '\t'))
            to--;
        if (to - from == want && strncasecmp(list + from, token, want) == 0)
            return true;
        at = end + 1;
    }
    return false;
}

/* "HTTP/1.1" behind the second space. */
static int take_version(struct ab_http_head *self, const char *p, size_t n)
{
    if (n != 8 || memcmp(p, "HTTP/", 5) != 0 || p[6] != '.' || p[5] < '0' || p[5] > '9'
        || p[7] < '0' || p[7] > '9')
        return refuse(self, 400, "the request line is not METHOD PATH HTTP/1.1");
    if (p[5] != '1' || p[7] > '1')
        return refuse(self, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    self->minor = p[7] - '0';
    self->close = self->minor == 0;
    return 0;
}

static int take_request_line(struct ab_http_head *self, const char *bytes, size_t at, size_t n)
{
    const char *line = bytes + at;
    size_t method = 0;

    while (method < n && is_token((unsigned char)line[method]))
        method++;
    if (method == 0 || method > 32 || method == n || line[method] != ' ')
        return refuse(self, 400, "the request line is not METHOD PATH HTTP/1.1");
    self->method = span(at, method);

    size_t target = method + 1, end = target, query = 0;
    for (; end < n && line[end] != ' '; end++) {
        unsigned char c = (unsigned char)line[end];
        if (c <= 0x20 || c >= 0x7f || c == '#')
            return refuse(self, 400, "the path holds a character that must be percent-encoded");
        if (c == '?' && query == 0)
            query = end;
    }
    if (end == n)
        return refuse(self, 400, "the request line is not METHOD PATH HTTP/1.1");
    if (take_version(self, line + end + 1, n - end - 1) < 0)
        return -1;
    if (end == target || line[target] != '/')
        return refuse(self, 400, "the request target must be a path that begins with /");
    self->target = span(at + target, end - target);
    self->path = span(at + target, (query ? query : end) - target);
    if (query)
        self->query = span(at + query + 1, end - query - 1);
    return 0;
}

static int field_of(const char *name, size_t n)
{
    for (int i = 0; i < AB_H_FIELDS; i++)
        if (strlen(field_names[i]) == n && strncasecmp(field_names[i], name, n) == 0)
            return i;
    return -1;
}

static int take_field(struct ab_http_head *self, const char *bytes, size_t at, size_t n)
{
    const char *line = bytes + at;
    size_t name = 0;

    if (line[0] == ' ' || line[0] == '\t')
        return refuse(self, 400, "folded header lines are not allowed");
    while (name < n && is_token((unsigned char)line[name]))
        name++;
    if (name == 0 || name == n || line[name] != ':')
        return refuse(self, 400, "a header line is not NAME: VALUE");

    size_t from = name + 1, to = n;
    while (from < to && (line[from] == ' ' || line[from] == '\t'))
        from++;
    while (to > from && (line[to - 1] == ' ' || line[to - 1] == '\t'))
        to--;
    for (size_t i = from; i < to; i++)
        if (!is_value((unsigned char)line[i]))
            return refuse(self, 400, "a header value holds a control character");

    int field = field_of(line, name);
    if (field < 0)
        return 0;
    if (ab_http_has(self, (enum ab_http_field)field))
        return refuse(self, 400, "a header that must stand once is there twice");
    self->present |= UINT32_C(1) << field;
    self->field[field] = span(at + from, to - from);
    return 0;
}

static int take_content_length(struct ab_http_head *self, const char *bytes)
{
    struct ab_http_span s = self->field[AB_H_CONTENT_LENGTH];
    int64_t v = 0;

    /* 18 digits cannot overflow; a sign, a list or a blank inside is none of ours. */
    if (s.n == 0 || s.n > 18)
        return refuse(self, 400, "Content-Length is not a plain number");
    for (uint32_t i = 0; i < s.n; i++) {
        char c = bytes[s.at + i];
        if (c < '0' || c > '9')
            return refuse(self, 400, "Content-Length is not a plain number");
        v = v * 10 + (c - '0');
    }
    self->content_length = v;
    return 0;
}

/* The empty line has come: what do the headers mean together? */
static int finish(struct ab_http_head *self, const char *bytes)
{
    bool length = ab_http_has(self, AB_H_CONTENT_LENGTH);

    if (ab_http_has(self, AB_H_TRANSFER_ENCODING))
        return length ? refuse(self, 400, "Content-Length and Transfer-Encoding exclude each other")
                      : refuse(self, 411, "send the body with a Content-Length, not in chunks");
    if (length && take_content_length(self, bytes) < 0)
        return -1;
    if (self->minor == 1 && !ab_http_has(self, AB_H_HOST))
        return refuse(self, 400, "HTTP/1.1 needs a Host header");

    if (ab_http_has(self, AB_H_CONNECTION)) {
        struct ab_http_span s = self->field[AB_H_CONNECTION];
        if (ab_http_list_has(bytes + s.at, s.n, "close"))
            self->close = true;
        self->upgrade = ab_http_list_has(bytes + s.at, s.n, "upgrade");
    }
    if (ab_http_has(self, AB_H_EXPECT)) {
        struct ab_http_span s = self->field[AB_H_EXPECT];
        if (s.n != 12 || strncasecmp(bytes + s.at, "100-continue", 12) != 0)
            return refuse(self, 417, "the only expectation that is met here is 100-continue");
        self->expect = self->minor == 1;
    }
    self->done = true;
    return 1;
}

/* One whole line without its CRLF. */
static int take_line(struct ab_http_head *self, const char *bytes, size_t at, size_t n)
{
    if (self->headers_at == 0) {
        if (n == 0 && self->lines == 0 && at == 0) {
            self->lines =
                -1; /* one empty line before the request line is forgiven (RFC 9112 2.2) */
            return 0;
        }
        self->lines = 0;
        if (take_request_line(self, bytes, at, n) < 0)
            return -1;
        self->headers_at = at + n + 2;
        return 0;
    }
    if (n == 0)
        return finish(self, bytes);
    if (++self->lines > AB_HTTP_FIELDS_MAX)
        return refuse(self, 431, "too many header lines");
    return take_field(self, bytes, at, n);
}

int ab_http_head_parse(struct ab_http_head *self, const char *bytes, size_t len)
{
    if (self->done)
        return 1;
    if (self->status)
        return -1;
    while (self->scan_at < len) {
        const char *lf = memchr(bytes + self->scan_at, '\n', len - self->scan_at);
        size_t end = lf ? (size_t)(lf - bytes) : len;

        if (self->headers_at == 0 && end - self->line_at > AB_HTTP_LINE_MAX)
            return refuse(self, 414, "the request line is longer than 1 MiB");
        if (self->headers_at != 0 && end - self->headers_at > AB_HTTP_HEADERS_MAX)
            return refuse(self, 431, "the headers are longer than 64 kB");
        if (!lf) {
            self->scan_at = len;
            return 0;
        }
        if (end == self->line_at || bytes[end - 1] != '\r')
            return refuse(self, 400, "lines must end with CR LF");

        size_t at = self->line_at;
        self->line_at = self->scan_at = end + 1;
        int rc = take_line(self, bytes, at, end - 1 - at);
        if (rc < 0)
            return -1;
        if (rc > 0) {
            self->length = end + 1;
            return 1;
        }
    }
    return 0;
}

const char *ab_http_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Entity"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return status < 400 ? "OK" : "Error";
}
