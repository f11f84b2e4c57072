/* rand.h - random bytes and ids (from getrandom) */
#ifndef AB_RAND_H
#define AB_RAND_H

#include <stddef.h>
#include <stdint.h>

void ab_random(void *out, size_t n); /* never fails: aborts if the kernel cannot give any */
uint64_t ab_random_below(uint64_t limit);

#define AB_UUID_TEXT 37
/* RFC 9562 version 7: milliseconds in front, so that an index of them grows at its end. */
void ab_uuid7(uint8_t out[16]);
void ab_uuid_text(const uint8_t uuid[16], char out[AB_UUID_TEXT]);
/* Any common text form (dashes optional, braces, urn:uuid:, any case). 0 or -1. */
int ab_uuid_parse(const char *text, size_t len, uint8_t out[16]);

/* n bytes as 2n lower-case hex digits and NUL. */
void ab_hex(const void *bytes, size_t n, char *out);

/* Milliseconds to wait before try number `attempt` (from 0): full jitter below min(cap, base *
 * 2^attempt). */
int64_t ab_backoff_ms(int attempt, int64_t base_ms, int64_t cap_ms);

#endif
