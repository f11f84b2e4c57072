/* door.h - the listening socket: when it opens, who comes in, and how it closes without a reset
 *
 * Several gateways share a name or a port, so a gateway lets nobody in before it can serve (the others do),
 * and when it leaves nobody who has begun to connect is turned away.
 */
#ifndef GATEWAY_DOOR_H
#define GATEWAY_DOOR_H

#include "gateway.h"

/* The address is taken, nobody is let in yet. The bus must be up: what it needs is not for clients. */
int door_bind(struct ab_error *err);
/* A few times a second: opens once everything is there (or `join` is over), closes some time after door_leave. */
void door_tick(int64_t now_ms);
/* Whoever is connecting now still comes in, later ones find another gateway. */
void door_leave(int64_t now_ms);
void door_close(void);
bool door_is_open(void); /* or somebody who came through it is not seated yet */
const char *door_address(void);

/* Before door_bind: the descriptors that this many connections need, as far as the host allows. */
void door_raise_limit(size_t connections);

#endif
