/* device.h - logging in on a device without a browser: RFC 8628, with us as the authorization
 * server */
#ifndef AB_AUTH_DEVICE_H
#define AB_AUTH_DEVICE_H

#include "service/service.h"

#define DEVICE_USER_CODE 10 /* XXXX-XXXX and the NUL */

int device_check(const ab_conf_t *conf, struct ab_error *err); /* settings, at start */

/* "bcdf ghjk", "BCDFGHJK" -> "BCDF-GHJK"; -1: it is none. */
int device_code_read(const char *text, char out[DEVICE_USER_CODE]);

int device_login(struct ab_call *call, struct ab_error *err);
int device_token(struct ab_call *call, struct ab_error *err);
int device_forget(struct ab_call *call, struct ab_error *err); /* timer: attempts and states */

#endif
