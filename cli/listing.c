/* listing.c - a list of API objects as a table */
#include "listing.h"

#include "output.h"
#include "remote.h"
#include <string.h>

#define COLUMNS_MAX 24

static const char *cell(ab_arena_t *arena, const struct ab_value *object, const struct column *c)
{
    const struct ab_value *v = ab_value_get(object, c->field);
    double ago = c->ago ? seconds_since(v) : -1;
    return ago >= 0 ? ab_printf(arena, "%s ago", short_time(arena, ago)) : value_cell(arena, v);
}

void listing_print(ab_arena_t *arena, const struct ab_value *results, const struct column *columns,
                   bool json)
{
    const char *cells[COLUMNS_MAX] = {NULL};
    struct table t;
    size_t n = 0;
    if (json) {
        print_value(results);
        return;
    }
    for (; columns[n].head && n < COLUMNS_MAX; n++)
        cells[n] = columns[n].head;
    table_begin(&t, arena, cells, n);
    for (size_t i = 0; i < n; i++)
        t.right |= (unsigned)columns[i].right << i;
    for (size_t r = 0; r < results->n; r++) {
        for (size_t i = 0; i < n; i++)
            cells[i] = cell(arena, &results->items[r], &columns[i]);
        table_add(&t, cells);
    }
    table_print(&t, stdout, terminal_width());
}

void listing_fields(FILE *out, ab_arena_t *arena, const struct ab_value *object,
                    const struct column *columns)
{
    for (; columns->head; columns++) {
        const char *text = cell(arena, object, columns);
        if (!*text)
            continue;
        fprintf(out, "%-20s ", columns->head);
        print_clean(out, text);
        fputc('\n', out);
    }
}
