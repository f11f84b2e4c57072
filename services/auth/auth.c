/* auth.c - who is asking, and with which right
 *
 * Passwords are hashed outside of transactions. Access tokens are checked by the gateways with the
 * public keys alone; what is kept here are the tokens that renew them, and the revocations.
 */
#include "auth.h"

#include "crypt/crypt.h"
#include "key.h"
#include "key.sql.h"
#include "limit.h"
#include "limit.sql.h"
#include "token.h"
#include "token.sql.h"
#include "user.h"
#include "user.sql.h"

static const struct ab_verb verbs[] = {
    {.name = "auth.how", .handler = user_how, .no_transaction = true},
    {.name = "user.register", .handler = user_register, .before = user_register_hash},
    {.name = "user.login", .handler = user_login, .no_transaction = true},
    {.name = "user.me", .handler = user_me, .no_transaction = true},
    {.name = "token.refresh", .handler = token_refresh, .no_transaction = true},
    {.name = "token.list", .handler = token_list},
    {.name = "token.create", .handler = token_create},
    {.name = "token.delete", .handler = token_delete},
    {.name = "key.list", .handler = key_list},
    {.name = "token.revoked", .handler = token_revoked},
    {0},
};

static const struct ab_timer timers[] = {
    {"keys", key_reload, .every = "key_period"},
    {"forget_attempts", limit_forget, .every = "forget_period", .one_replica = true},
    {"forget_tokens", token_forget, .every = "forget_period", .one_replica = true},
    {0},
};

static const struct ab_setting settings[] = {
    {"login_methods", AB_CONF_LIST, "password", "ways to log in: password"},
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
    {"key_period", AB_CONF_DURATION, "5s", "how often signing keys are read again"},
    {"forget_period", AB_CONF_DURATION, "1m", "how often what has expired is deleted"},
    {0},
};

static const struct ab_sql *const *const sql[] = {user_sql, limit_sql, token_sql, key_sql, NULL};

static int start(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err)
{
    ab_crypt_init();
    return user_check_methods(conf, err) < 0 ? -1 : key_start(conf, db, err);
}

const struct ab_service auth_service = {
    .name = "auth",
    .verbs = verbs,
    .timers = timers,
    .sql = sql,
    .settings = settings,
    .start = start,
    .capacity = 256, /* refusals are held back without a worker, and must not keep others out */
};
