/* live.h - /events/stream: job events of an owner, as they happen, to any number of subscribers
 *
 * After a hint the events behind the owner's cursor are fetched (verb event.tail): at once after a
 * silence, else a few milliseconds after the last time. They go out as one frame for all who want
 * the same. What an open transaction holds back is looked for again soon, because its end gives no
 * hint. Hints may be lost: while there are subscribers each owner is fetched at least once a second.
 */
#ifndef LIVE_H
#define LIVE_H

#include "base/error.h"
#include "schema/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;
struct live; /* one subscriber's part */

int live_init(struct ab_error *err);
void live_free(void);
void live_hint(int64_t owner);
void live_tick(void);

/* The query of the upgrade request; NULL: it is wrong, and issues say how. */
struct live *live_new(const char *query, size_t len, struct ab_issues *issues);
void live_destroy(struct live **self);
/* The token is good: begin. site: of a site's token, else 0. */
void live_begin(struct conn *c, struct live *self, int64_t owner, int64_t site);
/* Everything pushed so far has left: time for the next page of the past. */
void live_drained(struct conn *c, struct live *self);
/* The cursor may have moved on over events that its filters left out: tell it, so that it need not
 * come back from long ago. */
void live_remind(struct live *self);

#endif
