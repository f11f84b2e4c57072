/* probe.h - does a stranger get in? CURVE fails open when the ZAP handler is gone, so it is tried
 *
 * A DEALER with a key that nobody knows connects; its socket monitor tells what became of the
 * handshake.
 */
#ifndef AB_PROBE_H
#define AB_PROBE_H

#include "base/error.h"
#include <czmq.h>

typedef struct ab_probe ab_probe_t;

enum ab_probe_result {
    AB_PROBE_WAITING,
    AB_PROBE_REFUSED, /* as it should be */
    AB_PROBE_LET_IN,  /* the door is open */
};

/* `type` of the socket that listens: a peer that does not fit it is turned away before its key is
 * looked at. */
ab_probe_t *ab_probe_new(int type, const char *endpoint, const char *server_key);
void ab_probe_destroy(ab_probe_t **self);
enum ab_probe_result ab_probe_check(ab_probe_t *self); /* does not wait */

/* Bind `sock` to a loopback port, try, unbind. Only an explicit refusal is one. Blocks, 5 s at
 * most. */
int ab_probe_prove(zsock_t *sock, const char *server_key, struct ab_error *err);

#endif
