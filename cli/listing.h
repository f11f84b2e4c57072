/* listing.h - a list of API objects as a table: one row a column */
#ifndef CLI_LISTING_H
#define CLI_LISTING_H

#include "base/arena.h"
#include "schema/json.h"
#include <stdbool.h>
#include <stdio.h>

struct column {
    const char *head, *field; /* head NULL: the end */
    bool right, ago;          /* numbers; a time, shown as how long ago */
};

/* `results` is a list of maps. With `json` it is printed as it is. */
void listing_print(ab_arena_t *arena, const struct ab_value *results, const struct column *columns,
                   bool json);

/* One object, a field a line: NAME  value; empty ones are left out. */
void listing_fields(FILE *out, ab_arena_t *arena, const struct ab_value *object,
                    const struct column *columns);

extern const struct column job_fields[]; /* cmd_job_show.c */

#endif
