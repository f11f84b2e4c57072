/* buf.h - a growing byte buffer with a limit
 *
 * Zero-initialise (`struct ab_buf b = {0};`) and ab_buf_free. It never fails silently: past `limit`
 * (0 = AB_BUF_MAX) `failed` is set, later appends do nothing, and the owner looks once at the end.
 */
#ifndef AB_BUF_H
#define AB_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AB_BUF_MAX ((size_t)1 << 30)

struct ab_buf {
    char *data; /* malloc'ed; NUL-terminated after each text append */
    size_t len, cap, limit;
    bool failed;
};

void ab_buf_free(struct ab_buf *self);
void ab_buf_clear(struct ab_buf *self); /* len = 0, memory kept */

/* Room for n more bytes, or NULL at the limit; the caller then adds to len itself. */
char *ab_buf_room(struct ab_buf *self, size_t n);

void ab_buf_add(struct ab_buf *self, const void *bytes, size_t n);
void ab_buf_str(struct ab_buf *self, const char *text);
void ab_buf_char(struct ab_buf *self, char c);
void ab_buf_int(struct ab_buf *self, int64_t n);
void ab_buf_printf(struct ab_buf *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Text as a JSON string with its quotes. Bad UTF-8 becomes U+FFFD. */
void ab_buf_json_str(struct ab_buf *self, const char *text, size_t n);

/* Give the memory away (the caller frees it); the buffer is empty afterwards. */
char *ab_buf_take(struct ab_buf *self);

#endif
