/* json.c - one HTTP request as one msgpack request; structs as JSON and back, for clients */
#include "json.h"

#include "base/cleanup.h"
#include "check.h"
#include "coerce.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DOC_SHOWN 1000 /* bytes of a broken body that its error repeats */

/* ------------------------------------------------------------------ broken JSON */

/* The body is not JSON: the words and places of Python's parser. */
static void decode_issue(struct ab_issues *issues, const struct ab_http_parts *parts,
                         const struct ab_scan_fault *fault)
{
    char loc[48], msg[160], place[96];
    struct ab_buf ctx = {0};
    if (!fault->msg) {
        snprintf(msg, sizeof(msg), "nested deeper than %d levels", AB_JSON_DEPTH);
        ab_issue(issues, "[\"body\"]", "value_error", msg, NULL);
        return;
    }
    size_t shown = parts->body_len;
    if (shown > DOC_SHOWN) {
        shown = DOC_SHOWN;
        while (shown > 0 && ((unsigned char)parts->body[shown] & 0xC0) == 0x80)
            shown--;
    }
    snprintf(loc, sizeof(loc), "[\"body\",%zu]", fault->pos);
    snprintf(place, sizeof(place), ",\"pos\":%zu,\"lineno\":%zu,\"colno\":%zu}", fault->pos,
             fault->line, fault->column);
    snprintf(msg, sizeof(msg), "%s: line %zu column %zu (char %zu)", fault->msg, fault->line,
             fault->column, fault->pos);
    ab_buf_str(&ctx, "{\"msg\":");
    ab_buf_json_str(&ctx, fault->msg, strlen(fault->msg));
    ab_buf_str(&ctx, ",\"doc\":");
    ab_buf_json_str(&ctx, parts->body, shown);
    ab_buf_str(&ctx, place);
    ab_issue(issues, loc, "value_error.jsondecode", msg, ctx.data);
    ab_buf_free(&ctx);
}

/* ------------------------------------------------------------------ queries and forms */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

int64_t ab_percent_decode(const char *text, size_t len, bool query, char *out)
{
    char *to = out;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%') {
            int high = i + 2 < len ? hex_digit(text[i + 1]) : -1;
            int low = i + 2 < len ? hex_digit(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            *to++ = (char)(high << 4 | low);
            i += 2;
        } else {
            *to++ = query && text[i] == '+' ? ' ' : text[i];
        }
    }
    return to - out;
}

/* One `name=value`; those of one field are a chain, in the order they came. */
struct pair {
    const char *value;
    size_t len;
    struct pair *next;
};

struct chain {
    struct pair *first, *last;
    size_t n, bytes;
};

/* A piece decoded into the arena. What is no escape stays as it is, as in Python. */
static const char *decode(ab_arena_t *arena, const char *text, size_t len, size_t *out_len)
{
    char *out = ab_alloc(arena, len + 1, 1);
    int64_t n = ab_percent_decode(text, len, true, out);
    if (n < 0) {
        n = 0;
        for (size_t i = 0; i < len; i++, n++) {
            int64_t one =
                text[i] == '%' && i + 2 < len ? ab_percent_decode(text + i, 3, true, out + n) : -1;
            if (one == 1)
                i += 2;
            else
                out[n] = text[i] == '+' ? ' ' : text[i];
        }
    }
    *out_len = (size_t)n;
    return out;
}

static void sort_pairs(const struct ab_schema *schema, const char *text, size_t len,
                       ab_arena_t *arena, struct chain *chains)
{
    if (len == 0)
        return; /* text may be NULL */
    const char *end = text + len;
    int guess = 0;
    while (text < end) {
        const char *stop = memchr(text, '&', (size_t)(end - text));
        stop = stop ? stop : end;
        const char *equals = memchr(text, '=', (size_t)(stop - text));
        const char *name_end = equals ? equals : stop;
        char name[64];
        int64_t n = name_end - text <= (int64_t)sizeof(name)
                        ? ab_percent_decode(text, (size_t)(name_end - text), true, name)
                        : -1;
        int i = n > 0 ? ab_field_find(schema, name, (size_t)n, guess) : -1;
        if (i >= 0) {
            struct pair *pair = ab_alloc(arena, 1, sizeof(*pair));
            const char *value = equals ? equals + 1 : stop;
            pair->value = decode(arena, value, (size_t)(stop - value), &pair->len);
            *(chains[i].last ? &chains[i].last->next : &chains[i].first) = pair;
            chains[i].last = pair;
            chains[i].n++;
            guess = i;
        }
        text = stop + 1;
    }
}

