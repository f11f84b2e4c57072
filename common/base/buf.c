/* buf.c - a growing byte buffer with a limit */
#include "buf.h"

#include "str.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ab_buf_free(struct ab_buf *self)
{
    free(self->data);
    *self = (struct ab_buf){.limit = self->limit};
}

void ab_buf_clear(struct ab_buf *self)
{
    self->len = 0;
    self->failed = false;
    if (self->data)
        self->data[0] = '\0';
}

char *ab_buf_room(struct ab_buf *self, size_t n)
{
    size_t limit = self->limit ? self->limit : AB_BUF_MAX;
    if (self->failed || self->len > limit || n > limit - self->len) {
        self->failed = true;
        return NULL;
    }
    size_t need = self->len + n + 1; /* the NUL of a text */
    if (need > self->cap) {
        size_t cap = self->cap ? self->cap : 64;
        while (cap < need)
            cap *= 2;
        char *data = realloc(self->data, cap);
        if (!data) {
            self->failed = true;
            return NULL;
        }
        self->data = data;
        self->cap = cap;
    }
    return self->data + self->len;
}

void ab_buf_add(struct ab_buf *self, const void *bytes, size_t n)
{
    char *to = ab_buf_room(self, n);
    if (!to)
        return;
    if (n > 0)
        memcpy(to, bytes, n);
    self->len += n;
    self->data[self->len] = '\0';
}

void ab_buf_str(struct ab_buf *self, const char *text)
{
    ab_buf_add(self, text, strlen(text));
}

void ab_buf_char(struct ab_buf *self, char c)
{
    ab_buf_add(self, &c, 1);
}

void ab_buf_int(struct ab_buf *self, int64_t n)
{
    char digits[24];
    char *end = digits + sizeof(digits), *p = end;
    uint64_t u = n < 0 ? -(uint64_t)n : (uint64_t)n;
    do {
        *--p = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (n < 0)
        *--p = '-';
    ab_buf_add(self, p, (size_t)(end - p));
}

void ab_buf_printf(struct ab_buf *self, const char *format, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(small, sizeof(small), format, ap);
    va_end(ap);
    if (n < 0) {
        self->failed = true;
        return;
    }
    if ((size_t)n < sizeof(small)) {
        ab_buf_add(self, small, (size_t)n);
        return;
    }
    char *to = ab_buf_room(self, (size_t)n);
    if (!to)
        return;
    va_start(ap, format);
    vsnprintf(to, (size_t)n + 1, format, ap);
    va_end(ap);
    self->len += (size_t)n;
}

/* Bytes of the well-formed character at p, 0 if there is none. */
static size_t character(const unsigned char *p, size_t left)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xC2 ? 0 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    return n > 0 && n <= left && ab_utf8_ok(p, n) ? n : 0;
}

void ab_buf_json_str(struct ab_buf *self, const char *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)text;
    size_t i = 0, plain = 0; /* [plain, i) is copied as it is */
    ab_buf_char(self, '"');
    while (i < n) {
        if (p[i] >= 0x20 && p[i] < 0x7F && p[i] != '"' && p[i] != '\\') {
            i++;
            continue;
        }
        size_t step = p[i] >= 0x80 ? character(p + i, n - i) : 0;
        if (step > 0) {
            i += step;
            continue;
        }
        ab_buf_add(self, text + plain, i - plain);
        char escape[7] = {'\\', 'u', '0', '0', hex[p[i] >> 4], hex[p[i] & 15], 0};
        switch (p[i]) {
        case '"':
            ab_buf_str(self, "\\\"");
            break;
        case '\\':
            ab_buf_str(self, "\\\\");
            break;
        case '\n':
            ab_buf_str(self, "\\n");
            break;
        case '\r':
            ab_buf_str(self, "\\r");
            break;
        case '\t':
            ab_buf_str(self, "\\t");
            break;
        default:
            ab_buf_str(self, p[i] >= 0x80 ? "\xEF\xBF\xBD" : escape);
        }
        plain = ++i;
    }
    ab_buf_add(self, text + plain, i - plain);
    ab_buf_char(self, '"');
}

char *ab_buf_take(struct ab_buf *self)
{
    char *data = self->data;
    *self = (struct ab_buf){.limit = self->limit};
    return data;
}
