/* post.h - carries the outbox to the centre, call by call, however long that takes
 *
 * No answer, 5xx, 429 or a token that is not taken: the same call again, with jitter. An answer
 * that some updates can never be done (a deleted job, a lost lease): those are dropped with a log
 * line, the rest goes as a new call. When the centre does not say which ones, halves are tried
 * until it is known.
 */
#ifndef SITE_POST_H
#define SITE_POST_H

#include "base/error.h"
#include "client/api.h"
#include "outbox.h"

typedef struct post post_t;

/* `event`: an eventfd that is written after each finished call. */
post_t *post_new(outbox_t *outbox, const struct ab_client_file *file, int event,
                 struct ab_error *err);
/* Waits at most `grace_ms` for the outbox to become empty, then for the call that runs to give up.
 */
void post_destroy(post_t **self, int64_t grace_ms);

void post_wake(post_t *self); /* something was put in */

struct post_state {
    bool reached;
    char why[480];
    uint64_t sent, dropped; /* updates */
};
void post_state(post_t *self, struct post_state *out);

/* Which updates of a call of n a 4xx answer names: bad[n]. False: none. For tests. */
bool post_blame(const char *body, size_t len, outbox_t *outbox, const struct outbox_call *call,
                bool *bad);

#endif
