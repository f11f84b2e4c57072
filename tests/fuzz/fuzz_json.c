/* fuzz_json.c - bodies: what the gateway accepts must survive as struct and as JSON again */
#include "fuzz.h"

#include "request.h"

static int ask(const struct ab_route *route, const char *body, size_t len, struct ab_buf *packed)
{
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    struct ab_http_parts parts = {
        .path_id = "7",
        .path_id_len = 1,
        .body = body,
        .body_len = len,
        .has_body = true,
        .content_json = route->body_form != AB_BODY_FORM,
        .content_form = route->body_form == AB_BODY_FORM,
    };
    int rc = ab_json_request(route, &parts, packed, &issues);
    FUZZ_CHECK((rc == 0) == (issues.n == 0));
    return rc;
}

static void write_body(struct ab_buf *out, const struct ab_route *route, const struct ab_list *body)
{
    bool list = route->body_form == AB_BODY_LIST;
    if (list)
        ab_buf_char(out, '[');
    for (size_t i = 0; i < body->n; i++) {
        if (i > 0)
            ab_buf_char(out, ',');
        ab_json_write(out, route->body, route->role, (const char *)body->v + i * route->body->size);
    }
    if (list)
        ab_buf_char(out, ']');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body;
    size_t len;
    const struct ab_route *route = fuzz_route(data, size, &body, &len);
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0}, text = {0}, again = {0};
    if (ask(route, body, len, &packed) != 0 || !route->body)
        return 0;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_request r;
    struct ab_error err;
    FUZZ_CHECK(ab_wire_ok(packed.data, packed.len));
    FUZZ_CHECK(ab_unpack_request(route, packed.data, packed.len, arena, &r, &err) == 0);
    if (route->body_form == AB_BODY_FORM)
        return 0;
    write_body(&text, route, &r.body);
    FUZZ_CHECK(ask(route, text.data, text.len, &again) == 0);
    FUZZ_CHECK(again.len == packed.len && memcmp(again.data, packed.data, again.len) == 0);
    return 0;
}
