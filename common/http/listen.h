/* listen.h - a listening TCP socket from "host:port" text */
#ifndef AB_HTTP_LISTEN_H
#define AB_HTTP_LISTEN_H

#include "base/error.h"
#include <stdbool.h>

#define AB_ADDRESS_TEXT 80

/* Non-blocking, CLOEXEC, SO_REUSEADDR (and SO_REUSEPORT with `share`: several processes, one port).
 * "0.0.0.0:8443", "[::1]:0", "localhost:0". backlog 0: only bound, listen() makes it one later. -1 on failure. */
int ab_listen_tcp(const char *listen, bool share, int backlog, struct ab_error *err);

/* Where it listens, as "127.0.0.1:43211" or "[::1]:43211"; out has AB_ADDRESS_TEXT bytes. */
void ab_listen_address(int fd, char *out);

#endif
