/* site_make.h - making and deleting sites: the folder and the centre's record of it */
#ifndef CLI_SITE_MAKE_H
#define CLI_SITE_MAKE_H

#include "base/opt.h"
#include "remote.h"

struct site_wish {
    const char *path; /* must not be there */
    const char *name;
    struct ab_opt_list locations; /* ALIAS=URL */
};

/* All or nothing: on an error neither the folder nor the record stays. *path is the real one. */
int site_make(struct remote *r, const struct site_wish *wish, const char **path, int64_t *id,
              struct ab_error *err);

#endif
