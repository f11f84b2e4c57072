/* types_list.c - the operations of lists, objects and maps */
#include "kinds.h"

#include "base/str.h"
#include "coerce.h"
#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------ lists of scalars */

static int take_list(struct ab_cursor *at, const struct ab_field *field, uint32_t *n,
                     struct ab_error *err)
{
    if (ab_cursor_array(at, n) < 0)
        return ab_wrong(err, "a list");
    if (field->max > 0 && *n > field->max)
        return ab_fail(err, AB_ESCHEMA, "more than %" PRId64 " members", field->max);
    return 0;
}

void ab_pack_ids(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_ids *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_int(out, v->v[i]);
}

int ab_unpack_ids(AB_UNPACK_ARGS)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_ids *v = value;
    *v = (struct ab_ids){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++)
        if (ab_cursor_int(at, &v->v[i]) < 0)
            return ab_wrong(err, "a list of integers");
    return 0;
}

void ab_write_ids(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_ids *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_int(out, v->v[i]);
    }
    ab_buf_char(out, ']');
}

static size_t count_items(const struct ab_node *list)
{
    size_t n = 0;
    struct ab_node item;
    for (struct ab_scan scan = ab_scan(list); ab_scan_item(&scan, &item);)
        n++;
    return n;
}

int ab_read_ids(AB_READ_ARGS)
{
    (void)field;
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_ids *v = value;
    struct ab_node item;
    *v = (struct ab_ids){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        if (ab_to_int(&item, arena, &v->v[v->n++]) != AB_CO_OK)
            return -1;
    return 0;
}

void ab_pack_strs(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_strs *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_str(out, v->v[i]);
}

int ab_unpack_strs(AB_UNPACK_ARGS)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_strs *v = value;
    *v = (struct ab_strs){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++) {
        const char *s;
        size_t len;
        if (ab_cursor_str(at, &s, &len) < 0 || memchr(s, '\0', len) || !ab_utf8_ok(s, len))
            return ab_wrong(err, "a list of texts");
        v->v[i] = ab_strndup(arena, s, len);
    }
    return 0;
}

void ab_write_strs(AB_PACK_ARGS)
{
    (void)field;
    const struct ab_strs *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, v->v[i], strlen(v->v[i]));
    }
    ab_buf_char(out, ']');
}

int ab_read_strs(AB_READ_ARGS)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_strs *v = value;
    struct ab_node item;
    *v = (struct ab_strs){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); v->n++)
        if (ab_read_str(&item, field, &v->v[v->n], arena) < 0)
            return -1;
    return 0;
}

void ab_pack_enums(AB_PACK_ARGS)
{
    const struct ab_enums *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_str(out, ab_enum_name(field, v->v[i]));
}

int ab_unpack_enums(AB_UNPACK_ARGS)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_enums *v = value;
    *v = (struct ab_enums){ab_alloc(arena, n ? n : 1, sizeof(*v->v)), n};
    for (uint32_t i = 0; i < n; i++)
        if (ab_take_enum(at, field, &v->v[i], err) < 0)
            return -1;
    return 0;
}

void ab_write_enums(AB_PACK_ARGS)
{
    const struct ab_enums *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_write_enum(out, field, &v->v[i]);
    }
    ab_buf_char(out, ']');
}

