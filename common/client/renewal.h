/* renewal.h - the key under which a token is renewed, kept until the answer is in the client file
 *
 * The centre repeats an answer that got lost, however late, for who proves to be the one that asked
 * first. The proof is a random Idempotency-Key, written down beside the client file
 * (client.yml.renewal, mode 0600) before it is sent: a program that is killed in mid-renewal, or
 * another one of the same site, asks again under it.
 */
#ifndef RENEWAL_H
#define RENEWAL_H

#include "base/error.h"

#define RENEWAL_KEY 44 /* bytes, with the NUL */

/* Of this refresh token: the key that was written down before, else a new one. */
int renewal_key(const char *client_file, const char *refresh_token, char key[RENEWAL_KEY],
                struct ab_error *err);
/* The answer is in the client file. */
void renewal_done(const char *client_file);

#endif
