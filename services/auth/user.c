/* user.c - registering, logging in, "who am I"
 *
 * A wrong password, an unknown user and a user without a password look the same: same work, same
 * answer, same time. Refusals are held back for a moment, because clients of the contract repeat
 * them at once.
 */
#include "user.h"

#include "audit.h"
#include "crypt/crypt.h"
#include "limit.h"
#include "schema/pack.h"
#include "token.h"
#include "user.sql.h"
#include <inttypes.h>
#include <string.h>

static const char *const methods[] = {"password", "oauth_device", "oauth_authcode", NULL};

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

int user_check_methods(const ab_conf_t *conf, struct ab_error *err)
{
    for (const char *const *name = ab_conf_list(conf, "login_methods"); *name; name++)
        if (!is_among(*name, methods))
            return ab_fail(err, AB_EINVAL,
                           "login_methods: there is no `%s`; known are: password, "
                           "oauth_device, oauth_authcode",
                           *name);
    return 0;
}

int user_how(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    uint32_t n = 0;
    const char *const *names = ab_conf_list(call->conf, "login_methods");
    while (names[n])
        n++;
    ab_pack_array(&call->reply, n);
    for (; *names; names++)
        ab_pack_str(&call->reply, ab_printf(call->arena, "LoginMethod.%s", *names));
    return 0;
}

bool user_has_method(const ab_conf_t *conf, const char *method)
{
    return is_among(method, ab_conf_list(conf, "login_methods"));
}

int user_need_method(const struct ab_call *call, const char *method, struct ab_error *err)
{
    if (user_has_method(call->conf, method))
        return 0;
    return ab_fail_kind(err, AB_ENOENT, "no_route", "Not Found");
}

static void hold(struct ab_call *call)
{
    call->hold_ms = ab_conf_ms(call->conf, "login_hold");
}

/* ---- register */

int user_register_hash(struct ab_call *call, struct ab_error *err)
{
    const struct user_register *in = call->req->body.v;
    hold(call); /* any refusal */
    if (user_need_method(call, "password", err) < 0)
        return -1;
    if (!ab_conf_bool(call->conf, "open_registration"))
        return ab_fail(err, AB_EDENIED, "accounts are made by the operator here: ask for one");
    if (limit_attempt(call, "register", "", err) < 0)
        return -1;
    char *hash = ab_alloc(call->arena, AB_PASSWORD_HASH_MAX, 1);
    call->state = hash;
    return ab_password_hash(in->password, strlen(in->password), hash, err);
}

int user_register(struct ab_call *call, struct ab_error *err)
{
    const struct user_register *in = call->req->body.v;
    ab_bind_text(call, "password_hash", call->state);
    PGresult *r = ab_run(call, &SQL_user_add, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0) {
        hold(call);
        return ab_fail_kind(err, AB_EINVAL, "name_taken", "the user name `%s` is taken",
                            in->username);
    }
    int64_t id = ab_col_int(r, 0, ab_col(r, "id"));
    struct audit what = {.action = "user.register", .ok = true, .user = id, .actor = in->username};
    if (audit_add(call, &what, err) < 0)
        return -1;
    ab_reply_row(call, call->route->reply, r, 0);
    return 0;
}

/* ---- log in */

/* Made with weaker settings than today's: now we have the password. Not worth a failed log-in. */
static void strengthen(struct ab_call *call, int64_t user, const char *hash, const char *password)
{
    char *better = ab_alloc(call->arena, AB_PASSWORD_HASH_MAX, 1);
    if (!ab_password_outdated(hash)
        || ab_password_hash(password, strlen(password), better, NULL) < 0)
        return;
    ab_bind_int(call, "user_id", user);
    ab_bind_text(call, "password_hash", hash);
    ab_bind_text(call, "new_hash", better);
    (void)ab_run(call, &SQL_user_rehash, NULL);
}

