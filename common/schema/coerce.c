/* coerce.c - scalars the way the contract (1.2) takes them */
#include "coerce.h"

#include "base/clock.h"
#include "number.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NUMBER 4300 /* digits; Python's own limit */

static bool is_text(const struct ab_node *node)
{
    return node->type == AB_N_TEXT || node->type == AB_N_PLAIN;
}

/* The text without white space around it, as a string that ends with NUL; NULL when it has no use.
 */
static char *trimmed(const struct ab_node *node, ab_arena_t *arena, size_t limit)
{
    const char *s;
    size_t n;
    if (ab_scan_string(node, arena, &s, &n) < 0)
        return NULL;
    while (n > 0 && isspace((unsigned char)*s)) {
        s++;
        n--;
    }
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return n > 0 && n <= limit ? ab_strndup(arena, s, n) : NULL;
}

/* Python allows one '_' between two digits: take them out. */
static bool drop_underscores(char *text)
{
    char *to = text;
    for (char *p = text; *p; p++) {
        if (*p != '_') {
            *to++ = *p;
        } else if (p == text || !isdigit((unsigned char)p[-1]) || !isdigit((unsigned char)p[1])) {
            return false;
        }
    }
    *to = '\0';
    return true;
}

static enum ab_coerced int_of_digits(const char *s, size_t n, int64_t *v)
{
    size_t i = n > 0 && (*s == '-' || *s == '+') ? 1 : 0;
    bool negative = n > 0 && *s == '-', over = false;
    if (i == n)
        return AB_CO_TYPE;
    int64_t total = 0; /* counts downwards: INT64_MIN has no positive twin */
    for (; i < n; i++) {
        if (!isdigit((unsigned char)s[i]))
            return AB_CO_TYPE;
        over = over || __builtin_mul_overflow(total, 10, &total)
               || __builtin_sub_overflow(total, s[i] - '0', &total);
    }
    if (over || (!negative && total == INT64_MIN))
        return negative ? AB_CO_BELOW : AB_CO_ABOVE;
    *v = negative ? total : -total;
    return AB_CO_OK;
}

static enum ab_coerced int_of_real(double f, int64_t *v)
{
    if (isnan(f))
        return AB_CO_TYPE;
    if (f >= 0x1p63)
        return AB_CO_ABOVE;
    if (f < -0x1p63)
        return AB_CO_BELOW;
    *v = (int64_t)f;
    return AB_CO_OK;
}

static double real_of_json(const struct ab_node *node, ab_arena_t *arena)
{
    char small[64];
    if (node->raw_len < sizeof(small)) {
        memcpy(small, node->raw, node->raw_len);
        small[node->raw_len] = '\0';
        return strtod(small, NULL);
    }
    return strtod(ab_strndup(arena, node->raw, node->raw_len), NULL);
}

enum ab_coerced ab_to_int(const struct ab_node *node, ab_arena_t *arena, int64_t *v)
{
    char *text;
    switch (node->type) {
    case AB_N_INT:
        return int_of_digits(node->raw, node->raw_len, v);
    case AB_N_REAL:
        return int_of_real(real_of_json(node, arena), v);
    case AB_N_TRUE:
    case AB_N_FALSE:
        *v = node->type == AB_N_TRUE;
        return AB_CO_OK;
    case AB_N_PLAIN:
    case AB_N_TEXT:
        if (node->raw_len < 19 && int_of_digits(node->raw, node->raw_len, v) == AB_CO_OK)
            return AB_CO_OK; /* the ids of a query, by the thousand */
        text = trimmed(node, arena, LONGEST_NUMBER);
        if (!text || !drop_underscores(text))
            return AB_CO_TYPE;
        return int_of_digits(text, strlen(text), v);
    default:
        return AB_CO_TYPE;
    }
}

/* The words and forms of Python's float(); hexadecimal is not one of them. */
static enum ab_coerced real_of_text(const struct ab_node *node, ab_arena_t *arena, double *v)
{
    char *text = trimmed(node, arena, LONGEST_NUMBER), *end;
    if (!text || !drop_underscores(text) || strpbrk(text, "xXpP()"))
        return AB_CO_TYPE;
    *v = strtod(text, &end);
    return *end == '\0' && end != text ? AB_CO_OK : AB_CO_TYPE;
}

enum ab_coerced ab_to_real(const struct ab_node *node, ab_arena_t *arena, double *v)
{
    enum ab_coerced rc = AB_CO_OK;
    switch (node->type) {
    case AB_N_INT:
    case AB_N_REAL:
        *v = real_of_json(node, arena);
        break;
    case AB_N_TRUE:
    case AB_N_FALSE:
        *v = node->type == AB_N_TRUE;
        break;
    case AB_N_TEXT:
    case AB_N_PLAIN:
        rc = real_of_text(node, arena, v);
        break;
    default:
        return AB_CO_TYPE;
    }
    /* NaN and infinity pass in Python, but no column and no JSON can hold them */
    return rc == AB_CO_OK && !isfinite(*v) ? AB_CO_TYPE : rc;
}

