/* curve.h - CURVE key files (czmq certificates) */
#ifndef AB_BUS_CURVE_H
#define AB_BUS_CURVE_H

#include "base/error.h"

/* Once per program, before anything else of the bus: no czmq signal handlers, no ZSYS_* variables,
 * limits, SIGPIPE ignored; refuses a libzmq older than 4.3.3. */
void ab_bus_init(void);

/* Make a key pair: <dir>/<name>.key (public, 0644) and <dir>/<name>.key_secret (0600), meta `name`.
 * An existing pair is left alone. */
int ab_curve_make(const char *dir, const char *name, struct ab_error *err);

/* A fresh pair as 40-character Z85 texts (41 bytes each). */
void ab_curve_pair(char public_key[41], char secret_key[41]);

#endif
