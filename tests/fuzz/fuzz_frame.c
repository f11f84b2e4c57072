/* fuzz_frame.c - frames of the bus: the check, the cursor, the walk to JSON, the way into structs
 */
#include "fuzz.h"

#include "schema/pack.h"
#include <string.h>

/* As text, in pieces of `size`; NULL: broken. */
static char *walk(const uint8_t *data, size_t len, size_t size)
{
    struct ab_walk walk;
    struct ab_buf text = {0};
    char *piece = malloc(size);
    int rc;
    ab_walk_start(&walk, data, len);
    do {
        char *end = piece;
        rc = ab_walk_json(&walk, &end, piece + size);
        FUZZ_CHECK(end > piece || rc != 0);
        ab_buf_add(&text, piece, (size_t)(end - piece));
    } while (rc == 0);
    free(piece);
    if (rc < 0)
        ab_buf_free(&text);
    return ab_buf_take(&text);
}

/* What a handler gets is packed, read and packed again without a change. */
static void round_trip(const struct ab_route *route, const uint8_t *data, size_t size)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf once = {0}, twice = {0};
    struct ab_request r;
    struct ab_error err;
    if (ab_unpack_request(route, data, size, arena, &r, &err) < 0)
        return;
    ab_pack_request(&once, route, r.id, r.query, r.body.v, r.body.n);
    FUZZ_CHECK(ab_unpack_request(route, once.data, once.len, arena, &r, &err) == 0);
    ab_pack_request(&twice, route, r.id, r.query, r.body.v, r.body.n);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool ok = ab_wire_ok(data, size);
    struct ab_cursor value, at = ab_cursor(data, size);
    if (ok) {
        FUZZ_CHECK(ab_cursor_skip(&at) == 0 && at.at == at.end);
        (void)ab_cursor_find(ab_cursor(data, size), "next", &value);
    }
    char *narrow = walk(data, size, 512), *wide = walk(data, size, 4096);
    FUZZ_CHECK(!narrow == !wide && (!narrow || strcmp(narrow, wide) == 0));
    free(narrow);
    free(wide);
    for (size_t i = 0; i < ab_n_routes; i++)
        round_trip(&ab_routes[i], data, size);
    return 0;
}
