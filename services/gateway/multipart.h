/* multipart.h - multipart/form-data as the form it stands for
 *
 * The log-in routes take both kinds of form (contract 1.1); from here on there is one kind.
 */
#ifndef MULTIPART_H
#define MULTIPART_H

#include "base/buf.h"
#include <stddef.h>

/* From "multipart/form-data; boundary=..." to the boundary, quotes taken off. n == 0: no such type.
 */
struct boundary {
    char text[72]; /* RFC 2046 allows 70 */
    size_t n;
};
struct boundary multipart_boundary(const char *content_type, size_t n);

/* Appends name=value&..., percent-encoded; files are left out. -1: not what it says it is. */
int multipart_to_form(const struct boundary *boundary, const char *body, size_t len,
                      struct ab_buf *out);

#endif
