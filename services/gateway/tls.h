/* tls.h - the certificate, and its successor: read again when its file has changed, or at SIGHUP
 *
 * New handshakes get the new one; connections that are open stay. Two files cannot change at once:
 * what does not belong together, or cannot be read, is left alone and looked at again later.
 */
#ifndef TLS_H
#define TLS_H

#include <libwebsockets.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

/* OpenSSL reads the head of a record and then its body, each with a call of the kernel, unless it may
 * read ahead. lws does not know what was read so: whoever allows it must take the rest himself. */
void tls_read_ahead(struct lws *wsi);
bool tls_has_more(struct lws *wsi);
/* Bytes, 0: the rest of a record has not come yet, -1: the connection is at its end. */
int tls_read(struct lws *wsi, void *out, int size);

/* lws made this for our only host. */
void tls_use(SSL_CTX *context);
/* The loop calls it now and then; `now`: whatever the files' times say. */
void tls_check(bool now);

#endif
