/* zap.h - a key check (ZAP) that lets in one public key: all links of one allocation share it
 *
 * czmq's zauth wants a folder of certificates; a launcher has its keys in memory only.
 */
#ifndef AB_ZAP_H
#define AB_ZAP_H

#include "base/error.h"
#include <czmq.h>

/* NULL: the key is none, or another key check runs in this process already. */
zactor_t *ab_zap_new(const char *allow, struct ab_error *err);

/* It must live as long as the sockets that it guards: CURVE without it lets everybody in. Ends the
 * process if it has ended. */
void ab_zap_check(zactor_t *zap);

#endif
