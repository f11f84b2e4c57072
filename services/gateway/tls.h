/* tls.h - the certificate, and its successor: read again when its file has changed, or at SIGHUP
 *
 * New handshakes get the new one; connections that are open stay. Two files cannot change at once:
 * what does not belong together, or cannot be read, is left alone and looked at again later.
 */
#ifndef TLS_H
#define TLS_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

/* lws made this for our only host. */
void tls_use(SSL_CTX *context);
/* The loop calls it now and then; `now`: whatever the files' times say. */
void tls_check(bool now);

#endif
