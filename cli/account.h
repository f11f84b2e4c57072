/* account.h - registering and logging in by password */
#ifndef CLI_ACCOUNT_H
#define CLI_ACCOUNT_H

#include "base/error.h"
#include "client/api.h"

/* "https://" in front if it has no scheme, no '/' at the end; in the arena. */
const char *account_root(ab_arena_t *arena, const char *url);

/* POST /auth/password/register at file->api_root. An existing name is an error (AB_ECONFLICT or
 * what the centre says). */
int account_register(const struct ab_client_file *file, const char *username, const char *password,
                     struct ab_error *err);

/* Log in, with a refresh token; the tokens land in *file, which is not saved. */
int account_login(struct ab_client_file *file, const char *username, const char *password,
                  struct ab_error *err);

#endif
