/* outbox_file.h - the outbox's records on disk
 *
 *     [length u32][check u32][type u8][payload]      little endian; check over type and payload
 *     'E' number u64, time i64, target u8, JSON      an update
 *     'T' n u32, n numbers u64, k u32, k calls       a step: these are over, these calls exist now
 *                                                    (a call: key 36 bytes, n u32, n numbers u64)
 */
#ifndef SITE_OUTBOX_FILE_H
#define SITE_OUTBOX_FILE_H

#include "base/buf.h"
#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define OUTBOX_RECORD_MAX ((uint32_t)16 << 20)

void outbox_u32(struct ab_buf *out, uint32_t v);
void outbox_u64(struct ab_buf *out, uint64_t v);

/* A reader that runs out sets `broken` and gives zeros. */
struct outbox_reader {
    const unsigned char *at, *end;
    int broken;
};
uint32_t outbox_get_u32(struct outbox_reader *r);
uint64_t outbox_get_u64(struct outbox_reader *r);
const void *outbox_get(struct outbox_reader *r, size_t n);

/* Put length and check in front of type and payload. */
void outbox_frame(struct ab_buf *out, const struct ab_buf *payload);

/* The next whole record: 1 and its payload (type first), 0 at the end or where the rest is torn. */
int outbox_record(struct outbox_reader *file, struct outbox_reader *payload);

/* Numbers of the files of a folder, ascending, malloc'ed. */
int outbox_files(const char *folder, uint64_t **numbers, size_t *n, struct ab_error *err);
char *outbox_file_name(const char *folder, uint64_t number);

/* A new file, its name on disk as well. -1 + err. */
int outbox_file_create(const char *folder, uint64_t number, struct ab_error *err);

/* All of it, or an error: ENOSPC and the like leave a torn tail, and the caller starts a new file.
 */
int outbox_write(int fd, const struct ab_buf *bytes, struct ab_error *err);

#endif
