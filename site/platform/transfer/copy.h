/* copy.h - files and folders from one folder to another, each file complete or not there
 *
 * Sources are opened below `from`, targets made below `to`; neither side leaves its folder.
 */
#ifndef TRANSFER_COPY_H
#define TRANSFER_COPY_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct copy {
    int from, to;   /* open folders */
    bool recursive; /* folders too */
    int64_t bytes;  /* copied so far */
    int64_t tag;    /* makes names of temporary files unique */
};

/* `target` is made with its parents; an existing file is replaced, an existing folder is added to.
 */
int copy_path(struct copy *self, const char *source, const char *target, struct ab_error *err);

#endif
