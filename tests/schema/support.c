/* support.c - requests as text in, what came of them as text out */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run(const struct asked *asked, struct ab_buf *packed, struct ab_issues *issues)
{
    const struct ab_route *route = ab_route_of_verb(asked->verb);
    assert_non_null(route);
    struct ab_http_parts parts = {
        .path_id = asked->id ? asked->id : "",
        .path_id_len = asked->id ? strlen(asked->id) : 0,
        .query = asked->query ? asked->query : "",
        .query_len = asked->query ? strlen(asked->query) : 0,
        .body = asked->body,
        .body_len = asked->body_len ? asked->body_len
                    : asked->body   ? strlen(asked->body)
                                    : 0,
        .has_body = asked->body,
        .content_json = !asked->type,
        .content_form = asked->type && strcmp(asked->type, "form") == 0,
    };
    int rc = ab_json_request(route, &parts, packed, issues);
    assert_int_equal(rc == 0, issues->n == 0);
    return rc;
}

char *json_of(const void *bytes, size_t len)
{
    struct ab_walk walk;
    struct ab_buf out = {0};
    char piece[16384];
    int rc;
    ab_walk_start(&walk, bytes, len);
    do {
        char *end = piece;
        rc = ab_walk_json(&walk, &end, piece + sizeof(piece));
        ab_buf_add(&out, piece, (size_t)(end - piece));
    } while (rc == 0);
    if (rc < 0)
        ab_buf_free(&out);
    return ab_buf_take(&out);
}

char *answer_of(const struct asked *asked)
{
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    struct ab_buf text = {0};
    int rc = run(asked, &packed, &issues);
    if (rc == 0) {
        assert_true(ab_wire_ok(packed.data, packed.len));
        return json_of(packed.data, packed.len);
    }
    ab_buf_str(&text, rc == -2 ? "!!" : "!");
    ab_buf_str(&text, issues.list.data);
    return ab_buf_take(&text);
}

void packed_of(const struct asked *asked, struct ab_buf *packed)
{
    AB_AUTO(ab_issues_free) struct ab_issues issues = {0};
    if (run(asked, packed, &issues) != 0)
        fail_msg("%s: %s", asked->verb, issues.list.data);
}

void check_rows(const struct row *rows, size_t n)
{
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        char *answer = answer_of(&rows[i].asked);
        if (strcmp(answer, rows[i].answer) != 0) {
            print_error("%s ?%s %s\n  expected %s\n  got      %s\n", rows[i].asked.verb,
                        rows[i].asked.query ? rows[i].asked.query : "",
                        rows[i].asked.body ? rows[i].asked.body : "-", rows[i].answer, answer);
            wrong++;
        }
        free(answer);
    }
    assert_int_equal(wrong, 0);
}
