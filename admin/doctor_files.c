/* doctor_files.c - secrets, CURVE keys, certificates, disks */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "crypt/crypt.h"
#include "doctor.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    OPENSSL_MS = 10000,
    SECRET_MAX = 4096,
    LEAST_SECRET = 16, /* characters of a password that nobody types */
};

#define TWO_WEEKS_SEC "1209600"

/* ---- folders and files of secrets */

static void look_at_folder(struct doctor *self, const char *dir)
{
    struct stat st;
    if (stat(dir, &st) < 0)
        report_find(self->report, REPORT_BROKEN, "folder", "run `abies-admin init`",
                    "%s is missing", dir);
    else if (st.st_mode & 022)
        report_find(self->report, REPORT_BROKEN, "folder",
                    ab_printf(self->arena, "chmod 700 %s", dir),
                    "%s can be written by others (mode %03o): they can put keys of their own there",
                    dir, (unsigned)st.st_mode & 0777);
}

static bool is_private(struct doctor *self, const char *what, const char *dir, const char *name,
                       const char *remedy)
{
    struct ab_error err = {0};
    const char *path = ab_printf(self->arena, "%s/%s", dir, name);
    bool ok = ab_file_private(path, &err) == 0, there = access(path, F_OK) == 0;
    report_find(self->report, ok ? REPORT_OK : REPORT_BROKEN, what,
                there ? ab_printf(self->arena,
                                  "chmod 600 %s, owned by who runs the program; if others "
                                  "may have read it, replace it",
                                  path)
                      : remedy,
                "%s%s%s", name, ok ? "" : ": ", ok ? "" : err.text);
    return ok;
}

/* What people put there by hand. */
static bool is_weak(const char *text, size_t n)
{
    static const char *const known[] = {"changeme", "password", "secret",  "postgres", "abies",
                                        "admin",    "123456",   "letmein", "example"};
    size_t same = 0;
    for (size_t i = 1; i < n; i++)
        same += text[i] == text[0];
    if (n < LEAST_SECRET || same + 1 == n)
        return true;
    for (size_t i = 0; i < AB_COUNT(known); i++)
        if (strncasecmp(text, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

static void look_at_password(struct doctor *self, const char *service)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *dir = self->admin->secrets_dir,
               *name = ab_printf(self->arena, "db-abies_%s", service);
    if (!is_private(self, "secret", dir, name, "run `abies-admin init`")
        || ab_file_read(ab_printf(self->arena, "%s/%s", dir, name), SECRET_MAX, &text, NULL) < 0)
        return;
    while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == ' '))
        text.len--;
    if (is_weak(text.data ? text.data : "", text.len))
        report_find(
            self->report, REPORT_BROKEN, "secret",
            "remove the file, run `abies-admin roles --secrets DIR` (it makes another), restart "
            "the service",
            "%s can be guessed: it is short, or a default", name);
    if (text.data)
        ab_wipe(text.data, text.len);
}

static void look_at_secrets(struct doctor *self)
{
    uint8_t key[32], same = 0;
    struct ab_error err = {0};
    const char *dir = self->admin->secrets_dir;
    look_at_folder(self, dir);
    bool ok = ab_seal_key_load(ab_printf(self->arena, "%s/seal.key", dir), key, &err) == 0;
    for (size_t i = 1; ok && i < sizeof(key); i++)
        same += key[i] == key[0];
    bool plain = ok && same == sizeof(key) - 1;
    ab_wipe(key, sizeof(key));
    report_find(self->report, ok && !plain ? REPORT_OK : REPORT_BROKEN, "secret",
                "restore it from the backup; without it remove it, run `abies-admin keys init` and "
                "`keys rotate`, and everybody logs in again",
                "seal.key%s%s", ok && !plain ? "" : ": ",
                plain ? "all of its bytes are the same"
                : ok  ? ""
                      : err.text);
    for (const char *const *service = admin_services; *service; service++)
        look_at_password(self, *service);
}

/* ---- CURVE */

/* The line `public-key = "..."` of a certificate; "" none. */
static const char *public_key(struct doctor *self, const char *name)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *path = ab_printf(self->arena, "%s/%s", self->admin->curve_dir, name), *at, *end;
    if (ab_file_read(path, SECRET_MAX, &text, NULL) < 0)
        return "";
    ab_buf_char(&text, '\0');
    if (text.failed)
        return "";
    const char *found = "";
    if ((at = strstr(text.data, "public-key = \"")) && (end = strchr(at + 14, '"')))
        found = ab_strndup(self->arena, at + 14, (size_t)(end - at - 14));
    ab_wipe(text.data, text.len);
    return found;
}

static void look_at_pair(struct doctor *self, const char *name)
{
    const char *secret = ab_printf(self->arena, "%s.key_secret", name),
               *open = ab_printf(self->arena, "%s.key", name);
    if (!is_private(self, "CURVE key", self->admin->curve_dir, secret,
                    "run `abies-admin keys init --curve-dir DIR`"))
        return;
    const char *one = public_key(self, secret), *two = public_key(self, open);
    if (!*one || strcmp(one, two) != 0)
        report_find(
            self->report, REPORT_BROKEN, "CURVE key",
            "remove both files, run `abies-admin keys init`, hand the new ones out, restart",
            "%s and %s are not a pair", secret, open);
    if (strcmp(name, "gateway") == 0)
        return;
    const char *allowed = public_key(self, ab_printf(self->arena, "allowed/%s.key", name));
    if (!*allowed || strcmp(allowed, two) != 0)
        report_find(self->report, REPORT_BROKEN, "CURVE key",
                    "run `abies-admin keys init`, copy allowed/ to every gateway, restart them",
                    "gateways do not let %s in: allowed/%s.key is %s", name, name,
                    *allowed ? "not its key" : "missing");
}

