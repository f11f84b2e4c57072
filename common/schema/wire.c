/* wire.c - is this frame well formed and no larger than it claims?
 *
 * Runs before anything else looks at a frame: the library allocates as many elements as a header
 * announces, and a dozen bytes can announce a hundred gigabytes.
 */
#include "pack.h"

#include "base/str.h"
#include <stdlib.h>
#include <string.h>

#define DEEPEST 16
#define MAP_MAX                                                                                    \
    4096 /* members of one map: the largest message of ours has 64, a MAP field 1000               \
          */
#define FEW 64

struct key {
    const char *s;
    size_t len;
};

static int by_text(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->s, y->s, x->len);
}

/* Few keys are compared with those that share a bit of a small filter, many are sorted. */
static bool keys_unique(struct key *keys, uint32_t n)
{
    if (n > FEW) {
        qsort(keys, n, sizeof(*keys), by_text);
        for (uint32_t i = 1; i < n; i++)
            if (by_text(&keys[i - 1], &keys[i]) == 0)
                return false;
        return true;
    }
    uint64_t seen[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint8_t hash = (uint8_t)(keys[i].len * 29);
        if (keys[i].len > 0)
            hash =
                (uint8_t)(hash + (uint8_t)keys[i].s[0] * 7 + (uint8_t)keys[i].s[keys[i].len - 1] * 3
                          + (uint8_t)keys[i].s[keys[i].len / 2]);
        uint64_t bit = UINT64_C(1) << (hash & 63), *word = &seen[hash >> 6];
        if (*word & bit)
            for (uint32_t k = 0; k < i; k++)
                if (by_text(&keys[k], &keys[i]) == 0)
                    return false;
        *word |= bit;
    }
    return true;
}

static bool value_ok(struct ab_cursor *at, int depth);

static bool map_ok(struct ab_cursor *at, int depth)
{
    uint32_t n;
    struct key few[FEW], *keys = few;
    if (ab_cursor_map(at, &n) < 0 || n > MAP_MAX)
        return false;
    if (n > FEW && !(keys = malloc(n * sizeof(*keys))))
        return false;
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = ab_cursor_str(at, &keys[i].s, &keys[i].len) == 0 && ab_utf8_ok(keys[i].s, keys[i].len)
             && value_ok(at, depth);
    ok = ok && keys_unique(keys, n);
    if (keys != few)
        free(keys);
    return ok;
}

static bool array_ok(struct ab_cursor *at, int depth)
{
    uint32_t n;
    if (ab_cursor_array(at, &n) < 0)
        return false;
    while (n-- > 0)
        if (!value_ok(at, depth))
            return false;
    return true;
}

/* 1: JSON text; 2 and 3: eight bytes of time. */
static bool ext_ok(struct ab_cursor *at)
{
    int8_t type;
    const void *p;
    size_t n;
    if (ab_cursor_ext(at, &type, &p, &n) < 0)
        return false;
    return type == 1 ? n > 0 && ab_utf8_ok(p, n) && !memchr(p, '\0', n)
                     : (type == 2 || type == 3) && n == 8;
}

static bool value_ok(struct ab_cursor *at, int depth)
{
    const char *s;
    size_t n;
    switch (ab_cursor_peek(at)) {
    case AB_TK_MAP:
        return depth > 0 && map_ok(at, depth - 1);
    case AB_TK_ARRAY:
        return depth > 0 && array_ok(at, depth - 1);
    case AB_TK_STR:
        return ab_cursor_str(at, &s, &n) == 0 && ab_utf8_ok(s, n);
    case AB_TK_EXT:
        return ext_ok(at);
    default:
        return ab_cursor_skip(at) == 0;
    }
}

bool ab_wire_ok(const void *bytes, size_t len)
{
    struct ab_cursor at = ab_cursor(bytes, len);
    return len > 0 && value_ok(&at, DEEPEST) && at.at == at.end;
}
