/* key.h - the key that signs, and the public halves that check */
#ifndef AB_AUTH_KEY_H
#define AB_AUTH_KEY_H

#include "crypt/crypt.h"
#include "service/service.h"

/* Loads seal.key, makes the first signing key if there is none. Once, before the workers. */
int key_start(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err);

/* With the newest key. Any thread. */
int key_sign(const struct ab_token *token, char out[AB_TOKEN_MAX], struct ab_error *err);

/* A text that only we can make from another: the successor of a refresh token. */
void key_derive(const char *text, char out[AB_SECRET_TEXT_MAX]);

int key_list(struct ab_call *call, struct ab_error *err); /* verb key.list: [{"kid", "key"}] */
int key_reload(struct ab_call *call,
               struct ab_error *err); /* timer: another key may have become the newest */

#endif
