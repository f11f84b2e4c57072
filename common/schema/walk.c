/* walk.c - msgpack to JSON in pieces: no tree, and a reader of any speed */
#include "pack.h"

#include "base/clock.h"
#include "base/str.h"
#include "number.h"
#include <math.h>
#include <string.h>

enum {
    ARRAY,
    MAP
};

/* The longest thing that is never cut: a comma, a time or a number; a colon. */
#define TOKEN_ROOM 64

void ab_walk_start(struct ab_walk *self, const void *bytes, size_t len)
{
    *self = (struct ab_walk){.at = bytes, .end = (const uint8_t *)bytes + len, .depth = -1};
}

/* Where the first byte is that cannot be written as it is, or `stop`; eight at a time (the bit tricks
 * are the known ones for "has a byte less than n" and "has a zero byte"). */
static const uint8_t *plain_run(const uint8_t *p, const uint8_t *stop)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    for (uint64_t x; stop - p >= 8; p += 8) {
        memcpy(&x, p, 8);
        uint64_t quote = x ^ ones * '"', slash = x ^ ones * '\\';
        if (((x - ones * 0x20) & ~x & tops) | ((quote - ones) & ~quote & tops)
            | ((slash - ones) & ~slash & tops))
            break;
    }
    while (p < stop && *p >= 0x20 && *p != '"' && *p != '\\')
        p++;
    return p;
}

/* As much of the string as fits; its closing quote with the last byte. True when it is done. */
static bool put_text(struct ab_walk *self, char **out, char *out_end)
{
    static const char hex[] = "0123456789abcdef";
    static const char letter[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', [31] = 0};
    char *o = *out;
    const uint8_t *p = self->text, *end = p + self->text_left;
    if (self->text_json) {
        size_t n = self->text_left;
        if (n > (size_t)(out_end - o))
            n = (size_t)(out_end - o);
        memcpy(o, p, n);
        o += n;
        p += n;
    } else {
        while (p < end && out_end - o >= 8) {
            const uint8_t *stop = end - p > out_end - o - 7 ? p + (out_end - o - 7) : end;
            const uint8_t *run = plain_run(p, stop);
            memcpy(o, p, (size_t)(run - p));
            o += run - p;
            p = run;
            if (run == stop)
                continue;
            uint8_t c = *p++;
            *o++ = '\\';
            if (c >= 0x20) {
                *o++ = (char)c;
            } else if (letter[c]) {
                *o++ = letter[c];
            } else {
                memcpy(o, "u00", 3);
                o[3] = hex[c >> 4];
                o[4] = hex[c & 15];
                o += 5;
            }
        }
        if (p == end)
            *o++ = '"'; /* there is room: the loop leaves eight bytes or has not begun */
    }
    self->text_left = (size_t)(end - p);
    self->text = self->text_left ? p : NULL;
    *out = o;
    return self->text_left == 0;
}

static int start_text(struct ab_walk *self, struct ab_cursor *at, char **out)
{
    const char *s;
    if (ab_cursor_str(at, &s, &self->text_left) < 0 || !ab_utf8_ok(s, self->text_left))
        return -1;
    *(*out)++ = '"';
    self->text = (const uint8_t *)s;
    self->text_json = false;
    return 0;
}

static int start_ext(struct ab_walk *self, struct ab_cursor *at, char **out)
{
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0)
        return -1;
    if (type == 1 && n > 0) {
        self->text = p;
        self->text_left = n;
        self->text_json = true;
        return 0;
    }
    if ((type != 2 && type != 3) || n != 8)
        return -1;
    uint64_t us = 0;
    for (size_t i = 0; i < 8; i++)
        us = us << 8 | ((const uint8_t *)p)[i];
    *(*out)++ = '"';
    *out += ab_time_format((int64_t)us, type == 3, *out);
    *(*out)++ = '"';
    return 0;
}

static void put_digits(char **out, uint64_t u)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    while (n > 0)
        *(*out)++ = digits[--n];
}

