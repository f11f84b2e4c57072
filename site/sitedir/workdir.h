/* workdir.h - data/<workdir> of a job, reached without leaving data/
 *
 * The name comes from the API. No ".." and no absolute name, and no step through a symbolic link:
 * what a job leaves in one work directory must not lead the next one elsewhere.
 */
#ifndef AB_WORKDIR_H
#define AB_WORKDIR_H

#include "base/error.h"
#include "site.h"

/* Opens (O_PATH-like directory descriptor), making missing folders when `create`. -1 + err. `path`:
 * NULL, or gets the malloc'ed absolute name. */
int ab_workdir_open(const struct ab_site *site, const char *workdir, bool create, char **path,
                    struct ab_error *err);

/* The same below a folder that is open: `name` relative; "." is the folder itself. */
int ab_open_below(int folder, const char *name, bool create, struct ab_error *err);

/* Open the folder that holds `name` below `folder`, and give its last part. */
int ab_open_parent(int folder, const char *name, bool create, const char **last,
                   struct ab_error *err);

#endif
