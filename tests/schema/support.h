/* support.h - requests as text in, what came of them as text out */
#ifndef AB_TEST_SUPPORT_H
#define AB_TEST_SUPPORT_H

/* cmocka wants these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "schema/json.h"
#include "schema/pack.h"
#include "schema/schema.h"

/* A request as the gateway sees it. NULL: not sent. */
struct asked {
    const char *verb, *id, *query, *body;
    size_t body_len;  /* 0: strlen */
    const char *type; /* content type: NULL json, "form", "text" */
};

/* What came of it: the packed request as JSON, or "!" and the list of issues, or "!!" and the issue
 * of a body that is no JSON. Caller frees. */
char *answer_of(const struct asked *asked);

/* Packs it, or fails the test. */
void packed_of(const struct asked *asked, struct ab_buf *packed);

/* A frame as JSON, walked in one go. Caller frees; NULL if broken. */
char *json_of(const void *bytes, size_t len);

/* Each row: a request and its answer. */
struct row {
    struct asked asked;
    const char *answer;
};
void check_rows(const struct row *rows, size_t n);
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof(*(rows)))

#endif
