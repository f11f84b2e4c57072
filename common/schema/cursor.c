/* cursor.c - msgpack, one token at a time, every length checked against the bytes that are there */
#include "pack.h"

#include "base/cleanup.h"

#include <string.h>

struct ab_cursor ab_cursor(const void *bytes, size_t len)
{
    return (struct ab_cursor){bytes, (const uint8_t *)bytes + len, false};
}

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static size_t left(const struct ab_cursor *self)
{
    return (size_t)(self->end - self->at);
}

static int broken(struct ab_cursor *self)
{
    self->broken = true;
    return -1;
}

/* Of each first byte: what it begins, and how long it is when that says so (0: read on). */
#define FIX(kind, size)                                                                            \
    {                                                                                              \
        AB_TK_##kind, size                                                                         \
    }
static const struct {
    uint8_t kind, size;
} firsts[256] = {
    [0x00 ... 0x7f] = FIX(INT, 1),
    [0x80 ... 0x8f] = FIX(MAP, 0),
    [0x90 ... 0x9f] = FIX(ARRAY, 0),
    [0xa0 ... 0xbf] = FIX(STR, 0),
    [0xc0] = FIX(NIL, 1),
    [0xc1] = FIX(BROKEN, 0),
    [0xc2 ... 0xc3] = FIX(BOOL, 1),
    [0xc4 ... 0xc6] = FIX(BIN, 0),
    [0xc7 ... 0xc9] = FIX(EXT, 0),
    [0xca] = FIX(REAL, 5),
    [0xcb] = FIX(REAL, 9),
    [0xcc] = FIX(INT, 2),
    [0xcd] = FIX(INT, 3),
    [0xce] = FIX(INT, 5),
    [0xcf] = FIX(INT, 9),
    [0xd0] = FIX(INT, 2),
    [0xd1] = FIX(INT, 3),
    [0xd2] = FIX(INT, 5),
    [0xd3] = FIX(INT, 9),
    [0xd4 ... 0xd8] = FIX(EXT, 0),
    [0xd9 ... 0xdb] = FIX(STR, 0),
    [0xdc ... 0xdd] = FIX(ARRAY, 0),
    [0xde ... 0xdf] = FIX(MAP, 0),
    [0xe0 ... 0xff] = FIX(INT, 1),
};

enum ab_tk ab_cursor_peek(const struct ab_cursor *self)
{
    if (self->broken)
        return AB_TK_BROKEN;
    return self->at == self->end ? AB_TK_END : (enum ab_tk)firsts[*self->at].kind;
}

int ab_cursor_nil(struct ab_cursor *self)
{
    if (ab_cursor_peek(self) != AB_TK_NIL)
        return 0;
    self->at++;
    return 1;
}

int ab_cursor_bool(struct ab_cursor *self, bool *v)
{
    if (ab_cursor_peek(self) != AB_TK_BOOL)
        return broken(self);
    *v = *self->at++ == 0xc3;
    return 0;
}

int ab_cursor_int(struct ab_cursor *self, int64_t *v)
{
    if (ab_cursor_peek(self) != AB_TK_INT)
        return broken(self);
    uint8_t c = *self->at;
    if (c <= 0x7f || c >= 0xe0) {
        *v = c >= 0xe0 ? (int64_t)c - 256 : c;
        self->at++;
        return 0;
    }
    size_t n = (size_t)1 << ((c - 0xcc) & 3); /* cc..cf unsigned, d0..d3 signed: 1 2 4 8 bytes */
    if (left(self) < 1 + n)
        return broken(self);
    uint64_t u = big_endian(self->at + 1, n);
    if (c >= 0xd0) {
        int shift = (int)(64 - 8 * n);
        *v = (int64_t)(u << shift) >> shift; /* NOLINT: n is never 0 */
    } else if (u > INT64_MAX) {
        return broken(self);
    } else {
        *v = (int64_t)u;
    }
    self->at += 1 + n;
    return 0;
}

int ab_cursor_real(struct ab_cursor *self, double *v)
{
    if (ab_cursor_peek(self) == AB_TK_INT) {
        int64_t i;
        if (ab_cursor_int(self, &i) < 0)
            return -1;
        *v = (double)i;
        return 0;
    }
    if (ab_cursor_peek(self) != AB_TK_REAL)
        return broken(self);
    size_t n = *self->at == 0xca ? 4 : 8;
    if (left(self) < 1 + n)
        return broken(self);
    uint64_t u = big_endian(self->at + 1, n);
    if (n == 4) {
        uint32_t bits = (uint32_t)u;
        float f;
        memcpy(&f, &bits, sizeof(f));
        *v = f;
    } else {
        memcpy(v, &u, sizeof(*v));
    }
    self->at += 1 + n;
    return 0;
}

/* Take a header of `head` bytes in front of n bytes. */
static int take_bytes(struct ab_cursor *self, size_t head, uint64_t n, const void **v, size_t *len)
{
    if (left(self) < head || n > left(self) - head)
        return broken(self);
    *v = self->at + head;
    *len = (size_t)n;
    self->at += head + n;
    return 0;
}

