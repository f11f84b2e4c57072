/* doctor.c - `abies-admin doctor`: what a centre needs, looked at piece by piece */
#include "admin.h"
#include "admin.sql.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "crypt/crypt.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    OPENSSL_MS = 10000,
    OUTPUT_MAX = 4096
};

#define TWO_WEEKS_SEC "1209600"

static int look_at_schema(struct admin *admin, struct report *report, struct ab_error *err)
{
    int version, latest = ab_schema_latest();
    if (ab_schema_version(admin->db, &version, err) < 0)
        return -1;
    if (version == latest)
        report_line(report, true, "schema", "version %d", version);
    else if (version < latest)
        report_line(report, false, "schema", "version %d of %d: run `abies-admin migrate`", version,
                    latest);
    else
        report_line(report, version == latest + 1, "schema",
                    "version %d is newer than this program's %d", version, latest);
    return version == latest ? 0 : 1;
}

static int look_at_roles(struct admin *admin, struct report *report, struct ab_error *err)
{
    static const char *const names[] = {"abies_jobs", "abies_sessions", "abies_transfers",
                                        "abies_auth", "abies_report"};
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_db_value items[AB_COUNT(names)];
    for (size_t i = 0; i < AB_COUNT(names); i++)
        items[i] = (struct ab_db_value){.type = AB_DB_TEXT, .p = names[i], .n = strlen(names[i])};
    const struct ab_db_param params[] = {
        {"names", {.type = AB_DB_ARRAY, .items = items, .n_items = AB_COUNT(names)}}};
    PGresult *r = ab_db_run(admin->db, &SQL_admin_roles, params, 1, arena, err);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        size_t n;
        const char *name = ab_col_text(r, i, 0, &n);
        if (!ab_col_bool(r, i, 1))
            report_line(report, false, "roles", "%.*s is missing: run `abies-admin migrate`",
                        (int)n, name);
    }
    return 0;
}

static int look_at_signing(struct admin *admin, struct report *report, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    PGresult *r = ab_db_run(admin->db, &SQL_admin_keys, NULL, 0, arena, err);
    if (!r)
        return -1;
    int signing = 0;
    for (int i = 0; i < PQntuples(r); i++)
        signing += ab_col_bool(r, i, ab_col(r, "signs"));
    if (PQntuples(r) == 0)
        report_line(report, true, "signing key",
                    "none yet: the auth service makes it when it first starts");
    else
        report_line(report, signing == 1, "signing key", "%s",
                    signing ? "" : "all are retired: run `abies-admin keys rotate`");
    return 0;
}

static void look_at_database(struct admin *admin, struct report *report)
{
    static const struct ab_sql *const *const lists[] = {admin_sql, NULL};
    struct ab_error err = {0};
    if (admin_open(admin, &err) < 0) {
        report_line(report, false, "database", "%s", err.text);
        return;
    }
    int version = PQserverVersion(ab_db_conn(admin->db)) / 10000;
    report_line(report, version >= 15, "database", "PostgreSQL %d%s", version,
                version < 15 ? ": 15 or newer is needed" : "");
    int rc = look_at_schema(admin, report, &err);
    if (rc == 0
        && (ab_db_prepare(admin->db, lists, &err) < 0 || look_at_roles(admin, report, &err) < 0
            || look_at_signing(admin, report, &err) < 0))
        rc = -1;
    if (rc < 0)
        report_line(report, false, "database", "%s", err.text);
}

static void look_at_secret(struct report *report, const char *what, const char *dir,
                           const char *name)
{
    char path[4096];
    struct ab_error err = {0};
    snprintf(path, sizeof(path), "%.3900s/%s", dir, name);
    bool ok = ab_file_private(path, &err) == 0;
    report_line(report, ok, what, "%s%s%s", name, ok ? "" : ": ", ok ? "" : err.text);
}

static void look_at_secrets(struct admin *admin, struct report *report)
{
    char path[4096];
    uint8_t key[32];
    struct ab_error err = {0};
    snprintf(path, sizeof(path), "%.3900s/seal.key", admin->secrets_dir);
    bool ok = ab_seal_key_load(path, key, &err) == 0;
    ab_wipe(key, sizeof(key));
    report_line(report, ok, "secret", "seal.key%s%s", ok ? "" : ": ", ok ? "" : err.text);
    for (const char *const *service = admin_services; *service; service++) {
        char name[80];
        snprintf(name, sizeof(name), "db-abies_%s", *service);
        look_at_secret(report, "secret", admin->secrets_dir, name);
    }
}

static void look_at_curve(struct admin *admin, struct report *report)
{
    look_at_secret(report, "CURVE key", admin->curve_dir, "gateway.key_secret");
    for (const char *const *service = admin_services; *service; service++) {
        char name[80], path[4096];
        snprintf(name, sizeof(name), "%s.key_secret", *service);
        look_at_secret(report, "CURVE key", admin->curve_dir, name);
        snprintf(path, sizeof(path), "%.3900s/allowed/%s.key", admin->curve_dir, *service);
        if (access(path, R_OK) < 0)
            report_line(report, false, "CURVE key",
                        "gateways do not know %s: %s is missing; run `abies-admin keys init`",
                        *service, path);
    }
}

/* openssl is a tool of the operator's machine; without it there is only a note. */
static void look_at_certificate(struct report *report, const char *dir, const char *name)
{
    char path[4096];
    AB_AUTO(ab_buf_free) struct ab_buf output = {0};
    struct ab_error err = {0};
    int status = 0;
    snprintf(path, sizeof(path), "%.3900s/%s", dir, name);
    if (access(path, R_OK) < 0) {
        report_line(report, false, "certificate", "%s is missing", path);
        return;
    }
    const char *const argv[] = {"openssl",     "x509", "-noout", "-checkend",
                                TWO_WEEKS_SEC, "-in",  path,     NULL};
    const struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1, .new_group = true};
    if (ab_run_command(&what, OPENSSL_MS, &output, &status, &err) < 0)
        report_line(report, true, "certificate", "%s is there; its end was not looked at (%s)",
                    name, err.text);
    else if (ab_exit_code(status) == 0)
        report_line(report, true, "certificate", "%s", name);
    else
        report_line(report, false, "certificate", "%s has expired or does so within two weeks",
                    path);
}

int cmd_doctor(struct admin *admin, struct ab_error *err)
{
    struct report report;
    (void)err;
    report_begin(&report, admin->json);
    look_at_database(admin, &report);
    if (admin->secrets_dir)
        look_at_secrets(admin, &report);
    if (admin->curve_dir)
        look_at_curve(admin, &report);
    if (admin->tls_dir) {
        look_at_certificate(&report, admin->tls_dir, "ca.pem");
        look_at_certificate(&report, admin->tls_dir, "server.pem");
    }
    return report_end(&report);
}
