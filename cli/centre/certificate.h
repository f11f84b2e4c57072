/* certificate.h - TLS of a local centre: an authority of its own and a server certificate for
 * loopback */
#ifndef CENTRE_CERTIFICATE_H
#define CENTRE_CERTIFICATE_H

#include "centre.h"

/* Makes tls/{ca,server}.{pem,key} (ECDSA P-256) when they are missing, end within 30 days, or name
 * another machine: then 1, else 0. With Debian's program openssl. */
int certificate_make(const struct centre *self, struct ab_error *err);

#endif
