/* json.h - descriptor <-> JSON text, for the gateway (strict, contract errors) and for API clients
 */
#ifndef AB_JSON_H
#define AB_JSON_H

#include "schema.h"

/* The errors of one request, rendered as the contract's 422 body: {"detail":[{loc,msg,type,ctx?}]}.
 */
struct ab_issues {
    struct ab_buf list; /* JSON objects, comma separated, in field-definition order */
    size_t n;           /* past 100 they are counted but not added, save for the first of an item */
    bool of_new_item;   /* so the next one is added: each bad item of a list is named */
};
void ab_issues_free(struct ab_issues *self);
/* loc is JSON text such as ["query","limit"]; ctx JSON text or NULL. */
void ab_issue(struct ab_issues *self, const char *loc, const char *type, const char *msg,
              const char *ctx);

/* ---- gateway: one HTTP request -> one msgpack request body
 *
 * path_id / path_name: from the route match, still text; query: raw, still percent-encoded, without
 * '?'; body: JSON (or form). content_json: the Content-Type allows JSON. All errors of path, query
 * and body are collected in `issues`. Returns 0 and fills `packed` (freed by the caller), -1 when
 * issues->n > 0, -2 when the body is not JSON at all (the issue is added; the contract answers that
 * even before 401). Safe on any thread; touches no global state. */
struct ab_http_parts {
    const char *path_id;
    size_t path_id_len;
    const char *path_name; /* percent-decoded already */
    size_t path_name_len;
    const char *query;
    size_t query_len;
    const char *body;
    size_t body_len;
    bool has_body;
    bool content_json, content_form;
};
int ab_json_request(const struct ab_route *route, const struct ab_http_parts *parts,
                    struct ab_buf *packed, struct ab_issues *issues);

/* Percent-decode into `out` (at least len bytes); '+' is a space if `query`. -1 on a bad escape. */
int64_t ab_percent_decode(const char *text, size_t len, bool query, char *out);

/* ---- API clients (site, launcher, CLI)
 *
 * ab_json_write: one struct as a JSON object: the fields that are in has & (role).
 * ab_json_read: a reply's object, list, or page ({"count","results"}) into structs, tolerant. */
void ab_json_write(struct ab_buf *out, const struct ab_schema *schema, unsigned role,
                   const void *item);
int ab_json_read(const struct ab_schema *schema, const char *text, size_t len, ab_arena_t *arena,
                 struct ab_list *out, int64_t *count, struct ab_error *err);

/* ---- free JSON as a small read-only tree in an arena (at most 64 levels) */
enum ab_value_type {
    AB_V_NULL,
    AB_V_BOOL,
    AB_V_INT,
    AB_V_REAL,
    AB_V_TEXT,
    AB_V_LIST,
    AB_V_MAP
};
struct ab_value {
    enum ab_value_type type;
    union {
        bool b;
        int64_t i;
        double f;
        struct {
            const char *s; /* NUL-terminated */
            size_t len;
        };
        struct {
            struct ab_value *items; /* of a list, or the values of a map */
            const char **keys;      /* of a map */
            size_t n;
        };
    };
};
const struct ab_value *ab_value_parse(ab_arena_t *arena, const char *text, size_t len,
                                      struct ab_error *err);
/* NULL when v is NULL, no map, or has no such member: calls can be chained. */
const struct ab_value *ab_value_get(const struct ab_value *v, const char *key);
const char *ab_value_text(const struct ab_value *v, const char *otherwise);
int64_t ab_value_int(const struct ab_value *v, int64_t otherwise);
double ab_value_real(const struct ab_value *v, double otherwise);
bool ab_value_bool(const struct ab_value *v, bool otherwise);
void ab_value_write(struct ab_buf *out, const struct ab_value *v);

#endif