/* The number of `width` bytes behind the first byte; 0 when it is not there (the caller's check of
 * the header's length then fails). */
static uint64_t count_behind(const struct ab_cursor *self, size_t width)
{
    return left(self) >= 1 + width ? big_endian(self->at + 1, width) : 0;
}

int ab_cursor_str(struct ab_cursor *self, const char **v, size_t *n)
{
    if (ab_cursor_peek(self) != AB_TK_STR)
        return broken(self);
    const void *p;
    uint8_t c = *self->at;
    size_t width = c <= 0xbf ? 0 : (size_t)1 << (c - 0xd9);
    uint64_t len = width == 0 ? c & 31 : count_behind(self, width);
    if (take_bytes(self, 1 + width, len, &p, n) < 0)
        return -1;
    *v = p;
    return 0;
}

int ab_cursor_bin(struct ab_cursor *self, const void **v, size_t *n)
{
    if (ab_cursor_peek(self) != AB_TK_BIN)
        return broken(self);
    size_t width = (size_t)1 << (*self->at - 0xc4);
    return take_bytes(self, 1 + width, count_behind(self, width), v, n);
}

int ab_cursor_ext(struct ab_cursor *self, int8_t *type, const void **v, size_t *n)
{
    if (ab_cursor_peek(self) != AB_TK_EXT)
        return broken(self);
    uint8_t c = *self->at;
    size_t width = c >= 0xd4 ? 0 : (size_t)1 << (c - 0xc7);
    uint64_t len = width == 0 ? (uint64_t)1 << (c - 0xd4) : count_behind(self, width);
    const uint8_t *head = self->at;
    if (take_bytes(self, 2 + width, len, v, n) < 0)
        return -1;
    *type = (int8_t)head[1 + width];
    return 0;
}

static int take_count(struct ab_cursor *self, uint8_t fix, uint8_t wide, uint32_t each, uint32_t *n)
{
    uint8_t c = *self->at;
    size_t width = (c & 0xf0) == fix ? 0 : c == wide ? 2 : 4;
    if (left(self) < 1 + width)
        return broken(self);
    uint64_t count = width == 0 ? c & 15 : big_endian(self->at + 1, width);
    /* every member takes a byte at least: what announces more is broken */
    if (count * each > left(self) - 1 - width)
        return broken(self);
    *n = (uint32_t)count;
    self->at += 1 + width;
    return 0;
}

int ab_cursor_array(struct ab_cursor *self, uint32_t *n)
{
    if (ab_cursor_peek(self) != AB_TK_ARRAY)
        return broken(self);
    return take_count(self, 0x90, 0xdc, 1, n);
}

int ab_cursor_map(struct ab_cursor *self, uint32_t *n)
{
    if (ab_cursor_peek(self) != AB_TK_MAP)
        return broken(self);
    return take_count(self, 0x80, 0xde, 2, n);
}

/* A value that is no container. */
static int skip_plain(struct ab_cursor *self, enum ab_tk kind)
{
    int8_t type;
    const char *s;
    const void *p;
    size_t len, size = firsts[*self->at].size;
    if (size > 0) {
        if (left(self) < size)
            return broken(self);
        self->at += size;
        return 0;
    }
    if (kind == AB_TK_STR)
        return ab_cursor_str(self, &s, &len);
    if (kind == AB_TK_BIN)
        return ab_cursor_bin(self, &p, &len);
    return kind == AB_TK_EXT ? ab_cursor_ext(self, &type, &p, &len) : broken(self);
}

int ab_cursor_skip(struct ab_cursor *self)
{
    uint64_t values[16]; /* still to come, at each depth */
    int depth = 0;
    uint64_t more = 1;
    for (;;) {
        while (more == 0) {
            if (depth == 0)
                return 0;
            more = values[--depth];
        }
        more--;
        enum ab_tk kind = ab_cursor_peek(self);
        uint32_t n;
        if (kind == AB_TK_MAP || kind == AB_TK_ARRAY) {
            if (depth == AB_COUNT(values))
                return broken(self);
            if ((kind == AB_TK_MAP ? ab_cursor_map(self, &n) : ab_cursor_array(self, &n)) < 0)
                return -1;
            values[depth++] = more;
            more = (uint64_t)n * (kind == AB_TK_MAP ? 2 : 1);
        } else if (kind == AB_TK_END || kind == AB_TK_BROKEN) {
            return broken(self);
        } else if (skip_plain(self, kind) < 0) {
            return -1;
        }
    }
}

int ab_cursor_find(struct ab_cursor map, const char *key, struct ab_cursor *value)
{
    uint32_t n;
    size_t key_len = strlen(key);
    if (ab_cursor_map(&map, &n) < 0)
        return -1;
    while (n-- > 0) {
        const char *name;
        size_t len;
        if (ab_cursor_str(&map, &name, &len) < 0)
            return -1;
        if (len == key_len && memcmp(name, key, len) == 0) {
            *value = map;
            return 0;
        }
        if (ab_cursor_skip(&map) < 0)
            return -1;
    }
    return -1;
}
