/* device.c - see device.h
 *
 * A poll that comes too early is answered when it should have come: old clients poll again at once,
 * without a pause. Nobody waits for that but the reply itself.
 */
#include "device.h"

#include "audit.h"
#include "base/clock.h"
#include "base/rand.h"
#include "crypt/crypt.h"
#include "device.sql.h"
#include "limit.h"
#include "oauth.h"
#include "schema/pack.h"
#include "token.h"
#include "user.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GRANT "urn:ietf:params:oauth:grant-type:device_code"
#define CODE_BYTES 256 /* 342 characters */
#define CODE_TEXT 400

/* No vowels, so that no words come out, and no Y. */
static const char letters[] = "BCDFGHJKLMNPQRSTVWXZ";

int device_check(const ab_conf_t *conf, struct ab_error *err)
{
    int64_t life_ms = ab_conf_ms(conf, "device_lifetime"),
            pause_ms = ab_conf_ms(conf, "device_interval");
    if (life_ms < 1000)
        return ab_fail(err, AB_EINVAL, "device_lifetime is shorter than a second");
    if (pause_ms > 20000)
        return ab_fail(err, AB_EINVAL,
                       "device_interval is longer than 20 s, for which no poll waits");
    return 0;
}

/* ---- codes */

static void make_user_code(char out[DEVICE_USER_CODE])
{
    for (int i = 0; i < 9; i++)
        out[i] = i == 4 ? '-' : letters[ab_random_below(sizeof(letters) - 1)];
    out[9] = '\0';
}

int device_code_read(const char *text, char out[DEVICE_USER_CODE])
{
    int n = 0;
    for (; *text; text++) {
        int c = toupper((unsigned char)*text);
        if (c == ' ' || c == '-')
            continue;
        if (n >= 9 || !strchr(letters, c))
            return -1;
        out[n++] = (char)c;
        if (n == 4)
            out[n++] = '-';
    }
    out[n] = '\0';
    return n == 9 ? 0 : -1;
}

static void bind_code(struct ab_call *call, const char *code)
{
    uint8_t *hash = ab_alloc(call->arena, 32, 1);
    ab_hash(code, strlen(code), hash, 32);
    ab_bind_bytes(call, "device_hash", hash, 32);
}

static void bind_ms(struct ab_call *call, const char *name, const char *setting)
{
    ab_bind_text(call, name,
                 ab_printf(call->arena, "%" PRId64 " ms", ab_conf_ms(call->conf, setting)));
}

/* ---- begin */

static void reply_begin(struct ab_call *call, const char *base, const char *code,
                        const char *user_code)
{
    const char *uri = ab_printf(call->arena, "%s%s", base, OAUTH_DEVICE_PATH);
    struct device_code out = {
        .device_code = code,
        .user_code = user_code,
        .verification_uri = uri,
        .verification_uri_complete = ab_printf(call->arena, "%s?user_code=%s", uri, user_code),
        .expires_in = (double)ab_conf_ms(call->conf, "device_lifetime") / 1000,
        .interval = (double)ab_conf_ms(call->conf, "device_interval") / 1000,
    };
    out.has = (UINT64_C(1) << AB_FIELDS_device_code) - 1;
    ab_pack_item(&call->reply, &ab_schema_device_code, AB_OUT, &out);
}

/* Two codes may be equal by chance: once more, then. */
static PGresult *add(struct ab_call *call, const char *code, char user_code[DEVICE_USER_CODE],
                     struct ab_error *err)
{
    bind_code(call, code);
    bind_ms(call, "life", "device_lifetime");
    bind_ms(call, "pause", "device_interval");
    for (int tries = 0;; tries++) {
        make_user_code(user_code);
        ab_bind_text(call, "user_code", user_code);
        *err = (struct ab_error){0};
        PGresult *r = ab_run(call, &SQL_device_add, err);
        if (r || tries == 3 || strcmp(err->kind, "device_attempts_user_code_key") != 0)
            return r;
    }
}

int device_login(struct ab_call *call, struct ab_error *err)
{
    const struct device_login *in = call->req->body.v;
    char code[CODE_TEXT], user_code[DEVICE_USER_CODE];
    uint8_t random[CODE_BYTES];
    const char *base;
    call->hold_ms = ab_conf_ms(call->conf, "login_hold"); /* any refusal */
    if (user_need_method(call, "oauth_device", err) < 0 || oauth_base(call, &base, err) < 0
        || limit_attempt(call, "device", in->client_id, err) < 0)
        return -1;
    ab_random(random, sizeof(random));
    ab_base64url(random, sizeof(random), code, sizeof(code));
    PGresult *r = add(call, code, user_code, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_EINVAL,
                       "client_id was used before: make a fresh one for each attempt");
    call->hold_ms = 0;
    reply_begin(call, base, code, user_code);
    return 0;
}

/* ---- poll */

static int refuse(struct ab_call *call, int status, const char *code, struct ab_error *err)
{
    call->hold_ms = ab_conf_ms(call->conf, "login_hold");
    return ab_fail_kind(err, status, code, "%s", code);
}

static int pending(struct ab_call *call, int64_t early_ms, struct ab_error *err)
{
    int64_t most = ab_conf_ms(call->conf, "device_interval"),
            left = call->deadline_ms - ab_now_ms() - 1000;
    call->hold_ms = early_ms < most ? early_ms : most;
    if (call->hold_ms > left)
        call->hold_ms = left > 0 ? left : 0;
    return ab_fail_kind(err, AB_EINVAL, "authorization_pending", "authorization_pending");
}

static int tell(struct ab_call *call, const struct token_owner *owner, struct ab_error *err)
{
    struct audit what = {
        .action = "login.device", .ok = true, .user = owner->user, .actor = owner->username};
    return audit_add(call, &what, err);
}

static int give(struct ab_call *call, const PGresult *r, bool renewable, struct ab_error *err)
{
    size_t len;
    const char *name = ab_col_text(r, 0, ab_col(r, "username"), &len);
    struct token_owner owner = {.user = ab_col_int(r, 0, ab_col(r, "user_id")),
                                .username = ab_strndup(call->arena, name, len),
                                .scope = AB_TOKEN_USER};
    int rc = token_login(call, &owner, renewable, err);
    if (rc == 0)
        return refuse(call, AB_EDENIED, "access_denied", err);
    return rc < 0 ? -1 : tell(call, &owner, err);
}

int device_token(struct ab_call *call, struct ab_error *err)
{
    const struct device_token *in = call->req->body.v;
    if (user_need_method(call, "oauth_device", err) < 0)
        return -1;
    if (strcmp(in->grant_type, GRANT) != 0)
        return refuse(call, AB_EINVAL, "unsupported_grant_type", err);
    bind_code(call, in->device_code);
    bind_ms(call, "pause", "device_interval");
    PGresult *r = ab_run(call, &SQL_device_poll, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return refuse(call, AB_EINVAL, "invalid_client", err);
    if (ab_col_bool(r, 0, ab_col(r, "denied")))
        return refuse(call, AB_EDENIED, "access_denied", err);
    if (ab_col_bool(r, 0, ab_col(r, "expired")))
        return refuse(call, AB_EINVAL, "expired_token", err);
    if (ab_col_null(r, 0, ab_col(r, "user_id")))
        return pending(call, ab_col_int(r, 0, ab_col(r, "early_ms")), err);
    return give(call, r, in->refresh, err);
}

int device_forget(struct ab_call *call, struct ab_error *err)
{
    return ab_run(call, &SQL_device_forget, err) ? 0 : -1;
}
