/* news.h - what happens to the site's jobs, told as it happens
 *
 * A thread reads the centre's live events and notes which module has work, so that the broker wakes
 * it at once. Only a matter of speed: without events (an old gateway, a proxy that cuts WebSockets)
 * the modules find their work at their next look.
 */
#ifndef SITE_NEWS_H
#define SITE_NEWS_H

#include "client/api.h"

typedef struct news news_t;

enum {
    NEWS_TRANSFER = 1,
    NEWS_PROCESSING = 2
};

/* The file is borrowed. `event`: an eventfd that is written when there is something to take. */
news_t *news_new(const struct ab_client_file *file, int64_t site_id, int event,
                 struct ab_error *err);
void news_destroy(news_t **self);

unsigned news_take(news_t *self); /* whom to wake: NEWS_* together */

#endif
