/* discovery.h - what a provider says about itself, fetched and kept */
#ifndef AB_AUTH_DISCOVERY_H
#define AB_AUTH_DISCOVERY_H

#include "client/http.h"
#include "id_token.h"
#include "service/service.h"

/* A few calls to the provider in a row, all before `deadline_ms`. */
struct talk {
    struct ab_call *call;
    ab_http_t *http;
    int64_t deadline_ms;
};
int talk_begin(struct talk *self, struct ab_call *call, struct ab_error *err);
void talk_end(struct talk *self);
/* One request. JSON in *out, whatever the status, which is returned; -1: there was no answer, or
 * none in JSON. What went wrong is logged; the error says no more than a stranger may know. */
int talk_json(struct talk *self, const char *method, const char *url, const char *const *headers,
              const char *body, const struct ab_value **out, struct ab_error *err);

struct provider_info {
    const char *authorization, *token, *userinfo, *jwks; /* userinfo may be NULL */
    bool takes_post, takes_basic;                        /* how the token endpoint knows us */
};
/* In the call's arena. `talk` NULL: only what is kept; 1 then means that it has to be fetched. */
int discovery_find(struct ab_call *call, struct talk *talk, struct provider_info *out,
                   struct ab_error *err);

/* The provider's keys, held until discovery_release; `fresh`: not those that are kept. NULL and
 * err.
 */
struct shared_keys;
struct shared_keys *discovery_keys(struct talk *talk, const struct provider_info *info, bool fresh,
                                   struct ab_error *err);
const struct key_set *discovery_set(const struct shared_keys *self);
void discovery_release(struct shared_keys **self);

void discovery_forget(void);

#endif
