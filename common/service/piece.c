/* piece.c - calls that may change very much, a piece at a time */
#include "skeleton.h"

#include "base/clock.h"
#include "bus/client.h"

int ab_piece_open(struct ab_piece *self, const struct ab_call *call, struct ab_error *err)
{
    const struct ab_bytes *next = &call->req->next;
    struct ab_cursor at = ab_cursor(next->p, next->n);
    uint32_t n;

    *self = (struct ab_piece){.until_ms = ab_now_ms() + ab_conf_ms(call->conf, "piece_time"),
                              .first = true};
    if (next->n == 0)
        return 0;
    self->may = true;
    if (ab_cursor_peek(&at) == AB_TK_INT)
        return 0; /* from the beginning */
    self->first = false;
    if (ab_cursor_array(&at, &n) < 0 || n != AB_PIECE_VALUES)
        return ab_fail(err, AB_EINVAL, "`next` is not what the piece before had given");
    for (size_t i = 0; i < AB_PIECE_VALUES; i++)
        if (ab_cursor_int(&at, &self->v[i]) < 0)
            return ab_fail(err, AB_EINVAL, "`next` is not what the piece before had given");
    return 0;
}

bool ab_piece_full(const struct ab_piece *self)
{
    return self->may && ab_now_ms() >= self->until_ms;
}

int ab_piece_more(const struct ab_piece *self, struct ab_call *call)
{
    call->status = AB_BUS_MORE;
    ab_buf_clear(&call->reply);
    ab_pack_array(&call->reply, AB_PIECE_VALUES);
    for (size_t i = 0; i < AB_PIECE_VALUES; i++)
        ab_pack_int(&call->reply, self->v[i]);
    return 0;
}
