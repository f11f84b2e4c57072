/* arena.h - memory that lives exactly as long as one request
 *
 * Everything a handler allocates comes from call->arena and is released together when the reply
 * has been sent, so handlers contain no free().
 */
#ifndef AB_ARENA_H
#define AB_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct ab_arena ab_arena_t;

/* Never returns NULL: a process that cannot get a few bytes logs and aborts. */
ab_arena_t *ab_arena_new(void);

/* NULL-safe; runs what was deferred (last first), frees, sets *self to NULL. */
void ab_arena_destroy(ab_arena_t **self);

/* The same, but keeps the first block for the next request. */
void ab_arena_reset(ab_arena_t *self);

/* Zeroed and aligned for any type; the arena keeps ownership. count * size must not overflow. */
void *ab_alloc(ab_arena_t *self, size_t count, size_t size);

/* NUL-terminated copies. */
char *ab_strdup(ab_arena_t *self, const char *text);
char *ab_strndup(ab_arena_t *self, const void *bytes, size_t len);
void *ab_memdup(ab_arena_t *self, const void *bytes, size_t len);
char *ab_printf(ab_arena_t *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Run fn(ptr) when the arena goes: how a PGresult gets its PQclear. */
void ab_defer(ab_arena_t *self, void (*fn)(void *), void *ptr);

/* Bytes held now, for limits and tests. */
size_t ab_arena_size(const ab_arena_t *self);

#endif
