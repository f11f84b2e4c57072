/* pack.h - msgpack: writing replies, reading with a cursor, walking it into JSON
 *
 * Written with msgpack-c's packer; read with a cursor of our own that checks every length against
 * the bytes that are there (the library allocates what a header announces).
 */
#ifndef AB_PACK_H
#define AB_PACK_H

#include "base/buf.h"
#include "schema.h"

/* ---- writing */
void ab_pack_nil(struct ab_buf *out);
void ab_pack_bool(struct ab_buf *out, bool v);
void ab_pack_int(struct ab_buf *out, int64_t v);
void ab_pack_real(struct ab_buf *out, double v);
void ab_pack_str(struct ab_buf *out, const char *v); /* NULL -> nil */
void ab_pack_strn(struct ab_buf *out, const char *v, size_t n);
void ab_pack_bin(struct ab_buf *out, const void *v, size_t n);
void ab_pack_json(struct ab_buf *out, const char *v, size_t n);    /* ext 1 */
void ab_pack_time(struct ab_buf *out, int64_t utc_us, bool aware); /* ext 2 or 3 */
void ab_pack_array(struct ab_buf *out, uint32_t n);
void ab_pack_map(struct ab_buf *out, uint32_t n);

/* One field's value, and a whole struct: the fields in `has` whose flags meet `role` (with AB_OUT:
 * every AB_OUT field, absent or null ones as nil). */
void ab_pack_field(struct ab_buf *out, const struct ab_field *field, const void *item);
void ab_pack_item(struct ab_buf *out, const struct ab_schema *schema, unsigned role,
                  const void *item);

/* Build a request body from structs, as the gateway does from JSON (tests, gateway's own requests).
 */
void ab_pack_request(struct ab_buf *out, const struct ab_route *route, int64_t id,
                     const void *query, const void *body, size_t n_body);

/* ---- is this frame well formed, no deeper than 16, no longer than its bytes, keys unique, strings
 * UTF-8, ext types 1 to 3 only, and nothing behind it? */
bool ab_wire_ok(const void *bytes, size_t len);

/* ---- reading: each call takes one token; -1 when it is not there or of another type (sticky) */
struct ab_cursor {
    const uint8_t *at, *end;
    bool broken;
};
struct ab_cursor ab_cursor(const void *bytes, size_t len);
enum ab_tk {
    AB_TK_NIL,
    AB_TK_BOOL,
    AB_TK_INT,
    AB_TK_REAL,
    AB_TK_STR,
    AB_TK_BIN,
    AB_TK_ARRAY,
    AB_TK_MAP,
    AB_TK_EXT,
    AB_TK_END,
    AB_TK_BROKEN
};
enum ab_tk ab_cursor_peek(const struct ab_cursor *self);
int ab_cursor_nil(struct ab_cursor *self); /* 1 taken, 0 something else stands there */
int ab_cursor_bool(struct ab_cursor *self, bool *v);
int ab_cursor_int(struct ab_cursor *self, int64_t *v);
int ab_cursor_real(struct ab_cursor *self, double *v);                /* takes ints too */
int ab_cursor_str(struct ab_cursor *self, const char **v, size_t *n); /* points into the frame */
int ab_cursor_bin(struct ab_cursor *self, const void **v, size_t *n);
int ab_cursor_ext(struct ab_cursor *self, int8_t *type, const void **v, size_t *n);
int ab_cursor_array(struct ab_cursor *self, uint32_t *n);
int ab_cursor_map(struct ab_cursor *self, uint32_t *n);
int ab_cursor_skip(struct ab_cursor *self); /* a whole value, at most 16 deep */
/* `map` stands at a map: position at the value of `key`; 0, or -1 when there is none. */
int ab_cursor_find(struct ab_cursor map, const char *key, struct ab_cursor *value);

/* One map into a zeroed struct: the fields whose flags meet `role`; unknown keys are skipped. With
 * AB_CREATE in `role` required fields must be there and absent ones get their defaults (`has` stays
 * clear); with AB_OUT nil is always taken (as null). Kinds and bounds are checked. Texts are
 * copied, free JSON points into the frame. */
int ab_unpack_item(struct ab_cursor *at, const struct ab_schema *schema, unsigned role,
                   ab_arena_t *arena, void *item, struct ab_error *err);

/* ---- msgpack -> JSON in pieces, no tree: for replies of any size to clients of any speed. A frame
 * of no byte is null. 1 done, 0 call again with a fresh buffer, -1 broken input. A long string is
 * cut between pieces. */
struct ab_walk {
    const uint8_t *at, *end;
    struct ab_walk_level {
        uint8_t kind;
        uint32_t left;
        uint32_t done;
    } level[16];
    int depth;
    const uint8_t *text; /* rest of a string or JSON ext that did not fit */
    size_t text_left;
    bool text_json, begun;
};
void ab_walk_start(struct ab_walk *self, const void *bytes, size_t len);
int ab_walk_json(struct ab_walk *self, char **out,
                 char *out_end); /* needs at least 512 bytes of room */

/* ---- pages: the body of a REPLY to a list verb
 * map {"count": int, "next": any | nil, "results": array}. `count` stands in page 1 only. The
 * gateway asks for the next page by sending the request again with "next" added to its top-level
 * map. A service stops a page at AB_PAGE_ROWS rows or AB_PAGE_BYTES bytes. */
#define AB_PAGE_ROWS 1000
#define AB_PAGE_BYTES (512 * 1024)

#endif
