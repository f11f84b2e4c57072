/* key.h - the key that signs, and the public halves that check */
#ifndef AB_AUTH_KEY_H
#define AB_AUTH_KEY_H

#include "crypt/crypt.h"
#include "service/service.h"

/* Loads seal.key, makes the first signing key if there is none. Once, before the workers. */
int key_start(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err);

/* With the newest key. Any thread. */
int key_sign(const struct ab_token *token, char out[AB_TOKEN_MAX], struct ab_error *err);

/* Texts that only we can make: the successor of a refresh token, from its predecessor, and the first
 * one of a token that was asked for, from the id of its access token. */
void key_derive(const char *text, char out[AB_SECRET_TEXT_MAX]);
void key_derive_first(const uint8_t jti[16], char out[AB_SECRET_TEXT_MAX]);

int key_list(struct ab_call *call, struct ab_error *err); /* verb key.list: [{"kid", "key"}] */
int key_reload(struct ab_call *call,
               struct ab_error *err); /* timer: another key may have become the newest */

#endif
