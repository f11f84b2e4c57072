/* piece.h - the same request again, with where to go on
 *
 * A long list comes a page at a time, and a call that changes very much is done a piece at a time:
 * each is a request of its own to any replica.
 */
#ifndef PIECE_H
#define PIECE_H

#include "base/buf.h"
#include "base/error.h"
#include "http.h"

/* May a service do the request in pieces? Then it is told that we can go on. */
bool piece_may(const struct ab_route *route);

/* The packed request with the member `next` (msgpack). -1: it is not a map. */
int piece_pack(const struct exchange *x, const void *next, size_t len, struct ab_buf *out);

/* A piece is done: ask for the next one. */
void piece_next(struct conn *c, const void *next, size_t len);

/* What a failure says after the first piece. */
void piece_explain(const struct exchange *x, struct ab_error *err);

#endif
