/* failure.c - error bodies on the bus: {kind, text, items: [{index, id, reason}], retry} */
#include "base/arena.h"
#include "base/error.h"
#include "schema/pack.h"
#include "server.h"
#include <string.h>

#define MAX_ITEMS 100000

void ab_bus_error_pack(struct ab_buf *out, const struct ab_error *err)
{
    ab_pack_map(out, 4);
    ab_pack_str(out, "kind");
    ab_pack_str(out, err->kind);
    ab_pack_str(out, "text");
    ab_pack_str(out, err->text);
    ab_pack_str(out, "items");
    ab_pack_array(out, (uint32_t)err->n_items);
    for (size_t i = 0; i < err->n_items; i++) {
        ab_pack_map(out, 3);
        ab_pack_str(out, "index");
        ab_pack_int(out, err->items[i].index);
        ab_pack_str(out, "id");
        ab_pack_int(out, err->items[i].id);
        ab_pack_str(out, "reason");
        ab_pack_str(out, err->items[i].reason);
    }
    ab_pack_str(out, "retry");
    ab_pack_int(out, err->retry_sec);
}

static void read_text(struct ab_cursor map, const char *key, char *out, size_t size)
{
    struct ab_cursor at;
    const char *p;
    size_t n;

    if (ab_cursor_find(map, key, &at) < 0 || ab_cursor_str(&at, &p, &n) < 0)
        return;
    if (n >= size) {
        n = size - 1;
        while (n > 0 && ((unsigned char)p[n] & 0xc0) == 0x80)
            n--; /* cut at a character's begin */
    }
    memcpy(out, p, n);
    out[n] = '\0';
    if (strlen(out) != n)
        out[0] = '\0';
}

static int64_t read_int(struct ab_cursor map, const char *key, int64_t def)
{
    struct ab_cursor at;
    int64_t v;

    if (ab_cursor_find(map, key, &at) < 0 || ab_cursor_int(&at, &v) < 0)
        return def;
    return v;
}

static int read_items(struct ab_cursor map, struct ab_arena *arena, struct ab_error *out)
{
    struct ab_cursor at;
    uint32_t n;

    if (ab_cursor_find(map, "items", &at) < 0 || ab_cursor_nil(&at) == 1)
        return 0;
    if (ab_cursor_array(&at, &n) < 0 || n > MAX_ITEMS || n > (size_t)(at.end - at.at))
        return -1; /* more than there are bytes */
    if (n == 0)
        return 0;
    out->items = ab_alloc(arena, n, sizeof(out->items[0]));
    for (uint32_t i = 0; i < n; i++) {
        struct ab_cursor item = at, reason;
        const char *p = "";
        size_t len = 0;

        if (ab_cursor_peek(&item) != AB_TK_MAP)
            return -1;
        if (ab_cursor_find(item, "reason", &reason) == 0)
            (void)ab_cursor_str(&reason, &p, &len);
        out->items[i].index = read_int(item, "index", -1);
        out->items[i].id = read_int(item, "id", 0);
        out->items[i].reason = ab_strndup(arena, p, len);
        if (ab_cursor_skip(&at) < 0)
            return -1;
    }
    out->n_items = n;
    return 0;
}

int ab_bus_error_unpack(const void *body, size_t len, int status, struct ab_arena *arena,
                        struct ab_error *out)
{
    struct ab_cursor map = ab_cursor(body, len);

    memset(out, 0, sizeof(*out));
    out->code = status;
    memcpy(out->kind, "error", sizeof("error"));
    if (ab_cursor_peek(&map) != AB_TK_MAP)
        return -1;
    read_text(map, "kind", out->kind, sizeof(out->kind));
    read_text(map, "text", out->text, sizeof(out->text));
    int64_t retry = read_int(map, "retry", 0);
    out->retry_sec = retry < 0 ? 0 : retry > 3600 ? 3600 : (int)retry;
    if (read_items(map, arena, out) < 0) {
        out->items = NULL;
        out->n_items = 0;
        return -1;
    }
    return 0;
}
