/* arena.c - a list of blocks, each used from front to back
 *
 * With the address sanitizer every piece is followed by a few poisoned bytes, so that an overrun
 * inside a block is seen as well as one of malloc's.
 */
#include "arena.h"

#include "log.h"
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif

#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#define REDZONE 16
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define REDZONE 0
#endif

#define FIRST_BLOCK ((size_t)8 << 10)
#define LARGEST_BLOCK ((size_t)1 << 20)

struct block {
    struct block *next; /* older */
    size_t size, used;
    alignas(max_align_t) char bytes[];
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *);
    void *ptr;
};

struct ab_arena {
    struct block *blocks; /* the one in use first */
    struct deferred *deferred;
    size_t held, next_size;
};

static void out_of_memory(size_t size)
{
    ab_log(AB_ERROR, "memory.none", AB_KV("bytes", size));
    abort();
}

static struct block *block_new(ab_arena_t *self, size_t size)
{
    struct block *b = malloc(sizeof(*b) + size);
    if (!b)
        out_of_memory(size);
    b->next = NULL;
    b->size = size;
    b->used = 0;
    self->held += size;
    POISON(b->bytes, size);
    return b;
}

static void block_free(ab_arena_t *self, struct block *b)
{
    self->held -= b->size;
    UNPOISON(b->bytes, b->size);
    free(b);
}

ab_arena_t *ab_arena_new(void)
{
    ab_arena_t *self = calloc(1, sizeof(*self));
    if (!self)
        out_of_memory(sizeof(*self));
    self->next_size = FIRST_BLOCK;
    return self;
}

static void run_deferred(ab_arena_t *self)
{
    while (self->deferred) {
        struct deferred *d = self->deferred;
        self->deferred = d->next;
        d->fn(d->ptr);
    }
}

void ab_arena_destroy(ab_arena_t **self_p)
{
    ab_arena_t *self = *self_p;
    if (!self)
        return;
    run_deferred(self);
    while (self->blocks) {
        struct block *b = self->blocks;
        self->blocks = b->next;
        block_free(self, b);
    }
    free(self);
    *self_p = NULL;
}

void ab_arena_reset(ab_arena_t *self)
{
    run_deferred(self);
    struct block *kept = NULL;
    while (self->blocks) {
        struct block *b = self->blocks;
        self->blocks = b->next;
        if (!kept && b->size == FIRST_BLOCK)
            kept = b;
        else
            block_free(self, b);
    }
    if (kept) {
        kept->next = NULL;
        kept->used = 0;
        POISON(kept->bytes, kept->size);
    }
    self->blocks = kept;
    self->next_size = kept ? 2 * FIRST_BLOCK : FIRST_BLOCK;
}

void *ab_alloc(ab_arena_t *self, size_t count, size_t size)
{
    size_t want, room;
    const size_t align = alignof(max_align_t);
    if (__builtin_mul_overflow(count, size, &want) || want > SIZE_MAX / 2)
        out_of_memory(SIZE_MAX);
    room = (want + REDZONE + align - 1) / align * align;
    if (room == 0)
        room = align;

    struct block *b = self->blocks;
    if (!b || b->size - b->used < room) {
        if (room > self->next_size / 4) {
            /* A big piece gets a block of its own, behind the one in use, whose rest stays usable.
             */
            b = block_new(self, room);
            if (self->blocks) {
                b->next = self->blocks->next;
                self->blocks->next = b;
            } else {
                self->blocks = b;
            }
        } else {
            b = block_new(self, self->next_size);
            b->next = self->blocks;
            self->blocks = b;
            if (self->next_size < LARGEST_BLOCK)
                self->next_size *= 2;
        }
    }
    char *p = b->bytes + b->used;
    b->used += room;
    UNPOISON(p, want);
    memset(p, 0, want);
    return p;
}

void *ab_memdup(ab_arena_t *self, const void *bytes, size_t len)
{
    void *copy = ab_alloc(self, 1, len);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

char *ab_strndup(ab_arena_t *self, const void *bytes, size_t len)
{
    char *copy = ab_alloc(self, 1, len + 1);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

char *ab_strdup(ab_arena_t *self, const char *text)
{
    return ab_strndup(self, text, strlen(text));
}

char *ab_printf(ab_arena_t *self, const char *format, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(small, sizeof(small), format, ap);
    va_end(ap);
    if (n < 0)
        out_of_memory(0);
    if ((size_t)n < sizeof(small))
        return ab_strndup(self, small, (size_t)n);
    char *text = ab_alloc(self, 1, (size_t)n + 1);
    va_start(ap, format);
    vsnprintf(text, (size_t)n + 1, format, ap);
    va_end(ap);
    return text;
}

void ab_defer(ab_arena_t *self, void (*fn)(void *), void *ptr)
{
    struct deferred *d = ab_alloc(self, 1, sizeof(*d));
    *d = (struct deferred){self->deferred, fn, ptr};
    self->deferred = d;
}

size_t ab_arena_size(const ab_arena_t *self)
{
    return self->held;
}
