/* clock.c - monotonic and UTC time, and the API's text form of it */
#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define US 1000000LL
#define DAY_US (86400LL * US)
#define MIN_US (-62135596800LL * US)     /* 0001-01-01T00:00:00 */
#define MAX_US (253402300800LL * US - 1) /* 9999-12-31T23:59:59.999999 */
#define MS_WATERSHED 2e10                /* contract 1.2: above this it is milliseconds */

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * US + t.tv_nsec / 1000;
}

int64_t ab_now_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t ab_now_ms(void)
{
    return read_clock(CLOCK_MONOTONIC) / 1000;
}

int64_t ab_utc_us(void)
{
    return read_clock(CLOCK_REALTIME);
}

/* Days since 1970 <-> civil date (Howard Hinnant's algorithms; March is the first month inside). */
static int64_t days_from_civil(int y, int m, int d)
{
    y -= m <= 2;
    int era = (y >= 0 ? y : y - 399) / 400;
    int yoe = y - era * 400;
    int doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    int doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return (int64_t)era * 146097 + doe - 719468;
}

static void civil_from_days(int64_t days, int *y, int *m, int *d)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int doe = (int)(days - era * 146097);
    int yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int mp = (5 * doy + 2) / 153;
    *d = doy - (153 * mp + 2) / 5 + 1;
    *m = mp + (mp < 10 ? 3 : -9);
    *y = (int)(yoe + era * 400) + (*m <= 2);
}

/* A list has a time or two in each row: snprintf was a twentieth of the gateway's time. */
static char *put_digits(char *at, int v, int width, char behind)
{
    for (int i = width - 1; i >= 0; i--, v /= 10)
        at[i] = (char)('0' + v % 10);
    at[width] = behind;
    return at + width + 1;
}

size_t ab_time_format(int64_t utc_us, bool aware, char *out)
{
    if (utc_us < MIN_US)
        utc_us = MIN_US;
    if (utc_us > MAX_US)
        utc_us = MAX_US;
    int64_t days = utc_us / DAY_US, rest = utc_us % DAY_US;
    if (rest < 0) {
        rest += DAY_US;
        days--;
    }
    int y, mon, d;
    civil_from_days(days, &y, &mon, &d);
    int sec = (int)(rest / US), us = (int)(rest % US);
    char *at = put_digits(out, y, 4, '-');
    at = put_digits(at, mon, 2, '-');
    at = put_digits(at, d, 2, 'T');
    at = put_digits(at, sec / 3600, 2, ':');
    at = put_digits(at, sec / 60 % 60, 2, ':');
    at = put_digits(at, sec % 60, 2, us ? '.' : '\0');
    if (us)
        at = put_digits(at, us, 6, '\0');
    at--; /* the end stands where the next part begins */
    if (aware)
        at = stpcpy(at, "+00:00");
    return (size_t)(at - out);
}

struct cursor {
    const char *p, *end;
};

static bool digit_at(const struct cursor *c)
{
    return c->p < c->end && *c->p >= '0' && *c->p <= '9';
}

/* Between `least` and `most` digits; -1 if there are fewer. */
static int number(struct cursor *c, int least, int most)
{
    int value = 0, n = 0;
    for (; n < most && digit_at(c); n++)
        value = value * 10 + (*c->p++ - '0');
    return n < least ? -1 : value;
}

static bool take(struct cursor *c, char wanted)
{
    if (c->p >= c->end || *c->p != wanted)
        return false;
    c->p++;
    return true;
}

/* ".f": digits behind the sixth are dropped, as Python does. -1: none there. */
static int64_t fraction_us(struct cursor *c)
{
    int64_t us = 0;
    int n = 0;
    for (; digit_at(c); n++, c->p++)
        if (n < 6)
            us = us * 10 + (*c->p - '0');
    if (n == 0 || n > 12)
        return -1;
    for (; n < 6; n++)
        us *= 10;
    return us;
}

/* "", "Z", "+HH", "+HHMM", "+HH:MM" up to the end. 0 or -1. */
static int zone(struct cursor *c, int64_t *offset_us)
{
    *offset_us = 0;
    if (c->p == c->end)
        return 0;
    if (take(c, 'Z') || take(c, 'z'))
        return c->p == c->end ? 0 : -1;
    int sign = take(c, '+') ? 1 : take(c, '-') ? -1 : 0;
    if (sign == 0)
        return -1;
    int hours = number(c, 2, 2), minutes = 0;
    if (c->p < c->end) {
        take(c, ':');
        minutes = number(c, 2, 2);
    }
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59 || c->p != c->end)
        return -1;
    *offset_us = sign * (hours * 3600LL + minutes * 60LL) * US;
    return 0;
}

static int parse_calendar(struct cursor c, int64_t *utc_us)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y = number(&c, 4, 4);
    int mon = take(&c, '-') ? number(&c, 1, 2) : -1;
    int d = take(&c, '-') ? number(&c, 1, 2) : -1;
    if (y < 1 || mon < 1 || mon > 12 || d < 1)
        return -1;
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    if (d > month_days[mon - 1] + (mon == 2 && leap))
        return -1;
    if (!take(&c, 'T') && !take(&c, 't') && !take(&c, ' '))
        return -1;
    int h = number(&c, 1, 2);
    int min = take(&c, ':') ? number(&c, 1, 2) : -1;
    int sec = 0;
    int64_t us = 0, offset;
    if (take(&c, ':')) {
        sec = number(&c, 1, 2);
        if (take(&c, '.'))
            us = fraction_us(&c);
    }
    if (h < 0 || h > 23 || min < 0 || min > 59 || sec < 0 || sec > 59 || us < 0
        || zone(&c, &offset) < 0)
        return -1;
    *utc_us =
        days_from_civil(y, mon, d) * DAY_US + (h * 3600LL + min * 60LL + sec) * US + us - offset;
    return 0;
}

int ab_time_from_number(double seconds, int64_t *utc_us)
{
    if (isnan(seconds) || isinf(seconds))
        return -1;
    while (fabs(seconds) > MS_WATERSHED)
        seconds /= 1000;
    *utc_us = (int64_t)llround(seconds * 1e6);
    return 0;
}

int ab_time_parse(const char *text, size_t len, int64_t *utc_us)
{
    if (len == 0 || len > 64)
        return -1;
    if (memchr(text, ':', len))
        return parse_calendar((struct cursor){text, text + len}, utc_us);

    char copy[65], *end;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (strspn(copy, "0123456789+-.eE") != len)
        return -1;
    double seconds = strtod(copy, &end);
    return end == copy + len ? ab_time_from_number(seconds, utc_us) : -1;
}
