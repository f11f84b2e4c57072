/* api.h - the HTTPS client of site, launcher and CLI
 *
 * Blocking calls on one libcurl handle: one ab_api_t per thread. Connect 10 s and total time by
 * call, proxy by setting (loopback never), TLS 1.2+, own CA file, no redirects, answers bounded.
 * Retries with full jitter on connect errors, 502, 503, 504, 429 (Retry-After is followed); never
 * on other 4xx. Every changing call carries an Idempotency-Key, kept over the retries.
 */
#ifndef AB_API_H
#define AB_API_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The client file (~/.abies/client.yml and the like), decisions: api_root, ca_file, proxy, token,
 * token_expiry, refresh_token, connect_timeout, read_timeout, retry_count. */
struct ab_client_file {
    char *path; /* where it was found */
    char *api_root, *ca_file, *proxy, *token, *refresh_token;
    int64_t token_expiry_us; /* UTC; 0 unknown */
    int64_t connect_timeout_ms, read_timeout_ms;
    int retry_count;
};
/* ABIES_CLIENT_PATH, else <site>/client.yml when site is not NULL, else ~/.abies/client.yml. */
int ab_client_file_load(struct ab_client_file *out, const char *site, struct ab_error *err);
int ab_client_file_load_path(struct ab_client_file *out, const char *path,
                             struct ab_error *err); /* that one */
int ab_client_file_save(const struct ab_client_file *file,
                        struct ab_error *err); /* 0600, by rename */
void ab_client_file_free(struct ab_client_file *file);

typedef struct ab_api ab_api_t;

/* Keeps a copy of what it needs. Re-reads the file when its time changes and after a 401; with a
 * refresh token and `renew` it renews the access token itself and writes the file. */
ab_api_t *ab_api_new(const struct ab_client_file *file, bool renew, struct ab_error *err);
/* For a process beside an agent that renews: it does so itself only when the token has all but
 * ended, or has, which means that the agent is stopped. */
ab_api_t *ab_api_new_late(const struct ab_client_file *file, struct ab_error *err);
void ab_api_destroy(ab_api_t **self);

/* One call. path "/jobs/?state=READY" (already encoded); body NULL or text. `reply` gets the body.
 * Returns the HTTP status (200..599), or -1 when there was no answer within the time (err says
 * why). For statuses >= 400 err is filled too, from the error body's text. */
struct ab_api_options {
    int64_t timeout_ms; /* total, retries included; 0 = read_timeout */
    int retries;        /* -1 = retry_count of the file */
    const char *key;    /* Idempotency-Key; NULL: a fresh one for changing calls */
    const char *trace;  /* traceparent of whoever asked us; NULL: a trace of its own */
    bool form;          /* body is a form, not JSON */
    bool no_token;
    atomic_int *stop; /* give up soon when it becomes non-zero */
};
int ab_api_call(ab_api_t *self, const char *method, const char *path, const char *body, size_t len,
                const struct ab_api_options *options, struct ab_buf *reply, struct ab_error *err);

/* Calls of this process by method and path, for Prometheus (http/metric.h). Any thread. */
void ab_api_figures(struct ab_buf *out, const char *labels);

/* Build "/jobs/?a=b&a=c": values are percent-encoded. */
void ab_api_query(struct ab_buf *path, const char *name, const char *value);
void ab_api_query_int(struct ab_buf *path, const char *name, int64_t value);

#endif