enum ab_coerced ab_to_bool(const struct ab_node *node, ab_arena_t *arena, bool *v)
{
    static const char *const yes[] = {"1", "on", "t", "true", "y", "yes"};
    static const char *const no[] = {"0", "off", "f", "false", "n", "no"};
    const char *s;
    size_t n;
    double f;
    switch (node->type) {
    case AB_N_TRUE:
    case AB_N_FALSE:
        *v = node->type == AB_N_TRUE;
        return AB_CO_OK;
    case AB_N_INT:
    case AB_N_REAL:
        f = real_of_json(node, arena);
        *v = f != 0;
        return f == 0 || f == 1 ? AB_CO_OK : AB_CO_TYPE;
    case AB_N_TEXT:
    case AB_N_PLAIN:
        if (ab_scan_string(node, arena, &s, &n) < 0)
            return AB_CO_TYPE;
        for (size_t i = 0; i < 6; i++) {
            *v = strlen(yes[i]) == n && strncasecmp(yes[i], s, n) == 0;
            if (*v || (strlen(no[i]) == n && strncasecmp(no[i], s, n) == 0))
                return AB_CO_OK;
        }
        return AB_CO_TYPE;
    default:
        return AB_CO_TYPE;
    }
}

enum ab_coerced ab_to_time(const struct ab_node *node, ab_arena_t *arena, int64_t *utc_us)
{
    const char *s;
    size_t n;
    switch (node->type) {
    case AB_N_INT:
    case AB_N_REAL:
        return ab_time_from_number(real_of_json(node, arena), utc_us) < 0 ? AB_CO_TYPE : AB_CO_OK;
    case AB_N_TRUE:
    case AB_N_FALSE:
        return ab_time_from_number(node->type == AB_N_TRUE, utc_us) < 0 ? AB_CO_TYPE : AB_CO_OK;
    case AB_N_TEXT:
    case AB_N_PLAIN:
        if (ab_scan_string(node, arena, &s, &n) < 0 || ab_time_parse(s, n, utc_us) < 0)
            return AB_CO_TYPE;
        return AB_CO_OK;
    default:
        return AB_CO_TYPE;
    }
}

static enum ab_coerced text_of_int(const struct ab_node *node, const char **s, size_t *n)
{
    *s = node->raw;
    *n = node->raw_len;
    if (*n == 2 && memcmp(*s, "-0", 2) == 0)
        *s = "0", *n = 1;
    return *n > LONGEST_NUMBER ? AB_CO_TYPE : AB_CO_OK;
}

enum ab_coerced ab_to_text(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n)
{
    char *text;
    switch (node->type) {
    case AB_N_TEXT:
    case AB_N_PLAIN:
        return ab_scan_string(node, arena, s, n) < 0 ? AB_CO_BYTES : AB_CO_OK;
    case AB_N_INT:
        return text_of_int(node, s, n);
    case AB_N_REAL:
        text = ab_alloc(arena, AB_NUMBER_TEXT, 1);
        *n = ab_number_text(real_of_json(node, arena), text);
        *s = text;
        return AB_CO_OK;
    case AB_N_TRUE:
        *s = "True", *n = 4;
        return AB_CO_OK;
    case AB_N_FALSE:
        *s = "False", *n = 5;
        return AB_CO_OK;
    default:
        return AB_CO_TYPE;
    }
}

enum ab_coerced ab_to_path(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n)
{
    const char *in;
    size_t len;
    if (!is_text(node))
        return AB_CO_TYPE;
    if (ab_scan_string(node, arena, &in, &len) < 0)
        return AB_CO_BYTES;
    const char *p = in, *end = in + len;
    char *out = ab_alloc(arena, len + 2, 1), *to = out;
    if (p < end && *p == '/')
        *to++ = '/';
    while (p < end) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        size_t part = (size_t)((slash ? slash : end) - p);
        if (part > 0 && !(part == 1 && *p == '.')) {
            if (to > out && to[-1] != '/')
                *to++ = '/';
            memcpy(to, p, part);
            to += part;
        }
        p += part + 1;
    }
    if (to == out)
        *to++ = '.';
    *s = out;
    *n = (size_t)(to - out);
    return AB_CO_OK;
}

/* 32 digits, with hyphens anywhere between them. */
static bool uuid_digits(const char *s, size_t n, char hex[32])
{
    size_t digits = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '-')
            continue;
        if (digits == 32 || !isxdigit((unsigned char)s[i]))
            return false;
        hex[digits++] = (char)tolower((unsigned char)s[i]);
    }
    return digits == 32;
}

enum ab_coerced ab_to_uuid(const struct ab_node *node, ab_arena_t *arena, char text[37])
{
    const char *s;
    size_t n;
    char hex[32];
    if (!is_text(node) || ab_scan_string(node, arena, &s, &n) < 0)
        return AB_CO_TYPE;
    if (n >= 4 && strncasecmp(s, "urn:", 4) == 0)
        s += 4, n -= 4;
    if (n >= 5 && strncasecmp(s, "uuid:", 5) == 0)
        s += 5, n -= 5;
    if (n >= 2 && *s == '{' && s[n - 1] == '}')
        s++, n -= 2;
    if (!uuid_digits(s, n, hex))
        return AB_CO_TYPE;
    for (size_t i = 0, to = 0; i < sizeof(hex); i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            text[to++] = '-';
        text[to++] = hex[i];
    }
    text[36] = '\0';
    return AB_CO_OK;
}