static int put_int(struct ab_cursor *at, char **out)
{
    if (*at->at == 0xcf && at->end - at->at >= 9) { /* may be above INT64_MAX */
        uint64_t u = 0;
        for (int i = 1; i <= 8; i++)
            u = u << 8 | at->at[i];
        at->at += 9;
        put_digits(out, u);
        return 0;
    }
    int64_t v;
    if (ab_cursor_int(at, &v) < 0)
        return -1;
    if (v < 0)
        *(*out)++ = '-';
    put_digits(out, v < 0 ? -(uint64_t)v : (uint64_t)v);
    return 0;
}

static int put_real(struct ab_cursor *at, char **out)
{
    double v;
    if (ab_cursor_real(at, &v) < 0)
        return -1;
    if (isfinite(v)) {
        *out += ab_number_text(v, *out);
    } else {
        memcpy(*out, "null", 4);
        *out += 4;
    }
    return 0;
}

static int put_word(struct ab_cursor *at, char **out)
{
    const char *word = *at->at == 0xc0 ? "null" : *at->at == 0xc3 ? "true" : "false";
    size_t n = strlen(word);
    memcpy(*out, word, n);
    *out += n;
    at->at++;
    return 0;
}

static int start_container(struct ab_walk *self, struct ab_cursor *at, char **out, uint8_t kind)
{
    uint32_t n;
    if ((kind == MAP ? ab_cursor_map(at, &n) : ab_cursor_array(at, &n)) < 0)
        return -1;
    if (self->depth + 1 == (int)(sizeof(self->level) / sizeof(*self->level)))
        return -1;
    *(*out)++ = kind == MAP ? '{' : '[';
    self->level[++self->depth] = (struct ab_walk_level){kind, n, 0};
    return 0;
}

static int put_value(struct ab_walk *self, struct ab_cursor *at, char **out)
{
    switch (ab_cursor_peek(at)) {
    case AB_TK_NIL:
    case AB_TK_BOOL:
        return put_word(at, out);
    case AB_TK_INT:
        return put_int(at, out);
    case AB_TK_REAL:
        return put_real(at, out);
    case AB_TK_STR:
        return start_text(self, at, out);
    case AB_TK_EXT:
        return start_ext(self, at, out);
    case AB_TK_ARRAY:
        return start_container(self, at, out, ARRAY);
    case AB_TK_MAP:
        return start_container(self, at, out, MAP);
    default:
        return -1;
    }
}

/* What stands between values: closing brackets of what is complete, a comma, the colon. 1: all
 * done. */
static int put_between(struct ab_walk *self, char **out, bool *key)
{
    *key = false;
    struct ab_walk_level *top = &self->level[self->depth];
    if (top->kind == MAP && (top->done & 1)) { /* a key was written */
        *(*out)++ = ':';
        top->done++;
        top->left--;
        return 0;
    }
    if (top->left == 0) {
        *(*out)++ = top->kind == MAP ? '}' : ']';
        self->depth--;
        return 1;
    }
    if (top->done > 0)
        *(*out)++ = ',';
    *key = top->kind == MAP;
    if (top->kind == MAP) {
        top->done |= 1;
    } else {
        top->done = 1;
        top->left--;
    }
    return 0;
}

int ab_walk_json(struct ab_walk *self, char **out, char *out_end)
{
    struct ab_cursor at = {self->at, self->end, false};
    bool first = !self->begun;
    self->begun = true;
    if (first && at.at == at.end) {
        memcpy(*out, "null", 4);
        *out += 4;
        return 1;
    }
    for (;;) {
        if (self->text && !put_text(self, out, out_end))
            break;
        if (self->depth < 0 && !first) {
            self->at = at.at;
            return at.at == at.end ? 1 : -1;
        }
        if (out_end - *out < TOKEN_ROOM)
            break;
        bool key = false;
        if (!first && put_between(self, out, &key) == 1)
            continue;
        first = false;
        if (key && ab_cursor_peek(&at) != AB_TK_STR)
            return -1;
        if (put_value(self, &at, out) < 0)
            return -1;
    }
    self->at = at.at;
    return 0;
}