static void look_at_curve(struct doctor *self)
{
    look_at_folder(self, self->admin->curve_dir);
    for (int i = 0; i < DOCTOR_SERVICES; i++)
        look_at_pair(self, doctor_services[i]);
}

/* ---- disks */

static void look_at_disk(struct doctor *self, const char *dir)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) < 0)
        return;
    int64_t left = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    bool files = fs.f_files == 0 || fs.f_favail >= 1000, bytes = left >= self->min_free;
    report_find(
        self->report, bytes && files ? REPORT_OK : REPORT_BROKEN, "disk",
        "make room: old logs, old backups; PostgreSQL stops for everybody when its disk is full",
        "%s: %.1f GiB left%s", dir, (double)left / (1 << 30),
        files ? "" : ", and hardly a file can be made");
}

void doctor_files(struct doctor *self)
{
    const struct admin *admin = self->admin;
    if (admin->secrets_dir)
        look_at_secrets(self);
    if (admin->curve_dir)
        look_at_curve(self);
    if (admin->home) {
        look_at_disk(self, admin->home);
        look_at_disk(self, ab_printf(self->arena, "%s/pg", admin->home));
        look_at_disk(self, ab_printf(self->arena, "%s/log", admin->home));
    } else if (admin->secrets_dir) {
        look_at_disk(self, admin->secrets_dir);
    }
}

/* ---- certificates. openssl is a tool of the operator's machine; without it there is only a note. */

/* 0 and its output, its exit status, or -1: there is no openssl. */
static int openssl(const char *const *argv, struct ab_buf *output)
{
    struct ab_error err = {0};
    int status = 0;
    const struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1, .new_group = true};
    if (ab_run_command(&what, OPENSSL_MS, output, &status, &err) < 0)
        return -1;
    return ab_exit_code(status);
}

static void look_at_end(struct doctor *self, const char *path)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {0}, soon = {0};
    const char *const show[] = {"openssl", "x509", "-noout", "-enddate", "-in", path, NULL};
    const char *const check[] = {"openssl",     "x509", "-noout", "-checkend",
                                 TWO_WEEKS_SEC, "-in",  path,     NULL};
    int rc = openssl(show, &output);
    while (output.len > 0 && output.data[output.len - 1] == '\n')
        output.len--;
    const char *end =
        output.len > 9 ? ab_strndup(self->arena, output.data + 9, output.len - 9) : "?";
    if (rc < 0)
        report_find(self->report, REPORT_NOTE, "certificate", "install openssl",
                    "%s is there; without openssl its end cannot be looked at", path);
    else if (rc > 0)
        report_find(self->report, REPORT_BROKEN, "certificate", "put a certificate in PEM there",
                    "%s is no certificate", path);
    else
        report_find(self->report, openssl(check, &soon) == 0 ? REPORT_OK : REPORT_BROKEN,
                    "certificate",
                    "local centre: `abies down && abies up` makes another; your own: renew it, "
                    "restart the gateways",
                    "%s ends %s", path, end);
}

static void look_at_chain(struct doctor *self, const char *ca, const char *server)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {0};
    const char *const argv[] = {"openssl", "verify", "-no_check_time", "-CAfile", ca, server, NULL};
    int rc = openssl(argv, &output);
    if (rc >= 0)
        report_find(
            self->report, rc == 0 ? REPORT_OK : REPORT_BROKEN, "certificate",
            "remove server.pem and server.key and start again, or give clients the authority "
            "that has signed it",
            rc == 0 ? "clients that know ca.pem trust server.pem"
                    : "server.pem is not signed by ca.pem: every client refuses it");
}

static void look_at_key(struct doctor *self, const char *key, const char *server)
{
    AB_AUTO(ab_buf_free) struct ab_buf one = {0}, two = {0};
    const char *const of_key[] = {"openssl", "pkey", "-pubout", "-in", key, NULL};
    const char *const of_server[] = {"openssl", "x509", "-noout", "-pubkey", "-in", server, NULL};
    if (openssl(of_key, &one) != 0 || openssl(of_server, &two) != 0)
        return;
    bool same = one.len == two.len && memcmp(one.data, two.data, one.len) == 0;
    if (!same)
        report_find(self->report, REPORT_BROKEN, "certificate",
                    "put the key of the certificate there: the gateways do not start without it",
                    "server.key is not the key of server.pem");
}

void doctor_certificates(struct doctor *self)
{
    const char *dir = self->admin->tls_dir;
    const char *ca = ab_printf(self->arena, "%s/ca.pem", dir),
               *server = ab_printf(self->arena, "%s/server.pem", dir),
               *key = ab_printf(self->arena, "%s/server.key", dir);
    const char *const files[] = {ca, server};
    bool all = true;
    for (size_t i = 0; i < AB_COUNT(files); i++) {
        if (access(files[i], R_OK) == 0) {
            look_at_end(self, files[i]);
            continue;
        }
        all = false;
        report_find(self->report, REPORT_BROKEN, "certificate",
                    "local centre: `abies up` makes it; your own: put it there", "%s is missing",
                    files[i]);
    }
    if (access(key, F_OK) == 0)
        (void)is_private(self, "certificate", dir, "server.key", NULL);
    if (all)
        look_at_chain(self, ca, server);
    if (all && access(key, R_OK) == 0)
        look_at_key(self, key, server);
}
