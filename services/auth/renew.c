/* renew.c - exchanging a refresh token for the next one
 *
 * A refresh token works once. If it comes again, either its reply got lost and the same client
 * repeats itself, or two parties have it. The successor is derived from the token, so a repetition
 * gets the same answer while the successor is unused: within a few seconds anybody's, later only
 * that of a client which shows the random Idempotency-Key that it used the token under. Any other
 * ends the whole family. (Without that key, whoever copied a token could follow its owner from one
 * to the next unnoticed, always a step behind.)
 */
#include "token.h"

#include "audit.h"
#include "base/log.h"
#include "base/rand.h"
#include "key.h"
#include "token.sql.h"
#include <inttypes.h>
#include <string.h>

enum {
    PROOF_CHARS = 32
}; /* of a key, at least */

static int refuse(struct ab_call *call, struct ab_error *err)
{
    call->hold_ms = ab_conf_ms(call->conf, "login_hold");
    return ab_fail_kind(err, AB_EAUTH, "bad_refresh",
                        "this refresh token is unknown, expired, or was used before: log in again");
}

/* The answer that got lost, once more. */
static int answer_again(struct ab_call *call, const PGresult *r, const char *next,
                        struct ab_error *err)
{
    struct token_owner owner;
    struct token_access access;
    size_t len;
    const void *jti = ab_col_bytes(r, 0, ab_col(r, "jti"), &len);
    if (len != sizeof(access.jti))
        return ab_fail(err, AB_EINTERNAL, "a refresh token is damaged");
    memcpy(access.jti, jti, sizeof(access.jti));
    access.ends_us = ab_col_time(r, 0, ab_col(r, "access_ends"));
    if (token_read_owner(call, r, &owner, err) < 0 || token_sign(&owner, &access, err) < 0)
        return -1;
    token_reply(call, &access, next);
    return 0;
}

static int used_before(struct ab_call *call, const char *next, struct ab_error *err)
{
    ab_bind_text(call, "grace",
                 ab_printf(call->arena, "%" PRId64 " ms", ab_conf_ms(call->conf, "refresh_grace")));
    PGresult *r = ab_run(call, &SQL_token_used, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return refuse(call, err);
    if (ab_col_bool(r, 0, ab_col(r, "again")))
        return answer_again(call, r, next, err);
    int64_t token = ab_col_int(r, 0, ab_col(r, "token_id")),
            owner = ab_col_int(r, 0, ab_col(r, "owner_id"));
    struct audit what = {
        .action = "token.reuse",
        .user = owner,
        .detail =
            ab_printf(call->arena, "token %" PRId64 " ended: its refresh token came twice", token)};
    if (token_end(call, token, owner, err) < 0 || audit_add(call, &what, err) < 0)
        return -1;
    ab_log(AB_WARN, "token.reused", AB_KV("token", token), AB_KV("owner", owner));
    return refuse(call, err);
}

/* Nothing that can be guessed, or made from the token itself, as our own clients did once. */
static bool is_proof(const char *key, const char *token)
{
    uint8_t digest[16];
    char made[2 * sizeof(digest) + 1];
    if (!key || strlen(key) < PROOF_CHARS)
        return false;
    ab_hash(token, strlen(token), digest, sizeof(digest));
    ab_hex(digest, sizeof(digest), made);
    return strcmp(key, made) != 0 && !strstr(key, token);
}

static void bind_proof(struct ab_call *call, const char *token)
{
    if (is_proof(call->key, token))
        token_bind_hash(call, "proof", call->key);
    else
        ab_bind_null(call, "proof");
}

int token_refresh(struct ab_call *call, struct ab_error *err)
{
    const struct token_refresh *in = call->req->body.v;
    char next[AB_SECRET_TEXT_MAX];
    struct token_owner owner;
    struct token_access access;
    key_derive(in->refresh_token, next);
    token_bind_hash(call, "hash", in->refresh_token);
    token_bind_hash(call, "next_hash", next);
    bind_proof(call, in->refresh_token);

    /* The row is written before the token is signed, so that no token is out that cannot be
     * revoked. */
    token_new_id(call, "short_token_ttl", &access);
    token_bind(call, &access);
    PGresult *r = ab_run(call, &SQL_token_exchange, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return used_before(call, next, err);
    if (token_read_owner(call, r, &owner, err) < 0 || token_sign(&owner, &access, err) < 0)
        return -1;
    token_reply(call, &access, next);
    return 0;
}

/* Who has a refresh token may end it, used or not. One that is unknown is as good as ended, so the
 * answer tells nothing. */
int token_revoke(struct ab_call *call, struct ab_error *err)
{
    const struct token_refresh *in = call->req->body.v;
    token_bind_hash(call, "hash", in->refresh_token);
    PGresult *r = ab_run(call, &SQL_token_of_hash, err);
    if (!r || PQntuples(r) == 0)
        return r ? 0 : -1;
    size_t len;
    int64_t token = ab_col_int(r, 0, 0), owner = ab_col_int(r, 0, 1);
    const char *name = ab_col_text(r, 0, 2, &len);
    struct audit what = {.action = "token.revoke",
                         .ok = true,
                         .user = owner,
                         .actor = ab_strndup(call->arena, name, len),
                         .detail = ab_printf(call->arena, "token %" PRId64, token)};
    if (token_end(call, token, owner, err) < 0)
        return -1;
    return audit_add(call, &what, err);
}
