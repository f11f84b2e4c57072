/* certs.h - key files as czmq certificates, for this folder only */
#ifndef AB_CERTS_H
#define AB_CERTS_H

#include "base/error.h"
#include <czmq.h>

/* <dir>/<name>.key_secret, which must be private. NULL with an error. */
zcert_t *ab_cert_own(const char *dir, const char *name, struct ab_error *err);
int ab_cert_public(const char *dir, const char *name, char key[41], struct ab_error *err);

/* Of a pair in Z85 text; NULL: it is none. */
zcert_t *ab_cert_of_texts(const char *public_key, const char *secret_key);

/* Each NAME.key there carries `name` = NAME: that is what a READY is checked against. */
int ab_cert_check_allowed(const char *dir, struct ab_error *err);

#endif
