/* broker.h - the process that is the site: supervisor of its modules, hub of their messages, owner
 * of token and outbox
 */
#ifndef SITE_BROKER_H
#define SITE_BROKER_H

#include "base/error.h"
#include "sitedir/site.h"

/* Runs until SIGTERM or SIGINT. The site's lock is taken and given back here. Exit status: 0
 * stopped, 1 could not start or lost its lock, 3 runs already. */
int broker_run(const struct ab_site *site);

#endif
