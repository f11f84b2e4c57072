/* rand.c - random bytes and ids */
#include "rand.h"

#include "clock.h"
#include "log.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

void ab_random(void *out, size_t n)
{
    char *p = out;
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            ab_log(AB_ERROR, "random.none", AB_KV("errno", errno));
            abort();
        }
        p += got;
        n -= (size_t)got;
    }
}

uint64_t ab_random_below(uint64_t limit)
{
    if (limit <= 1)
        return 0;
    uint64_t reject = -limit % limit,
             r; /* 2^64 mod limit: numbers below it would be too frequent */
    do
        ab_random(&r, sizeof(r));
    while (r < reject);
    return r % limit;
}

/* Ids are drawn for every request: a call of the kernel for each was a thirtieth of the gateway's
 * time. A child must not go on with its parent's bytes. */
static atomic_uint forks;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, count_fork);
}

static void random_8(uint8_t out[8])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local uint8_t pool[64][8];
    static _Thread_local unsigned left, generation;
    (void)pthread_once(&once, watch_forks);
    unsigned now = atomic_load(&forks);
    if (left == 0 || generation != now) {
        ab_random(pool, sizeof(pool));
        left = sizeof(pool) / sizeof(*pool);
        generation = now;
    }
    memcpy(out, pool[--left], 8);
}

void ab_uuid7(uint8_t out[16])
{
    int64_t us = ab_utc_us();
    uint64_t ms = (uint64_t)us / 1000;
    unsigned fraction =
        (unsigned)((uint64_t)us % 1000 * 4096 / 1000); /* 12 bits of a millisecond */
    random_8(out + 8);
    for (int i = 0; i < 6; i++)
        out[i] = (uint8_t)(ms >> (40 - 8 * i));
    out[6] = (uint8_t)(0x70 | fraction >> 8);
    out[7] = (uint8_t)fraction;
    out[8] = (uint8_t)(0x80 | (out[8] & 0x3F));
}

void ab_hex(const void *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[p[i] >> 4];
        *out++ = digits[p[i] & 15];
    }
    *out = '\0';
}

void ab_uuid_text(const uint8_t uuid[16], char out[AB_UUID_TEXT])
{
    static const size_t groups[] = {4, 2, 2, 2, 6};
    for (size_t g = 0, at = 0; g < 5; g++) {
        ab_hex(uuid + at, groups[g], out);
        out += 2 * groups[g];
        at += groups[g];
        *out++ = '-';
    }
    out[-1] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ab_uuid_parse(const char *text, size_t len, uint8_t out[16])
{
    if (len >= 9 && strncasecmp(text, "urn:uuid:", 9) == 0) {
        text += 9;
        len -= 9;
    }
    if (len >= 2 && text[0] == '{' && text[len - 1] == '}') {
        text++;
        len -= 2;
    }
    if (len > 64)
        return -1;
    size_t n = 0;
    uint8_t bytes[16] = {0};
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '-')
            continue;
        int v = hex_value(text[i]);
        if (v < 0 || n == 32)
            return -1;
        bytes[n / 2] = (uint8_t)(bytes[n / 2] << 4 | v);
        n++;
    }
    if (n != 32)
        return -1;
    memcpy(out, bytes, 16);
    return 0;
}

int64_t ab_backoff_ms(int attempt, int64_t base_ms, int64_t cap_ms)
{
    int64_t top = base_ms;
    for (int i = 0; i < attempt && top < cap_ms; i++)
        top *= 2;
    if (top > cap_ms)
        top = cap_ms;
    return top <= 0 ? 0 : (int64_t)ab_random_below((uint64_t)top);
}
