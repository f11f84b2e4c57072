/* api.c - calls to the centre: token, retries, one Idempotency-Key for all tries of a call
 *
 * A token is renewed by whoever needs it first; launchers wait longer than their agent does.
 * Refresh tokens are used once, and using one twice ends the whole family, so the renewal happens
 * under a lock beside the client file, looks first whether another process has just done it, and
 * puts its result into the file only if that still has the refresh token that was used. A process
 * that dies in mid-renewal leaves the key behind under which the next one gets the same answer
 * (renewal.h). Two that meet all the same (a file system without locks) find that key as well, or
 * send the same token within the moment in which the centre gives the same answer to anybody.
 */
#include "api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/str.h"
#include "base/trace.h"
#include "crypt/crypt.h"
#include "http.h"
#include "http/metric.h"
#include "renewal.h"
#include "schema/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RENEW_BEFORE_US (INT64_C(600) * 1000000) /* at most; else a sixth of the token's life */
#define RENEW_TIMEOUT_MS 30000
#define RENEW_AGAIN_MS 5000
#define BACKOFF_BASE_MS 200
#define BACKOFF_CAP_MS 20000
#define STOP_LOOK_MS 100
#define LOCK_WAIT_MS 15000

struct ab_api {
    struct ab_client_file file;
    struct timespec file_time;
    ab_http_t *http;
    bool renew, late;
    int64_t renew_not_before_ms; /* after a failed renewal: not with every call */
    char *
        replaced; /* the refresh token in the file that ours replaces, while it cannot be written */
    char trace[AB_TRACE_ID]; /* of the last call */
};

static struct timespec time_of(const char *path)
{
    struct stat st;
    if (!path || stat(path, &st) < 0)
        return (struct timespec){0};
    return st.st_mtim;
}

static int open_http(ab_api_t *self, struct ab_error *err)
{
    struct ab_http_options options = {
        .ca_file = self->file.ca_file,
        .proxy = self->file.proxy,
        .connect_timeout_ms = self->file.connect_timeout_ms,
    };
    ab_http_destroy(&self->http);
    self->http = ab_http_new(&options, err);
    return self->http ? 0 : -1;
}

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

ab_api_t *ab_api_new(const struct ab_client_file *file, bool renew, struct ab_error *err)
{
    AB_AUTO(ab_api_destroy) ab_api_t *self = calloc(1, sizeof(*self));
    if (!self) {
        ab_fail(err, AB_EINTERNAL, "no memory for an API client");
        return NULL;
    }
    self->file = *file;
    self->file.path = copy(file->path);
    self->file.api_root = copy(file->api_root);
    self->file.ca_file = copy(file->ca_file);
    self->file.proxy = copy(file->proxy);
    self->file.token = copy(file->token);
    self->file.refresh_token = copy(file->refresh_token);
    self->file_time = time_of(file->path);
    self->renew = renew;
    ab_crypt_init();
    if (open_http(self, err) < 0)
        return NULL;
    return AB_TAKE(self);
}

ab_api_t *ab_api_new_late(const struct ab_client_file *file, struct ab_error *err)
{
    ab_api_t *self = ab_api_new(file, true, err);
    if (self)
        self->late = true;
    return self;
}

void ab_api_destroy(ab_api_t **self)
{
    if (!*self)
        return;
    if (ab_log_current_trace() == (*self)->trace)
        ab_log_trace(NULL);
    ab_http_destroy(&(*self)->http);
    ab_client_file_free(&(*self)->file);
    free((*self)->replaced);
    free(*self);
    *self = NULL;
}

/* ------------------------------------------------------------------ the client file */

static bool same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Our tokens into the file. */
static int save(ab_api_t *self, struct ab_error *err)
{
    if (ab_client_file_save(&self->file, err) < 0)
        return -1;
    self->file_time = time_of(self->file.path);
    free(self->replaced);
    self->replaced = NULL;
    return 0;
}

/* Our tokens into the file. They are new: no answer needs to be asked for again. */
static int save_new(ab_api_t *self, struct ab_error *err)
{
    if (save(self, err) < 0)
        return -1;
    (void)ab_fault("renewal.saved");
    renewal_done(self->file.path);
    return 0;
}

