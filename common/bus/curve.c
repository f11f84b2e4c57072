/* curve.c - key files and the library's start */
#include "curve.h"
#include "base/clock.h"
#include "base/file.h"
#include "certs.h"
#include "frame.h"
#include <czmq.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* czmq reads them at its first call; what they change is ours to decide. */
static void forget_environment(void)
{
    for (char **e = environ; e && *e;) {
        if (strncmp(*e, "ZSYS_", 5) == 0) {
            char name[128];
            size_t n = strcspn(*e, "=");
            if (n < sizeof(name)) {
                memcpy(name, *e, n);
                name[n] = '\0';
                if (unsetenv(name) == 0)
                    continue; /* the next one moved here */
            }
        }
        e++;
    }
}

void ab_bus_init(void)
{
    static bool done;
    int major, minor, patch;

    if (done)
        return;
    done = true;
    zmq_version(&major, &minor, &patch);
    if (major * 10000 + minor * 100 + patch < 40303) {
        fprintf(stderr,
                "libzmq %d.%d.%d has known holes (CVE-2020-15166): install 4.3.3 or newer\n", major,
                minor, patch);
        exit(78);
    }
    forget_environment();
    zsys_handler_set(NULL);
    zsys_set_max_sockets(1023);
    zsys_set_max_msgsz((int)AB_BUS_BODY_MAX);
    signal(SIGPIPE, SIG_IGN);
}

int ab_curve_make(const char *dir, const char *name, struct ab_error *err)
{
    char path[4096], secret[4096 + 16];

    snprintf(path, sizeof(path), "%s/%s.key", dir, name);
    snprintf(secret, sizeof(secret), "%s_secret", path);
    if (access(secret, F_OK) == 0)
        return 0;
    if (ab_mkdirs(dir, 0700, err) < 0)
        return -1;
    zcert_t *cert = zcert_new();
    if (!cert)
        return ab_fail(err, AB_EINTERNAL, "cannot make a CURVE key for %s", name);
    zcert_set_meta(cert, "name", "%s", name);
    /* Both under other names first: a crash in between must not leave half a pair. */
    mode_t before = umask(077);
    char fresh[4096 + 16], fresh_secret[4096 + 32];
    snprintf(fresh, sizeof(fresh), "%s/.%s.new", dir, name);
    snprintf(fresh_secret, sizeof(fresh_secret), "%s_secret", fresh);
    int rc = zcert_save(cert, fresh);
    umask(before);
    zcert_destroy(&cert);
    if (rc < 0 || chmod(fresh, 0644) < 0 || chmod(fresh_secret, 0600) < 0 || rename(fresh, path) < 0
        || rename(fresh_secret, secret) < 0) {
        (void)ab_fail_errno(err, AB_EINTERNAL, "cannot write the key pair %s", path);
        unlink(fresh);
        unlink(fresh_secret);
        return -1;
    }
    return 0;
}

void ab_curve_pair(char public_key[41], char secret_key[41])
{
    if (zmq_curve_keypair(public_key, secret_key) < 0) {
        fputs("libzmq was built without CURVE\n", stderr);
        abort();
    }
}

/* ------------------------------------------------------------------ reading */

zcert_t *ab_cert_own(const char *dir, const char *name, struct ab_error *err)
{
    char path[4096], secret[4096 + 16];

    snprintf(path, sizeof(path), "%s/%s.key", dir, name);
    snprintf(secret, sizeof(secret), "%s_secret", path);
    if (access(secret, R_OK) < 0) {
        (void)ab_fail_errno(err, AB_EINTERNAL,
                            "cannot read the bus key %s; make it with `abies-admin keys init`",
                            secret);
        return NULL;
    }
    if (ab_file_private(secret, err) < 0)
        return NULL;
    zcert_t *cert = zcert_load(path); /* looks for <path>_secret first */
    if (!cert)
        (void)ab_fail(err, AB_EINTERNAL, "%s is not a czmq certificate with a secret key", secret);
    return cert;
}

int ab_cert_public(const char *dir, const char *name, char key[41], struct ab_error *err)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s.key", dir, name);
    zcert_t *cert = access(path, R_OK) == 0 ? zcert_load(path) : NULL;
    if (!cert)
        return ab_fail(err, AB_EINTERNAL, "cannot read the public bus key %s", path);
    memcpy(key, zcert_public_txt(cert), 41);
    zcert_destroy(&cert);
    return 0;
}

zcert_t *ab_cert_of_texts(const char *public_key, const char *secret_key)
{
    byte public_bytes[32], secret_bytes[32];

    if (!public_key || strlen(public_key) != 40 || !zmq_z85_decode(public_bytes, public_key)
        || !secret_key || strlen(secret_key) != 40 || !zmq_z85_decode(secret_bytes, secret_key))
        return NULL;
    return zcert_new_from(public_bytes, secret_bytes);
}

int ab_cert_check_allowed(const char *dir, struct ab_error *err)
{
    int rc = 0, n = 0;
    zdir_t *folder = zdir_new(dir, "-");

    if (!folder)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot read %s, the public keys of services", dir);
    zlist_t *files = zdir_list(folder);
    for (zfile_t *file = zlist_first(files); file && rc == 0; file = zlist_next(files)) {
        char name[256];
        const char *path = zfile_filename(file, NULL), *base = strrchr(path, '/');
        base = base ? base + 1 : path;
        size_t len = strlen(base);
        if (len <= 4 || len - 4 >= sizeof(name) || strcmp(base + len - 4, ".key") != 0)
            continue;
        memcpy(name, base, len - 4);
        name[len - 4] = '\0';
        zcert_t *cert = zcert_load(path);
        const char *meta = cert ? zcert_meta(cert, "name") : NULL;
        if (!meta || strcmp(meta, name) != 0)
            rc =
                ab_fail(err, AB_EINTERNAL, "%s names '%s' in its metadata, not '%s'; make it again",
                        path, meta ? meta : "", name);
        zcert_destroy(&cert);
        n++;
    }
    zlist_destroy(&files);
    zdir_destroy(&folder);
    if (rc == 0 && n == 0)
        return ab_fail(err, AB_EINTERNAL, "%s holds no NAME.key: no service could connect", dir);
    return rc;
}
