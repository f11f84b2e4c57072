/* sync.h - the site's fields at the centre follow settings.yml, once at start
 *
 * GET the site, compare, PUT only if something differs; again until it worked.
 */
#ifndef SITE_SYNC_H
#define SITE_SYNC_H

#include "settings/settings.h"
#include "uplink.h"

struct sync {
    enum {
        SYNC_TO_GET,
        SYNC_GETS,
        SYNC_PUTS,
        SYNC_DONE
    } at;
    int64_t next_ms;
    bool complained; /* once is enough: it is tried until it works */
    char why[256];   /* it does not work; "" */
};

/* Sends what is due; ms until it wants to run again (INT64_MAX: never). */
int64_t sync_step(struct sync *self, int64_t site_id, uplink_t *uplink);
/* An answer for link "" came. */
void sync_reply(struct sync *self, const struct ab_settings *settings, int64_t site_id,
                uplink_t *uplink, const struct uplink_reply *reply);

/* Does the JSON object `have` (a site from the API) hold every member of `want` with an equal
 * value? */
bool sync_equal(const char *have, size_t have_len, const char *want, size_t want_len);

#endif
