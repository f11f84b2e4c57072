/* keys.c - CURVE pairs of the mesh, the key that seals, the keys that sign tokens */
#include "admin.h"
#include "admin.sql.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rand.h"
#include "bus/curve.h"
#include "crypt/crypt.h"
#include <stdio.h>
#include <string.h>

enum {
    KEY_FILE_MAX = 4096,
    SECRET_BYTES = 64
};

static int join(char out[4096], const char *dir, const char *name, const char *suffix,
                struct ab_error *err)
{
    if (snprintf(out, 4096, "%s/%s%s", dir, name, suffix) < 4096)
        return 0;
    return ab_fail(err, AB_EINVAL, "the folder's name `%.60s...` is too long", dir);
}

/* ---- the mesh: one pair for all gateways, one per service; gateways trust what is in allowed/ */

static int allow(const char *dir, const char *service, struct ab_error *err)
{
    char from[4096], to[4096], name[80];
    AB_AUTO(ab_buf_free) struct ab_buf key = {0};
    snprintf(name, sizeof(name), "allowed/%s", service);
    if (join(from, dir, service, ".key", err) < 0 || join(to, dir, name, ".key", err) < 0
        || ab_file_read(from, KEY_FILE_MAX, &key, err) < 0)
        return -1;
    return ab_file_write(to, key.data, key.len, 0644, err);
}

static int make_curve(const char *dir, struct ab_error *err)
{
    char allowed[4096];
    if (join(allowed, dir, "allowed", "", err) < 0 || ab_mkdirs(dir, 0700, err) < 0
        || ab_mkdirs(allowed, 0700, err) < 0 || ab_curve_make(dir, "gateway", err) < 0)
        return -1;
    for (const char *const *service = admin_services; *service; service++)
        if (ab_curve_make(dir, *service, err) < 0 || allow(dir, *service, err) < 0)
            return -1;
    return 0;
}

int cmd_keys_init(struct admin *admin, struct ab_error *err)
{
    char path[4096];
    if (admin_need(admin->curve_dir, "--curve-dir", err) < 0)
        return -1;
    ab_bus_init();
    if (make_curve(admin->curve_dir, err) < 0)
        return -1;
    printf("CURVE keys are in %s\n", admin->curve_dir);
    if (!admin->secrets_dir)
        return 0;
    if (ab_mkdirs(admin->secrets_dir, 0700, err) < 0
        || join(path, admin->secrets_dir, "seal.key", "", err) < 0
        || ab_seal_key_make(path, err) < 0)
        return -1;
    printf("the key that seals secrets is %s: keep a copy where the database's copies are not\n",
           path);
    return 0;
}

/* ---- signing */

static int prepare(struct admin *admin, struct ab_error *err)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    return admin_open(admin, err) < 0 ? -1 : ab_db_prepare(admin->db, lists, err);
}

static void time_or_dash(const PGresult *r, int row, const char *column, char out[AB_TIME_TEXT])
{
    int col = ab_col(r, column);
    snprintf(out, AB_TIME_TEXT, "-");
    if (!ab_col_null(r, row, col))
        ab_time_format(ab_col_time(r, row, col), false, out);
}

static void print_key(const PGresult *r, int i, bool json)
{
    char created[AB_TIME_TEXT], retired[AB_TIME_TEXT];
    size_t n;
    const char *kid = ab_col_text(r, i, ab_col(r, "kid"), &n);
    bool signs = ab_col_bool(r, i, ab_col(r, "signs"));
    time_or_dash(r, i, "created", created);
    time_or_dash(r, i, "retired", retired);
    const char *quote = *retired == '-' ? "" : "\"";
    if (json)
        printf("%s\n {\"kid\":\"%.*s\",\"signs\":%s,\"created\":\"%s\",\"retired\":%s%s%s}",
               i ? "," : "", (int)n, kid, signs ? "true" : "false", created, quote,
               *retired == '-' ? "null" : retired, quote);
    else
        printf("%-18.*s %-6s %-27s %s\n", (int)n, kid, signs ? "yes" : "no", created, retired);
}

int cmd_keys_list(struct admin *admin, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    PGresult *r = prepare(admin, err) == 0
                      ? ab_db_run(admin->db, &SQL_admin_keys, NULL, 0, arena, err)
                      : NULL;
    if (!r)
        return -1;
    if (admin->json)
        fputs("[", stdout);
    else
        printf("%-18s %-6s %-27s %s\n", "key", "signs", "created", "retired");
    for (int i = 0; i < PQntuples(r); i++)
        print_key(r, i, admin->json);
    if (admin->json)
        puts("\n]");
    return 0;
}

static struct ab_db_value bytes(const void *p, size_t n)
{
    return (struct ab_db_value){.type = AB_DB_BYTES, .p = p, .n = n};
}

static int add_key(struct admin *admin, const uint8_t seal[32], char kid[17], struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    uint8_t public_key[32], secret[SECRET_BYTES], sealed[SECRET_BYTES + AB_SEAL_EXTRA], random[8];
    ab_token_keypair(public_key, secret);
    ab_seal(seal, secret, sizeof(secret), sealed);
    ab_wipe(secret, sizeof(secret));
    ab_random(random, sizeof(random));
    ab_hex(random, sizeof(random), kid);
    const struct ab_db_param params[] = {
        {"kid", {.type = AB_DB_TEXT, .p = kid, .n = strlen(kid)}},
        {"public_key", bytes(public_key, sizeof(public_key))},
        {"secret_key", bytes(sealed, sizeof(sealed))},
    };
    if (!ab_db_run(admin->db, &SQL_admin_key_lock, NULL, 0, arena, err)
        || !ab_db_run(admin->db, &SQL_admin_key_add, params, 3, arena, err)
        || !ab_db_run(admin->db, &SQL_admin_key_retire, params, 1, arena, err))
        return -1;
    return 0;
}

int cmd_keys_rotate(struct admin *admin, struct ab_error *err)
{
    char path[4096], kid[17];
    uint8_t seal[32];
    if (admin_need(admin->secrets_dir, "--secrets", err) < 0
        || join(path, admin->secrets_dir, "seal.key", "", err) < 0
        || ab_seal_key_load(path, seal, err) < 0)
        return -1;
    int rc = prepare(admin, err);
    if (rc == 0)
        rc = ab_db_exec(admin->db, "BEGIN", err);
    if (rc == 0 && (rc = add_key(admin, seal, kid, err)) == 0
        && (rc = admin_note(admin, 0, "keys.rotate", kid, err)) == 0)
        rc = ab_db_exec(admin->db, "COMMIT", err);
    ab_wipe(seal, sizeof(seal));
    if (rc == 0)
        printf("%s signs new tokens in about twenty seconds; older keys still check until their "
               "ended\n",
               kid);
    return rc;
}
