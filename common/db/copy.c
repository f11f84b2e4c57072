/* copy.c - COPY .. FROM STDIN in binary, complete in memory before it begins
 *
 * While the server waits for COPY data no timeout of its own ends the transaction: a client frozen
 * there would hold its locks for ever. So nothing is computed between the first byte and the last.
 */
#include "inner.h"
#include <endian.h>
#include <string.h>

static const char signature[11] = {'P', 'G', 'C', 'O', 'P', 'Y', '\n', '\377', '\r', '\n', '\0'};
static const int64_t epoch_2000_us = INT64_C(946684800) * 1000000;

enum {
    HEADER_LEN = 11 + 4 + 4,
    INT8_OID = 20,
    PIECE = 256 * 1024,
};

static void put2(struct ab_buf *out, int16_t v)
{
    uint16_t be = htobe16((uint16_t)v);
    ab_buf_add(out, &be, sizeof(be));
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

void ab_copy_begin(struct ab_buf *out)
{
    ab_buf_add(out, signature, sizeof(signature));
    put4(out, 0); /* flags */
    put4(out, 0); /* length of the header's extension */
}

void ab_copy_row(struct ab_buf *out, int n_columns)
{
    put2(out, (int16_t)n_columns);
}

void ab_copy_null(struct ab_buf *out)
{
    put4(out, UINT32_MAX);
}

void ab_copy_bool(struct ab_buf *out, bool v)
{
    put4(out, 1);
    ab_buf_char(out, v ? 1 : 0);
}

void ab_copy_int4(struct ab_buf *out, int32_t v)
{
    put4(out, 4);
    put4(out, (uint32_t)v);
}

void ab_copy_int8(struct ab_buf *out, int64_t v)
{
    put4(out, 8);
    put8(out, (uint64_t)v);
}

void ab_copy_float8(struct ab_buf *out, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    put4(out, 8);
    put8(out, bits);
}

void ab_copy_text(struct ab_buf *out, const char *v, size_t n)
{
    put4(out, (uint32_t)n);
    if (n > 0)
        ab_buf_add(out, v, n);
}

void ab_copy_jsonb(struct ab_buf *out, const char *v, size_t n)
{
    put4(out, (uint32_t)n + 1);
    ab_buf_char(out, 1); /* version of the binary form */
    if (n > 0)
        ab_buf_add(out, v, n);
}

void ab_copy_time(struct ab_buf *out, int64_t utc_us)
{
    ab_copy_int8(out, (int64_t)((uint64_t)utc_us - (uint64_t)epoch_2000_us));
}

void ab_copy_int8s(struct ab_buf *out, const int64_t *v, size_t n)
{
    put4(out, (uint32_t)(n ? 20 + n * 12 : 12));
    put4(out, n ? 1 : 0); /* dimensions */
    put4(out, 0);         /* no nulls */
    put4(out, INT8_OID);
    if (n == 0)
        return;
    put4(out, (uint32_t)n);
    put4(out, 1); /* lower bound */
    for (size_t i = 0; i < n; i++)
        ab_copy_int8(out, v[i]);
}

void ab_copy_end(struct ab_buf *out)
{
    put2(out, -1);
}

/* Our own mistakes, found before they reach the server. */
static int check_data(const struct ab_sql *sql, const struct ab_buf *data, struct ab_error *err)
{
    int columns = 0;
    while (sql->copy_columns && sql->copy_columns[columns])
        columns++;
    if (columns == 0)
        return ab_fail(err, AB_EINTERNAL, "%s is no COPY block", sql->name);
    if (data->failed)
        return ab_fail(err, AB_ETOOBIG, "%s: the rows do not fit into the buffer", sql->name);
    if (data->len < HEADER_LEN + 2 || memcmp(data->data, signature, sizeof(signature)) != 0
        || memcmp(data->data + data->len - 2, "\377\377", 2) != 0)
        return ab_fail(err, AB_EINTERNAL, "%s: the data lacks its header or trailer", sql->name);
    int got = (int16_t)((uint8_t)data->data[HEADER_LEN] << 8 | (uint8_t)data->data[HEADER_LEN + 1]);
    if (got != -1 && got != columns)
        return ab_fail(err, AB_EINTERNAL, "%s: rows of %d columns, the block has %d", sql->name,
                       got, columns);
    return 0;
}

/* Non-blocking: 0 means the buffer is full, so wait until some of it has left. */
static int put_all(ab_db_t *self, const struct ab_buf *data, struct ab_error *err)
{
    for (size_t at = 0; at < data->len;) {
        size_t n = data->len - at < PIECE ? data->len - at : PIECE;
        int rc = PQputCopyData(self->conn, data->data + at, (int)n);
        if (rc < 0)
            return db_fail_lost(self, "COPY", err);
        if (rc > 0)
            at += n;
        if (db_flush(self, err) < 0)
            return -1;
    }
    return 0;
}

int ab_db_copy(ab_db_t *self, const struct ab_sql *sql, const struct ab_buf *data,
               struct ab_error *err)
{
    if (check_data(sql, data, err) < 0 || db_ready(self, "db.copy", err) < 0
        || db_run_ahead(self, err) < 0)
        return -1;
    if (!PQsendQuery(self->conn, sql->text))
        return db_fail_lost(self, sql->name, err);
    PGresult *r = db_answer(self, err);
    if (!r)
        return -1;
    ExecStatusType is = PQresultStatus(r);
    int rc = is == PGRES_COPY_IN       ? 0
             : is == PGRES_FATAL_ERROR ? db_fail_result(self, r, sql->name, err)
                                       : ab_fail(err, AB_EINTERNAL, "%s is no COPY", sql->name);
    PQclear(r);
    if (rc < 0)
        return -1;
    if (put_all(self, data, err) < 0)
        return -1;
    if (PQputCopyEnd(self->conn, NULL) < 0)
        return db_fail_lost(self, sql->name, err);
    r = db_answer(self, err);
    if (!r)
        return -1;
    rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 0 : db_fail_result(self, r, sql->name, err);
    PQclear(r);
    return rc;
}
