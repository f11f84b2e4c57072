/* file.h - whole files, written so that a crash leaves the old or the new one */
#ifndef AB_FILE_H
#define AB_FILE_H

#include "buf.h"
#include "error.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Appends the file's bytes; more than `limit` is an error. */
int ab_file_read(const char *path, size_t limit, struct ab_buf *out, struct ab_error *err);

/* Temporary file beside it, fsync, rename, fsync of the folder. */
int ab_file_write(const char *path, const void *bytes, size_t len, mode_t mode,
                  struct ab_error *err);

/* mkdir -p; existing folders are left alone. */
int ab_mkdirs(const char *path, mode_t mode, struct ab_error *err);

/* rm -r, does not follow links, stays on what is below path. A missing path is fine. */
int ab_remove_tree(const char *path, struct ab_error *err);

/* A secret must not be readable by others: 0 if mode & 077 == 0 and it is ours, else -1 with a
 * text. */
int ab_file_private(const char *path, struct ab_error *err);

#endif
