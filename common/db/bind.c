/* bind.c - C values as PostgreSQL's binary parameters, by the type that the statement has
 *
 * A value that does not fit its type is our own mistake, never the caller's: AB_EINTERNAL, with the
 * names of block and parameter. What a caller can send has been checked long before.
 */
#include "inner.h"
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const int64_t epoch_2000_us = INT64_C(946684800) * 1000000;

/* What an error names. */
struct place {
    const char *block, *param;
    const struct type *type;
};

static const char *const value_names[] = {
    [AB_DB_NULL] = "null",   [AB_DB_BOOL] = "a boolean", [AB_DB_INT] = "an integer",
    [AB_DB_REAL] = "a real", [AB_DB_TEXT] = "text",      [AB_DB_BYTES] = "bytes",
    [AB_DB_TIME] = "a time", [AB_DB_UUID] = "a uuid",    [AB_DB_ARRAY] = "an array"};

static int misfit(const struct place *at, const struct ab_db_value *v, struct ab_error *err)
{
    return ab_fail(err, AB_EINTERNAL, "%s: parameter :%s is of type %s and was given %s", at->block,
                   at->param, at->type->name, value_names[v->type]);
}

static void put4(struct ab_buf *out, uint32_t v)
{
    uint32_t be = htobe32(v);
    ab_buf_add(out, &be, sizeof(be));
}

static void put8(struct ab_buf *out, uint64_t v)
{
    uint64_t be = htobe64(v);
    ab_buf_add(out, &be, sizeof(be));
}

static int put_int(struct ab_buf *out, enum encoding encoding, const struct ab_db_value *v,
                   const struct place *at, struct ab_error *err)
{
    uint16_t be2 = htobe16((uint16_t)v->i);
    int64_t max = encoding == ENC_INT2 ? INT16_MAX : encoding == ENC_INT4 ? INT32_MAX : INT64_MAX;
    if (v->type != AB_DB_INT)
        return misfit(at, v, err);
    if (v->i > max || v->i < -max - 1)
        return ab_fail(err, AB_EINTERNAL, "%s: %" PRId64 " does not fit into parameter :%s (%s)",
                       at->block, v->i, at->param, at->type->name);
    if (encoding == ENC_INT2)
        ab_buf_add(out, &be2, sizeof(be2));
    else if (encoding == ENC_INT4)
        put4(out, (uint32_t)v->i);
    else
        put8(out, (uint64_t)v->i);
    return 0;
}

static int put_float(struct ab_buf *out, enum encoding encoding, const struct ab_db_value *v,
                     const struct place *at, struct ab_error *err)
{
    if (v->type != AB_DB_REAL && v->type != AB_DB_INT)
        return misfit(at, v, err);
    double d = v->type == AB_DB_REAL ? v->f : (double)v->i;
    float f = (float)d;
    uint64_t u8;
    uint32_t u4;
    memcpy(&u8, &d, sizeof(u8));
    memcpy(&u4, &f, sizeof(u4));
    if (encoding == ENC_FLOAT4)
        put4(out, u4);
    else
        put8(out, u8);
    return 0;
}

static int put_bytes(struct ab_buf *out, enum encoding encoding, const struct ab_db_value *v,
                     const struct place *at, struct ab_error *err)
{
    enum ab_db_type wanted = encoding == ENC_BYTEA ? AB_DB_BYTES : AB_DB_TEXT;
    if (v->type != wanted)
        return misfit(at, v, err);
    if (encoding == ENC_JSONB)
        ab_buf_char(out, 1); /* version of the binary form */
    if (v->n > 0)
        ab_buf_add(out, v->p, v->n);
    return 0;
}

static int put_one(struct ab_buf *out, enum encoding encoding, const struct ab_db_value *v,
                   const struct place *at, struct ab_error *err)
{
    switch (encoding) {
    case ENC_BOOL:
        if (v->type != AB_DB_BOOL)
            return misfit(at, v, err);
        ab_buf_char(out, v->b ? 1 : 0);
        return 0;
    case ENC_INT2:
    case ENC_INT4:
    case ENC_INT8:
        return put_int(out, encoding, v, at, err);
    case ENC_FLOAT4:
    case ENC_FLOAT8:
        return put_float(out, encoding, v, at, err);
    case ENC_TEXT:
    case ENC_JSONB:
    case ENC_BYTEA:
        return put_bytes(out, encoding, v, at, err);
    case ENC_TIME:
        if (v->type != AB_DB_TIME)
            return misfit(at, v, err);
        put8(out, (uint64_t)v->i - (uint64_t)epoch_2000_us);
        return 0;
    case ENC_UUID:
        if (v->type != AB_DB_UUID || v->n != 16)
            return misfit(at, v, err);
        ab_buf_add(out, v->p, 16);
        return 0;
    case ENC_WORDS:
    case ENC_ARRAY:
        break;
    }
    return misfit(at, v, err);
}

