/* user.h - registering, logging in, "who am I" */
#ifndef AB_AUTH_USER_H
#define AB_AUTH_USER_H

#include "service/service.h"

/* The setting login_methods knows these names only. */
int user_check_methods(const ab_conf_t *conf, struct ab_error *err);
bool user_has_method(const ab_conf_t *conf, const char *method);
/* The routes of a method exist only when it is among the settings: else the 404 of an unknown path.
 */
int user_need_method(const struct ab_call *call, const char *method, struct ab_error *err);

int user_how(struct ab_call *call, struct ab_error *err);
int user_register_hash(struct ab_call *call,
                       struct ab_error *err); /* in front of the transaction */
int user_register(struct ab_call *call, struct ab_error *err);
int user_login(struct ab_call *call, struct ab_error *err);
/* :life, longer than any token lives; an hour of it for clocks that differ. */
void user_bind_life(struct ab_call *call);
int user_me(struct ab_call *call, struct ab_error *err);
int user_ended(struct ab_call *call, struct ab_error *err);  /* verb: [{"user", "from"}] */
int user_forget(struct ab_call *call, struct ab_error *err); /* timer */

#endif