static int adopt(ab_api_t *self, struct ab_error *err)
{
    struct timespec now = time_of(self->file.path);
    struct ab_client_file fresh = {0};

    if (ab_client_file_load_path(&fresh, self->file.path, err) < 0)
        return -1;
    self->file_time = now;
    if (strcmp(fresh.api_root, self->file.api_root) != 0) {
        ab_client_file_free(&fresh);
        return ab_fail(err, AB_EAUTH, "%s speaks of another centre by now", self->file.path);
    }
    if (same(fresh.refresh_token, self->replaced)) { /* ours are newer */
        ab_client_file_free(&fresh);
        return save_new(self, err);
    }
    ab_client_file_free(&self->file);
    self->file = fresh;
    return open_http(self, err);
}

/* Take over what another process (or `abies login`) wrote. A file that cannot be read now, or
 * speaks of another centre, changes nothing. */
static void reread(ab_api_t *self)
{
    struct timespec now = time_of(self->file.path);

    if (now.tv_sec && memcmp(&now, &self->file_time, sizeof(now)) != 0)
        (void)adopt(self, NULL);
}

/* -1 where a file system has no locks, or somebody stopped holds it. */
static int lock_file(const char *path)
{
    AB_AUTO(ab_buf_free) struct ab_buf name = {0};
    ab_buf_printf(&name, "%s.lock", path);
    int fd = name.failed ? -1 : open(name.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    for (int64_t end = ab_now_ms() + LOCK_WAIT_MS; flock(fd, LOCK_EX | LOCK_NB) < 0;) {
        if (errno != EWOULDBLOCK || ab_now_ms() > end) {
            close(fd);
            return -1;
        }
        (void)poll(NULL, 0, STOP_LOOK_MS);
    }
    return fd;
}

static int take_tokens(struct ab_client_file *file, const struct ab_buf *reply,
                       struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *v = ab_value_parse(arena, reply->data, reply->len, err);
    const char *token = ab_value_text(ab_value_get(v, "access_token"), NULL);
    const char *refresh = ab_value_text(ab_value_get(v, "refresh_token"), NULL);
    const char *expiry = ab_value_text(ab_value_get(v, "expiration"), "");

    if (!token)
        return ab_fail(err, AB_EUPSTREAM, "the centre's answer to a token renewal has no token");
    free(file->token);
    file->token = strdup(token);
    file->token_expiry_us = 0;
    (void)ab_time_parse(expiry, strlen(expiry), &file->token_expiry_us);
    if (refresh) {
        free(file->refresh_token);
        file->refresh_token = strdup(refresh);
    }
    return 0;
}

/* A renewal whose answer was lost, even by a crash of ours, is the same request to the centre when
 * it is sent again. */
static int send_refresh(ab_api_t *self, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, reply = {.limit = 1 << 20};
    const char *token = self->file.refresh_token;
    char key[RENEWAL_KEY];

    if (renewal_key(self->file.path, token, key, err) < 0)
        return -1;
    (void)ab_fault("renewal.ask");
    ab_buf_str(&body, "{\"refresh_token\":");
    ab_buf_json_str(&body, token, strlen(token));
    ab_buf_str(&body, "}");
    struct ab_api_options options = {
        .timeout_ms = RENEW_TIMEOUT_MS, .retries = 3, .key = key, .no_token = true};
    int status = ab_api_call(self, "POST", "/auth/token/refresh", body.data, body.len, &options,
                             &reply, err);
    ab_wipe(body.data, body.len);
    if (status < 0 || status >= 300)
        return -1;
    return take_tokens(&self->file, &reply, err);
}

/* Not over what others have written since: it would bring a refresh token back that is used up. */
static int keep_tokens(ab_api_t *self, const char *sent, struct ab_error *err)
{
    AB_AUTO(ab_client_file_free) struct ab_client_file now = {0};

    if (ab_client_file_load_path(&now, self->file.path, NULL) == 0
        && !same(now.refresh_token, sent))
        return adopt(self, err);
    if (save_new(self, NULL) < 0) { /* ours are good all the same; freshen tries again */
        free(self->replaced);
        self->replaced = strdup(sent);
    }
    return 0;
}

/* The file is read whatever its time says: a network file system may show an old time, but opens
 * the new file. Without it nothing is sent, because ours may be used up. */
static int renew_token(ab_api_t *self, const char *used, struct ab_error *err)
{
    AB_AUTO(ab_close) int lock = lock_file(self->file.path);

    (void)lock;
    if (adopt(self, err) < 0)
        return -1;
    if (self->file.token && used && strcmp(self->file.token, used) != 0)
        return 0; /* somebody else was quicker */
    if (!self->file.refresh_token)
        return ab_fail(err, AB_EAUTH, "the token has ended; run `abies login`");
    AB_AUTO(ab_free) char *sent = copy(self->file.refresh_token);
    /* With a full disk the next token would be lost, and this one used up. */
    if (save(self, err) < 0 || send_refresh(self, err) < 0) {
        self->renew_not_before_ms = ab_now_ms() + RENEW_AGAIN_MS;
        return -1;
    }
    (void)ab_fault("renewal.answered");
    return keep_tokens(self, sent, err);
}

static bool may_renew(const ab_api_t *self)
{
    return self->renew && self->file.refresh_token && ab_now_ms() >= self->renew_not_before_ms;
}

/* How long a token lives is written in it; nothing of that is believed, it only says when to ask
 * for the next one. */
static int64_t renew_before_us(const char *token)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *body = token ? strchr(token, '.') : NULL;
    if (!body)
        return RENEW_BEFORE_US;
    size_t n = strcspn(++body, ".");
    uint8_t *json = ab_alloc(arena, n + 1, 1);
    int64_t len = ab_base64url_decode(body, n, json, n);
    const struct ab_value *v =
        len > 0 ? ab_value_parse(arena, (const char *)json, (size_t)len, NULL) : NULL;
    int64_t iat = ab_value_int(ab_value_get(v, "iat"), 0),
            exp = ab_value_int(ab_value_get(v, "exp"), 0), sixth = RENEW_BEFORE_US;
    if (iat > 0 && exp > iat && exp - iat < RENEW_BEFORE_US / 1000000 * 6)
        sixth = (exp - iat) * 1000000 / 6;
    return sixth;
}

