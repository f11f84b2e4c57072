/* pack.c - msgpack: writing values, structs and requests; reading structs */
#include "pack.h"

#include "types.h"
#include <assert.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

static int append(void *to, const char *bytes, size_t n)
{
    ab_buf_add(to, bytes, n);
    return 0;
}

static msgpack_packer packer(struct ab_buf *out)
{
    return (msgpack_packer){.data = out, .callback = append};
}

void ab_pack_nil(struct ab_buf *out)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_nil(&pk);
}

void ab_pack_bool(struct ab_buf *out, bool v)
{
    msgpack_packer pk = packer(out);
    if (v)
        msgpack_pack_true(&pk);
    else
        msgpack_pack_false(&pk);
}

void ab_pack_int(struct ab_buf *out, int64_t v)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_int64(&pk, v);
}

void ab_pack_real(struct ab_buf *out, double v)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_double(&pk, v);
}

void ab_pack_strn(struct ab_buf *out, const char *v, size_t n)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_str(&pk, n);
    msgpack_pack_str_body(&pk, v, n);
}

void ab_pack_str(struct ab_buf *out, const char *v)
{
    if (v)
        ab_pack_strn(out, v, strlen(v));
    else
        ab_pack_nil(out);
}

void ab_pack_bin(struct ab_buf *out, const void *v, size_t n)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_bin(&pk, n);
    msgpack_pack_bin_body(&pk, v, n);
}

void ab_pack_json(struct ab_buf *out, const char *v, size_t n)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_ext(&pk, n, 1);
    msgpack_pack_ext_body(&pk, v, n);
}

void ab_pack_time(struct ab_buf *out, int64_t utc_us, bool aware)
{
    msgpack_packer pk = packer(out);
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)utc_us >> (56 - 8 * i));
    msgpack_pack_ext(&pk, sizeof(bytes), aware ? 3 : 2);
    msgpack_pack_ext_body(&pk, bytes, sizeof(bytes));
}

void ab_pack_array(struct ab_buf *out, uint32_t n)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_array(&pk, n);
}

void ab_pack_map(struct ab_buf *out, uint32_t n)
{
    msgpack_packer pk = packer(out);
    msgpack_pack_map(&pk, n);
}

/* ------------------------------------------------------------------ structs */

void ab_pack_field(struct ab_buf *out, const struct ab_field *field, const void *item)
{
    ab_kinds[field->kind].pack(out, field, (const char *)item + field->offset);
}

static bool is_packed(const struct ab_schema *schema, unsigned role, const struct ab_head *head,
                      int i)
{
    return (schema->fields[i].flags & role) && (role == AB_OUT || (head->has >> i & 1));
}

void ab_pack_from(struct ab_buf *out, const struct ab_schema *schema, int first, unsigned role,
                  const void *item)
{
    const struct ab_head *head = item;
    uint32_t n = 0;
    for (int i = first; i < schema->n_fields; i++)
        n += is_packed(schema, role, head, i);
    ab_pack_map(out, n);
    for (int i = first; i < schema->n_fields; i++) {
        if (!is_packed(schema, role, head, i))
            continue;
        const struct ab_field *field = &schema->fields[i];
        ab_pack_str(out, field->name);
        if (!(head->has >> i & 1) || (head->null >> i & 1))
            ab_pack_nil(out);
        else if (field->kind == AB_TIME && role != AB_OUT) /* how it prints is of no matter there */
            ab_pack_time(out, *(const int64_t *)((const char *)item + field->offset), true);
        else
            ab_pack_field(out, field, item);
    }
}

void ab_pack_item(struct ab_buf *out, const struct ab_schema *schema, unsigned role,
                  const void *item)
{
    ab_pack_from(out, schema, 0, role, item);
}

void ab_pack_request(struct ab_buf *out, const struct ab_route *route, int64_t id,
                     const void *query, const void *body, size_t n_body)
{
    bool has_id = strstr(route->path, "{id}"), has_query = route->query && query;
    bool has_body = route->body && (body || route->body_form == AB_BODY_LIST);
    ab_pack_map(out, (uint32_t)has_id + has_query + has_body);
    if (has_id) {
        ab_pack_str(out, "id");
        ab_pack_int(out, id);
    }
    if (has_query) {
        ab_pack_str(out, "q");
        ab_pack_item(out, route->query, AB_CREATE, query);
    }
    if (!has_body)
        return;
    ab_pack_str(out, "b");
    if (route->body_form == AB_BODY_LIST)
        ab_pack_array(out, (uint32_t)n_body);
    for (size_t i = 0; i < n_body; i++)
        ab_pack_item(out, route->body, route->role, (const char *)body + i * route->body->size);
}

/* ------------------------------------------------------------------ reading */

static int unpack_field(struct ab_cursor *at, const struct ab_schema *schema, int i, unsigned role,
                        ab_arena_t *arena, void *item, struct ab_error *err)
{
    const struct ab_field *field = &schema->fields[i];
    struct ab_head *head = ab_head_of(item);
    uint64_t bit = UINT64_C(1) << i;
    if (head->has & bit)
        return ab_fail(err, AB_ESCHEMA, "%s: given twice", field->name);
    head->has |= bit;
    if (ab_cursor_nil(at) == 1) {
        if (!(field->flags & AB_NULLABLE) && !(role & AB_OUT))
            return ab_fail(err, AB_ESCHEMA, "%s: may not be null", field->name);
        head->null |= bit;
        return 0;
    }
    if (ab_kinds[field->kind].unpack(at, field, (char *)item + field->offset, arena, err) < 0)
        return ab_fail_within(err, "%s", field->name);
    return 0;
}

