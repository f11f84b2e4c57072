/* reasons.c - what keeps a job from running, collected */
#include "reasons.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_BYTES = 4096,
    QUOTE_BYTES = 500,
};

void reasons_add(struct reasons *self, int code, const struct ab_ids *ids, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    if (self->n == self->room) {
        size_t room = self->room ? 2 * self->room : 8;
        struct reason *list = ab_alloc(self->call->arena, room, sizeof(*list));
        if (self->n)
            memcpy(list, self->list, self->n * sizeof(*list));
        self->list = list;
        self->room = room;
    }
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct reason *out = &self->list[self->n++];
    *out = (struct reason){.has = UINT64_MAX, .code = code};
    out->text = ab_strndup(self->call->arena, text,
                           n < 0            ? 0
                           : n < TEXT_BYTES ? (size_t)n
                                            : TEXT_BYTES - 1);
    if (ids && ids->n)
        out->ids =
            (struct ab_ids){ab_memdup(self->call->arena, ids->v, ids->n * sizeof(*ids->v)), ids->n};
}

void ids_add(struct ids *self, int64_t id)
{
    if (self->ids.n == self->room) {
        size_t room = self->room ? 2 * self->room : 16;
        int64_t *v = ab_alloc(self->call->arena, room, sizeof(*v));
        if (self->ids.n)
            memcpy(v, self->ids.v, self->ids.n * sizeof(*v));
        self->ids.v = v;
        self->room = room;
    }
    self->ids.v[self->ids.n++] = id;
}

const char *reasons_time(struct ab_call *call, double sec)
{
    int64_t s = sec < 0 ? 0 : sec > 1e12 ? INT64_C(1000000000000) : (int64_t)(sec + 0.999);

    if (s < 120)
        return ab_printf(call->arena, "%" PRId64 " s", s);
    if (s < 7200)
        return ab_printf(call->arena, "%" PRId64 " min", s / 60);
    if (s < 172800)
        return ab_printf(call->arena, "%" PRId64 " h", s / 3600);
    return ab_printf(call->arena, "%" PRId64 " days", s / 86400);
}

const char *reasons_quote(struct ab_call *call, const PGresult *r, int row, const char *column)
{
    size_t len;
    int col = ab_col(r, column);

    if (ab_col_null(r, row, col))
        return "";
    const char *text = ab_col_text(r, row, col, &len);
    if (len > QUOTE_BYTES)
        for (len = QUOTE_BYTES; len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80;)
            len--;
    return ab_strndup(call->arena, text, len);
}
