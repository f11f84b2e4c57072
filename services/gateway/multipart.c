/* multipart.c - see multipart.h; lines end with CR LF, one header counts */
#include "multipart.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct slice {
    const char *p;
    size_t n;
};

/* The value of a header's parameter: ...; name="value" or ; name=value. p == NULL: it has none. */
static struct slice parameter(struct slice header, const char *name)
{
    size_t want = strlen(name);
    const char *end = header.p + header.n;

    for (const char *p = memchr(header.p, ';', header.n); p;
         p = memchr(p, ';', (size_t)(end - p))) {
        for (p++; p < end && (*p == ' ' || *p == '\t'); p++)
            ;
        if ((size_t)(end - p) <= want || strncasecmp(p, name, want) != 0 || p[want] != '=')
            continue;
        p += want + 1;
        const char *to;
        if (p < end && *p == '"') {
            p++;
            to = memchr(p, '"', (size_t)(end - p));
            if (!to)
                break;
        } else {
            for (to = p; to < end && *to != ';' && *to != ' '; to++)
                ;
        }
        return (struct slice){p, (size_t)(to - p)};
    }
    return (struct slice){NULL, 0};
}

struct boundary multipart_boundary(const char *content_type, size_t n)
{
    static const char type[] = "multipart/form-data";
    struct boundary out = {.n = 0};

    if (n <= sizeof(type) - 1 || strncasecmp(content_type, type, sizeof(type) - 1) != 0)
        return out;
    struct slice s = parameter((struct slice){content_type, n}, "boundary");
    if (s.p && s.n > 0 && s.n < sizeof(out.text) - 1) {
        memcpy(out.text, s.p, s.n);
        out.n = s.n;
    }
    return out;
}

static void add_encoded(struct ab_buf *out, struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
            ab_buf_char(out, (char)c);
        else
            ab_buf_printf(out, "%%%02X", c);
    }
}

/* Headers up to the empty line; *rest is what lies behind it. The part's name, p == NULL for none.
 */
static struct slice part_name(struct slice part, struct slice *rest, bool *file)
{
    static const char header[] = "content-disposition:";
    struct slice name = {NULL, 0};
    const char *at = part.p, *end = part.p + part.n;

    *file = false;
    for (;;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line_end) {
            *rest = (struct slice){NULL, 0};
            return name;
        }
        struct slice line = {at, (size_t)(line_end - at)};
        at = line_end + 2;
        if (line.n == 0) {
            *rest = (struct slice){at, (size_t)(end - at)};
            return name;
        }
        if (line.n > sizeof(header) - 1 && strncasecmp(line.p, header, sizeof(header) - 1) == 0) {
            name = parameter(line, "name");
            *file = parameter(line, "filename").p != NULL;
        }
    }
}

/* What stands between two delimiters. */
static int take_part(struct slice part, struct ab_buf *out)
{
    struct slice value;
    bool file;
    struct slice name = part_name(part, &value, &file);

    if (!name.p || !value.p)
        return -1;
    if (file)
        return 0;
    if (out->len > 0)
        ab_buf_char(out, '&');
    add_encoded(out, name);
    ab_buf_char(out, '=');
    add_encoded(out, value);
    return 0;
}

int multipart_to_form(const struct boundary *boundary, const char *body, size_t len,
                      struct ab_buf *out)
{
    char delimiter[80]; /* CR LF "--" boundary */
    const char *end = body + len;
    size_t n = (size_t)snprintf(delimiter, sizeof(delimiter), "\r\n--%.*s", (int)boundary->n,
                                boundary->text);

    if (boundary->n == 0 || len < n || memcmp(body, delimiter + 2, n - 2) != 0)
        return -1;
    const char *at = body + n - 2;
    while (end - at >= 2 && memcmp(at, "\r\n", 2) == 0) {
        at += 2;
        const char *to = memmem(at, (size_t)(end - at), delimiter, n);
        if (!to || take_part((struct slice){at, (size_t)(to - at)}, out) < 0)
            return -1;
        at = to + n;
    }
    return end - at >= 2 && memcmp(at, "--", 2) == 0 && !out->failed ? 0 : -1;
}
