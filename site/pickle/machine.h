/* machine.h - what the instructions of a pickle work on: input, values, stack, marks, memo
 *
 * Each byte of input pushes, links, marks or remembers at most one thing, so arrays as long as the
 * input are never too small and never large.
 */
#ifndef PICKLE_MACHINE_H
#define PICKLE_MACHINE_H

#include "pickle.h"
#include <stdbool.h>
#include <stdint.h>

#define NONE_YET UINT32_MAX

/* A value under construction. Lists and maps are chains of links: the same value may hang in
 * several, or in itself. */
struct node {
    struct ab_value value; /* of a list or map only the type */
    uint32_t first, last, count;
    bool tuple; /* a list that nothing is appended to */
    bool open;  /* tree.c is inside it */
};

struct link {
    uint32_t key, node, next;
};

struct machine {
    ab_arena_t *arena;   /* of the result: texts */
    ab_arena_t *scratch; /* of the arrays */
    const uint8_t *start, *at, *end;
    struct node *nodes;
    struct link *links;
    uint32_t *stack, *marks, *memo;
    size_t n_nodes, n_links, n_stack, n_marks, n_memo, limit;
    const char *op; /* the instruction that is being done, for errors */
    size_t op_at;
    bool stopped;
};

/* ---- machine.c: every function returns -1 (NULL, NONE_YET) with a reason */

void machine_open(struct machine *self, const void *bytes, size_t len);

/* The pickle is damaged; the text says what and where. */
int machine_broken(const struct machine *self, const char *what, struct ab_error *err);

const uint8_t *machine_take(struct machine *self, uint64_t n, struct ab_error *err);
/* A number of 1, 2, 4 or 8 bytes, least byte first. */
int machine_number(struct machine *self, size_t bytes, uint64_t *out, struct ab_error *err);
/* Up to the next newline, which is skipped. */
int machine_line(struct machine *self, const char **text, size_t *len, struct ab_error *err);

int machine_push(struct machine *self, uint32_t node, struct ab_error *err);
int machine_push_value(struct machine *self, const struct ab_value *value, struct ab_error *err);
/* A fresh list or map. */
uint32_t machine_new(struct machine *self, enum ab_value_type type, struct ab_error *err);
/* Whatever lies below the newest mark is out of reach. */
uint32_t machine_pop(struct machine *self, struct ab_error *err);
uint32_t machine_top(struct machine *self, struct ab_error *err);
/* Place of the newest mark on the stack; the mark is gone, what lies above it is the caller's. */
int machine_unmark(struct machine *self, size_t *place, struct ab_error *err);

/* Move what lies above `place` into a list, or pair by pair into a map. */
int machine_fill(struct machine *self, uint32_t into, size_t place, struct ab_error *err);

int machine_memo_set(struct machine *self, uint64_t index, struct ab_error *err);
int machine_memo_get(struct machine *self, uint64_t index, struct ab_error *err);

/* ---- scalar.c: the values without parts */

int scalar_decimal(struct machine *self, const char *text, size_t len, struct ab_error *err);
int scalar_long(struct machine *self, const uint8_t *bytes, size_t len, struct ab_error *err);
int scalar_real(struct machine *self, double value, struct ab_error *err);
int scalar_real_text(struct machine *self, const char *text, size_t len, struct ab_error *err);
int scalar_text(struct machine *self, const void *bytes, size_t len, struct ab_error *err);
/* Protocol 0's form: Latin-1 with \uXXXX and \UXXXXXXXX. */
int scalar_raw_text(struct machine *self, const char *text, size_t len, struct ab_error *err);

/* ---- opcodes.c: one instruction */

int opcode_run(struct machine *self, uint8_t code, struct ab_error *err);

/* ---- tree.c: from the graph to a value that ends */

int tree_build(struct machine *self, uint32_t root, struct ab_value *out, struct ab_error *err);

#endif