static void freshen(ab_api_t *self)
{
    reread(self);
    if (self->replaced && ab_now_ms() >= self->renew_not_before_ms && save_new(self, NULL) < 0)
        self->renew_not_before_ms = ab_now_ms() + RENEW_AGAIN_MS;
    int64_t end = self->file.token_expiry_us;
    int64_t left = (end - ab_utc_us()) * (self->late ? 2 : 1);
    if (end && left < RENEW_BEFORE_US && left < renew_before_us(self->file.token)
        && may_renew(self)) {
        AB_AUTO(ab_free) char *used = copy(self->file.token);
        (void)renew_token(self, used, NULL); /* the call itself says what is wrong */
    }
}

/* ------------------------------------------------------------------ errors in the contract's forms
 */

static void say_issues(struct ab_buf *text, const struct ab_value *detail)
{
    for (size_t i = 0; i < detail->n && i < 3; i++) {
        const struct ab_value *one = &detail->items[i], *loc = ab_value_get(one, "loc");
        bool whole = loc && loc->type == AB_V_LIST && loc->n == 1; /* "body" says nothing */
        ab_buf_str(text, i ? "; " : "");
        for (size_t k = 0; !whole && loc && loc->type == AB_V_LIST && k < loc->n; k++) {
            const struct ab_value *part = &loc->items[k];
            ab_buf_str(text, k ? "." : "");
            if (part->type == AB_V_INT)
                ab_buf_int(text, part->i);
            else
                ab_buf_str(text, ab_value_text(part, "?"));
        }
        ab_buf_printf(text, "%s%s", whole ? "" : ": ",
                      ab_value_text(ab_value_get(one, "msg"), "wrong"));
    }
    if (detail->n > 3)
        ab_buf_printf(text, " and %zu more", detail->n - 3);
}

static void fill_error(int status, const struct ab_buf *reply, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const struct ab_value *v =
        reply->len ? ab_value_parse(arena, reply->data, reply->len, NULL) : NULL;
    const struct ab_value *detail = ab_value_get(v, "detail");

    if (detail && detail->type == AB_V_TEXT)
        ab_buf_str(&text, ab_value_text(detail, ""));
    else if (detail && detail->type == AB_V_LIST)
        say_issues(&text, detail);
    else if (ab_value_get(v, "message"))
        ab_buf_str(&text, ab_value_text(ab_value_get(v, "message"), ""));
    else if (ab_value_get(v, "error"))
        ab_buf_str(&text, ab_value_text(ab_value_get(v, "error"), ""));
    if (!text.len)
        ab_buf_printf(&text, "the centre answered with HTTP status %d", status);
    ab_fail(err, status, "%s", text.failed ? "" : text.data);
}

