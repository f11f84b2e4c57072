/* usage.h - what this process uses of its machine */
#ifndef AB_USAGE_H
#define AB_USAGE_H

#include <stddef.h>
#include <stdint.h>

struct ab_usage {
    int64_t pid, started_utc_us;
    int64_t resident_bytes, cpu_us;
    int64_t files, files_max; /* open descriptors; what `ulimit -n` allows */
};

void ab_usage(struct ab_usage *out);

/* Descriptors that may still be opened, some of them spared for what comes and goes. */
size_t ab_usage_files_left(size_t spared);

#endif
