/* reply.c - rows of a result as msgpack, by the descriptor of what is asked for */
#include "service.h"
#include "skeleton.h"

#include "base/rand.h"
#include <endian.h>
#include <string.h>

/* Type numbers of PostgreSQL that never change (pg_type.dat). */
enum {
    OID_JSON = 114,
    OID_JSONB = 3802,
    OID_UUID = 2950,
    OID_TEXTS = 1009
};

static void pack_uuid(struct ab_buf *out, const PGresult *r, int row, int col)
{
    char text[AB_UUID_TEXT];
    if (PQftype(r, col) != OID_UUID || PQgetlength(r, row, col) != 16) {
        size_t n;
        const char *other = ab_col_text(r, row, col, &n);
        ab_pack_strn(out, other, n);
        return;
    }
    ab_uuid_text((const uint8_t *)PQgetvalue(r, row, col), text);
    ab_pack_str(out, text);
}

static uint32_t take4(const char **at)
{
    uint32_t v;
    memcpy(&v, *at, 4);
    *at += 4;
    return be32toh(v);
}

/* text[] or an enum array: dimensions, null flag, type, then (size, lower bound), then the items */
static void pack_texts(struct ab_buf *out, const PGresult *r, int row, int col)
{
    const char *at = PQgetvalue(r, row, col);
    uint32_t dimensions = take4(&at);
    if (dimensions != 1) {
        ab_pack_array(out, 0);
        return;
    }
    at += 8;
    uint32_t n = take4(&at);
    at += 4;
    ab_pack_array(out, n);
    for (uint32_t i = 0; i < n; i++) {
        int32_t len = (int32_t)take4(&at);
        if (len < 0) {
            ab_pack_nil(out);
            continue;
        }
        ab_pack_strn(out, at, (size_t)len);
        at += len;
    }
}

static void pack_ids(struct ab_call *call, const PGresult *r, int row, int col)
{
    size_t n;
    int64_t *ids = ab_col_int8s(r, row, col, call->arena, &n);
    ab_pack_array(&call->reply, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        ab_pack_int(&call->reply, ids[i]);
}

static void pack_column(struct ab_call *call, const struct ab_field *field, const PGresult *r,
                        int row, int col)
{
    struct ab_buf *out = &call->reply;
    size_t n;
    const char *text;
    if (col < 0 || ab_col_null(r, row, col)) {
        ab_pack_nil(out);
        return;
    }
    if (PQftype(r, col) == OID_JSON || PQftype(r, col) == OID_JSONB) {
        text = ab_col_text(r, row, col, &n);
        ab_pack_json(out, text, n);
        return;
    }
    switch (field->kind) {
    case AB_BOOL:
        ab_pack_bool(out, ab_col_bool(r, row, col));
        break;
    case AB_I32:
    case AB_I64:
        ab_pack_int(out, ab_col_int(r, row, col));
        break;
    case AB_F64:
        ab_pack_real(out, ab_col_real(r, row, col));
        break;
    case AB_TIME:
        ab_pack_time(out, ab_col_time(r, row, col), field->flags & AB_AWARE);
        break;
    case AB_UUID:
        pack_uuid(out, r, row, col);
        break;
    case AB_IDS:
        pack_ids(call, r, row, col);
        break;
    case AB_STRS:
    case AB_ENUMS:
        pack_texts(out, r, row, col);
        break;
    default: /* texts, enums, and whatever is kept as the text of its JSON */
        text = ab_col_text(r, row, col, &n);
        if (field->kind == AB_STR || field->kind == AB_PATH || field->kind == AB_URL
            || field->kind == AB_ENUM)
            ab_pack_strn(out, text, n);
        else
            ab_pack_json(out, text, n);
    }
}

void reply_columns(const struct ab_schema *schema, const PGresult *r, int cols[REPLY_COLUMNS])
{
    for (int i = 0; i < schema->n_fields; i++) {
        cols[i] = -1;
        for (int c = 0; c < PQnfields(r) && cols[i] < 0; c++)
            if (strcmp(PQfname(r, c), schema->fields[i].name) == 0)
                cols[i] = c;
    }
}

static uint32_t count_out(const struct ab_schema *schema)
{
    uint32_t n = 0;
    for (int i = 0; i < schema->n_fields; i++)
        n += (schema->fields[i].flags & AB_OUT) != 0;
    return n;
}

void reply_row(struct ab_call *call, const struct ab_schema *schema, const PGresult *r, int row,
               const int cols[REPLY_COLUMNS])
{
    ab_pack_map(&call->reply, count_out(schema));
    for (int i = 0; i < schema->n_fields; i++) {
        const struct ab_field *field = &schema->fields[i];
        if (!(field->flags & AB_OUT))
            continue;
        ab_pack_str(&call->reply, field->name);
        pack_column(call, field, r, row, cols[i]);
    }
}

void ab_reply_row(struct ab_call *call, const struct ab_schema *schema, const PGresult *r, int row)
{
    int cols[REPLY_COLUMNS];
    reply_columns(schema, r, cols);
    reply_row(call, schema, r, row, cols);
}

int ab_reply_one(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                 struct ab_error *err)
{
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_not_found(call, err);
    int64_t id = ab_col_int(r, 0, ab_col(r, "id"));
    if (call->route->mutates)
        ab_record_ids(call, &id, 1);
    ab_reply_row(call, schema, r, 0);
    return 0;
}

int reply_rows_until(struct ab_call *call, const struct ab_schema *schema, const PGresult *r,
                     size_t limit_bytes)
{
    int cols[REPLY_COLUMNS], row = 0;
    reply_columns(schema, r, cols);
    while (row < PQntuples(r) && (row == 0 || call->reply.len < limit_bytes))
        reply_row(call, schema, r, row++, cols);
    return row;
}

void ab_reply_rows(struct ab_call *call, const struct ab_schema *schema, const PGresult *r)
{
    ab_pack_array(&call->reply, (uint32_t)PQntuples(r));
    (void)reply_rows_until(call, schema, r, SIZE_MAX);
}

int ab_not_found(const struct ab_call *call, struct ab_error *err)
{
    char noun[32];
    const char *verb = call->route ? call->route->verb : "it";
    snprintf(noun, sizeof(noun), "%.*s", (int)strcspn(verb, "."), verb);
    for (char *c = noun; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    if (call->req && call->req->id)
        return ab_fail(err, AB_ENOENT, "%s %lld is not there, or not yours", noun,
                       (long long)call->req->id);
    return ab_fail(err, AB_ENOENT, "there is no such %s of yours", noun);
}
