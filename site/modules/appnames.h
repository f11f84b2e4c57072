/* appnames.h - the site's apps by the number that jobs carry
 *
 * A number that is not known yet is asked for at the centre: a job may name an app that is younger
 * than any list of ours.
 */
#ifndef MODULES_APPNAMES_H
#define MODULES_APPNAMES_H

#include "base/error.h"
#include "site/module.h"

typedef struct appnames appnames_t;

appnames_t *appnames_new(void);
void appnames_destroy(appnames_t **self);

/* The name (owned by self, until the next call), or NULL: AB_ENOENT there is none, else ask again
 * later. */
const char *appnames_get(appnames_t *self, struct module *m, int64_t app_id, struct ab_error *err);

#endif
