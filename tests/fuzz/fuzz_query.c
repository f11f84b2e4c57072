/* fuzz_query.c - query strings: what is accepted must reach the handler and come back the same */
#include "fuzz.h"

#include "request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *query;
    size_t len;
    const struct ab_route *route = fuzz_route(data, size, &query, &len);
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0}, once = {0}, twice = {0};
    struct ab_http_parts parts = {.path_id = query, /* a path parameter is text of the same kind */
                                  .path_id_len = len < 20 ? len : 20,
                                  .query = query,
                                  .query_len = len,
                                  .body = "{}",
                                  .body_len = 2,
                                  .has_body = true,
                                  .content_json = true};
    char *decoded = malloc(len + 1);
    FUZZ_CHECK(ab_percent_decode(query, len, true, decoded) <= (int64_t)len);
    free(decoded);
    if (ab_json_request(route, &parts, &packed, &issues) != 0) {
        FUZZ_CHECK(issues.n > 0);
        return 0;
    }
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_request r;
    struct ab_error err;
    FUZZ_CHECK(ab_wire_ok(packed.data, packed.len));
    FUZZ_CHECK(ab_unpack_request(route, packed.data, packed.len, arena, &r, &err) == 0);
    ab_pack_request(&once, route, r.id, r.query, r.body.v, r.body.n);
    FUZZ_CHECK(ab_unpack_request(route, once.data, once.len, arena, &r, &err) == 0);
    ab_pack_request(&twice, route, r.id, r.query, r.body.v, r.body.n);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    return 0;
}
