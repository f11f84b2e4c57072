/* str.h - small things that libc lacks, for bytes that came from elsewhere */
#ifndef AB_STR_H
#define AB_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool ab_utf8_ok(const void *bytes, size_t len); /* strict: no overlong, no surrogates */
bool ab_str_starts(const char *text, const char *prefix);
bool ab_str_ends(const char *text, const char *suffix);

/* A whole decimal integer, nothing around it, in [min, max]. 0 or -1. */
int ab_parse_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *out);

/* "250ms" "30s" "1.5h" "2d" -> milliseconds; "64MiB" "512kB" -> bytes. 0 or -1. */
int ab_parse_duration(const char *text, int64_t *ms);
int ab_parse_size(const char *text, int64_t *bytes);

/* The nearest of n names by edit distance, else one that has the word in it, or NULL: for "did you
 * mean ...". */
const char *ab_str_nearest(const char *word, const char *const *names, size_t n);

/* A path relative to some folder that cannot leave it: no leading '/', no "..", no NUL, not empty.
 */
bool ab_path_stays_below(const char *path);

#endif
