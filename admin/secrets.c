/* secrets.c - passwords of the database roles; migrate; init */
#include "admin.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "crypt/crypt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PASSWORD_MAX = 200,
    MEETINGS = 20
};

const char *const admin_services[] = {"jobs", "sessions", "transfers", "auth", NULL};
static const char *const roles[] = {"jobs", "sessions", "transfers", "auth", "report", NULL};

static void wipe_buf(struct ab_buf *buf)
{
    if (buf->data)
        ab_wipe(buf->data, buf->cap);
    ab_buf_free(buf);
}

/* The password of a role; made if there is none. Without a newline at its end. */
static int read_password(const char *dir, const char *role, struct ab_buf *out,
                         struct ab_error *err)
{
    char path[4096], fresh[AB_SECRET_TEXT_MAX];
    struct ab_error absent = {0};
    if (snprintf(path, sizeof(path), "%s/db-abies_%s", dir, role) >= (int)sizeof(path))
        return ab_fail(err, AB_EINVAL, "the name of the secrets' folder is too long");
    if (ab_file_private(path, &absent) < 0) {
        if (absent.code != AB_ENOENT) {
            *err = absent;
            return -1;
        }
        ab_secret_text(fresh);
        int rc = ab_file_write(path, fresh, strlen(fresh), 0600, err);
        ab_wipe(fresh, sizeof(fresh));
        if (rc < 0)
            return -1;
    }
    if (ab_file_read(path, PASSWORD_MAX, out, err) < 0)
        return -1;
    while (out->len > 0 && out->data[out->len - 1] == '\n')
        out->len--;
    if (out->len < 8)
        return ab_fail(
            err, AB_EINVAL,
            "the password in `%s` is shorter than 8 characters: remove the file, a new one is made",
            path);
    ab_buf_char(out, '\0');
    return out->failed ? ab_fail(err, AB_EINTERNAL, "no memory") : 0;
}

/* Hashed here (SCRAM), so that the password is in no statement, log or pg_stat_activity. Roles are
 * the cluster's: who sets them from another database may be met here. */
static int set_password(struct admin *admin, const char *role, const char *password,
                        struct ab_error *err)
{
    PGconn *conn = ab_db_conn(admin->db);
    char text[512], name[40];
    snprintf(name, sizeof(name), "abies_%s", role);
    char *hash = PQencryptPasswordConn(conn, password, name, "scram-sha-256");
    if (!hash)
        return ab_fail(err, AB_EINTERNAL, "cannot hash the password of %s: %s", name,
                       PQerrorMessage(conn));
    /* the hash is base64, '$' and ':' */
    snprintf(text, sizeof(text), "ALTER ROLE %s PASSWORD '%s'", name, hash);
    PQfreemem(hash);
    int rc = -1;
    for (int i = 1; rc < 0; i++) {
        struct ab_error why = {0};
        rc = ab_db_exec(admin->db, text, &why);
        if (rc < 0 && (!strstr(why.text, "concurrently updated") || i == MEETINGS)) {
            *err = why;
            break;
        }
        if (rc < 0 && ab_db_exec(admin->db, "SELECT pg_sleep(0.05 * random())", err) < 0)
            break;
    }
    ab_wipe(text, sizeof(text));
    return rc;
}

/* `roles` may come before `migrate`: then there is nowhere to write it down. */
static int note_if_there(struct admin *admin, const char *action, const char *detail,
                         struct ab_error *err)
{
    int version;
    if (ab_schema_version(admin->db, &version, err) < 0)
        return -1;
    return version == ab_schema_latest() ? admin_note(admin, 0, action, detail, err) : 0;
}

int cmd_roles(struct admin *admin, struct ab_error *err)
{
    if (admin_need(admin->secrets_dir, "--secrets", err) < 0 || admin_open(admin, err) < 0
        || ab_mkdirs(admin->secrets_dir, 0700, err) < 0)
        return -1;
    for (const char *const *role = roles; *role; role++) {
        AB_AUTO(wipe_buf) struct ab_buf password = {0};
        if (read_password(admin->secrets_dir, *role, &password, err) < 0
            || set_password(admin, *role, password.data, err) < 0)
            return -1;
    }
    if (note_if_there(admin, "roles", "", err) < 0)
        return -1;
    puts("passwords of the roles are set");
    return 0;
}

int cmd_migrate(struct admin *admin, struct ab_error *err)
{
    int from, to;
    if (admin_open(admin, err) < 0 || ab_migrate(admin->db, &from, &to, err) < 0)
        return -1;
    char versions[40];
    snprintf(versions, sizeof(versions), "schema %d -> %d", from, to);
    if (from != to && note_if_there(admin, "migrate", versions, err) < 0)
        return -1;
    puts(versions);
    return 0;
}

int cmd_init(struct admin *admin, struct ab_error *err)
{
    if (admin_need(admin->secrets_dir, "--secrets", err) < 0 || cmd_keys_init(admin, err) < 0
        || cmd_migrate(admin, err) < 0)
        return -1;
    return cmd_roles(admin, err);
}
