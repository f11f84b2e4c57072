/* oauth.c - see oauth.h
 *
 * A state is a random text that only this browser was given. It is used once, whatever comes back
 * with it: good answers, errors and nonsense alike.
 */
#include "oauth.h"

#include "audit.h"
#include "base/log.h"
#include "base/str.h"
#include "crypt/crypt.h"
#include "device.h"
#include "device.sql.h"
#include "limit.h"
#include "oauth.sql.h"
#include "provider.h"
#include "schema/pack.h"
#include "user.h"
#include <inttypes.h>
#include <string.h>

#define HOST_MAX 255

/* ---- where we are */

static bool is_host(const char *host)
{
    size_t n = strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]");
    return n > 0 && n <= HOST_MAX && host[n] == '\0';
}

int oauth_base(struct ab_call *call, const char **out, struct ab_error *err)
{
    const char *url = ab_conf_text(call->conf, "public_url");
    if (url && *url) {
        size_t n = strlen(url);
        *out = ab_strndup(call->arena, url, n - (url[n - 1] == '/'));
        return 0;
    }
    if (!call->host || !is_host(call->host))
        return ab_fail(err, AB_EINVAL, "the request does not say by which address it came (Host)");
    *out = ab_printf(call->arena, "%s://%s", ab_conf_text(call->conf, "oauth_redirect_scheme"),
                     call->host);
    return 0;
}

/* ---- there */

static void bind_state(struct ab_call *call, const char *state)
{
    uint8_t *hash = ab_alloc(call->arena, 32, 1);
    ab_hash(state, strlen(state), hash, 32);
    ab_bind_bytes(call, "state_hash", hash, 32);
}

/* `attempt` 0: not for a device. */
static int send_away(struct ab_call *call, const char *kind, int64_t attempt, struct ab_error *err)
{
    char secret[AB_SECRET_TEXT_MAX];
    const char *base, *location;
    if (oauth_base(call, &base, err) < 0)
        return -1;
    ab_secret_text(secret);
    const char *state = ab_printf(call->arena, "%s %s", kind, secret);
    const char *back =
        ab_printf(call->arena, "%s%s", base, ab_conf_text(call->conf, "oauth_redirect_path"));
    if (provider_address(call, state, back, &location, err) < 0)
        return -1;
    bind_state(call, state);
    ab_bind_text(call, "redirect_uri", back);
    ab_bind_text(
        call, "life",
        ab_printf(call->arena, "%" PRId64 " ms", ab_conf_ms(call->conf, "oauth_state_life")));
    if (attempt)
        ab_bind_int(call, "attempt", attempt);
    else
        ab_bind_null(call, "attempt");
    if (!ab_run(call, &SQL_oauth_state_add, err))
        return -1;
    call->hold_ms = 0;
    ab_pack_map(&call->reply, 1);
    ab_pack_str(&call->reply, "location");
    ab_pack_str(&call->reply, location);
    return 0;
}

int oauth_login(struct ab_call *call, struct ab_error *err)
{
    call->hold_ms = ab_conf_ms(call->conf, "login_hold"); /* any refusal */
    if (user_need_method(call, "oauth_authcode", err) < 0
        || limit_attempt(call, "browser", call->request_id, err) < 0)
        return -1;
    return send_away(call, "BROWSER-FLOW", 0, err);
}

