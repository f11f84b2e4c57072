/* relay.h - connections from a balancer in front, which says first who the client is
 *
 * The PROXY line, version 1 (`PROXY TCP4 192.0.2.7 192.0.2.1 51234 8443\r\n`), comes before TLS. Whoever reaches
 * the port is believed, so with `proxy_protocol` only the balancer may reach it.
 */
#ifndef GATEWAY_RELAY_H
#define GATEWAY_RELAY_H

#include <stddef.h>
#include <stdint.h>

#define RELAY_LINE 107 /* bytes of the longest line, with its CR LF */

/* The line's length, and the client's address as inet_ntop writes it ("": the balancer speaks for itself).
 * 0: it is not all there. -1: this is no such line. `peer` has INET6_ADDRSTRLEN bytes. */
int relay_parse(const char *bytes, size_t n, char *peer);

/* A socket that was accepted: becomes a connection of the client when the line has come. `peer` is the balancer. */
void relay_adopt(int fd, const char *peer);
void relay_tick(int64_t now_ms);
size_t relay_count(void);
void relay_close(void);

#endif
