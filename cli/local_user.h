/* local_user.h - the account of whoever ran `abies up`, and ~/.abies/client.yml */
#ifndef CLI_LOCAL_USER_H
#define CLI_LOCAL_USER_H

#include "base/error.h"
#include "centre/centre.h"

/* Registers the local user (password in secrets/) and writes the client file, if there is none or
 * it belongs to this centre. 1: written or right already; 2: written, but without a login, because
 * the centre takes none by password; 0: the file points elsewhere and was left
 * alone; -1 error. */
int local_user_make(const struct centre *centre, struct ab_error *err);

#endif
