/* beneath.h - open a path that must not lead out of a folder, symbolic links included */
#ifndef TRANSFER_BENEATH_H
#define TRANSFER_BENEATH_H

/* openat2(RESOLVE_BENEATH): links are followed as long as they stay below. Where the kernel has
 * none (before 5.6), links are refused. -1 with errno; EXDEV or ELOOP: it leads out. */
int beneath_open(int folder, const char *path, int flags);

#endif
