/* hub.h - the broker's side of the modules' messages: calls to the uplink, updates to the outbox,
 * waiting for the outbox to be empty
 */
#ifndef SITE_HUB_H
#define SITE_HUB_H

#include "base/error.h"
#include "bus/local.h"
#include "outbox.h"
#include "post.h"
#include "uplink.h"

#define HUB_DRAINS 64

typedef struct hub hub_t;

/* Borrows all of them. `on_health(arg, link, json, len)`: a module said how it is. */
hub_t *hub_new(ab_hub_t *socket, outbox_t *outbox, post_t *post, uplink_t *uplink,
               void (*on_health)(void *arg, const char *link, const char *json, size_t len),
               void *arg);
void hub_destroy(hub_t **self);

void hub_receive(hub_t *self);                                  /* all messages that are there */
void hub_answer(hub_t *self, const struct uplink_reply *reply); /* an answer of the centre */
void hub_wake(hub_t *self, const char *module);                 /* if it is linked */
void hub_drained(hub_t *self);                                  /* a call of the outbox has ended */

#endif
