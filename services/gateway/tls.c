/* tls.c - see tls.h */
#include "tls.h"
#include "base/log.h"
#include "gateway.h"
#include <openssl/err.h>
#include <string.h>
#include <sys/stat.h>

/* What tells one version of a file from another. */
struct version {
    ino_t inode;
    off_t size;
    struct timespec changed;
};

static struct {
    SSL_CTX *context;
    struct version cert, key; /* of those that were looked at last */
    bool failed;              /* they were no good: say it once */
} tls;

static struct version version_of(const char *path)
{
    struct version v;
    struct stat s;

    memset(&v, 0, sizeof(v));
    if (stat(path, &s) == 0) {
        v.inode = s.st_ino;
        v.size = s.st_size;
        v.changed = s.st_mtim;
    }
    return v;
}

static bool same(const struct version *a, const struct version *b)
{
    return a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec
           && a->changed.tv_nsec == b->changed.tv_nsec;
}

void tls_use(SSL_CTX *context)
{
    tls.context = context;
    tls.cert = version_of(ab_conf_text(gw.conf, "tls_cert"));
    tls.key = version_of(ab_conf_text(gw.conf, "tls_key"));
}

void tls_read_ahead(struct lws *wsi)
{
    SSL_set_read_ahead(lws_get_ssl(wsi), 1);
}

bool tls_has_more(struct lws *wsi)
{
    SSL *ssl = lws_get_ssl(wsi);
    return SSL_get_read_ahead(ssl) && SSL_has_pending(ssl);
}

int tls_read(struct lws *wsi, void *out, int size)
{
    SSL *ssl = lws_get_ssl(wsi);
    int n = SSL_read(ssl, out, size);

    if (n > 0)
        return n;
    bool waits = SSL_get_error(ssl, n) == SSL_ERROR_WANT_READ;
    ERR_clear_error(); /* or lws takes it for an error of another connection */
    return waits ? 0 : -1;
}

static bool load(SSL_CTX *into, const char *cert, const char *key)
{
    return SSL_CTX_use_certificate_chain_file(into, cert) == 1
           && SSL_CTX_use_PrivateKey_file(into, key, SSL_FILETYPE_PEM) == 1
           && SSL_CTX_check_private_key(into) == 1;
}

/* Tried in a context of its own first: half a change would leave no certificate at all. */
static bool renew(const char *cert, const char *key)
{
    SSL_CTX *trial = SSL_CTX_new(TLS_server_method());
    bool good = trial && load(trial, cert, key);

    SSL_CTX_free(trial);
    return good && load(tls.context, cert, key);
}

void tls_check(bool now)
{
    const char *cert = ab_conf_text(gw.conf, "tls_cert"), *key = ab_conf_text(gw.conf, "tls_key");

    if (!tls.context)
        return;
    struct version new_cert = version_of(cert), new_key = version_of(key);
    bool changed = !same(&new_cert, &tls.cert) || !same(&new_key, &tls.key);
    if (!changed && !now && !tls.failed)
        return;
    bool good = renew(cert, key), told = tls.failed && !changed && !now;
    char why[256] = "";
    if (!good)
        ERR_error_string_n(ERR_peek_error(), why, sizeof(why));
    ERR_clear_error(); /* or lws takes it for an error of a connection */
    tls.cert = new_cert;
    tls.key = new_key;
    tls.failed = !good;
    if (good)
        ab_log(AB_INFO, "tls.renewed", AB_KV("cert", cert));
    else if (!told)
        ab_log(AB_WARN, "tls.not_renewed", AB_KV("cert", cert), AB_KV("key", key),
               AB_KV("error", (const char *)why),
               AB_KV("text", "the old certificate stays; they are tried again"));
}