static struct ab_node node_of(ab_arena_t *arena, struct ab_buf *text, enum ab_node_type type)
{
    struct ab_node node = {type, ab_strndup(arena, text->data, text->len), text->len};
    if (text->failed)
        node.type = AB_N_NULL;
    ab_buf_free(text);
    return node;
}

/* Repeated values as a JSON list: they are checked like one. */
static struct ab_node list_of(const struct chain *chain, ab_arena_t *arena)
{
    struct ab_buf text = {0};
    for (const struct pair *pair = chain->first; pair; pair = pair->next) {
        ab_buf_char(&text, pair == chain->first ? '[' : ',');
        ab_buf_json_str(&text, pair->value, pair->len);
    }
    ab_buf_char(&text, ']');
    return node_of(arena, &text, AB_N_LIST);
}

/* KEY:VALUE, split at the first colon; values without a colon are dropped. */
static struct ab_node tags_of(const struct chain *chain, ab_arena_t *arena)
{
    struct ab_buf text = {0};
    ab_buf_char(&text, '{');
    for (const struct pair *pair = chain->first; pair; pair = pair->next) {
        const char *colon = memchr(pair->value, ':', pair->len);
        if (!colon)
            continue;
        if (text.len > 1)
            ab_buf_char(&text, ',');
        ab_buf_json_str(&text, pair->value, (size_t)(colon - pair->value));
        ab_buf_char(&text, ':');
        ab_buf_json_str(&text, colon + 1, pair->len - (size_t)(colon + 1 - pair->value));
    }
    ab_buf_char(&text, '}');
    return node_of(arena, &text, AB_N_MAP);
}

static void check_pairs(struct ab_check *check, const struct ab_place *place,
                        const struct ab_schema *schema, unsigned role, const char *text, size_t len)
{
    struct chain chains[64] = {{0}};
    struct ab_node slots[64];
    sort_pairs(schema, text, len, check->arena, chains);
    for (int i = 0; i < schema->n_fields; i++) {
        const struct chain *chain = &chains[i];
        switch (schema->fields[i].kind) {
        case AB_IDS:
        case AB_STRS:
        case AB_ENUMS:
            slots[i] = chain->n ? list_of(chain, check->arena) : (struct ab_node){0};
            break;
        case AB_TAGS:
            slots[i] = chain->n ? tags_of(chain, check->arena) : (struct ab_node){0};
            break;
        default:
            slots[i] = chain->n ? (struct ab_node){AB_N_PLAIN, chain->last->value, chain->last->len}
                                : (struct ab_node){0};
        }
    }
    ab_check_fields(check, place, schema, role, slots);
}

/* ------------------------------------------------------------------ the request */

/* "/batch-jobs/{id}" of verb batch_job.get: the contract calls it batch_job_id. */
static void check_id(struct ab_check *check, const struct ab_route *route,
                     const struct ab_http_parts *parts)
{
    static const struct ab_field any = {.kind = AB_I64};
    char name[64];
    int64_t id = 0;
    snprintf(name, sizeof(name), "%.*s_id", (int)strcspn(route->verb, "."), route->verb);
    struct ab_place path = {.name = "path", .name_len = 4};
    struct ab_place at = {.up = &path, .name = name, .name_len = strlen(name)};
    size_t len;
    const char *text = decode(check->arena, parts->path_id, parts->path_id_len, &len);
    struct ab_node node = {AB_N_PLAIN, text, len};
    ab_check_int(check, &at, &any, &node, &id);
    ab_pack_str(check->emit.out, "id");
    ab_pack_int(check->emit.out, id);
}

