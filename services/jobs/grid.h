/* grid.h - lists of values, their combinations, and patterns with {{name}} in them */
#ifndef GRID_H
#define GRID_H

#include "schema/json.h"
#include "service/service.h"

struct grid {
    ab_arena_t *arena;
    const struct ab_value *lists; /* an object of lists, each with a value at least */
    bool zip;
    size_t count;   /* combinations */
    size_t *stride; /* product: combinations between two changes of a list's value */
};

/* Check the lists and count; `most`: more combinations are refused. 0, or -1 (422) with the name of
 * what is wrong. */
int grid_open(struct grid *self, ab_arena_t *arena, struct ab_bytes lists, bool zip, size_t most,
              struct ab_error *err);

/* The value of list k in combination i. The last list changes fastest. */
const struct ab_value *grid_value(const struct grid *self, size_t k, size_t i);

struct grid_piece { /* literal text, then the value of a list (-1: no value) */
    const char *text;
    size_t len;
    int list;
};
struct grid_pattern {
    struct grid_piece *pieces;
    size_t n;
    uint64_t lists; /* bit k: list k is named */
};

/* `what` is for the error: "workdir". Values that a pattern names must be fit for a path. */
int grid_pattern(const struct grid *self, const char *what, const char *text,
                 struct grid_pattern *out, struct ab_error *err);

/* The pattern's text in combination i; -1 (422) when it is too long for a path. */
int grid_text(const struct grid *self, const struct grid_pattern *pattern, size_t i,
              const char **out, struct ab_error *err);

#endif
