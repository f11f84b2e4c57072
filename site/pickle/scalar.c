/* scalar.c - numbers and texts of a pickle */
#include "base/str.h"
#include "machine.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMB 1000000000U
#define LIMB_DIGITS 9
#define LONG_BYTES 1786 /* 10^4300 - 1 and its sign */
#define LIMBS ((LONG_BYTES + 3) / 4)
#define DIGIT_LIMBS ((LONG_BYTES * 5 / 2) / LIMB_DIGITS + 2) /* a byte is fewer than 2.5 digits */

static int too_long(struct ab_error *err)
{
    return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                        "an int has more than %d digits; send it as a file", AB_PICKLE_DIGITS);
}

static int push_int(struct machine *self, int64_t number, struct ab_error *err)
{
    return machine_push_value(self, &(struct ab_value){.type = AB_V_INT, .i = number}, err);
}

static int push_text(struct machine *self, const char *text, size_t len, struct ab_error *err)
{
    return machine_push_value(
        self,
        &(struct ab_value){.type = AB_V_TEXT, .s = ab_strndup(self->arena, text, len), .len = len},
        err);
}

/* ------------------------------------------------------------------ whole numbers */

int scalar_decimal(struct machine *self, const char *text, size_t len, struct ab_error *err)
{
    bool minus = len > 0 && *text == '-';
    const char *digits = text + (len > 0 && (minus || *text == '+'));
    size_t n = len - (size_t)(digits - text);
    int64_t number;

    if (n == 0)
        return machine_broken(self, "a whole number without digits", err);
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)digits[i]))
            return machine_broken(self, "a whole number with something else in it", err);
    for (; n > 1 && *digits == '0'; n--)
        digits++;
    if (n > AB_PICKLE_DIGITS)
        return too_long(err);
    char *plain = ab_alloc(self->scratch, n + 2, 1);
    plain[0] = '-';
    memcpy(plain + 1, digits, n);
    const char *from = minus ? plain : plain + 1;
    size_t m = n + minus;
    if (ab_parse_i64(from, m, INT64_MIN, INT64_MAX, &number) == 0)
        return push_int(self, number, err);
    return push_text(self, from, m, err);
}

/* Two's complement, least byte first, into 32-bit limbs without sign. */
static size_t magnitude(const uint8_t *bytes, size_t len, bool minus, uint32_t limbs[LIMBS])
{
    unsigned carry = minus;

    memset(limbs, 0, LIMBS * sizeof(*limbs));
    for (size_t i = 0; i < len; i++) {
        unsigned byte = minus ? (uint8_t)~bytes[i] + carry : bytes[i];
        carry = minus ? byte >> 8 : 0;
        limbs[i / 4] |= (byte & 0xff) << i % 4 * 8;
    }
    return (len + 3) / 4;
}

static size_t digits_of(uint32_t *limbs, size_t n, bool minus, char *out)
{
    uint32_t groups[DIGIT_LIMBS];
    size_t m = 0, at = 0;

    while (n > 0) {
        uint64_t rest = 0;
        for (size_t i = n; i > 0; i--) {
            rest = rest << 32 | limbs[i - 1];
            limbs[i - 1] = (uint32_t)(rest / LIMB);
            rest %= LIMB;
        }
        groups[m++] = (uint32_t)rest;
        while (n > 0 && limbs[n - 1] == 0)
            n--;
    }
    if (minus)
        out[at++] = '-';
    for (size_t i = m; i > 0; i--) {
        uint32_t group = groups[i - 1];
        for (size_t d = LIMB_DIGITS; d > 0; d--, group /= 10)
            out[at + d - 1] = (char)('0' + group % 10);
        at += LIMB_DIGITS;
    }
    return at;
}

int scalar_long(struct machine *self, const uint8_t *bytes, size_t len, struct ab_error *err)
{
    bool minus = len > 0 && bytes[len - 1] & 0x80;
    uint32_t limbs[LIMBS];
    char digits[1 + DIGIT_LIMBS * LIMB_DIGITS];

    while (len > 1 && bytes[len - 1] == (minus ? 0xff : 0) && !(bytes[len - 2] & 0x80) == !minus)
        len--; /* says no more than the sign that the next byte has, too */
    if (len > LONG_BYTES)
        return too_long(err);
    if (len > sizeof(int64_t)) {
        size_t n = magnitude(bytes, len, minus, limbs);
        return scalar_decimal(self, digits, digits_of(limbs, n, minus, digits), err);
    }
    uint64_t number = minus ? UINT64_MAX : 0;
    for (size_t i = len; i > 0; i--)
        number = number << 8 | bytes[i - 1];
    return push_int(self, (int64_t)number, err);
}

/* ------------------------------------------------------------------ real numbers */

int scalar_real(struct machine *self, double value, struct ab_error *err)
{
    if (!isfinite(value))
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "a float that is infinite or not a number; send it as text");
    return machine_push_value(self, &(struct ab_value){.type = AB_V_REAL, .f = value}, err);
}

int scalar_real_text(struct machine *self, const char *text, size_t len, struct ab_error *err)
{
    char copy[64], *end;

    if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len) || isspace((unsigned char)*text))
        return machine_broken(self, "a float that is none", err);
    memcpy(copy, text, len);
    copy[len] = '\0';
    double value = strtod(copy, &end);
    if (*end || strpbrk(copy, "xXpP"))
        return machine_broken(self, "a float that is none", err);
    return scalar_real(self, value, err);
}

/* ------------------------------------------------------------------ texts */

int scalar_text(struct machine *self, const void *bytes, size_t len, struct ab_error *err)
{
    if (!ab_utf8_ok(bytes, len))
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "a str at byte %zu is not UTF-8 (half a surrogate pair?)", self->op_at);
    if (memchr(bytes, '\0', len))
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "a str at byte %zu has NUL in it",
                            self->op_at);
    return push_text(self, bytes, len, err);
}

static size_t put_utf8(uint32_t c, uint8_t *out)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(lead[n] | c);
    return n;
}

/* The digits of \u and \U; the number of characters read, 0 if they are wrong. */
static size_t escape(const char *text, size_t len, uint32_t *out)
{
    size_t n = *text == 'u' ? 4 : 8;

    *out = 0;
    if (len <= n)
        return 0;
    for (size_t i = 1; i <= n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (!isxdigit(c))
            return 0;
        *out = *out << 4 | (uint32_t)(isdigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return *out <= 0x10ffff ? n + 1 : 0;
}

int scalar_raw_text(struct machine *self, const char *text, size_t len, struct ab_error *err)
{
    uint8_t *out = ab_alloc(self->scratch, 2 * len + 1, 1); /* Latin-1 takes two bytes at most */
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        uint32_t c = (unsigned char)text[i++];
        if (c == '\\' && i < len && (text[i] == 'u' || text[i] == 'U')) {
            size_t used = escape(text + i, len - i, &c);
            if (!used)
                return machine_broken(self, "an escape in a str that is none", err);
            i += used;
        } else if (c == '\\' && i < len) { /* a pair stands for itself, whatever follows it */
            out[n++] = '\\';
            c = (unsigned char)text[i++];
        }
        n += put_utf8(c, out + n);
    }
    return scalar_text(self, out, n, err);
}
