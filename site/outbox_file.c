/* outbox_file.c - see outbox_file.h */
#include "outbox_file.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD 8

void outbox_u32(struct ab_buf *out, uint32_t v)
{
    unsigned char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(v >> (8 * i));
    ab_buf_add(out, bytes, sizeof(bytes));
}

void outbox_u64(struct ab_buf *out, uint64_t v)
{
    outbox_u32(out, (uint32_t)v);
    outbox_u32(out, (uint32_t)(v >> 32));
}

const void *outbox_get(struct outbox_reader *r, size_t n)
{
    if (r->broken || (size_t)(r->end - r->at) < n) {
        r->broken = 1;
        return NULL;
    }
    const void *at = r->at;
    r->at += n;
    return at;
}

uint32_t outbox_get_u32(struct outbox_reader *r)
{
    const unsigned char *p = outbox_get(r, 4);
    return p ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
             : 0;
}

uint64_t outbox_get_u64(struct outbox_reader *r)
{
    uint64_t low = outbox_get_u32(r);
    return low | (uint64_t)outbox_get_u32(r) << 32;
}

/* FNV-1a: against torn writes, not against people. */
static uint32_t check_of(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t hash = UINT32_C(2166136261) ^ (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * UINT32_C(16777619);
    return hash;
}

void outbox_frame(struct ab_buf *out, const struct ab_buf *payload)
{
    outbox_u32(out, (uint32_t)payload->len);
    outbox_u32(out, check_of(payload->data, payload->len));
    ab_buf_add(out, payload->data, payload->len);
}

int outbox_record(struct outbox_reader *file, struct outbox_reader *payload)
{
    if (file->end - file->at < HEAD)
        return 0;
    uint32_t len = outbox_get_u32(file), check = outbox_get_u32(file);
    if (!len || len > OUTBOX_RECORD_MAX)
        return 0;
    const void *bytes = outbox_get(file, len);
    if (!bytes || check_of(bytes, len) != check)
        return 0;
    *payload = (struct outbox_reader){bytes, (const unsigned char *)bytes + len, 0};
    return 1;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int outbox_files(const char *folder, uint64_t **numbers, size_t *n, struct ab_error *err)
{
    DIR *dir = opendir(folder);
    size_t cap = 0;

    *numbers = NULL;
    *n = 0;
    if (!dir)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot read %s", folder);
    for (const struct dirent *file; (file = readdir(dir));) {
        const char *name = file->d_name;
        int64_t number;
        if (!ab_str_ends(name, ".log")
            || ab_parse_i64(name, strlen(name) - 4, 1, INT64_MAX, &number) < 0)
            continue;
        if (*n == cap) {
            cap = cap ? cap * 2 : 16;
            *numbers = realloc(*numbers, cap * sizeof(**numbers));
        }
        (*numbers)[(*n)++] = (uint64_t)number;
    }
    closedir(dir);
    if (*n)
        qsort(*numbers, *n, sizeof(**numbers), by_number);
    return 0;
}

char *outbox_file_name(const char *folder, uint64_t number)
{
    struct ab_buf name = {0};
    ab_buf_printf(&name, "%s/%08" PRIu64 ".log", folder, number);
    return ab_buf_take(&name);
}

int outbox_file_create(const char *folder, uint64_t number, struct ab_error *err)
{
    AB_AUTO(ab_free) char *name = outbox_file_name(folder, number);
    AB_AUTO(ab_close) int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AB_AUTO(ab_close) int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);

    if (fd < 0 || dir < 0 || fsync(dir) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make %s", name);
    return AB_TAKE_FD(fd);
}

int outbox_write(int fd, const struct ab_buf *bytes, struct ab_error *err)
{
    if (bytes->failed)
        return ab_fail(err, AB_EINTERNAL, "no memory to write to the outbox");
    for (size_t at = 0; at < bytes->len;) {
        ssize_t n = ab_fault("outbox.write") ? (errno = ENOSPC, -1)
                                             : write(fd, bytes->data + at, bytes->len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ab_fail_errno(err, AB_EBUSY, "cannot write to the outbox (run/outbox)");
        at += (size_t)n;
    }
    return 0;
}
