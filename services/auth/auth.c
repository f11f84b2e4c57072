/* auth.c - who is asking, and with which right
 *
 * Passwords are hashed, and the provider is asked, outside of transactions. Access tokens are
 * checked by the gateways with the public keys alone; what is kept here are the tokens that renew
 * them, and the revocations.
 */
#include "auth.h"

#include "audit.h"
#include "audit.sql.h"
#include "crypt/crypt.h"
#include "device.h"
#include "device.sql.h"
#include "key.h"
#include "key.sql.h"
#include "limit.h"
#include "limit.sql.h"
#include "oauth.h"
#include "oauth.sql.h"
#include "provider.h"
#include "token.h"
#include "token.sql.h"
#include "user.h"
#include "user.sql.h"

static const struct ab_verb verbs[] = {
    {.name = "auth.how", .handler = user_how, .no_transaction = true},
    {.name = "user.register", .handler = user_register, .before = user_register_hash},
    {.name = "user.login", .handler = user_login, .no_transaction = true},
    {.name = "device.login", .handler = device_login, .no_transaction = true},
    {.name = "device.token", .handler = device_token, .no_transaction = true},
    {.name = "oauth.login", .handler = oauth_login, .no_transaction = true},
    {.name = "oauth.login_device", .handler = oauth_login_device, .no_transaction = true},
    {.name = "oauth.callback", .handler = oauth_callback, .no_transaction = true},
    {.name = "user.me", .handler = user_me, .no_transaction = true},
    {.name = "token.refresh", .handler = token_refresh, .no_transaction = true},
    {.name = "token.revoke", .handler = token_revoke, .no_transaction = true},
    {.name = "token.list", .handler = token_list},
    {.name = "token.create", .handler = token_create, .replay = token_again, .secret = true},
    {.name = "token.delete", .handler = token_delete, .writes = true},
    {.name = "key.list", .handler = key_list},
    {.name = "token.revoked", .handler = token_revoked},
    {.name = "user.ended", .handler = user_ended},
    {0},
};

static const struct ab_timer timers[] = {
    {"keys", key_reload, .every = "key_period"},
    {"forget_attempts", limit_forget, .every = "forget_period", .one_replica = true},
    {"forget_tokens", token_forget, .every = "forget_period", .one_replica = true},
    {"forget_log_ins", device_forget, .every = "forget_period", .one_replica = true},
    {"forget_users", user_forget, .every = "forget_period", .one_replica = true},
    {"forget_audit", audit_forget, .every = "forget_period", .one_replica = true},
    {0},
};

static const struct ab_setting settings[] = {
    {"login_methods", AB_CONF_LIST, "password",
     "ways to log in: password, oauth_device, oauth_authcode"},
    {"open_registration", AB_CONF_BOOL, "true", "anybody may make an account"},
    {"seal_key", AB_CONF_TEXT, NULL,
     "file of the key that seals secrets in the database (mode 0600)"},
    {"token_ttl", AB_CONF_DURATION, "48h", "life of an access token that cannot be renewed"},
    {"short_token_ttl", AB_CONF_DURATION, "1h",
     "life of an access token that comes with a refresh token"},
    {"refresh_ttl", AB_CONF_DURATION, "720h",
     "a refresh token that was not used for this long ends"},
    {"refresh_grace", AB_CONF_DURATION, "30s",
     "a refresh token may be repeated this long, for replies that got lost"},
    {"login_hold", AB_CONF_DURATION, "1s",
     "how long a refusal is held back: some clients repeat it at once, for ever"},
    {"login_window", AB_CONF_DURATION, "1m", "time over which log-ins are counted"},
    {"login_limit", AB_CONF_INT, "20", "log-ins of one user from one address in that time"},
    {"login_limit_address", AB_CONF_INT, "200", "log-ins from one address in that time"},
    {"device_lifetime", AB_CONF_DURATION, "300s", "time to agree to a log-in on a device"},
    {"device_interval", AB_CONF_DURATION, "3s", "a device polls this often; earlier polls wait"},
    {"oauth_issuer", AB_CONF_TEXT, NULL,
     "URL of the OpenID Connect provider, exactly as its discovery document says it"},
    {"oauth_client_id", AB_CONF_TEXT, NULL, "what the provider knows us by"},
    {"oauth_client_secret", AB_CONF_SECRET, NULL, "and what proves it"},
    {"oauth_client_auth", AB_CONF_TEXT, "auto",
     "how the secret is sent: post, basic, or what the provider takes"},
    {"oauth_scope", AB_CONF_TEXT, "openid", "what we ask for; `openid` must be in it"},
    {"oauth_username_claim", AB_CONF_TEXT, "preferred_username",
     "the claim, of id token or user info, that is the user name"},
    {"oauth_adopt", AB_CONF_BOOL, "false",
     "who signs in through the provider gets the account of that name though it has a password"},
    {"oauth_ca_file", AB_CONF_TEXT, NULL, "certificates to trust at the provider"},
    {"oauth_timeout", AB_CONF_DURATION, "10s", "for all calls to the provider of one sign-in"},
    {"oauth_state_life", AB_CONF_DURATION, "10m", "time to sign in at the provider"},
    {"oauth_redirect_scheme", AB_CONF_TEXT, "https", "of the address that a browser comes back to"},
    {"oauth_redirect_path", AB_CONF_TEXT, "/auth/oauth/ALCF/callback",
     "and its path, if a proxy changes it"},
    {"public_url", AB_CONF_TEXT, NULL,
     "address by which browsers reach the gateways; else what each request says (Host)"},
    {"audit_keep", AB_CONF_DURATION, "9600h",
     "how long sign-ins, token and admin actions are kept; 0s is for ever"},
    {"key_period", AB_CONF_DURATION, "5s", "how often signing keys are read again"},
    {"forget_period", AB_CONF_DURATION, "1m", "how often what has expired is deleted"},
    {0},
};

static const struct ab_sql *const *const sql[] = {user_sql,   limit_sql, token_sql, key_sql,
                                                  device_sql, oauth_sql, audit_sql, NULL};

static int start(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err)
{
    ab_crypt_init();
    if (user_check_methods(conf, err) < 0 || device_check(conf, err) < 0)
        return -1;
    if ((user_has_method(conf, "oauth_device") || user_has_method(conf, "oauth_authcode"))
        && provider_check(conf, err) < 0)
        return -1;
    return key_start(conf, db, err);
}

const struct ab_service auth_service = {
    .name = "auth",
    .verbs = verbs,
    .timers = timers,
    .sql = sql,
    .settings = settings,
    .start = start,
    /* Refusals and early polls are held back without a worker, and must not keep others out: more
     * than the HOLD_MAX of common/service. */
    .capacity = 1280,
};
