/* clock.h - two clocks, never mixed: monotonic for timers, UTC for records
 */
#ifndef AB_CLOCK_H
#define AB_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t ab_now_ms(void); /* monotonic milliseconds: timers, deadlines */
int64_t ab_now_us(void); /* monotonic microseconds: durations */
int64_t ab_utc_us(void); /* microseconds since 1970, UTC: records */

#define AB_TIME_TEXT 40
/* ISO 8601 as the API prints it: microseconds only when not zero, "+00:00" behind it if aware.
 * `out` has AB_TIME_TEXT bytes. Returns the length. Years 0001 to 9999; outside them it clamps. */
size_t ab_time_format(int64_t utc_us, bool aware, char *out);

/* What the API takes (contract 1.2): YYYY-MM-DD, then T, t or space, HH:MM[:SS[.f+]][Z or
 * +HH[:]MM]; or unix seconds as a number (milliseconds above 2e10). No zone = UTC. 0 or -1. */
int ab_time_parse(const char *text, size_t len, int64_t *utc_us);
int ab_time_from_number(double seconds, int64_t *utc_us);

#endif
