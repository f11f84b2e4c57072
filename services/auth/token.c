/* token.c - access tokens are signed and forgotten; what renews them is a row */
#include "token.h"

#include "audit.h"
#include "base/clock.h"
#include "base/rand.h"
#include "key.h"
#include "schema/pack.h"
#include "token.sql.h"
#include "user.sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    LOGINS_MOST = 10000, /* of a user, that cannot be renewed and have not ended */
    REVOKED_MOST = 200   /* access tokens of a user; then all older ones end */
};

static unsigned scopes_of(int scope)
{
    static const unsigned bits[] = {[AB_TOKEN_USER] = AB_SCOPE_USER,
                                    [AB_TOKEN_SITE] = AB_SCOPE_SITE,
                                    [AB_TOKEN_READ] = AB_SCOPE_READ};
    return bits[scope];
}

static const char *scope_name(int scope)
{
    return ab_enum_token_scope.names[scope];
}

/* ---- access tokens */

int token_sign(const struct token_owner *owner, struct token_access *out, struct ab_error *err)
{
    struct ab_token token = {.user = owner->user,
                             .scopes = scopes_of(owner->scope),
                             .site = owner->site,
                             .iat = owner->iat,
                             .exp = out->ends_us / 1000000};
    size_t len = strlen(owner->username);
    if (len >= sizeof(token.username))
        return ab_fail(err, AB_EINTERNAL, "the name of user %" PRId64 " is too long", owner->user);
    memcpy(token.username, owner->username, len + 1);
    ab_uuid_text(out->jti, token.jti);
    return key_sign(&token, out->text, err);
}

int token_read_owner(struct ab_call *call, const PGresult *r, struct token_owner *out,
                     struct ab_error *err)
{
    size_t len;
    int site = ab_col(r, "site_id");
    out->user = ab_col_int(r, 0, ab_col(r, "owner_id"));
    const char *text = ab_col_text(r, 0, ab_col(r, "username"), &len);
    out->username = ab_strndup(call->arena, text, len);
    out->site = ab_col_null(r, 0, site) ? 0 : ab_col_int(r, 0, site);
    out->iat = ab_col_int(r, 0, ab_col(r, "iat"));
    text = ab_col_text(r, 0, ab_col(r, "scope"), &len);
    out->scope = ab_enum_find(&ab_enum_token_scope, text, len);
    if (out->scope < 0)
        return ab_fail(err, AB_EINTERNAL, "a token has the unknown scope `%.*s`", (int)len, text);
    return 0;
}

void token_new_id(struct ab_call *call, const char *life, struct token_access *out)
{
    int64_t ends_ms = ab_utc_us() / 1000 + ab_conf_ms(call->conf, life);
    out->ends_us = ends_ms / 1000 * 1000000;
    ab_uuid7(out->jti);
}

void token_bind(struct ab_call *call, const struct token_access *access)
{
    ab_bind_value(call, "jti", (struct ab_db_value){.type = AB_DB_UUID, .p = access->jti, .n = 16});
    ab_bind_time(call, "access_ends", access->ends_us);
    ab_bind_text(call, "refresh_life",
                 ab_printf(call->arena, "%" PRId64 " ms", ab_conf_ms(call->conf, "refresh_ttl")));
}

void token_bind_hash(struct ab_call *call, const char *param, const char *refresh)
{
    uint8_t *hash = ab_alloc(call->arena, 32, 1);
    ab_hash(refresh, strlen(refresh), hash, 32);
    ab_bind_bytes(call, param, hash, 32);
}

/* ---- log in */

void token_reply(struct ab_call *call, const struct token_access *access, const char *refresh)
{
    struct ab_buf *out = &call->reply;
    ab_pack_map(out, refresh ? 4 : 3);
    ab_pack_str(out, "access_token");
    ab_pack_str(out, access->text);
    ab_pack_str(out, "token_type");
    ab_pack_str(out, "bearer");
    ab_pack_str(out, "expiration");
    ab_pack_time(out, access->ends_us, false);
    if (refresh) {
        ab_pack_str(out, "refresh_token");
        ab_pack_str(out, refresh);
    }
}

static void bind_user(struct ab_call *call, const struct token_owner *owner)
{
    ab_bind_int(call, "user_id", owner->user);
    ab_bind_text(call, "checked_hash", owner->checked_hash);
}

/* The row of `tokens`, with its first refresh token; no row: as token_login's 0. */
static PGresult *add(struct ab_call *call, const struct token_owner *owner, const char *name,
                     const struct token_access *access, const char *refresh, struct ab_error *err)
{
    bind_user(call, owner);
    if (owner->site)
        ab_bind_int(call, "site", owner->site);
    else
        ab_bind_null(call, "site");
    ab_bind_text(call, "token_name", name);
    ab_bind_text(call, "scope_name", scope_name(owner->scope));
    token_bind(call, access);
    token_bind_hash(call, "hash", refresh);
    return ab_run(call, &SQL_token_add, err);
}

