/* reply.h - every answer the gateway gives leaves through here */
#ifndef REPLY_H
#define REPLY_H

#include "base/buf.h"
#include "base/error.h"
#include "schema/json.h"

struct conn;

/* An error as the contract wants to see it (its section 2; decisions 7): the body only. */
void render_error(struct ab_buf *out, const struct ab_error *err);

/* Status line and headers, up to and with the empty line. length < 0: chunked, or until the end of
 * the connection for HTTP/1.0. extra: whole header lines, or NULL. */
void reply_head(struct conn *c, struct ab_buf *out, int status, const char *type, int64_t length,
                const char *extra);

/* Whole answers; the connection goes on to its next request afterwards (or closes). */
void reply_body(struct conn *c, int status, const char *type, const void *body, size_t n,
                const char *extra);
void reply_json(struct conn *c, int status, const struct ab_buf *body, const char *extra);
void reply_empty(struct conn *c, int status, const char *extra); /* 204, 307 */
void reply_issues(struct conn *c, const struct ab_issues *issues);
void reply_error(struct conn *c, const struct ab_error *err, const char *extra);
/* {"detail": text} */
void reply_text(struct conn *c, int status, const char *text, const char *extra);

/* The request cannot be read to its end: answer, then close once the peer has stopped sending. */
void reply_last(struct conn *c, int status, const char *text, const char *extra);

#endif
