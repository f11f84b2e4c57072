/* account.h - registering and logging in: by password, or on another device's browser */
#ifndef CLI_ACCOUNT_H
#define CLI_ACCOUNT_H

#include "base/error.h"
#include "client/api.h"
#include <stdbool.h>

/* "https://" in front if it has no scheme, no '/' at the end; in the arena. */
const char *account_root(ab_arena_t *arena, const char *url);

/* POST /auth/password/register at file->api_root. An existing name is an error (AB_ECONFLICT or
 * what the centre says). */
int account_register(const struct ab_client_file *file, const char *username, const char *password,
                     struct ab_error *err);

/* Log in, with a refresh token; the tokens land in *file, which is not saved. */
int account_login(struct ab_client_file *file, const char *username, const char *password,
                  struct ab_error *err);

/* End the login at the centre; the file is left as it is. */
int account_logout(const struct ab_client_file *file, struct ab_error *err);

/* What the centre at file->api_root offers (GET /auth/how). */
struct account_ways {
    bool password, device;
};
int account_how(const struct ab_client_file *file, struct account_ways *out, struct ab_error *err);

/* The person agrees in a browser, wherever that is; `show` tells where and with which code, then
 * this waits. The tokens land in *file, which is not saved. */
struct account_device {
    const char *code, *where, *complete; /* `complete` has the code in it */
    double minutes;
};
typedef void account_show_f(void *arg, const struct account_device *device);
int account_login_device(struct ab_client_file *file, account_show_f *show, void *arg,
                         struct ab_error *err);

#endif
