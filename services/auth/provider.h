/* provider.h - the external OpenID Connect provider: where its endpoints are, who somebody is
 *
 * Found by its discovery document, which is kept for an hour, as its keys are. Calls to it are made
 * outside of transactions, each within what is left of `oauth_timeout` and of the request's own
 * deadline, and never by more than half of the workers: a provider that does not answer must not
 * take everybody else's log-ins along.
 */
#ifndef AB_AUTH_PROVIDER_H
#define AB_AUTH_PROVIDER_H

#include "service/service.h"

/* Once, at start: are the settings complete? Nothing is fetched: the provider may come up later. */
int provider_check(const ab_conf_t *conf, struct ab_error *err);

/* The address that a browser is sent to, with state, nonce and the challenge of PKCE. */
int provider_address(struct ab_call *call, const char *state, const char *redirect_uri,
                     const char **out, struct ab_error *err);

/* Somebody whom the provider knows. */
struct provider_person {
    const char *issuer, *subject;
    const char *username; /* 1 to 100 characters, none of them a control character */
};

/* May this worker talk to the provider now? -1 AB_EBUSY: enough others do. */
int provider_enter(struct ab_call *call, struct ab_error *err);
void provider_leave(void);

/* Exchange a code, check the id token, find the name. Between enter and leave. AB_EINVAL: the code
 * is good for nothing; AB_EDENIED: the provider's word cannot be trusted; AB_EUPSTREAM,
 * AB_ETIMEOUT: no word. */
int provider_exchange(struct ab_call *call, const char *code, const char *state,
                      const char *redirect_uri, struct provider_person *out, struct ab_error *err);

void provider_forget(void); /* tests: as after a start */

#endif