/* ------------------------------------------------------------------ one call */

struct call {
    const char *method, *body;
    size_t len;
    const struct ab_api_options *options;
    char *url;
    char key[AB_UUID_TEXT];
    char trace[AB_TRACE_TEXT + 16]; /* the header */
    bool changes;
    int64_t end_ms;
};

static int one_try(ab_api_t *self, struct call *call, struct ab_http_reply *reply,
                   struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf token = {0}, key = {0};
    const char *headers[6];
    size_t n = 0;
    int64_t left = call->end_ms - ab_now_ms();

    headers[n++] = "Accept: application/json";
    headers[n++] = call->trace;
    if (call->body)
        headers[n++] = call->options->form ? "Content-Type: application/x-www-form-urlencoded"
                                           : "Content-Type: application/json";
    if (self->file.token && !call->options->no_token) {
        ab_buf_printf(&token, "Authorization: Bearer %s", self->file.token);
        headers[n++] = token.data;
    }
    if (call->changes) {
        ab_buf_printf(&key, "Idempotency-Key: %s",
                      call->options->key ? call->options->key : call->key);
        headers[n++] = key.data;
    }
    headers[n] = NULL;
    struct ab_http_request request = {
        .method = call->method,
        .url = call->url,
        .headers = headers,
        .body = call->body,
        .len = call->len,
        .timeout_ms = left > 1 ? left : 1,
        .stop = call->options->stop,
    };
    int rc = ab_http_call(self->http, &request, reply, err);
    if (token.data)
        ab_wipe(token.data, token.len);
    return rc;
}

static bool worth_another(int rc, int status, const struct ab_error *err)
{
    if (rc < 0)
        return err->code == AB_EUPSTREAM || err->code == AB_ETIMEOUT;
    return status == 429 || status == 502 || status == 503 || status == 504;
}

static bool stopped(const struct call *call)
{
    return call->options->stop && *call->options->stop;
}

/* False when the time is up or the caller wants to leave. */
static bool wait_before(const struct call *call, int attempt, int retry_after_sec)
{
    int64_t ms = ab_backoff_ms(attempt, BACKOFF_BASE_MS, BACKOFF_CAP_MS);

    if (retry_after_sec >= 0) /* not all at the same moment */
        ms = retry_after_sec * INT64_C(1000) + (int64_t)ab_random_below(BACKOFF_BASE_MS);
    int64_t wake = ab_now_ms() + ms;
    if (wake >= call->end_ms)
        return false;
    for (int64_t left = ms; left > 0 && !stopped(call); left = wake - ab_now_ms())
        (void)poll(NULL, 0, (int)(left < STOP_LOOK_MS ? left : STOP_LOOK_MS));
    return !stopped(call);
}

static int run_call(ab_api_t *self, struct call *call, struct ab_buf *reply, struct ab_error *err)
{
    int retries = call->options->retries < 0 ? self->file.retry_count : call->options->retries;
    struct ab_http_reply got = {.body = reply};
    struct ab_error why = {0};
    bool renewed = call->options->no_token;
    int rc;

    for (int attempt = 0;; attempt++) {
        AB_AUTO(ab_free) char *used = copy(self->file.token);
        why = (struct ab_error){0};
        rc = one_try(self, call, &got, &why);
        if (rc == 0 && got.status == 401 && !renewed) {
            renewed = true;
            reread(self);
            bool changed = self->file.token && used && strcmp(used, self->file.token) != 0;
            if (changed || (may_renew(self) && renew_token(self, used, NULL) == 0))
                continue;
        }
        if (!worth_another(rc, got.status, &why) || attempt >= retries
            || !wait_before(call, attempt, rc < 0 ? -1 : got.retry_after_sec))
            break;
    }
    if (rc < 0) {
        if (err)
            *err = why;
        return -1;
    }
    if (got.status >= 300)
        fill_error(got.status, reply, err);
    if (got.status >= 300 && err && got.retry_after_sec > 0)
        err->retry_sec = got.retry_after_sec;
    return got.status;
}

