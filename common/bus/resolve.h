/* resolve.h - names of gateways -> all their addresses, looked up again and again on a thread of
 * its own
 *
 * A name lookup may block for half a minute; the I/O thread must not. Endpoints with numeric hosts
 * need no thread.
 */
#ifndef AB_RESOLVE_H
#define AB_RESOLVE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct ab_resolver ab_resolver_t;

#define AB_RESOLVE_MAX 256
struct ab_addresses {
    char endpoint[AB_RESOLVE_MAX]
                 [96]; /* "tcp://10.0.0.7:7440", "tcp://[fd00::7]:7440", no two alike */
    size_t n;
};

/* Endpoints are "tcp://host:port", NULL-terminated. `wake_fd` (an eventfd, borrowed until destroy)
 * is written when the answer has changed. */
ab_resolver_t *ab_resolver_new(const char *const *endpoints, int wake_fd, struct ab_error *err);
void ab_resolver_destroy(ab_resolver_t **self); /* does not wait for a lookup under way */

/* True if the answer has changed since the last call; *out is filled then. */
bool ab_resolver_take(ab_resolver_t *self, struct ab_addresses *out);

#endif
