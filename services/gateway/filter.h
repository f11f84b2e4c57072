/* filter.h - which events a subscriber wants: ?site_id= app_id= job_id= state= tags= */
#ifndef FILTER_H
#define FILTER_H

#include "base/arena.h"
#include "schema/json.h"
#include "tail.h"
#include <stdbool.h>
#include <stdint.h>

struct filter {
    bool any;                     /* of these is set */
    int64_t only_site;            /* of a site's token; 0 none */
    struct ab_ids site, app, job; /* ascending */
    struct ab_strs state;
    const struct ab_value *tags; /* a map; NULL none */
    ab_arena_t *arena;           /* holds all this; NULL: nothing was asked */
    uint64_t digest[2];          /* of all of it: who asks for the same gets the same frames */
};

/* From the raw query of the upgrade. `since` gets the cursor, or stays zero. -1: issues say why. */
int filter_read(struct filter *out, struct place *since, const char *query, size_t len,
                struct ab_issues *issues);
void filter_free(struct filter *self);
void filter_only_site(struct filter *self, int64_t site);
bool filter_passes(const struct filter *self, struct tail *t, struct happening *e);
bool filter_same(const struct filter *a, const struct filter *b);

#endif
