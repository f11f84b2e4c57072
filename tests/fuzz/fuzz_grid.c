/* fuzz_grid.c - a pattern and lists of values: whatever they are, paths stay short and where they
 * belong
 *
 * The pattern, a newline, then the lists as JSON; a second newline in between asks for zip.
 */
#include "fuzz.h"

#include "base/cleanup.h"
#include "svc_jobs/grid.h"
#include <string.h>

enum {
    MOST = 500
};

static bool has_step_up(const char *path)
{
    for (const char *c = path; (c = strstr(c, "..")); c += 2)
        if ((c == path || c[-1] == '/') && (c[2] == '/' || !c[2]))
            return true;
    return false;
}

static size_t count(const char *text, char what)
{
    size_t n = 0;
    for (; *text; text++)
        n += *text == what;
    return n;
}

static void try_all(const struct grid *grid, const char *text)
{
    struct ab_error err = {0};
    struct grid_pattern pattern;
    if (grid_pattern(grid, "workdir", text, &pattern, &err) < 0) {
        FUZZ_CHECK(err.code == AB_ESCHEMA && *err.text);
        return;
    }
    for (size_t i = 0; i < grid->count; i++) {
        const char *path = NULL;
        if (grid_text(grid, &pattern, i, &path, &err) < 0) {
            FUZZ_CHECK(err.code == AB_ESCHEMA);
            return;
        }
        FUZZ_CHECK(strlen(path) <= 4 * 256);
        FUZZ_CHECK(pattern.lists || strcmp(path, text) == 0);
        /* values bring no folders: neither a slash nor a way up that the pattern has not */
        FUZZ_CHECK(count(path, '/') <= count(text, '/'));
        FUZZ_CHECK(!has_step_up(path) || has_step_up(text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_error err = {0};
    struct grid grid;
    const uint8_t *line = memchr(data, '\n', size);
    if (!line || memchr(data, 0, size))
        return 0;
    bool zip = line + 1 < data + size && line[1] == '\n';
    const char *pattern = ab_strndup(arena, data, (size_t)(line - data));
    const char *json = (const char *)line + 1 + zip;
    struct ab_bytes lists = {json, (size_t)((const char *)data + size - json)};
    if (grid_open(&grid, arena, lists, zip, MOST, &err) < 0) {
        FUZZ_CHECK(*err.text);
        return 0;
    }
    FUZZ_CHECK(grid.count >= 1 && grid.count <= MOST);
    for (size_t k = 0; k < grid.lists->n; k++) {
        FUZZ_CHECK(grid_value(&grid, k, 0) == &grid.lists->items[k].items[0]);
        FUZZ_CHECK(grid_value(&grid, k, grid.count - 1)
                   == &grid.lists->items[k].items[grid.lists->items[k].n - 1]);
    }
    try_all(&grid, pattern);
    return 0;
}
