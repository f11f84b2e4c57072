/* secrets.h - passwords and keys of a centre: made once, files of mode 0600 in secrets/ */
#ifndef CENTRE_SECRETS_H
#define CENTRE_SECRETS_H

#include "centre.h"

/* Database roles that have a password: the owner, one for each service, the reporter. */
extern const char *const secret_roles[];
extern const size_t secret_n_roles;

/* Makes what is missing: db-<role>, local-user. (seal.key is made by `abies-admin keys init`.) */
int secrets_make(const struct centre *self, struct ab_error *err);

/* A secret's text without its newline, in the arena; NULL + err. */
const char *secret_read(const struct centre *self, const char *name, struct ab_error *err);

/* url-<role>: what libpq needs to connect there. */
int secrets_write_urls(const struct centre *self, const char *socket_dir, struct ab_error *err);

#endif
