/* ids.h - a short list of job ids */
#ifndef IDS_H
#define IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct ids {
    int64_t *v;
    size_t n, cap;
};

static inline void ids_add(struct ids *self, int64_t id)
{
    if (self->n == self->cap) {
        self->cap = self->cap ? self->cap * 2 : 16;
        self->v = realloc(self->v, self->cap * sizeof(int64_t));
        if (!self->v)
            abort();
    }
    self->v[self->n++] = id;
}

static inline bool ids_has(const struct ids *self, int64_t id)
{
    for (size_t i = 0; i < self->n; i++)
        if (self->v[i] == id)
            return true;
    return false;
}

static inline void ids_remove(struct ids *self, int64_t id)
{
    for (size_t i = 0; i < self->n; i++)
        if (self->v[i] == id) {
            self->v[i] = self->v[--self->n];
            return;
        }
}

static inline bool ids_pop(struct ids *self, int64_t *id)
{
    if (self->n == 0)
        return false;
    *id = self->v[--self->n];
    return true;
}

static inline void ids_free(struct ids *self)
{
    free(self->v);
    *self = (struct ids){0};
}

#endif
