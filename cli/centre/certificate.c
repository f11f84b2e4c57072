/* certificate.c - TLS of a local centre
 *
 * The private key of the authority never leaves tls/. Clients trust ca.pem by the client file, not
 * by the system.
 */
#include "certificate.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIME_LIMIT_MS 60000

static int openssl(const char *const *argv, bool quiet, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 4096};
    struct ab_spawn what = {.argv = argv, .in = -1, .out = -1, .err = -1};
    int status = 0;
    if (ab_run_command(&what, TIME_LIMIT_MS, &output, &status, err) < 0)
        return ab_fail_within(err, "making TLS keys with openssl");
    if (ab_exit_code(status) == 0)
        return 0;
    return quiet ? -1
                 : ab_fail(err, AB_EINTERNAL, "openssl %s failed: %.300s", argv[1],
                           output.data ? output.data : "it said nothing");
}

/* Names and addresses under which the gateways are reached. */
static const char *names(const struct centre *self)
{
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1);
    bool plain = *host
                 && strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-")
                        == strlen(host);
    bool more = strcmp(self->host, "127.0.0.1") != 0 && strcmp(self->host, "0.0.0.0") != 0
                && strcmp(self->host, "::") != 0 && strcmp(self->host, "::1") != 0;
    return ab_printf(self->arena, "DNS:localhost,IP:127.0.0.1,IP:::1%s%s%s%s", plain ? ",DNS:" : "",
                     plain ? host : "", more ? ",IP:" : "", more ? self->host : "");
}

static bool good_for_a_month(const char *pem, struct ab_error *err)
{
    const char *argv[] = {"openssl", "x509", "-in", pem, "-noout", "-checkend", "2592000", NULL};
    return access(pem, R_OK) == 0 && openssl(argv, true, err) == 0;
}

static int make_authority(const struct centre *self, const char *pem, const char *key,
                          struct ab_error *err)
{
    const char *argv[] = {"openssl",
                          "req",
                          "-x509",
                          "-newkey",
                          "ec",
                          "-pkeyopt",
                          "ec_paramgen_curve:P-256",
                          "-nodes",
                          "-sha256",
                          "-days",
                          "3650",
                          "-keyout",
                          key,
                          "-out",
                          pem,
                          "-subj",
                          "/CN=Abies local authority",
                          "-addext",
                          "keyUsage=critical,keyCertSign,cRLSign",
                          NULL};
    if (openssl(argv, false, err) < 0)
        return -1;
    (void)self;
    return chmod(key, 0600) < 0 ? ab_fail_errno(err, AB_EINTERNAL, "cannot make `%s` private", key)
                                : 0;
}

static int make_server(const struct centre *self, const char *san, struct ab_error *err)
{
    const char *ca = centre_path(self, "tls/ca.pem"), *ca_key = centre_path(self, "tls/ca.key");
    const char *key = centre_path(self, "tls/server.key.new"),
               *csr = centre_path(self, "tls/server.csr");
    const char *ext = centre_path(self, "tls/server.ext.new"),
               *leaf = centre_path(self, "tls/server.leaf");
    const char *done = centre_path(self, "tls/server.ext");
    const char *text = ab_printf(
        self->arena,
        "subjectAltName=%s\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,"
        "digitalSignature\n"
        "extendedKeyUsage=serverAuth\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n",
        san);
    const char *request[] = {
        "openssl", "req",           "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes",  "-sha256",       "-keyout", key,  "-out",     csr,
        "-subj",   "/CN=localhost", NULL};
    const char *sign[] = {
        "openssl",         "x509",    "-req",  "-in", csr,        "-CA", ca,     "-CAkey", ca_key,
        "-CAcreateserial", "-sha256", "-days", "397", "-extfile", ext,   "-out", leaf,     NULL};
    if (ab_file_write(ext, text, strlen(text), 0600, err) < 0 || openssl(request, false, err) < 0
        || openssl(sign, false, err) < 0)
        return -1;
    /* Without server.ext the next one makes all anew: a crash leaves no key beside another's
     * certificate. A gateway that runs looks at both again when the second has come. */
    (void)unlink(done);
    if (chmod(key, 0600) < 0 || rename(key, centre_path(self, "tls/server.key")) < 0
        || rename(leaf, centre_path(self, "tls/server.pem")) < 0 || rename(ext, done) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot put the server certificate in place");
    (void)unlink(csr);
    return 0;
}

int certificate_make(const struct centre *self, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf old = {0};
    const char *ca = centre_path(self, "tls/ca.pem"), *ca_key = centre_path(self, "tls/ca.key");
    const char *server = centre_path(self, "tls/server.pem"), *san = names(self);
    mode_t before = umask(077);
    int rc = 0;
    bool remake = false;
    if (!good_for_a_month(ca, err) || access(ca_key, R_OK) < 0) {
        remake = true;
        rc = make_authority(self, ca, ca_key, err);
    }
    /* server.ext says what the certificate was made for */
    if (ab_file_read(centre_path(self, "tls/server.ext"), 65536, &old, NULL) < 0
        || !strstr(old.data, san) || !good_for_a_month(server, err)
        || access(centre_path(self, "tls/server.key"), R_OK) < 0)
        remake = true;
    if (rc == 0 && remake)
        rc = make_server(self, san, err);
    umask(before);
    return rc < 0 ? -1 : remake;
}
