/* tail.h - a page of an owner's log: what verb event.tail answers, taken apart once for all
 * subscribers */
#ifndef TAIL_H
#define TAIL_H

#include "base/arena.h"
#include "base/buf.h"
#include "schema/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAIL_LIMIT 500

/* "<transaction>-<event>": places in the log are in this order, which is not that of event numbers.
 */
struct place {
    uint64_t xid, id;
    bool known;
};
#define PLACE_TEXT 48
int place_parse(const char *text, size_t n, struct place *out);
const char *place_text(const struct place *self, char out[PLACE_TEXT]);
int place_cmp(const struct place *a, const struct place *b);

struct happening {
    struct place at;
    size_t json_at, json_len; /* in tail.text: the event as subscribers see it */
    int64_t job, site, app;   /* 0: the job is gone */
    const char *state;        /* to_state; these two point into the reply */
    size_t state_len;
    const char *tags; /* JSON object, NULL none */
    size_t tags_len;
    bool tags_read;
    const struct ab_value *tags_map; /* once somebody has asked for it; NULL none */
};

struct tail {
    struct happening *events;
    size_t n;
    struct ab_buf text;
    ab_arena_t *arena; /* of the tags' maps; NULL: nobody has asked */
    struct place next;
    struct place head; /* the page knows of everything below; none: an older service does not say */
    bool more;         /* the head is not reached */
    bool held;         /* more has happened, but an older transaction is still open */
};

/* body must live as long as *out. -1: not what the verb answers. */
int tail_read(struct tail *out, const void *body, size_t len);
void tail_free(struct tail *self);
/* The tags of one of its events, read once for all who want to look. NULL: none. */
const struct ab_value *tail_tags(struct tail *self, struct happening *e);

#endif
