/* oauth.h - browsers: sent to the provider, and back with an answer */
#ifndef AB_AUTH_OAUTH_H
#define AB_AUTH_OAUTH_H

#include "service/service.h"

#define OAUTH_DEVICE_PATH "/auth/oauth/ALCF/login/device"

/* "https://host": the address under which this client reaches us, by the setting public_url or what
 * it said itself. */
int oauth_base(struct ab_call *call, const char **out, struct ab_error *err);

int oauth_login(struct ab_call *call, struct ab_error *err);
int oauth_login_device(struct ab_call *call, struct ab_error *err);
int oauth_callback(struct ab_call *call, struct ab_error *err);

#endif
