/* tree.c - what the machine has built, as a value that ends
 *
 * The graph may be endless (a list in itself) or far larger than its pickle (the same list again
 * and again): the copy counts what it makes and stops.
 */
#include "machine.h"

#include <inttypes.h>
#include <string.h>

struct growth {
    size_t values, bytes;
    int depth;
};

static int refuse(const char *why, struct ab_error *err)
{
    return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "%s", why);
}

static int grow(struct growth *g, size_t values, size_t bytes, struct ab_error *err)
{
    g->values += values;
    g->bytes += bytes;
    if (g->values > AB_PICKLE_VALUES || g->bytes > AB_PICKLE_BYTES)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter",
                            "becomes more than %d values or %zu kB; put them into a file and "
                            "transfer that",
                            AB_PICKLE_VALUES, AB_PICKLE_BYTES / 1024);
    return 0;
}

static const char *key_of(struct machine *self, const struct ab_value *key)
{
    switch (key->type) {
    case AB_V_TEXT:
        return key->s;
    case AB_V_INT:
        return ab_printf(self->arena, "%" PRId64, key->i);
    case AB_V_BOOL:
        return key->b ? "true" : "false";
    case AB_V_NULL:
        return "null";
    default:
        return NULL;
    }
}

static int build(struct machine *self, struct growth *g, uint32_t at, struct ab_value *out,
                 struct ab_error *err);

static int build_parts(struct machine *self, struct growth *g, const struct node *from,
                       struct ab_value *out, struct ab_error *err)
{
    bool map = from->value.type == AB_V_MAP;

    if (grow(g, from->count, 0, err) < 0)
        return -1;
    out->items = ab_alloc(self->arena, from->count + 1, sizeof(*out->items));
    if (map)
        out->keys = ab_alloc(self->arena, from->count + 1, sizeof(*out->keys));
    for (uint32_t i = from->first; i != NONE_YET; i = self->links[i].next) {
        if (map) {
            const char *key = key_of(self, &self->nodes[self->links[i].key].value);
            if (!key)
                return refuse("a dict has a key that is neither str, int, bool nor None", err);
            if (grow(g, 0, strlen(key), err) < 0)
                return -1;
            out->keys[out->n] = key;
        }
        if (build(self, g, self->links[i].node, &out->items[out->n++], err) < 0)
            return -1;
    }
    return 0;
}

static int build(struct machine *self, struct growth *g, uint32_t at, struct ab_value *out,
                 struct ab_error *err)
{
    struct node *node = &self->nodes[at];

    *out = node->value;
    if (node->value.type != AB_V_LIST && node->value.type != AB_V_MAP)
        return grow(g, 0, node->value.type == AB_V_TEXT ? node->value.len : 0, err);
    if (node->open)
        return refuse("a list or dict contains itself", err);
    if (++g->depth > AB_PICKLE_DEPTH)
        return ab_fail_kind(err, AB_EINVAL, "bad_parameter", "nested deeper than %d levels",
                            AB_PICKLE_DEPTH);
    node->open = true;
    int rc = build_parts(self, g, node, out, err);
    node->open = false;
    g->depth--;
    return rc;
}

int tree_build(struct machine *self, uint32_t root, struct ab_value *out, struct ab_error *err)
{
    return build(self, &(struct growth){0}, root, out, err);
}
