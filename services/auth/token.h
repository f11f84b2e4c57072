/* token.h - access tokens, and the tokens that renew them */
#ifndef AB_AUTH_TOKEN_H
#define AB_AUTH_TOKEN_H

#include "crypt/crypt.h"
#include "service/service.h"

/* For whom a token speaks. */
struct token_owner {
    int64_t user;
    const char *username;
    int scope;    /* enum ab_token_scope */
    int64_t site; /* 0 none */
    int64_t iat;  /* by the database's clock, not before the user's tokens_from */
    /* The password's hash that was checked: another one meanwhile, and there is no token. NULL
     * none.
     */
    const char *checked_hash;
};

/* An access token as it is given out. */
struct token_access {
    uint8_t jti[16];
    int64_t ends_us; /* whole seconds */
    char text[AB_TOKEN_MAX];
};

/* A new id, and an end that the setting `life` says; then sign it. */
void token_new_id(struct ab_call *call, const char *life, struct token_access *out);
int token_sign(const struct token_owner *owner, struct token_access *out, struct ab_error *err);
/* From a row of tokens with its user's name. */
int token_read_owner(struct ab_call *call, const PGresult *r, struct token_owner *out,
                     struct ab_error *err);
/* Bind :jti and :access_ends. */
void token_bind(struct ab_call *call, const struct token_access *access);
/* Bind :param, the digest of a refresh token. */
void token_bind_hash(struct ab_call *call, const char *param, const char *refresh);
/* The reply of a login; refresh NULL: none, and no key for it. */
void token_reply(struct ab_call *call, const struct token_access *access, const char *refresh);
/* End a token now, and tell the gateways. 1 gone, 0 there was none, -1. */
int token_end(struct ab_call *call, int64_t token_id, int64_t owner_id, struct ab_error *err);

/* 1 the reply is made; 0 the user is gone, locked out, or has another password by now; -1. */
int token_login(struct ab_call *call, struct token_owner *owner, bool renewable,
                struct ab_error *err);

int token_create(struct ab_call *call, struct ab_error *err);
int token_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
int token_list(struct ab_call *call, struct ab_error *err);
int token_delete(struct ab_call *call, struct ab_error *err);
int token_revoked(struct ab_call *call, struct ab_error *err); /* verb: [{"jti", "expires"}] */
int token_refresh(struct ab_call *call, struct ab_error *err); /* in renew.c */
int token_revoke(struct ab_call *call, struct ab_error *err);  /* in renew.c */
int token_forget(struct ab_call *call, struct ab_error *err);  /* timer */

#endif