int ab_read_enums(AB_READ_ARGS)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_enums *v = value;
    struct ab_node item;
    *v = (struct ab_enums){ab_alloc(arena, count_items(node) + 1, sizeof(*v->v)), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item); v->n++)
        if (ab_read_enum(&item, field, &v->v[v->n], arena) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ OBJ, LIST, MAP */

void ab_pack_obj(AB_PACK_ARGS)
{
    const void *item = *(const void *const *)value;
    if (item)
        ab_pack_item(out, field->sub, ~0U, item);
    else
        ab_pack_nil(out);
}

int ab_unpack_obj(AB_UNPACK_ARGS)
{
    void *item = ab_alloc(arena, 1, field->sub->size);
    *(void **)value = item;
    return ab_unpack_item(at, field->sub, AB_CREATE, arena, item, err);
}

void ab_write_obj(AB_PACK_ARGS)
{
    const void *item = *(const void *const *)value;
    if (item)
        ab_json_write(out, field->sub, ~0U, item);
    else
        ab_buf_str(out, "null");
}

int ab_read_obj(AB_READ_ARGS)
{
    if (node->type != AB_N_MAP)
        return -1;
    void *item = ab_alloc(arena, 1, field->sub->size);
    *(void **)value = item;
    ab_read_item(node, field->sub, ~0U, arena, item);
    return 0;
}

static const char *item_at(const struct ab_list *list, const struct ab_schema *schema, size_t i)
{
    return (const char *)list->v + i * schema->size;
}

void ab_pack_list(AB_PACK_ARGS)
{
    const struct ab_list *v = value;
    ab_pack_array(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        ab_pack_item(out, field->sub, ~0U, item_at(v, field->sub, i));
}

int ab_unpack_list(AB_UNPACK_ARGS)
{
    uint32_t n;
    if (take_list(at, field, &n, err) < 0)
        return -1;
    struct ab_list *v = value;
    *v = (struct ab_list){ab_alloc(arena, n ? n : 1, field->sub->size), n};
    for (uint32_t i = 0; i < n; i++)
        if (ab_unpack_item(at, field->sub, AB_CREATE, arena, (void *)item_at(v, field->sub, i), err)
            < 0)
            return -1;
    return 0;
}

void ab_write_list(AB_PACK_ARGS)
{
    const struct ab_list *v = value;
    ab_buf_char(out, '[');
    for (size_t i = 0; i < v->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_json_write(out, field->sub, ~0U, item_at(v, field->sub, i));
    }
    ab_buf_char(out, ']');
}

int ab_read_list(AB_READ_ARGS)
{
    if (node->type != AB_N_LIST)
        return -1;
    struct ab_list *v = value;
    struct ab_node item;
    *v = (struct ab_list){ab_alloc(arena, count_items(node) + 1, field->sub->size), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_item(&scan, &item);)
        if (item.type == AB_N_MAP)
            ab_read_item(&item, field->sub, ~0U, arena, (void *)item_at(v, field->sub, v->n++));
    return 0;
}

/* The first field of a MAP's item is its key: bit 0 of `has`. It stands in front of the item, not
 * inside. */
static const char *key_of(const struct ab_schema *schema, const void *item)
{
    const char *key = *(const char *const *)((const char *)item + schema->fields[0].offset);
    return key ? key : "";
}

void ab_pack_mapping(AB_PACK_ARGS)
{
    const struct ab_list *v = value;
    ab_pack_map(out, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++) {
        const char *item = item_at(v, field->sub, i);
        ab_pack_str(out, key_of(field->sub, item));
        ab_pack_from(out, field->sub, 1, ~0U, item);
    }
}

int ab_unpack_mapping(AB_UNPACK_ARGS)
{
    uint32_t n;
    if (ab_cursor_map(at, &n) < 0)
        return ab_wrong(err, "an object");
    if (field->max > 0 && n > field->max)
        return ab_fail(err, AB_ESCHEMA, "more than %" PRId64 " members", field->max);
    struct ab_list *v = value;
    *v = (struct ab_list){ab_alloc(arena, n ? n : 1, field->sub->size), n};
    for (uint32_t i = 0; i < n; i++) {
        char *item = (char *)v->v + i * field->sub->size;
        const struct ab_field *key = &field->sub->fields[0];
        const char *name = NULL;
        if (ab_unpack_str(at, key, &name, arena, err) < 0)
            return -1;
        if (ab_unpack_item(at, field->sub, AB_CREATE, arena, item, err) < 0)
            return ab_fail_within(err, "%s", name);
        *(const char **)(item + key->offset) = name;
        ab_head_of(item)->has |= 1;
    }
    return 0;
}

void ab_write_mapping(AB_PACK_ARGS)
{
    const struct ab_list *v = value;
    ab_buf_char(out, '{');
    for (size_t i = 0; i < v->n; i++) {
        const char *item = item_at(v, field->sub, i), *key = key_of(field->sub, item);
        if (i > 0)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, key, strlen(key));
        ab_buf_char(out, ':');
        ab_write_from(out, field->sub, 1, ~0U, item);
    }
    ab_buf_char(out, '}');
}

int ab_read_mapping(AB_READ_ARGS)
{
    if (node->type != AB_N_MAP)
        return -1;
    struct ab_list *v = value;
    struct ab_node name, item;
    size_t n = 0;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &name, &item);)
        n++;
    *v = (struct ab_list){ab_alloc(arena, n + 1, field->sub->size), 0};
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &name, &item);) {
        char *to = (char *)v->v + v->n * field->sub->size;
        const struct ab_field *key = &field->sub->fields[0];
        if (item.type != AB_N_MAP || ab_read_str(&name, key, to + key->offset, arena) < 0)
            continue;
        ab_read_item(&item, field->sub, ~0U, arena, to);
        ab_head_of(to)->has |= 1;
        v->n++;
    }
    return 0;
}
