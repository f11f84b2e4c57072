/* piece.c - see piece.h */
#include "piece.h"
#include "base/clock.h"
#include "bus/client.h"
#include "conn.h"
#include "reply.h"
#include "schema/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool piece_may(const struct ab_route *route)
{
    return route->mutates
           && (route->query || (route->method && strcmp(route->method, "DELETE") == 0));
}

int piece_pack(const struct exchange *x, const void *next, size_t len, struct ab_buf *out)
{
    struct ab_cursor at = ab_cursor(x->packed, x->packed_len);
    uint32_t members;

    if (!x->packed || ab_cursor_map(&at, &members) < 0)
        return -1;
    ab_pack_map(out, members + 1);
    ab_buf_add(out, at.at, (size_t)(at.end - at.at));
    ab_pack_str(out, "next");
    ab_buf_add(out, next, len);
    return out->failed ? -1 : 0;
}

/* Each piece has a key of its own, and a repeat of the whole request gets the same ones: it goes
 * through the pieces that are done, and on from there. A client's key has no space in it. */
static int next_key(struct exchange *x)
{
    char *key;

    if (!x->key)
        return 0;
    if (asprintf(&key, "%.*s %u", (int)strcspn(x->key, " "), x->key, x->pieces) < 0)
        return -1;
    free(x->key);
    x->key = key;
    return 0;
}

void piece_next(struct conn *c, const void *next, size_t len)
{
    struct exchange *x = &c->x;
    struct ab_buf body = {0};

    x->pieces++;
    x->replayed = false;
    if (gw.draining) {
        struct ab_error err = {0};
        (void)ab_fail(&err, AB_EBUSY, "this gateway is about to end");
        piece_explain(x, &err);
        reply_error(c, &err, NULL);
        return;
    }
    if (piece_pack(x, next, len, &body) < 0 || next_key(x) < 0) {
        ab_buf_free(&body);
        reply_text(c, 502, "the service gave an answer that makes no sense", NULL);
        return;
    }
    x->deadline_ms = ab_now_ms() + gw.deadline_ms;
    ab_uuid7(x->uuid); /* another piece is another request */
    size_t n = body.len;
    http_submit(c, ab_buf_take(&body), n);
}

void piece_explain(const struct exchange *x, struct ab_error *err)
{
    size_t n = strlen(err->text);

    if (x->pieces > 0)
        (void)snprintf(err->text + n, sizeof(err->text) - n,
                       "; a part of this request is done: send it again to go on with the rest");
}
