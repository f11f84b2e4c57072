/* str.c - small things that libc lacks */
#include "str.h"

#include <string.h>

/* Bytes of the well-formed character at p, 0 if there is none. `left` is at least 1. */
static size_t character(const unsigned char *p, size_t left)
{
    if (*p < 0x80)
        return 1;
    size_t n = *p >= 0xC2 && *p <= 0xDF   ? 2
               : (*p & 0xF0) == 0xE0      ? 3
               : *p >= 0xF0 && *p <= 0xF4 ? 4
                                          : 0;
    if (n == 0 || left < n)
        return 0;
    /* the second byte rules out overlong forms, surrogates and what is above U+10FFFF */
    unsigned char low = *p == 0xE0 ? 0xA0 : *p == 0xF0 ? 0x90 : 0x80;
    unsigned char high = *p == 0xED ? 0x9F : *p == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

bool ab_utf8_ok(const void *bytes, size_t len)
{
    const unsigned char *p = bytes, *end = p + len;
    while (p < end) {
        uint64_t eight; /* nearly all that comes is ASCII */
        if (end - p >= 8 && !(memcpy(&eight, p, 8), eight & UINT64_C(0x8080808080808080))) {
            p += 8;
            continue;
        }
        size_t n = character(p, (size_t)(end - p));
        if (n == 0)
            return false;
        p += n;
    }
    return true;
}

bool ab_str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool ab_str_ends(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

int ab_parse_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *out)
{
    size_t i = 0;
    bool negative = false;
    if (len > 0 && (text[0] == '-' || text[0] == '+')) {
        negative = text[0] == '-';
        i = 1;
    }
    if (i == len)
        return -1;
    int64_t n = 0; /* counts downwards: INT64_MIN has no positive twin */
    for (; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(n, 10, &n)
            || __builtin_sub_overflow(n, text[i] - '0', &n))
            return -1;
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, n, &n))
        return -1;
    if (n < min || n > max)
        return -1;
    *out = n;
    return 0;
}

struct unit {
    const char *name;
    int64_t factor;
};

/* ".25" as a part of `whole`; 0 if there is none. *p moves behind it. */
static int fraction(const char **p, int64_t whole, int64_t *out)
{
    int64_t part = whole;
    const char *digit = *p + 1;
    *out = 0;
    if (**p != '.')
        return 0;
    size_t n = strspn(digit, "0123456789");
    if (n == 0 || n > 6)
        return -1;
    for (*p = digit + n; n > 0; n--, digit++) {
        part /= 10;
        *out += part * (*digit - '0');
    }
    return 0;
}

/* Digits (and a fraction), then one of the units; a lone 0 needs none. */
static int with_unit(const char *text, const struct unit *units, int64_t *out)
{
    size_t digits = strspn(text, "0123456789");
    int64_t n, part;
    if (digits == 0 || ab_parse_i64(text, digits, 0, INT64_MAX, &n) < 0)
        return -1;
    if (n == 0 && !text[digits]) {
        *out = 0;
        return 0;
    }
    for (; units->name; units++) {
        const char *rest = text + digits;
        if (fraction(&rest, units->factor, &part) < 0)
            return -1;
        if (strcmp(rest, units->name) == 0)
            return __builtin_mul_overflow(n, units->factor, out)
                           || __builtin_add_overflow(*out, part, out)
                       ? -1
                       : 0;
    }
    return -1;
}

int ab_parse_duration(const char *text, int64_t *ms)
{
    static const struct unit units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                        {"h", 3600000}, {"d", 86400000}, {0}};
    return with_unit(text, units, ms);
}

int ab_parse_size(const char *text, int64_t *bytes)
{
    static const struct unit units[] = {{"", 1},
                                        {"B", 1},
                                        {"kB", 1000},
                                        {"MB", 1000000},
                                        {"GB", 1000000000},
                                        {"KiB", 1 << 10},
                                        {"kiB", 1 << 10},
                                        {"MiB", 1 << 20},
                                        {"GiB", 1 << 30},
                                        {"TiB", 1LL << 40},
                                        {0}};
    return with_unit(text, units, bytes);
}

#define WORD_MAX 64

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Insertions, deletions, changes, and two neighbours exchanged. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), rows[3][WORD_MAX + 1];
    size_t *older = rows[0], *old = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++)
        now[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *free_row = older;
        older = old;
        old = now;
        now = free_row;
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = smallest(old[j] + 1, now[j - 1] + 1, old[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]
                && older[j - 2] + 1 < now[j])
                now[j] = older[j - 2] + 1;
        }
    }
    return now[m];
}

const char *ab_str_nearest(const char *word, const char *const *names, size_t n)
{
    size_t len = strlen(word);
    if (len == 0 || len > WORD_MAX)
        return NULL;
    const char *best = NULL;
    size_t best_distance = len < 4 ? 2 : len / 3 + 2; /* this far is not near any more */
    for (size_t i = 0; i < n; i++) {
        if (!names[i] || strlen(names[i]) > WORD_MAX)
            continue;
        size_t d = edit_distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    for (size_t i = 0; i < n && !best && len >= 4; i++)
        if (names[i] && strstr(names[i], word))
            best = names[i];
    return best;
}

bool ab_path_stays_below(const char *path)
{
    if (!path || !*path || *path == '/')
        return false;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += n;
        while (*p == '/')
            p++;
    }
    return true;
}