/* Of the row, if there is one. True: locked out. */
static bool read_user(struct ab_call *call, const PGresult *r, struct token_owner *out)
{
    size_t len;
    int col = ab_col(r, "password_hash");
    if (PQntuples(r) == 0)
        return false;
    out->user = ab_col_int(r, 0, ab_col(r, "id"));
    if (!ab_col_null(r, 0, col)) {
        const char *text = ab_col_text(r, 0, col, &len);
        out->checked_hash = ab_strndup(call->arena, text, len);
    }
    return ab_col_bool(r, 0, ab_col(r, "disabled"));
}

/* A name that is nobody's is not written down: it may be a password in the wrong field. */
static int tell(struct ab_call *call, const struct token_owner *owner, bool ok, const char *why,
                struct ab_error *err)
{
    struct audit what = {.action = "login.password",
                         .ok = ok,
                         .user = owner->user,
                         .actor = owner->user ? owner->username : NULL,
                         .detail = owner->user ? why : "unknown user"};
    return audit_add(call, &what, err);
}

static int refuse(struct ab_call *call, const struct token_owner *owner, const char *why,
                  struct ab_error *err)
{
    if (tell(call, owner, false, why, err) < 0)
        return -1;
    return ab_fail_kind(err, AB_EAUTH, "bad_login", "Unauthorized");
}

int user_login(struct ab_call *call, struct ab_error *err)
{
    const struct login *in = call->req->body.v;
    hold(call); /* any refusal */
    if (user_need_method(call, "password", err) < 0
        || limit_attempt(call, "login", in->username, err) < 0)
        return -1;
    PGresult *r = ab_run(call, &SQL_user_find, err);
    if (!r)
        return -1;
    struct token_owner owner = {.username = in->username, .scope = AB_TOKEN_USER};
    bool locked_out = read_user(call, r, &owner);
    int right = ab_password_check(owner.checked_hash, in->password, strlen(in->password), err);
    if (right < 0)
        return -1;
    if (!right || locked_out)
        return refuse(call, &owner, right ? "locked out" : "wrong password", err);
    if (limit_forgive(call, err) < 0)
        return -1;
    int rc = token_login(call, &owner, in->refresh, err);
    if (rc <= 0)
        return rc < 0 ? -1 : refuse(call, &owner, "locked out or changed meanwhile", err);
    if (tell(call, &owner, true, NULL, err) < 0)
        return -1;
    call->hold_ms = 0;
    strengthen(call, owner.user, owner.checked_hash, in->password);
    return 0;
}

/* ---- who am I: the token's own word, no look at the database */

int user_me(struct ab_call *call, struct ab_error *err)
{
    (void)err;
    ab_pack_map(&call->reply, 2);
    ab_pack_str(&call->reply, "id");
    ab_pack_int(&call->reply, call->owner_id);
    ab_pack_str(&call->reply, "username");
    ab_pack_str(&call->reply, call->username ? call->username : "");
    return 0;
}

/* ---- for the gateways: whose tokens are good no more */

void user_bind_life(struct ab_call *call)
{
    int64_t life_ms = ab_conf_ms(call->conf, "token_ttl"),
            short_ms = ab_conf_ms(call->conf, "short_token_ttl");
    life_ms = (life_ms > short_ms ? life_ms : short_ms) + 3600 * 1000;
    ab_bind_text(call, "life", ab_printf(call->arena, "%" PRId64 " ms", life_ms));
}

int user_ended(struct ab_call *call, struct ab_error *err)
{
    user_bind_life(call);
    PGresult *r = ab_run(call, &SQL_user_ended, err);
    if (!r)
        return -1;
    ab_pack_array(&call->reply, (uint32_t)PQntuples(r));
    for (int row = 0; row < PQntuples(r); row++) {
        ab_pack_map(&call->reply, 2);
        ab_pack_str(&call->reply, "user");
        ab_pack_int(&call->reply, ab_col_int(r, row, 0));
        ab_pack_str(&call->reply, "from");
        ab_pack_int(&call->reply, ab_col_int(r, row, 1));
    }
    return 0;
}

int user_forget(struct ab_call *call, struct ab_error *err)
{
    user_bind_life(call);
    return ab_run(call, &SQL_user_ended_forget, err) ? 0 : -1;
}