static void check_list_body(struct ab_check *check, const struct ab_place *place,
                            const struct ab_route *route, const struct ab_node *root)
{
    if (root->type != AB_N_LIST) {
        ab_check_issue(check, place, "type_error.list", "value is not a valid list", NULL);
        return;
    }
    struct ab_place at = {.up = place};
    struct ab_node item;
    size_t mark = check->emit.out->len;
    ab_buf_add(check->emit.out, "\xdd\0\0\0\0", 5);
    for (struct ab_scan scan = ab_scan(root); ab_scan_item(&scan, &item); at.index++) {
        if (at.index == AB_BODY_ITEMS) {
            char msg[80], ctx[48];
            snprintf(msg, sizeof(msg), "ensure this value has at most %d items", AB_BODY_ITEMS);
            snprintf(ctx, sizeof(ctx), "{\"limit_value\":%d}", AB_BODY_ITEMS);
            ab_check_issue(check, place, "value_error.list.max_items", msg, ctx);
            return;
        }
        if (check->issues->n > AB_ISSUES_SHOWN && at.index >= AB_ITEMS_NAMED)
            return;
        check->issues->of_new_item = at.index < AB_ITEMS_NAMED;
        ab_check_object(check, &at, route->body, route->role, &item);
        check->issues->of_new_item = false;
    }
    for (int i = 0; i < 4 && !check->emit.out->failed; i++)
        check->emit.out->data[mark + 1 + (size_t)i] = (char)(at.index >> (24 - 8 * i));
}

static void check_body(struct ab_check *check, const struct ab_route *route,
                       const struct ab_http_parts *parts, const struct ab_node *root)
{
    struct ab_place place = {.name = "body", .name_len = 4};
    ab_pack_str(check->emit.out, "b");
    if (route->body_form == AB_BODY_FORM) {
        check_pairs(check, &place, route->body, route->role, parts->body,
                    parts->has_body && parts->content_form ? parts->body_len : 0);
        return;
    }
    if (root->type == AB_N_ABSENT || root->type == AB_N_NULL) {
        static const struct ab_node empty = {AB_N_MAP, "{}", 2};
        if (route->body_form == AB_BODY_OPTIONAL)
            ab_check_object(check, &place, route->body, route->role, &empty);
        else
            ab_check_issue(check, &place, "value_error.missing", "field required", NULL);
        return;
    }
    if (route->body_form == AB_BODY_LIST)
        check_list_body(check, &place, route, root);
    else
        ab_check_object(check, &place, route->body, route->role, root);
}

/* What the body is, before anything else is looked at: a body that is not JSON is said even to
 * strangers. A body of another content type is a text, which no schema takes. */
static int read_body(const struct ab_route *route, const struct ab_http_parts *parts,
                     struct ab_node *root, struct ab_issues *issues)
{
    struct ab_scan_fault fault;
    *root = (struct ab_node){0};
    if (!route->body || route->body_form == AB_BODY_FORM || !parts->has_body
        || parts->body_len == 0)
        return 0;
    if (!parts->content_json) {
        *root = (struct ab_node){AB_N_TEXT, "", 0};
        return 0;
    }
    if (ab_scan_text(parts->body, parts->body_len, root, &fault) == 0)
        return 0;
    decode_issue(issues, parts, &fault);
    return -1;
}

