/* monitor.h - the figures of a site: the broker's own file, and the port that serves those of all
 * its processes (settings.yml, metrics.listen; none by default)
 */
#ifndef SITE_MONITOR_H
#define SITE_MONITOR_H

#include "base/supervise.h"
#include "outbox.h"
#include "post.h"
#include "sitedir/site.h"
#include "uplink.h"

typedef struct monitor monitor_t;

/* listen NULL: no port. */
monitor_t *monitor_new(const struct ab_site *site, const char *listen, struct ab_error *err);
void monitor_destroy(monitor_t **self);

/* "127.0.0.1:41234"; NULL: there is no port. */
const char *monitor_address(const monitor_t *self);

/* Writes when it is time. ms until it wants to again. settings_known: the centre has them. */
int64_t monitor_step(monitor_t *self, const ab_supervise_t *modules, outbox_t *outbox, post_t *post,
                     uplink_t *uplink, bool settings_known);

#endif
