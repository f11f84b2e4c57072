/* stream.h - an answer of any size to a client of any speed
 *
 * What is small is rendered at once, with Content-Length. A long value, or a list of several pages,
 * goes out in chunks of one piece, each made when the socket takes it; the next page is asked for
 * when the one before has left. So a slow client holds one page here and nothing in a service. If a
 * page fails after the 200 has gone out the connection closes without the last chunk: a broken
 * body, never a short list.
 */
#ifndef STREAM_H
#define STREAM_H

#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>

struct conn;

/* One whole msgpack value as JSON text. 0, or -1 for msgpack that is none. */
int render_value(struct ab_buf *out, const void *bytes, size_t len);

/* Answer with a service's reply (borrowed msgpack); paged: it is a page (pack.h). */
void stream_start(struct conn *c, int status, const void *body, size_t len, bool paged);
/* A further page has come. */
void stream_page(struct conn *c, int status, const void *body, size_t len);
void stream_more(struct conn *c); /* WRITEABLE */
void stream_free(struct conn *c);

#endif
