/* trace.c - see trace.h */
#include "trace.h"

#include "rand.h"
#include <string.h>

enum {
    ID = 32,
    PARENT = 16,
    ID_AT = 3,
    PARENT_AT = ID_AT + ID + 1,
    FLAGS_AT = PARENT_AT + PARENT + 1,
    LENGTH = FLAGS_AT + 2,
};

static bool lower_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(p[i] >= '0' && p[i] <= '9') && !(p[i] >= 'a' && p[i] <= 'f'))
            return false;
    return true;
}

static bool all_zeros(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != '0')
            return false;
    return true;
}

/* A later version may have more behind the flags; version 00 has not, ff is none. */
static bool version_fits(const char *text, size_t n)
{
    if (memcmp(text, "ff", 2) == 0)
        return false;
    return n == LENGTH || (memcmp(text, "00", 2) != 0 && text[LENGTH] == '-');
}

bool ab_trace_read(const char *text, size_t n, char id[AB_TRACE_ID])
{
    id[0] = '\0';
    if (n < LENGTH || text[ID_AT - 1] != '-' || text[PARENT_AT - 1] != '-'
        || text[FLAGS_AT - 1] != '-' || !lower_hex(text, 2) || !lower_hex(text + ID_AT, ID)
        || !lower_hex(text + PARENT_AT, PARENT) || !lower_hex(text + FLAGS_AT, 2)
        || !version_fits(text, n) || all_zeros(text + ID_AT, ID)
        || all_zeros(text + PARENT_AT, PARENT))
        return false;
    memcpy(id, text + ID_AT, ID);
    id[ID] = '\0';
    return true;
}

void ab_trace_of(const uint8_t uuid[16], char id[AB_TRACE_ID])
{
    ab_hex(uuid, 16, id);
}

void ab_trace_new(char id[AB_TRACE_ID])
{
    uint8_t uuid[16];
    ab_uuid7(uuid);
    ab_trace_of(uuid, id);
}

void ab_trace_write(const char id[AB_TRACE_ID], const uint8_t uuid[16], char out[AB_TRACE_TEXT])
{
    memcpy(out, "00-", ID_AT);
    memcpy(out + ID_AT, id, ID);
    out[PARENT_AT - 1] = '-';
    ab_hex(uuid + 8, PARENT / 2, out + PARENT_AT); /* never all zeros: the variant is in there */
    memcpy(out + FLAGS_AT - 1, "-01", 4);
}