/* Required fields must be there; absent ones get their default. */
static int complete(const struct ab_schema *schema, unsigned role, ab_arena_t *arena, void *item,
                    struct ab_error *err)
{
    const struct ab_head *head = item;
    assert(head);
    for (int i = 0; i < schema->n_fields; i++) {
        const struct ab_field *field = &schema->fields[i];
        if ((head->has >> i & 1) || !(field->flags & role))
            continue;
        if ((field->flags & role & AB_KEY) || ((role & AB_CREATE) && field->flags & AB_REQUIRED))
            return ab_fail(err, AB_ESCHEMA, "%s: is missing", field->name);
        struct ab_node node;
        struct ab_scan_fault fault;
        if ((role & AB_CREATE) && field->def
            && ab_scan_text(field->def, strlen(field->def), &node, &fault) == 0)
            ab_kinds[field->kind].read(&node, field, (char *)item + field->offset, arena);
    }
    return 0;
}

int ab_unpack_item(struct ab_cursor *at, const struct ab_schema *schema, unsigned role,
                   ab_arena_t *arena, void *item, struct ab_error *err)
{
    uint32_t n;
    int guess = 0;
    if (ab_cursor_map(at, &n) < 0)
        return ab_fail(err, AB_ESCHEMA, "not a map");
    while (n-- > 0) {
        const char *name;
        size_t len;
        if (ab_cursor_str(at, &name, &len) < 0)
            return ab_fail(err, AB_ESCHEMA, "a key is not a text");
        int i = ab_field_find(schema, name, len, guess);
        if (i < 0 || !(schema->fields[i].flags & role)) {
            if (ab_cursor_skip(at) < 0)
                return ab_fail(err, AB_ESCHEMA, "broken message");
            continue;
        }
        if (unpack_field(at, schema, i, role, arena, item, err) < 0)
            return -1;
        guess = i + 1;
    }
    return complete(schema, role, arena, item, err);
}

static int unpack_body(struct ab_cursor *at, const struct ab_route *route, ab_arena_t *arena,
                       struct ab_list *out, struct ab_error *err)
{
    uint32_t n = 1;
    bool list = route->body_form == AB_BODY_LIST;
    if (list && ab_cursor_array(at, &n) < 0)
        return ab_fail(err, AB_ESCHEMA, "b: not a list");
    if (n > AB_BODY_ITEMS)
        return ab_fail(err, AB_ESCHEMA, "b: more than %d members", AB_BODY_ITEMS);
    size_t size = route->body->size;
    char *items = ab_alloc(arena, n ? n : 1, size);
    for (uint32_t i = 0; i < n; i++)
        if (ab_unpack_item(at, route->body, route->role, arena, items + i * size, err) < 0)
            return list ? ab_fail_within(err, "b[%u]", i) : ab_fail_within(err, "b");
    *out = (struct ab_list){items, n};
    return 0;
}

static int unpack_part(struct ab_cursor *at, const char *key, size_t len,
                       const struct ab_route *route, ab_arena_t *arena, struct ab_request *out,
                       void *query, bool *query_seen, struct ab_error *err)
{
    const char *name;
    size_t n;
    if (len == 2 && memcmp(key, "id", 2) == 0)
        return ab_cursor_int(at, &out->id) < 0 ? ab_fail(err, AB_ESCHEMA, "id: not an integer") : 0;
    if (len == 4 && memcmp(key, "name", 4) == 0) {
        if (ab_cursor_str(at, &name, &n) < 0 || memchr(name, '\0', n))
            return ab_fail(err, AB_ESCHEMA, "name: not a text");
        out->name = ab_strndup(arena, name, n);
        return 0;
    }
    if (len == 1 && *key == 'q' && route->query && !*query_seen) {
        *query_seen = true;
        if (ab_unpack_item(at, route->query, AB_CREATE, arena, query, err) < 0)
            return ab_fail_within(err, "q");
        return 0;
    }
    if (len == 1 && *key == 'b' && route->body && !out->body.v)
        return unpack_body(at, route, arena, &out->body, err);
    const uint8_t *begin = at->at;
    if (ab_cursor_skip(at) < 0)
        return ab_fail(err, AB_ESCHEMA, "broken message");
    if (len == 4 && memcmp(key, "next", 4) == 0 && *begin != 0xc0)
        out->next = (struct ab_bytes){(const char *)begin, (size_t)(at->at - begin)};
    return 0;
}

int ab_unpack_request(const struct ab_route *route, const void *bytes, size_t len,
                      ab_arena_t *arena, struct ab_request *out, struct ab_error *err)
{
    struct ab_cursor at = ab_cursor(bytes, len);
    void *query = route->query ? ab_alloc(arena, 1, route->query->size) : NULL;
    bool query_seen = false;
    uint32_t n;
    *out = (struct ab_request){.route = route, .query = query};
    if (ab_cursor_map(&at, &n) < 0)
        return ab_fail(err, AB_ESCHEMA, "%s: the request is not a map", route->verb);
    while (n-- > 0) {
        const char *key;
        size_t key_len;
        if (ab_cursor_str(&at, &key, &key_len) < 0)
            return ab_fail(err, AB_ESCHEMA, "%s: a key is not a text", route->verb);
        if (unpack_part(&at, key, key_len, route, arena, out, query, &query_seen, err) < 0)
            return ab_fail_within(err, "%s", route->verb);
    }
    if (query && !query_seen && complete(route->query, AB_CREATE, arena, query, err) < 0)
        return ab_fail_within(err, "%s: q", route->verb);
    if (route->body && !out->body.v && route->body_form != AB_BODY_OPTIONAL)
        return ab_fail(err, AB_ESCHEMA, "%s: b is missing", route->verb);
    return 0;
}
