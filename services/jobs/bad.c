/* bad.c - which items of a bulk call are to blame */
#include "bad.h"

#include "base/clock.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bad_add(struct bad *self, size_t index, int64_t id, const char *reason)
{
    if (self->n == self->room) {
        size_t room = self->room ? self->room * 2 : 16;
        struct ab_error_item *items = ab_alloc(self->call->arena, room, sizeof(*items));
        if (self->n)
            memcpy(items, self->items, self->n * sizeof(*items));
        self->items = items;
        self->room = room;
    }
    self->items[self->n++] = (struct ab_error_item){(int64_t)index, id, reason};
}

int bad_fail(struct bad *self, struct ab_error *err, int code, const char *kind, const char *format,
             ...)
{
    char text[sizeof(err->text)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ab_fail_kind(err, code, kind, "%s", text);
    if (err) {
        err->items = self->items;
        err->n_items = self->n;
    }
    return -1;
}

static int by_id_then_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void place_sort(struct place *places, size_t n)
{
    if (n > 1)
        qsort(places, n, sizeof(*places), by_id_then_place);
}

const struct place *place_find(const struct place *places, size_t n, int64_t id)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (places[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && places[low].id == id ? &places[low] : NULL;
}

struct ab_ids place_ids(struct ab_call *call, const struct place *places, size_t n)
{
    struct ab_ids ids = {.v = ab_alloc(call->arena, n ? n : 1, sizeof(*ids.v))};
    for (size_t i = 0; i < n; i++)
        if (i == 0 || places[i].id != places[i - 1].id)
            ids.v[ids.n++] = places[i].id;
    return ids;
}

int check_time(const struct ab_call *call, struct ab_error *err)
{
    if (ab_now_ms() < call->deadline_ms)
        return 0;
    return ab_fail(
        err, AB_ETIMEOUT,
        "too many jobs for one request: nothing was changed; do it in parts, by filters");
}

void bind_texts(struct ab_call *call, const char *name, const char *const *texts, size_t n)
{
    struct ab_db_value *items = ab_alloc(call->arena, n ? n : 1, sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        items[i].type = AB_DB_TEXT;
        items[i].p = texts[i];
        items[i].n = strlen(texts[i]);
    }
    struct ab_db_value value = {.type = AB_DB_ARRAY};
    value.items = items;
    value.n_items = n;
    ab_bind_value(call, name, value);
}