/* The row of a log-in that cannot be renewed. */
static PGresult *add_plain(struct ab_call *call, const struct token_owner *owner,
                           const struct token_access *access, struct ab_error *err)
{
    bind_user(call, owner);
    token_bind(call, access);
    ab_bind_int(call, "most", LOGINS_MOST);
    PGresult *r = ab_run(call, &SQL_token_plain, err);
    if (!r || PQntuples(r) == 0 || !ab_col_bool(r, 0, ab_col(r, "many")))
        return r;
    ab_fail(err, AB_ERATE,
            "%d log-ins of this user have not ended yet: revoke some (abies token rm), or ask for "
            "tokens that can be renewed",
            LOGINS_MOST);
    err->retry_sec = 60;
    return NULL;
}

int token_login(struct ab_call *call, struct token_owner *owner, bool renewable,
                struct ab_error *err)
{
    struct token_access access;
    char refresh[AB_SECRET_TEXT_MAX];
    PGresult *r;
    token_new_id(call, renewable ? "short_token_ttl" : "token_ttl", &access);
    if (renewable) {
        ab_secret_text(refresh);
        r = add(call, owner, "login", &access, refresh, err);
    } else {
        r = add_plain(call, owner, &access, err);
    }
    if (!r || PQntuples(r) == 0)
        return r ? 0 : -1;
    owner->iat = ab_col_int(r, 0, ab_col(r, "iat"));
    if (token_sign(owner, &access, err) < 0)
        return -1;
    token_reply(call, &access, renewable ? refresh : NULL);
    return 1;
}

/* ---- further tokens
 *
 * Their secrets are kept nowhere, and yet a repeated request gets them again: the access token is
 * signed anew with what the rows say, the refresh token made again with a key that is not in the
 * database.
 */

static int check_site(struct ab_call *call, const struct token_create *in, struct ab_error *err)
{
    if ((in->scope == AB_TOKEN_SITE) != (in->site_id != 0))
        return ab_fail(err, AB_EINVAL,
                       "a token of scope `site` names its `site_id`, the others have none");
    if (!in->site_id)
        return 0;
    ab_bind_int(call, "site", in->site_id);
    PGresult *r = ab_run(call, &SQL_token_site, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_ENOENT, "site %" PRId64 " is not there, or not yours", in->site_id);
    return 0;
}

/* The row as its list shows it, and what is shown this once. */
static void reply_created(struct ab_call *call, const PGresult *r,
                          const struct token_access *access, const char *refresh)
{
    struct token token = {.has = 0};
    size_t len;
    token.id = ab_col_int(r, 0, ab_col(r, "id"));
    token.name = ab_col_text(r, 0, ab_col(r, "name"), &len);
    token.name = ab_strndup(call->arena, token.name, len);
    const char *scope = ab_col_text(r, 0, ab_col(r, "scope"), &len);
    token.scope = ab_enum_find(&ab_enum_token_scope, scope, len);
    token.created = ab_col_time(r, 0, ab_col(r, "created"));
    token.expiration = access->ends_us;
    token.access_token = access->text;
    token.refresh_token = refresh;
    AB_SET(token, &token, id);
    AB_SET(token, &token, name);
    AB_SET(token, &token, scope);
    AB_SET(token, &token, created);
    AB_SET(token, &token, expiration);
    AB_SET(token, &token, access_token);
    AB_SET(token, &token, refresh_token);
    int site = ab_col(r, "site_id");
    if (!ab_col_null(r, 0, site)) {
        token.site_id = ab_col_int(r, 0, site);
        AB_SET(token, &token, site_id);
    }
    ab_pack_item(&call->reply, &ab_schema_token, AB_OUT, &token);
}

static int tell_made(struct ab_call *call, const struct token_create *in, const PGresult *r,
                     struct ab_error *err)
{
    struct audit what = {.action = "token.create",
                         .ok = true,
                         .user = call->owner_id,
                         .actor = call->username,
                         .detail =
                             ab_printf(call->arena, "token %" PRId64 ", scope %s",
                                       ab_col_int(r, 0, ab_col(r, "id")), scope_name(in->scope))};
    return audit_add(call, &what, err);
}

