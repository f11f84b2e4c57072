/* auth.h - bearer tokens, checked here: signature, expiry, revocation, and whether their user still
 * may
 *
 * Public keys, revoked tokens and users that were locked out come from the auth service: at start,
 * when a hint says so, and every 5 s, since hints may be lost. A token that was good is remembered,
 * because a signature costs more than all the rest of a request.
 */
#ifndef AUTH_H
#define AUTH_H

#include "crypt/crypt.h"
#include <stdbool.h>
#include <stddef.h>

#define AUTH_PERIOD_MS 5000

enum auth {
    AUTH_OK,
    AUTH_NONE, /* no Authorization, or not a bearer's */
    AUTH_BAD,
    AUTH_NOT_YET, /* no keys known yet */
};

void auth_init(void);
void auth_free(void);
void auth_fetch(void); /* now; the loop's timer calls it every AUTH_PERIOD_MS */
bool auth_ready(void);

enum auth auth_check_header(const char *value, size_t n, struct ab_token *out);
enum auth auth_check_token(const char *text, size_t n, struct ab_token *out);
bool auth_ended(const struct ab_token *token); /* it was good once: is it no longer? */

void auth_hint(char topic, const void *body, size_t len); /* 'k' and 'r' */

/* What the service answered; -1: not what it should be (nothing is changed). */
int auth_take_keys(const void *body, size_t len);
int auth_take_revoked(const void *body, size_t len);
int auth_take_ended(const void *body, size_t len);

#endif