/* Dimensions, has nulls, type of the items; length and lower bound; then length and bytes of each.
 */
static int put_array(struct ab_buf *out, const struct ab_db_value *v, const struct place *at,
                     struct ab_error *err)
{
    bool nulls = false;
    if (v->type != AB_DB_ARRAY)
        return misfit(at, v, err);
    if (v->n_items > INT32_MAX)
        return ab_fail(err, AB_ETOOBIG, "%s: parameter :%s has too many items", at->block,
                       at->param);
    for (size_t i = 0; i < v->n_items && !nulls; i++)
        nulls = v->items[i].type == AB_DB_NULL;
    put4(out, v->n_items ? 1 : 0);
    put4(out, nulls);
    put4(out, at->type->item);
    if (v->n_items == 0)
        return 0;
    put4(out, (uint32_t)v->n_items);
    put4(out, 1);
    for (size_t i = 0; i < v->n_items; i++) {
        size_t mark = out->len;
        put4(out, UINT32_MAX); /* -1: null */
        if (v->items[i].type == AB_DB_NULL)
            continue;
        if (put_one(out, at->type->item_encoding, &v->items[i], at, err) < 0)
            return -1;
        if (!out->failed) {
            uint32_t len = htobe32((uint32_t)(out->len - mark - 4));
            memcpy(out->data + mark, &len, sizeof(len));
        }
    }
    return 0;
}

/* Text that the server's own parser takes: interval, numeric, ... Ends with NUL. */
static int put_words(struct ab_buf *out, const struct ab_db_value *v, const struct place *at,
                     struct ab_error *err)
{
    if (v->type == AB_DB_INT)
        ab_buf_int(out, v->i);
    else if (v->type == AB_DB_REAL)
        ab_buf_printf(out, "%.17g", v->f);
    else if (v->type == AB_DB_TEXT && (v->n == 0 || !memchr(v->p, '\0', v->n)))
        ab_buf_add(out, v->p, v->n);
    else
        return misfit(at, v, err);
    ab_buf_char(out, '\0');
    return 0;
}

int db_bind_begin(ab_db_t *self, struct bound *out, size_t n, const char *what,
                  struct ab_error *err)
{
    out->n = 0;
    ab_buf_clear(&self->params);
    if (n > DB_MAX_PARAMS)
        return ab_fail(err, AB_EINTERNAL, "%s: more than %d parameters", what, DB_MAX_PARAMS);
    return 0;
}

int db_bind_add(ab_db_t *self, struct bound *out, const struct type *type,
                const struct ab_db_value *value, const char *what, const char *name,
                struct ab_error *err)
{
    struct place at = {what, name, type};
    struct ab_buf *buf = &self->params;
    int i = out->n++, rc;
    size_t start = buf->len;
    out->oids[i] = type->oid;
    out->formats[i] = type->encoding != ENC_WORDS;
    out->offsets[i] = -1;
    out->lengths[i] = 0;
    if (value->type == AB_DB_NULL)
        return 0;
    if (type->encoding == ENC_WORDS)
        rc = put_words(buf, value, &at, err);
    else if (type->encoding == ENC_ARRAY)
        rc = put_array(buf, value, &at, err);
    else
        rc = put_one(buf, type->encoding, value, &at, err);
    out->offsets[i] = (ptrdiff_t)start;
    out->lengths[i] = (int)(buf->len - start);
    return rc;
}

int db_bind_end(ab_db_t *self, struct bound *out, const char *what, struct ab_error *err)
{
    if (self->params.failed)
        return ab_fail(err, AB_ETOOBIG, "%s: the parameters are larger than %zu MiB", what,
                       AB_BUF_MAX >> 20);
    for (int i = 0; i < out->n; i++) {
        /* An empty value is not NULL: it needs an address. */
        const char *base = self->params.data ? self->params.data : "";
        out->values[i] = out->offsets[i] < 0 ? NULL : base + out->offsets[i];
    }
    return 0;
}
