/* user.c - registering, logging in, "who am I"
 *
 * A wrong password, an unknown user and a user without a password look the same: same work, same
 * answer, same time. Refusals are held back for a moment, because clients of the contract repeat
 * them at once.
 */
#include "user.h"

#include "base/log.h"
#include "crypt/crypt.h"
#include "limit.h"
#include "schema/pack.h"
#include "token.h"
#include "user.sql.h"
#include <string.h>

static const char *const methods[] = {"password", NULL};

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
            return ab_fail(err, AB_EINVAL, "login_methods: there is no `%s`; known are: password",
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

/* The routes of a method exist only when it is among the settings. */
static int needs_password_method(const struct ab_call *call, struct ab_error *err)
{
    if (is_among("password", ab_conf_list(call->conf, "login_methods")))
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
    if (needs_password_method(call, err) < 0)
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

int user_login(struct ab_call *call, struct ab_error *err)
{
    const struct login *in = call->req->body.v;
    hold(call); /* any refusal */
    if (needs_password_method(call, err) < 0 || limit_attempt(call, "login", in->username, err) < 0)
        return -1;
    PGresult *r = ab_run(call, &SQL_user_find, err);
    if (!r)
        return -1;
    bool known = PQntuples(r) == 1;
    const char *hash = NULL;
    int col = ab_col(r, "password_hash");
    if (known && !ab_col_null(r, 0, col)) {
        size_t len;
        const char *text = ab_col_text(r, 0, col, &len);
        hash = ab_strndup(call->arena, text, len);
    }
    int right = ab_password_check(hash, in->password, strlen(in->password), err);
    if (right < 0)
        return -1;
    if (!right)
        return ab_fail_kind(err, AB_EAUTH, "bad_login", "Unauthorized");
    if (limit_forgive(call, err) < 0)
        return -1;
    call->hold_ms = 0;
    struct token_owner owner = {.user = ab_col_int(r, 0, ab_col(r, "id")),
                                .username = in->username,
                                .scope = AB_TOKEN_USER};
    strengthen(call, owner.user, hash, in->password);
    return in->refresh ? token_login_renewable(call, &owner, err) : token_login(call, &owner, err);
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
