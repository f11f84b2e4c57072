/* key.c - the key that signs: made once, sealed in the database, held by all replicas of `auth` */
#include "key.h"

#include "base/log.h"
#include "base/rand.h"
#include "key.sql.h"
#include "schema/pack.h"
#include "user.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SEALED_BYTES (64 + AB_SEAL_EXTRA)

static struct {
    pthread_mutex_t lock;
    uint8_t seal[32], derive[32], first[32];
    char kid[24];
    uint8_t secret[64];
} signer = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the sealed key and the open one */

static int open_key(const PGresult *r, int row, uint8_t secret[64], char kid[24],
                    struct ab_error *err)
{
    size_t len, kid_len;
    const void *sealed = ab_col_bytes(r, row, ab_col(r, "secret_key"), &len);
    const char *text = ab_col_text(r, row, ab_col(r, "kid"), &kid_len);
    if (len != SEALED_BYTES || kid_len >= 24)
        return ab_fail(err, AB_EINTERNAL, "a signing key in the database is damaged");
    if (ab_unseal(signer.seal, sealed, len, secret, err) < 0)
        return ab_fail_within(err, "signing key %.*s", (int)kid_len, text);
    memcpy(kid, text, kid_len);
    kid[kid_len] = '\0';
    return 0;
}

/* True: it is another one than before. */
static bool use_key(const char *kid, const uint8_t secret[64])
{
    pthread_mutex_lock(&signer.lock);
    bool changed = strcmp(signer.kid, kid) != 0;
    if (changed) {
        snprintf(signer.kid, sizeof(signer.kid), "%s", kid);
        memcpy(signer.secret, secret, sizeof(signer.secret));
    }
    pthread_mutex_unlock(&signer.lock);
    return changed;
}

/* ---- the first one */

static struct ab_db_value bytes(const void *p, size_t n)
{
    return (struct ab_db_value){.type = AB_DB_BYTES, .p = p, .n = n};
}

static int add_key(ab_db_t *db, ab_arena_t *arena, struct ab_error *err)
{
    uint8_t public_key[32], secret[64], sealed[SEALED_BYTES], random[8];
    char kid[2 * sizeof(random) + 1];
    ab_token_keypair(public_key, secret);
    ab_seal(signer.seal, secret, sizeof(secret), sealed);
    ab_wipe(secret, sizeof(secret));
    ab_random(random, sizeof(random));
    ab_hex(random, sizeof(random), kid);
    struct ab_db_param params[] = {
        {"kid", {.type = AB_DB_TEXT, .p = kid, .n = strlen(kid)}},
        {"public_key", bytes(public_key, sizeof(public_key))},
        {"secret_key", bytes(sealed, sizeof(sealed))},
    };
    if (!ab_db_run(db, &SQL_key_add, params, 3, arena, err))
        return -1;
    ab_log(AB_INFO, "key.made", AB_KV("kid", (const char *)kid));
    return 0;
}

static int find_or_make(ab_db_t *db, ab_arena_t *arena, struct ab_error *err)
{
    char kid[24];
    uint8_t secret[64];
    if (!ab_db_run(db, &SQL_key_lock, NULL, 0, arena, err))
        return -1;
    PGresult *r = ab_db_run(db, &SQL_key_active, NULL, 0, arena, err);
    if (r && PQntuples(r) == 0) {
        if (add_key(db, arena, err) < 0)
            return -1;
        r = ab_db_run(db, &SQL_key_active, NULL, 0, arena, err);
    }
    if (!r || open_key(r, 0, secret, kid, err) < 0)
        return -1;
    (void)use_key(kid, secret);
    ab_wipe(secret, sizeof(secret));
    return 0;
}

int key_start(const ab_conf_t *conf, ab_db_t *db, struct ab_error *err)
{
    const char *path = ab_conf_text(conf, "seal_key");
    if (!path)
        return ab_fail(err, AB_EINVAL,
                       "seal_key is not set: it names the file that `abies-admin keys init` makes");
    if (ab_seal_key_load(path, signer.seal, err) < 0)
        return -1;
    static const char use[] = "abies: refresh tokens", first[] = "abies: first refresh tokens";
    ab_hash_keyed(signer.seal, use, sizeof(use), signer.derive, sizeof(signer.derive));
    ab_hash_keyed(signer.seal, first, sizeof(first), signer.first, sizeof(signer.first));

    ab_arena_t *arena = ab_arena_new();
    int rc = ab_db_exec(db, "BEGIN", err);
    if (rc == 0)
        rc = find_or_make(db, arena, err);
    if (rc == 0)
        rc = ab_db_exec(db, "COMMIT", err);
    else
        (void)ab_db_exec(db, "ROLLBACK", NULL);
    ab_arena_destroy(&arena);
    return rc;
}

/* ---- use */

int key_sign(const struct ab_token *token, char out[AB_TOKEN_MAX], struct ab_error *err)
{
    char kid[24];
    uint8_t secret[64];
    pthread_mutex_lock(&signer.lock);
    memcpy(kid, signer.kid, sizeof(kid));
    memcpy(secret, signer.secret, sizeof(secret));
    pthread_mutex_unlock(&signer.lock);
    int rc = ab_token_sign(token, kid, secret, out, err);
    ab_wipe(secret, sizeof(secret));
    return rc;
}

static void derive(const uint8_t key[32], const void *from, size_t n, char out[AB_SECRET_TEXT_MAX])
{
    uint8_t digest[32];
    ab_hash_keyed(key, from, n, digest, sizeof(digest));
    ab_base64url(digest, sizeof(digest), out, AB_SECRET_TEXT_MAX);
    ab_wipe(digest, sizeof(digest));
}

void key_derive(const char *text, char out[AB_SECRET_TEXT_MAX])
{
    derive(signer.derive, text, strlen(text), out);
}

void key_derive_first(const uint8_t jti[16], char out[AB_SECRET_TEXT_MAX])
{
    derive(signer.first, jti, 16, out);
}

int key_list(struct ab_call *call, struct ab_error *err)
{
    user_bind_life(call);
    PGresult *r = ab_run(call, &SQL_key_all, err);
    if (!r)
        return -1;
    ab_pack_array(&call->reply, (uint32_t)PQntuples(r));
    for (int row = 0; row < PQntuples(r); row++) {
        size_t kid_len, key_len;
        const char *kid = ab_col_text(r, row, 0, &kid_len);
        const void *key = ab_col_bytes(r, row, 1, &key_len);
        ab_pack_map(&call->reply, 2);
        ab_pack_str(&call->reply, "kid");
        ab_pack_strn(&call->reply, kid, kid_len);
        ab_pack_str(&call->reply, "key");
        ab_pack_bin(&call->reply, key, key_len);
    }
    return 0;
}

int key_reload(struct ab_call *call, struct ab_error *err)
{
    char kid[24];
    uint8_t secret[64];
    PGresult *r = ab_run(call, &SQL_key_active, err);
    if (!r)
        return -1;
    if (PQntuples(r) == 0)
        return ab_fail(err, AB_EINTERNAL,
                       "all signing keys are retired: `abies-admin keys rotate` "
                       "makes a new one");
    if (open_key(r, 0, secret, kid, err) < 0)
        return -1;
    bool changed = use_key(kid, secret);
    ab_wipe(secret, sizeof(secret));
    if (changed) {
        ab_log(AB_INFO, "key.changed", AB_KV("kid", (const char *)kid));
        ab_hint_keys(call);
    }
    return 0;
}
