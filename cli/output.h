/* output.h - what the command line program shows: tables that fit, progress on a terminal,
 * questions
 *
 * Texts from the API are other people's: control characters never reach the terminal.
 */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdio.h>

/* Columns of the terminal; 0 when standard output is none (nothing is cut then). COLUMNS overrides.
 */
int terminal_width(void);

/* Without control characters and half characters. */
void print_clean(FILE *out, const char *text);

/* The same as a paragraph: indented, and broken at spaces to fit so many columns (0: not broken). */
void print_wrapped(FILE *out, const char *text, int indent, int columns);

/* ---- tables: heads first, then rows of texts that are copied */
struct table {
    ab_arena_t *arena;
    size_t columns, rows;
    const char **cells; /* row by row, the heads are row 0 */
    size_t cap;
    unsigned right; /* bit i: column i is aligned to the right */
};
void table_begin(struct table *self, ab_arena_t *arena, const char *const *heads, size_t n);
void table_add(struct table *self, const char *const *cells);
/* Columns too wide for the terminal are cut at their end, the widest first. */
void table_print(const struct table *self, FILE *out, int width);

/* ---- progress: one line on standard error that is written over; nothing when that is no terminal
 */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

/* "Delete 12 jobs? [y/N]": 0 yes, -1 no (err says so, also when nobody can be asked). */
int ask_yes(struct ab_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line from the terminal, in the arena; a password is not shown. NULL + err when nobody can be
 * asked. */
const char *ask_line(ab_arena_t *arena, const char *question, bool secret, struct ab_error *err);

/* "3 s", "4 min", "2 h", "5 d" of so many seconds. */
const char *short_time(ab_arena_t *arena, double seconds);

#endif