/* ------------------------------------------------------------------ figures */

#define VERBS_MAX 48

static pthread_once_t figures_once = PTHREAD_ONCE_INIT;
static ab_calls_t *figures; /* of the process, to its end */

static void make_figures(void)
{
    figures = ab_calls_new(VERBS_MAX);
}

/* "GET /jobs/{id}": without the query, numbers left out. */
static void count_call(const char *method, const char *path, int status, int64_t us)
{
    char verb[64];
    size_t n = (size_t)snprintf(verb, sizeof(verb), "%s ", method);

    for (const char *at = path; *at && *at != '?' && n < sizeof(verb) - 5; at++) {
        size_t digits = at > path && at[-1] == '/' ? strspn(at, "0123456789") : 0;
        if (digits > 0 && (at[digits] == '\0' || at[digits] == '/' || at[digits] == '?')) {
            n += (size_t)snprintf(verb + n, sizeof(verb) - n, "{id}");
            at += digits - 1;
        } else {
            verb[n++] = *at;
        }
    }
    verb[n] = '\0';
    pthread_once(&figures_once, make_figures);
    ab_calls_add(figures, verb, status, us);
}

void ab_api_figures(struct ab_buf *out, const char *labels)
{
    pthread_once(&figures_once, make_figures);
    ab_calls_write(figures, out, "abies_client_requests_total", "abies_client_request_seconds",
                   "calls to the centre, their retries included", labels);
}

/* ------------------------------------------------------------------ */

/* What this thread logs next is about this call, and carries its trace. */
static void take_trace(ab_api_t *self, struct call *call, const uint8_t uuid[16])
{
    const char *told = call->options->trace;
    char header[AB_TRACE_TEXT];

    if (!told || !ab_trace_read(told, strlen(told), self->trace))
        ab_trace_of(uuid, self->trace);
    ab_trace_write(self->trace, uuid, header);
    snprintf(call->trace, sizeof(call->trace), "traceparent: %s", header);
    ab_log_trace(self->trace);
}

int ab_api_call(ab_api_t *self, const char *method, const char *path, const char *body, size_t len,
                const struct ab_api_options *options, struct ab_buf *reply, struct ab_error *err)
{
    static const struct ab_api_options usual = {.retries = -1};
    AB_AUTO(ab_buf_free) struct ab_buf url = {0}, dropped = {0};
    struct call call = {
        .method = method, .body = body, .len = len, .options = options ? options : &usual};

    if (!self->http)
        return ab_fail(err, AB_EINTERNAL, "the HTTP client could not be made again");
    if (!call.options->no_token)
        freshen(self);
    ab_buf_printf(&url, "%s%s%s", self->file.api_root, path[0] == '/' ? "" : "/", path);
    if (url.failed)
        return ab_fail(err, AB_ETOOBIG, "a path of %zu bytes is too long", strlen(path));
    call.url = url.data;
    call.changes = strcmp(method, "GET") != 0;
    uint8_t uuid[16];
    ab_uuid7(uuid);
    if (call.changes && !call.options->key)
        ab_uuid_text(uuid, call.key);
    take_trace(self, &call, uuid);
    int64_t total =
        call.options->timeout_ms ? call.options->timeout_ms : self->file.read_timeout_ms;
    call.end_ms = ab_now_ms() + total;
    int64_t from_us = ab_now_us();
    int status = run_call(self, &call, reply ? reply : &dropped, err);
    count_call(method, path, status, ab_now_us() - from_us);
    return status;
}

/* ------------------------------------------------------------------ query strings */

void ab_api_query(struct ab_buf *path, const char *name, const char *value)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    bool first = !path->data || !memchr(path->data, '?', path->len);

    ab_buf_char(path, first ? '?' : '&');
    ab_buf_str(path, name);
    ab_buf_char(path, '=');
    for (const char *c = value; *c; c++) {
        if (strchr(plain, *c))
            ab_buf_char(path, *c);
        else
            ab_buf_printf(path, "%%%02X", (unsigned char)*c);
    }
}

void ab_api_query_int(struct ab_buf *path, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, value);
    ab_api_query(path, name, text);
}
