/* http.h - one HTTP request through libcurl, with every limit set
 *
 * Connect and total time, TLS 1.2+, own CA file, no redirects, answers bounded, loopback never
 * through a proxy. No retries and no tokens: api.h adds those; auth uses this as it is for its
 * provider.
 */
#ifndef AB_HTTP_H
#define AB_HTTP_H

#include "base/buf.h"
#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ab_http ab_http_t;

struct ab_http_options {
    const char *ca_file;        /* NULL: the system's */
    const char *proxy;          /* NULL: the environment's; "": none */
    int64_t connect_timeout_ms; /* 0: 10 s */
};

struct ab_http_request {
    const char *method, *url;
    const char *const *headers; /* "name: value", NULL-terminated; NULL none */
    const char *body;           /* NULL none; must live until the call returns */
    size_t len;
    int64_t timeout_ms; /* total; 0: 120 s */
    atomic_int *stop;   /* give up within a second when it becomes non-zero; NULL never */
};

struct ab_http_reply {
    int status;
    int retry_after_sec; /* -1: not sent */
    struct ab_buf *body; /* set by the caller; past its limit (256 MiB if 0) the call fails */
};

/* Keeps copies. One handle, one thread; its connection stays open between calls. */
ab_http_t *ab_http_new(const struct ab_http_options *options, struct ab_error *err);
void ab_http_destroy(ab_http_t **self);

/* 0 when there was an answer of any status; -1 when there was none: AB_EUPSTREAM (cannot connect,
 * cut), AB_ETIMEOUT, AB_ETOOBIG, or AB_EINVAL (TLS not trusted, bad URL: trying again does not
 * help). */
int ab_http_call(ab_http_t *self, const struct ab_http_request *request,
                 struct ab_http_reply *reply, struct ab_error *err);

#endif