int ab_json_request(const struct ab_route *route, const struct ab_http_parts *parts,
                    struct ab_buf *packed, struct ab_issues *issues)
{
    struct ab_node root;
    if (read_body(route, parts, &root, issues) < 0)
        return -2;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_check check = {.arena = arena, .issues = issues, .emit = {.out = packed}};
    bool has_id = strstr(route->path, "{id}"), has_name = strstr(route->path, "{name}");
    ab_pack_map(packed, (uint32_t)has_id + has_name + !!route->query + !!route->body);
    if (has_id)
        check_id(&check, route, parts);
    if (has_name) {
        ab_pack_str(packed, "name");
        ab_pack_strn(packed, parts->path_name, parts->path_name_len);
    }
    if (route->query) {
        struct ab_place place = {.name = "query", .name_len = 5};
        ab_pack_str(packed, "q");
        check_pairs(&check, &place, route->query, AB_CREATE, parts->query, parts->query_len);
    }
    if (route->body)
        check_body(&check, route, parts, &root);
    if (packed->failed && issues->n == 0)
        ab_issue(issues, "[\"body\"]", "value_error", "too large", NULL);
    return issues->n > 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ clients */

void ab_write_from(struct ab_buf *out, const struct ab_schema *schema, int first, unsigned role,
                   const void *item)
{
    const struct ab_head *head = item;
    bool comma = false;
    ab_buf_char(out, '{');
    for (int i = first; i < schema->n_fields; i++) {
        const struct ab_field *field = &schema->fields[i];
        if (!(head->has >> i & 1) || !(field->flags & role))
            continue;
        if (comma)
            ab_buf_char(out, ',');
        comma = true;
        ab_buf_json_str(out, field->name, strlen(field->name));
        ab_buf_char(out, ':');
        if (head->null >> i & 1)
            ab_buf_str(out, "null");
        else
            ab_kinds[field->kind].write(out, field, (const char *)item + field->offset);
    }
    ab_buf_char(out, '}');
}

void ab_json_write(struct ab_buf *out, const struct ab_schema *schema, unsigned role,
                   const void *item)
{
    ab_write_from(out, schema, 0, role, item);
}

void ab_read_item(const struct ab_node *node, const struct ab_schema *schema, unsigned role,
                  ab_arena_t *arena, void *item)
{
    struct ab_head *head = item;
    struct ab_node key, value;
    int guess = 0;
    for (struct ab_scan scan = ab_scan(node); ab_scan_member(&scan, &key, &value);) {
        const char *name;
        size_t len;
        if (ab_scan_string(&key, arena, &name, &len) < 0)
            continue;
        int i = ab_field_find(schema, name, len, guess);
        if (i < 0 || !(schema->fields[i].flags & role))
            continue;
        guess = i + 1;
        const struct ab_field *field = &schema->fields[i];
        uint64_t bit = UINT64_C(1) << i;
        if (value.type == AB_N_NULL)
            head->null |= bit;
        else if (ab_kinds[field->kind].read(&value, field, (char *)item + field->offset, arena) < 0)
            continue;
        else
            head->null &= ~bit;
        head->has |= bit;
    }
}

/* The object, list or page at `root` as the list of its items. */
static bool find_items(const struct ab_node *root, struct ab_node *items, int64_t *count,
                       ab_arena_t *arena)
{
    struct ab_node key, value;
    *items = *root;
    if (root->type == AB_N_LIST)
        return true;
    if (root->type != AB_N_MAP)
        return false;
    for (struct ab_scan scan = ab_scan(root); ab_scan_member(&scan, &key, &value);) {
        if (key.raw_len == 7 && memcmp(key.raw, "results", 7) == 0 && value.type == AB_N_LIST)
            *items = value;
        if (key.raw_len == 5 && memcmp(key.raw, "count", 5) == 0)
            (void)ab_to_int(&value, arena, count);
    }
    return true;
}

int ab_json_read(const struct ab_schema *schema, const char *text, size_t len, ab_arena_t *arena,
                 struct ab_list *out, int64_t *count, struct ab_error *err)
{
    struct ab_node root, items, item;
    struct ab_scan_fault fault;
    int64_t total = -1;
    *out = (struct ab_list){0};
    if (ab_scan_text(text, len, &root, &fault) < 0)
        return ab_fail(err, AB_EUPSTREAM, "the reply is not JSON: %s at character %zu",
                       fault.msg ? fault.msg : "nested too deeply", fault.pos);
    if (!find_items(&root, &items, &total, arena))
        return ab_fail(err, AB_EUPSTREAM, "the reply is neither an object nor a list");
    size_t n = 0;
    if (items.type == AB_N_LIST)
        for (struct ab_scan scan = ab_scan(&items); ab_scan_item(&scan, &item);)
            n += item.type == AB_N_MAP;
    else
        n = 1;
    out->v = ab_alloc(arena, n ? n : 1, schema->size);
    if (items.type == AB_N_MAP)
        ab_read_item(&items, schema, AB_OUT, arena, out->v);
    else
        for (struct ab_scan scan = ab_scan(&items); ab_scan_item(&scan, &item);)
            if (item.type == AB_N_MAP)
                ab_read_item(&item, schema, AB_OUT, arena,
                             (char *)out->v + out->n++ * schema->size);
    out->n = n;
    if (count)
        *count = total >= 0 ? total : (int64_t)n;
    return 0;
}
