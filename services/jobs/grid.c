/* grid.c - lists of values, their combinations, and patterns with {{name}} in them */
#include "grid.h"

#include <inttypes.h>
#include <string.h>

enum {
    LISTS_MOST = 64, /* bits of grid_pattern.lists */
    PATH_MOST = 256, /* characters, as everywhere */
    SHOWN = 60,      /* of a text in an error */
};

/* ---- the lists */

static int check_list(const struct ab_value *lists, size_t k, struct ab_error *err)
{
    const char *name = lists->keys[k];
    const struct ab_value *list = &lists->items[k];

    if (!*name || strstr(name, "}}"))
        return ab_fail(err, AB_ESCHEMA,
                       "parameters: \"%.*s\" is no name that a pattern could have in {{ }}", SHOWN,
                       name);
    if (list->type != AB_V_LIST || list->n == 0)
        return ab_fail(err, AB_ESCHEMA,
                       "parameters: %.*s must be a list with one value at least, e.g. [1, 2]",
                       SHOWN, name);
    for (size_t i = 0; i < k; i++)
        if (strcmp(lists->keys[i], name) == 0)
            return ab_fail(err, AB_ESCHEMA, "parameters: %.*s is there twice", SHOWN, name);
    return 0;
}

static int too_many(size_t most, struct ab_error *err)
{
    return ab_fail(err, AB_ESCHEMA,
                   "these parameters make more than %zu jobs; send parts of them as arrays of "
                   "their own",
                   most);
}

static int count_zip(struct grid *self, size_t most, struct ab_error *err)
{
    const struct ab_value *lists = self->lists;

    self->count = lists->items[0].n;
    for (size_t k = 1; k < lists->n; k++)
        if (lists->items[k].n != self->count)
            return ab_fail(err, AB_ESCHEMA,
                           "parameters: zip needs lists of one length, but %.*s has %zu values "
                           "and %.*s has %zu",
                           SHOWN, lists->keys[0], self->count, SHOWN, lists->keys[k],
                           lists->items[k].n);
    return self->count > most ? too_many(most, err) : 0;
}

static int count_product(struct grid *self, size_t most, struct ab_error *err)
{
    const struct ab_value *lists = self->lists;

    self->count = 1;
    self->stride = ab_alloc(self->arena, lists->n, sizeof(*self->stride));
    for (size_t k = lists->n; k-- > 0;) {
        self->stride[k] = self->count;
        if (lists->items[k].n > most / self->count)
            return too_many(most, err);
        self->count *= lists->items[k].n;
    }
    return 0;
}

int grid_open(struct grid *self, ab_arena_t *arena, struct ab_bytes lists, bool zip, size_t most,
              struct ab_error *err)
{
    *self = (struct grid){.arena = arena, .zip = zip};
    self->lists = ab_value_parse(arena, lists.p, lists.n, err);
    if (!self->lists)
        return -1;
    if (self->lists->type != AB_V_MAP || self->lists->n == 0 || self->lists->n > LISTS_MOST)
        return ab_fail(err, AB_ESCHEMA,
                       "parameters must be an object of 1 to %d lists, e.g. {\"n\": [1, 2]}",
                       LISTS_MOST);
    for (size_t k = 0; k < self->lists->n; k++)
        if (check_list(self->lists, k, err) < 0)
            return -1;
    return zip ? count_zip(self, most, err) : count_product(self, most, err);
}

const struct ab_value *grid_value(const struct grid *self, size_t k, size_t i)
{
    const struct ab_value *list = &self->lists->items[k];
    return &list->items[self->zip ? i : i / self->stride[k] % list->n];
}

/* ---- patterns */

/* What stands in a path: texts as they are, the rest as in JSON. */
static const char *path_text(const struct grid *self, const struct ab_value *v, size_t *len)
{
    struct ab_buf out = {0};

    if (v->type == AB_V_TEXT) {
        *len = v->len;
        return v->s;
    }
    ab_value_write(&out, v);
    const char *text = ab_strndup(self->arena, out.data ? out.data : "", out.len);
    *len = out.len;
    ab_buf_free(&out);
    return text;
}