int token_create(struct ab_call *call, struct ab_error *err)
{
    const struct token_create *in = call->req->body.v;
    struct token_owner owner = {.user = call->owner_id,
                                .username = call->username ? call->username : "",
                                .scope = in->scope,
                                .site = in->site_id};
    struct token_access access;
    char refresh[AB_SECRET_TEXT_MAX];
    if (check_site(call, in, err) < 0)
        return -1;
    token_new_id(call, "short_token_ttl", &access);
    key_derive_first(access.jti, refresh);
    PGresult *r = add(call, &owner, in->name, &access, refresh, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail_kind(err, AB_EAUTH, "bad_token", "Could not validate credentials");
    owner.iat = ab_col_int(r, 0, ab_col(r, "iat"));
    if (token_sign(&owner, &access, err) < 0 || tell_made(call, in, r, err) < 0)
        return -1;
    int64_t id = ab_col_int(r, 0, ab_col(r, "id"));
    ab_record_ids(call, &id, 1);
    reply_created(call, r, &access, refresh);
    return 0;
}

static int is_gone(int64_t id, struct ab_error *err)
{
    return ab_fail(err, AB_ENOENT,
                   "token %" PRId64 ", which this request made before, has ended since: ask under "
                   "another Idempotency-Key for a new one",
                   id);
}

int token_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err)
{
    struct token_owner owner = {0};
    struct token_access access;
    char refresh[AB_SECRET_TEXT_MAX];
    uint8_t digest[32];
    size_t len, jti_len;
    int64_t id = ids->n ? ids->v[0] : 0;
    ab_bind_int(call, "token_id", id);
    PGresult *r = ab_run(call, &SQL_token_made, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return is_gone(id, err);
    const void *hash = ab_col_bytes(r, 0, ab_col(r, "hash"), &len);
    const void *jti = ab_col_bytes(r, 0, ab_col(r, "jti"), &jti_len);
    if (len != sizeof(digest) || jti_len != sizeof(access.jti))
        return ab_fail(err, AB_EINTERNAL, "a refresh token is damaged");
    memcpy(access.jti, jti, sizeof(access.jti));
    key_derive_first(access.jti, refresh);
    ab_hash(refresh, strlen(refresh), digest, sizeof(digest));
    if (!ab_equal(digest, hash, sizeof(digest))) /* the first one has been forgotten */
        return is_gone(id, err);
    access.ends_us = ab_col_time(r, 0, ab_col(r, "access_ends"));
    if (token_read_owner(call, r, &owner, err) < 0 || token_sign(&owner, &access, err) < 0)
        return -1;
    reply_created(call, r, &access, refresh);
    return 0;
}

int token_list(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_token_rows, err);
    if (!r)
        return -1;
    ab_reply_rows(call, &ab_schema_token, r);
    return 0;
}

/* ---- ending them */

/* Gateways hold every revocation in memory, and take 100,000: one user must not push those of others
 * out. */
static int cut(struct ab_call *call, int64_t owner_id, struct ab_error *err)
{
    struct audit what = {.action = "token.cut",
                         .ok = true,
                         .user = owner_id,
                         .actor = call->username,
                         .detail = "many were revoked: all older access tokens ended"};
    return ab_run(call, &SQL_token_cut, err) ? audit_add(call, &what, err) : -1;
}

int token_end(struct ab_call *call, int64_t token_id, int64_t owner_id, struct ab_error *err)
{
    ab_bind_int(call, "token_id", token_id);
    ab_bind_int(call, "token_owner", owner_id);
    PGresult *r = ab_run(call, &SQL_token_revoke, err);
    if (!r)
        return -1;
    int jti = ab_col(r, "jti"), expires = ab_col(r, "expires");
    for (int row = 0; row < PQntuples(r); row++) {
        char text[AB_UUID_TEXT];
        if (ab_col_uuid(r, row, jti, text))
            ab_hint_revoked(call, text, ab_col_int(r, row, expires));
    }
    if (ab_col_int(r, 0, ab_col(r, "before")) >= REVOKED_MOST && cut(call, owner_id, err) < 0)
        return -1;
    return ab_col_int(r, 0, ab_col(r, "gone")) > 0;
}

int token_delete(struct ab_call *call, struct ab_error *err)
{
    struct audit what = {.action = "token.delete",
                         .ok = true,
                         .user = call->owner_id,
                         .actor = call->username,
                         .detail = ab_printf(call->arena, "token %" PRId64, call->req->id)};
    int rc = token_end(call, call->req->id, call->owner_id, err);
    if (rc <= 0)
        return rc == 0 ? ab_not_found(call, err) : -1;
    return audit_add(call, &what, err);
}

int token_revoked(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_token_ended, err);
    if (!r)
        return -1;
    ab_pack_array(&call->reply, (uint32_t)PQntuples(r));
    for (int row = 0; row < PQntuples(r); row++) {
        size_t len;
        const char *jti = ab_col_text(r, row, 0, &len);
        ab_pack_map(&call->reply, 2);
        ab_pack_str(&call->reply, "jti");
        ab_pack_strn(&call->reply, jti, len);
        ab_pack_str(&call->reply, "expires");
        ab_pack_int(&call->reply, ab_col_int(r, row, 1));
    }
    return 0;
}

int token_forget(struct ab_call *call, struct ab_error *err)
{
    PGresult *r = ab_run(call, &SQL_token_forget, err);
    return !r ? -1 : ab_col_int(r, 0, 0) >= 1000;
}
