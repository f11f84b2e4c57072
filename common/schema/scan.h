/* scan.h - inside schema/ only: JSON text, looked at without building a tree
 *
 * The text is checked once, as a whole; after that nodes are pieces of it and members are found by
 * scanning. So a body of any shape costs no memory but its own, free JSON is passed on byte by byte
 * (no number loses digits), and errors have the places and words that Python's parser gives.
 */
#ifndef AB_SCAN_H
#define AB_SCAN_H

#include "base/arena.h"
#include <stdbool.h>
#include <stddef.h>

#define AB_JSON_DEPTH 64

enum ab_node_type {
    AB_N_ABSENT,
    AB_N_NULL,
    AB_N_FALSE,
    AB_N_TRUE,
    AB_N_INT,
    AB_N_REAL,
    AB_N_TEXT,  /* raw is the text between the quotes, with its escapes */
    AB_N_PLAIN, /* raw is the text itself (from a query or a form) */
    AB_N_LIST,
    AB_N_MAP,
};

struct ab_node {
    enum ab_node_type type;
    const char *raw;
    size_t raw_len;
};

struct ab_scan_fault {
    const char *msg; /* as Python says it; NULL: deeper than AB_JSON_DEPTH */
    size_t at;       /* byte offset */
    size_t pos;      /* in characters */
    size_t line, column;
};

/* Is this one JSON value and nothing else? Fills *root. A byte order mark is skipped. */
int ab_scan_text(const char *text, size_t len, struct ab_node *root, struct ab_scan_fault *fault);

/* The members of a list or map that was checked. */
struct ab_scan {
    const char *at, *end;
};
struct ab_scan ab_scan(const struct ab_node *container);
bool ab_scan_item(struct ab_scan *self, struct ab_node *value);
bool ab_scan_member(struct ab_scan *self, struct ab_node *key, struct ab_node *value);

/* TEXT or PLAIN without its escapes; points into the node, or into the arena. Returns 0, or -1 when
 * it holds NUL, half a surrogate pair, or bytes that are no UTF-8: PostgreSQL takes none of them.
 */
int ab_scan_string(const struct ab_node *node, ab_arena_t *arena, const char **s, size_t *n);

/* May this piece of JSON go to the database as it is? All its strings as above, its numbers finite.
 */
bool ab_scan_storable(const struct ab_node *node);

#endif