/* ------------------------------------------------------------------ URLs */

static bool scheme_ok(const char *s, size_t n)
{
    if (n < 2 || *s < 'a' || *s > 'z')
        return false;
    for (size_t i = 1; i < n; i++)
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && !strchr("+-.", s[i]))
            return false;
    return true;
}

/* Labels of letters, digits, '_' and inner '-', or an address in brackets. */
static bool host_ok(const char *s, size_t n)
{
    if (n > 2 && *s == '[' && s[n - 1] == ']') {
        for (size_t i = 1; i < n - 1; i++)
            if (!isxdigit((unsigned char)s[i]) && s[i] != ':' && s[i] != '.')
                return false;
        return true;
    }
    if (n > 1 && s[n - 1] == '.')
        n--;
    size_t label = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i == n || s[i] == '.') {
            if (label == 0 || label > 63 || s[i - 1] == '-')
                return false;
            label = 0;
            continue;
        }
        unsigned char c = (unsigned char)s[i];
        if (!isalnum(c) && c != '_' && c < 0x80 && !(c == '-' && label > 0))
            return false;
        label++;
    }
    return n > 0;
}

static bool port_ok(const char *s, size_t n)
{
    int64_t port;
    return n == 0
           || (n <= 5 && int_of_digits(s, n, &port) == AB_CO_OK && *s != '-' && *s != '+'
               && port <= 65535);
}

enum ab_coerced ab_to_url(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n)
{
    enum ab_coerced rc = ab_to_text(node, arena, s, n);
    if (rc != AB_CO_OK)
        return rc;
    while (*n > 0 && isspace((unsigned char)**s))
        ++*s, --*n;
    while (*n > 0 && isspace((unsigned char)(*s)[*n - 1]))
        --*n;
    if (*n == 0)
        return AB_CO_EMPTY;
    const char *mark = memmem(*s, *n, "://", 3);
    if (!mark || !scheme_ok(*s, (size_t)(mark - *s)))
        return AB_CO_SCHEME;
    const char *host = mark + 3, *end = *s + *n, *stop = host;
    while (stop < end && *stop != '/' && *stop != '?' && *stop != '#')
        stop++;
    for (const char *p = *s; p < end; p++)
        if (isspace((unsigned char)*p) || iscntrl((unsigned char)*p))
            return AB_CO_HOST;
    const char *at = memrchr(host, '@', (size_t)(stop - host));
    if (at)
        host = at + 1;
    const char *colon = memrchr(host, ':', (size_t)(stop - host));
    if (colon && memchr(colon, ']', (size_t)(stop - colon)))
        colon = NULL; /* inside brackets */
    if (!host_ok(host, (size_t)((colon ? colon : stop) - host)))
        return AB_CO_HOST;
    if (colon && !port_ok(colon + 1, (size_t)(stop - colon - 1)))
        return AB_CO_PORT;
    return AB_CO_OK;
}

/* ------------------------------------------------------------------ characters */

size_t ab_characters(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

/* Ranges above ASCII where no letters or digits are: the rest may stand in an identifier. A table
 * of all of Unicode would be exact; names of applications do not need one. */
static bool is_letter(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } other[] = {
        {0x80, 0xA9},       {0xAB, 0xB4},        {0xB6, 0xB9},     {0xBB, 0xBF},
        {0xD7, 0xD7},       {0xF7, 0xF7},        {0x2000, 0x203E}, {0x2041, 0x2053},
        {0x2055, 0x2070},   {0x20A0, 0x20CF},    {0x2190, 0x2BFF}, {0x2E00, 0x2FFF},
        {0x3000, 0x3004},   {0x3008, 0x3020},    {0xD800, 0xF8FF}, {0xFE10, 0xFE1F},
        {0xFE30, 0xFE32},   {0xFE50, 0xFE6F},    {0xFF00, 0xFF0F}, {0xFFE0, 0xFFFF},
        {0x1F000, 0x1FAFF}, {0xE0000, 0x10FFFF},
    };
    for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
        if (c >= other[i].from && c <= other[i].to)
            return false;
    return true;
}

bool ab_is_identifier(const char *s, size_t n)
{
    if (n == 0 || isdigit((unsigned char)*s))
        return false;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x80) {
            if (!isalnum(c) && c != '_')
                return false;
            i++;
            continue;
        }
        size_t more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        uint32_t point = c & (0x3F >> more);
        for (size_t k = 1; k <= more && i + k < n; k++)
            point = point << 6 | ((unsigned char)s[i + k] & 63);
        if (!is_letter(point))
            return false;
        i += more + 1;
    }
    return true;
}