static bool fits_in_path(const struct ab_value *v, const char *text, size_t len)
{
    if (v->type == AB_V_LIST || v->type == AB_V_MAP || v->type == AB_V_NULL || len == 0)
        return false;
    if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || text[i] == '/')
            return false;
    return true;
}

static int check_values(const struct grid *self, const char *what, size_t k, struct ab_error *err)
{
    const struct ab_value *list = &self->lists->items[k];

    for (size_t i = 0; i < list->n; i++) {
        size_t len;
        const char *text = path_text(self, &list->items[i], &len);
        if (!fits_in_path(&list->items[i], text, len))
            return ab_fail(err, AB_ESCHEMA,
                           "%s: value %zu of %.*s cannot stand in a path: only numbers, booleans "
                           "and texts without '/' can",
                           what, i, SHOWN, self->lists->keys[k]);
    }
    return 0;
}

static int find_list(const struct grid *self, const char *name, size_t len)
{
    for (size_t k = 0; k < self->lists->n; k++)
        if (strlen(self->lists->keys[k]) == len && memcmp(self->lists->keys[k], name, len) == 0)
            return (int)k;
    return -1;
}

static int add_piece(const struct grid *self, const char *what, const char **at,
                     struct grid_pattern *out, struct ab_error *err)
{
    const char *open = strstr(*at, "{{");
    struct grid_piece *piece = &out->pieces[out->n++];

    *piece = (struct grid_piece){*at, open ? (size_t)(open - *at) : strlen(*at), -1};
    if (!open) {
        *at += piece->len;
        return 0;
    }
    const char *name = open + 2, *close = strstr(name, "}}");
    if (!close)
        return ab_fail(err, AB_ESCHEMA, "%s: {{ without }} in \"%.*s\"", what, SHOWN, open);
    size_t len = (size_t)(close - name);
    piece->list = find_list(self, name, len);
    if (piece->list < 0)
        return ab_fail(err, AB_ESCHEMA, "%s names {{%.*s}}, which is none of the parameters", what,
                       len < SHOWN ? (int)len : SHOWN, name);
    *at = close + 2;
    if (out->lists >> piece->list & 1)
        return 0;
    out->lists |= UINT64_C(1) << piece->list;
    return check_values(self, what, (size_t)piece->list, err);
}

int grid_pattern(const struct grid *self, const char *what, const char *text,
                 struct grid_pattern *out, struct ab_error *err)
{
    size_t most = 1;

    for (const char *c = text; (c = strstr(c, "{{")); c += 2)
        most++;
    *out = (struct grid_pattern){.pieces = ab_alloc(self->arena, most, sizeof(*out->pieces))};
    for (const char *at = text; *at;)
        if (add_piece(self, what, &at, out, err) < 0)
            return -1;
    return 0;
}

static size_t characters(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

int grid_text(const struct grid *self, const struct grid_pattern *pattern, size_t i,
              const char **out, struct ab_error *err)
{
    char text[4 * PATH_MOST + 1];
    size_t n = 0;

    for (size_t p = 0; p < pattern->n; p++) {
        const struct grid_piece *piece = &pattern->pieces[p];
        size_t len = 0;
        const char *value = "";
        if (piece->list >= 0)
            value = path_text(self, grid_value(self, (size_t)piece->list, i), &len);
        if (n + piece->len + len >= sizeof(text))
            return ab_fail(err, AB_ESCHEMA, "the path of job %zu has more than %d characters", i,
                           PATH_MOST);
        memcpy(text + n, piece->text, piece->len);
        memcpy(text + n + piece->len, value, len);
        n += piece->len + len;
    }
    if (characters(text, n) > PATH_MOST)
        return ab_fail(err, AB_ESCHEMA, "the path of job %zu has more than %d characters", i,
                       PATH_MOST);
    *out = ab_strndup(self->arena, text, n);
    return 0;
}
