/* health.h - run/health.json: what `abies site ls` shows of a running site, and what the next
 * broker must know of the processes that a killed one left behind
 */
#ifndef SITE_HEALTH_H
#define SITE_HEALTH_H

#include "base/supervise.h"
#include "outbox.h"
#include "post.h"
#include "sitedir/site.h"
#include "uplink.h"

#define HEALTH_MODULES 16
#define HEALTH_WORDS 2048

typedef struct health health_t;

health_t *health_new(const struct ab_site *site);
void health_destroy(health_t **self); /* removes the file */

void health_word(health_t *self, const char *module, const char *json,
                 size_t len); /* what a module says */
/* Has the centre what settings.yml says of the site? `why` not: "" not yet. */
void health_settings(health_t *self, bool known, const char *why);
/* Where its /metrics are; NULL: nowhere. Borrowed. */
void health_metrics(health_t *self, const char *address);
void health_change(health_t *self); /* something is to be written soon */

/* Writes when something changed (at most once a second) or a while has passed. ms until it wants to
 * again. */
int64_t health_step(health_t *self, const ab_supervise_t *modules, outbox_t *outbox, post_t *post,
                    uplink_t *uplink);

/* Ends, by pid and start time, the modules that the file of a dead broker names. */
void health_end_leftovers(const struct ab_site *site);

#endif
