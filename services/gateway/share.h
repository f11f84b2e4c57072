/* share.h - how many connections one party has here: so that none can take them all
 *
 * A party is a user (WebSockets, which stay) or an address (all connections; of IPv6 the first 64
 * bits, because one host has that many).
 */
#ifndef SHARE_H
#define SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum share {
    SHARE_USER,
    SHARE_ADDRESS
};

/* One more of this party; -1: it has `most` already, or there is no memory. */
int share_take(enum share kind, uint64_t party, size_t most);
void share_give(enum share kind, uint64_t party);
/* A text as inet_ntop makes it; a text that is no address is one party. */
uint64_t share_of_address(const char *text);
void share_free(void);

#endif