/* Wrong codes are counted: they are short enough to be guessed otherwise. */
int oauth_login_device(struct ab_call *call, struct ab_error *err)
{
    const struct oauth_device *in = call->req->query;
    char code[DEVICE_USER_CODE];
    if (user_need_method(call, "oauth_device", err) < 0)
        return -1;
    if (!in->user_code || !*in->user_code) {
        call->status = 200; /* the gateway's page that asks for it */
        return 0;
    }
    call->hold_ms = ab_conf_ms(call->conf, "login_hold"); /* any refusal */
    if (limit_attempt(call, "user code", "", err) < 0)
        return -1;
    if (device_code_read(in->user_code, code) < 0)
        return ab_fail_kind(err, AB_EINVAL, "invalid_client", "invalid_client");
    ab_bind_text(call, "code", code);
    PGresult *r = ab_run(call, &SQL_device_find, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail_kind(err, AB_EINVAL, "invalid_client", "invalid_client");
    if (limit_forgive(call, err) < 0)
        return -1;
    return send_away(call, ab_printf(call->arena, "DEVICE-FLOW %s", code),
                     ab_col_int(r, 0, ab_col(r, "id")), err);
}

/* ---- and back */

struct journey {
    int64_t attempt; /* 0: none */
    const char *redirect_uri;
};

/* 1 taken, 0 there is none, -1. */
static int take_state(struct ab_call *call, const char *state, struct journey *out,
                      struct ab_error *err)
{
    bind_state(call, state);
    PGresult *r = ab_run(call, &SQL_oauth_state_take, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0 || !ab_col_bool(r, 0, ab_col(r, "good")))
        return 0;
    size_t len;
    int attempt = ab_col(r, "attempt_id");
    const char *uri = ab_col_text(r, 0, ab_col(r, "redirect_uri"), &len);
    out->attempt = ab_col_null(r, 0, attempt) ? 0 : ab_col_int(r, 0, attempt);
    out->redirect_uri = ab_strndup(call->arena, uri, len);
    return 1;
}

static const char *action_of(const struct journey *journey)
{
    return journey->attempt ? "login.device.approve" : "login.browser";
}

/* The provider says no. Told as it came; written down only if the state is one of ours. */
static int no_code(struct ab_call *call, const struct oauth_answer *in, struct ab_error *err)
{
    struct journey journey = {0};
    int rc = take_state(call, in->state, &journey, err);
    if (rc < 0)
        return -1;
    bool denied = strcmp(in->error, "access_denied") == 0;
    if (rc && denied && journey.attempt) {
        ab_bind_int(call, "attempt", journey.attempt);
        if (!ab_run(call, &SQL_device_deny, err))
            return -1;
    }
    struct audit what = {.action = action_of(&journey),
                         .detail =
                             denied ? "the person declined" : "the provider reported an error"};
    if (rc && audit_add(call, &what, err) < 0)
        return -1;
    ab_pack_map(&call->reply, 2);
    ab_pack_str(&call->reply, "error");
    ab_pack_str(&call->reply, in->error);
    ab_pack_str(&call->reply, "error_description");
    ab_pack_str(&call->reply, in->error_description);
    return 0;
}

/* Who is it here? 1 found, 0 nobody may be, -1. */
static int find_user(struct ab_call *call, const struct provider_person *person, int64_t *id,
                     const char **name, bool *disabled, struct ab_error *err)
{
    ab_bind_text(call, "issuer", person->issuer);
    ab_bind_text(call, "subject", person->subject);
    ab_bind_text(call, "name", person->username);
    ab_bind_bool(call, "adopt", ab_conf_bool(call->conf, "oauth_adopt"));
    for (int tries = 0; tries < 2; tries++) {
        PGresult *r = ab_run(call, &SQL_oauth_known, err);
        if (!r)
            return -1;
        if (PQntuples(r) > 0) {
            size_t len;
            const char *text = ab_col_text(r, 0, ab_col(r, "username"), &len);
            *id = ab_col_int(r, 0, ab_col(r, "id"));
            *name = ab_strndup(call->arena, text, len);
            *disabled = ab_col_bool(r, 0, ab_col(r, "disabled"));
            return 1;
        }
        if (tries == 0 && !ab_run(call, &SQL_oauth_join, err))
            return -1;
    }
    return 0;
}

static int refuse(struct ab_call *call, const struct journey *journey, int64_t user,
                  const char *name, const char *why, struct ab_error *err)
{
    struct audit what = {.action = action_of(journey), .user = user, .actor = name, .detail = why};
    return audit_add(call, &what, err);
}

static int let_in(struct ab_call *call, const struct journey *journey,
                  const struct provider_person *person, struct ab_error *err)
{
    int64_t user;
    const char *name;
    bool disabled;
    int rc = find_user(call, person, &user, &name, &disabled, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return refuse(call, journey, 0, NULL, "the name belongs to another account", err) < 0
                   ? -1
                   : ab_fail_kind(err, AB_EDENIED, "name_taken",
                                  "the user name `%s` belongs to another account here: the "
                                  "operator can let you have it",
                                  person->username);
    if (disabled)
        return refuse(call, journey, user, name, "locked out", err) < 0
                   ? -1
                   : ab_fail_kind(err, AB_EDENIED, "locked_out",
                                  "the account `%s` is locked: ask the operator", name);
    if (journey->attempt) {
        ab_bind_int(call, "attempt", journey->attempt);
        ab_bind_int(call, "user_id", user);
        PGresult *r = ab_run(call, &SQL_device_approve, err);
        if (!r)
            return -1;
        if (PQntuples(r) == 0)
            return refuse(call, journey, user, name, "too late", err) < 0
                       ? -1
                       : ab_fail_kind(err, AB_EINVAL, "expired_token", "expired_token");
    }
    struct audit what = {.action = action_of(journey), .ok = true, .user = user, .actor = name};
    if (audit_add(call, &what, err) < 0)
        return -1;
    ab_pack_map(&call->reply, 1);
    ab_pack_str(&call->reply, "username");
    ab_pack_str(&call->reply, name);
    return 0;
}

/* In this order: the place at the provider (a browser that has to come again still has its state),
 * the state, the provider, the database. */
static int with_code(struct ab_call *call, const struct oauth_answer *in, struct ab_error *err)
{
    struct journey journey = {0};
    struct provider_person person;
    if (provider_enter(call, err) < 0)
        return -1;
    int rc = take_state(call, in->state, &journey, err);
    if (rc == 0) {
        call->hold_ms = ab_conf_ms(call->conf, "login_hold");
        rc = ab_fail_kind(err, AB_EINVAL, "invalid_state", "invalid_state");
    } else if (rc > 0) {
        rc = provider_exchange(call, in->code, in->state, journey.redirect_uri, &person, err);
        if (rc < 0 && refuse(call, &journey, 0, NULL, err->kind, NULL) < 0)
            ab_log(AB_WARN, "audit.lost", AB_KV("action", action_of(&journey)));
    }
    provider_leave();
    return rc < 0 ? -1 : let_in(call, &journey, &person, err);
}

int oauth_callback(struct ab_call *call, struct ab_error *err)
{
    const struct oauth_answer *in = call->req->query;
    if (!user_has_method(call->conf, "oauth_device")
        && user_need_method(call, "oauth_authcode", err) < 0)
        return -1;
    if (in->error && *in->error)
        return no_code(call, in, err);
    if (!in->code)
        return ab_fail_kind(err, AB_ESCHEMA, "query.code", "field required");
    return with_code(call, in, err);
}
