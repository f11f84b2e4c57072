/* row.c - columns of binary results
 *
 * The type of a column comes with the result; asking for it as something else is our own mistake
 * and stops the process in a debug build (an assert), for it is the same at every call.
 */
#include "base/rand.h"
#include "inner.h"
#include <assert.h>
#include <endian.h>
#include <math.h>
#include <string.h>

static const int64_t epoch_2000_us = INT64_C(946684800) * 1000000;

enum { /* pg_type.dat */
    BOOL = 16,
    BYTEA = 17,
    CHAR = 18,
    INT8 = 20,
    INT2 = 21,
    INT4 = 23,
    OID = 26,
    FLOAT4 = 700,
    FLOAT8 = 701,
    INT4_ARRAY = 1007,
    INT8_ARRAY = 1016,
    TIMESTAMP = 1114,
    TIMESTAMPTZ = 1184,
    NUMERIC = 1700,
    UUID = 2950,
    JSONB = 3802,
    XID8 = 5069,
};

static uint16_t get2(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof(v));
    return be16toh(v);
}

static uint32_t get4(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return be32toh(v);
}

static uint64_t get8(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return be64toh(v);
}

bool ab_col_null(const PGresult *r, int row, int col)
{
    return PQgetisnull(r, row, col) == 1;
}

/* Digits to the base of 10,000; weight is the exponent of the first. NaN and infinities: 0 digits.
 */
struct numeric {
    int n, weight;
    bool minus;
    const char *digits;
};

static struct numeric get_numeric(const PGresult *r, int row, int col)
{
    const char *p = PQgetvalue(r, row, col);
    struct numeric v = {.n = get2(p),
                        .weight = (int16_t)get2(p + 2),
                        .minus = get2(p + 4) == 0x4000,
                        .digits = p + 8};
    assert(PQgetlength(r, row, col) >= 8 + v.n * 2);
    return v;
}

/* The whole part; clamped. */
static int64_t numeric_int(const PGresult *r, int row, int col)
{
    struct numeric v = get_numeric(r, row, col);
    int64_t sum = 0;
    for (int i = 0; i <= v.weight; i++) {
        int64_t digit = i < v.n ? get2(v.digits + i * 2) : 0;
        if (__builtin_mul_overflow(sum, 10000, &sum) || __builtin_sub_overflow(sum, digit, &sum))
            return v.minus ? INT64_MIN : INT64_MAX;
    }
    if (v.minus)
        return sum; /* summed downwards: INT64_MIN fits */
    return sum == INT64_MIN ? INT64_MAX : -sum;
}

static double numeric_real(const PGresult *r, int row, int col)
{
    struct numeric v = get_numeric(r, row, col);
    double sum = 0;
    for (int i = 0; i < v.n; i++)
        sum += get2(v.digits + i * 2) * pow(10000, v.weight - i);
    return v.minus ? -sum : sum;
}

int64_t ab_col_int(const PGresult *r, int row, int col)
{
    const char *p = PQgetvalue(r, row, col);
    if (ab_col_null(r, row, col))
        return 0;
    switch (PQftype(r, col)) {
    case INT2:
        return (int16_t)get2(p);
    case INT4:
        return (int32_t)get4(p);
    case OID:
        return get4(p);
    case INT8:
    case XID8:
        return (int64_t)get8(p);
    case NUMERIC:
        return numeric_int(r, row, col);
    default:
        assert(!"ab_col_int of a column that is no integer");
        return 0;
    }
}

double ab_col_real(const PGresult *r, int row, int col)
{
    const char *p = PQgetvalue(r, row, col);
    if (ab_col_null(r, row, col))
        return 0;
    switch (PQftype(r, col)) {
    case FLOAT4: {
        uint32_t bits = get4(p);
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    case FLOAT8: {
        uint64_t bits = get8(p);
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    case NUMERIC:
        return numeric_real(r, row, col);
    default:
        return (double)ab_col_int(r, row, col);
    }
}

bool ab_col_bool(const PGresult *r, int row, int col)
{
    if (ab_col_null(r, row, col))
        return false;
    assert(PQftype(r, col) == BOOL);
    return *PQgetvalue(r, row, col) != 0;
}

int64_t ab_col_time(const PGresult *r, int row, int col)
{
    if (ab_col_null(r, row, col))
        return 0;
    assert(PQftype(r, col) == TIMESTAMPTZ || PQftype(r, col) == TIMESTAMP);
    int64_t us = (int64_t)get8(PQgetvalue(r, row, col)), sum;
    if (us == INT64_MIN) /* -infinity; infinity overflows below */
        return us;
    return __builtin_add_overflow(us, epoch_2000_us, &sum) ? INT64_MAX : sum;
}

const char *ab_col_text(const PGresult *r, int row, int col, size_t *len)
{
    const char *p = PQgetvalue(r, row, col);
    size_t n = (size_t)PQgetlength(r, row, col);
    Oid type = PQftype(r, col);
    assert(type != INT4 && type != INT8 && type != UUID && type != TIMESTAMPTZ && type != NUMERIC);
    if (type == JSONB && n > 0) { /* version of the binary form */
        p++;
        n--;
    }
    if (len)
        *len = n;
    return ab_col_null(r, row, col) ? NULL : p;
}

const void *ab_col_bytes(const PGresult *r, int row, int col, size_t *len)
{
    assert(PQftype(r, col) == BYTEA || PQftype(r, col) == UUID);
    *len = (size_t)PQgetlength(r, row, col);
    return ab_col_null(r, row, col) ? NULL : PQgetvalue(r, row, col);
}

bool ab_col_uuid(const PGresult *r, int row, int col, char out[37])
{
    assert(PQftype(r, col) == UUID);
    out[0] = '\0';
    if (PQgetlength(r, row, col) == 16)
        ab_uuid_text((const uint8_t *)PQgetvalue(r, row, col), out);
    return out[0] != '\0';
}

/* Dimensions, has nulls, type of the items; length and lower bound; then length and bytes of each.
 */
int64_t *ab_col_int8s(const PGresult *r, int row, int col, ab_arena_t *arena, size_t *n)
{
    const char *p = PQgetvalue(r, row, col), *end = p + PQgetlength(r, row, col);
    *n = 0;
    assert(PQftype(r, col) == INT8_ARRAY || PQftype(r, col) == INT4_ARRAY);
    if (end - p < 20 || get4(p) != 1)
        return NULL;
    uint32_t size = get4(p + 8) == INT4 ? 4 : 8, count = get4(p + 12);
    int64_t *v = ab_alloc(arena, count + 1, sizeof(*v));
    p += 20;
    for (uint32_t i = 0; i < count && end - p >= 4; i++) {
        uint32_t len = get4(p);
        p += 4;
        if (len == UINT32_MAX) /* a null has no place in a list of ids */
            continue;
        if (len != size || (size_t)(end - p) < size)
            break;
        v[(*n)++] = size == 4 ? (int32_t)get4(p) : (int64_t)get8(p);
        p += size;
    }
    return v;
}

int ab_col(const PGresult *r, const char *name)
{
    for (int i = 0; i < PQnfields(r); i++)
        if (strcmp(PQfname(r, i), name) == 0)
            return i;
    assert(!"ab_col: the statement returns no column of this name");
    return -1;
}
