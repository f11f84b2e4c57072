/* events.c - see events.h; the only file here that knows libwebsockets
 *
 * A frame is handed out only when it is whole; the cursor of the last one handed out is where the
 * next connection goes on, so a cut loses nothing and repeats nothing.
 */
#include "events.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/str.h"
#include "proxy.h"
#include "schema/json.h"

#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MAX ((size_t)64 << 20)
#define BACKOFF_MS 200
#define BACKOFF_CAP_MS 10000
#define CONNECT_MS 20000 /* TCP, TLS and upgrade */
#define CURSOR_MAX 64
#define CLOSE_TOKEN 1008
#define CLOSE_TOKEN_ENDED 4001
#define CLOSE_FORGOTTEN 4010

struct frame {
    struct frame *next;
    size_t len;
    char text[]; /* NUL-terminated */
};

struct ab_events {
    struct ab_client_file file; /* a copy of what is needed */
    char *query;
    char cursor[CURSOR_MAX];

    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct lws *wsi; /* NULL: not connected */
    bool open;       /* upgraded */
    lws_sorted_usec_list_t alarm;

    struct ab_buf partial;
    struct frame *first, **last; /* whole frames not handed out */
    struct frame *given;         /* handed out by the call before */

    int refused;        /* HTTP status of the upgrade, or a close code about the token; 0 none */
    int attempt;        /* connections in a row that gave no frame */
    int64_t connect_ms; /* not before */
    int64_t give_up_ms; /* the attempt under way */
    bool renewed;       /* the token was renewed after the last refusal */
    char why[160];      /* the last failure, for messages */
};

/* ---- what lws says */

static void drop_frames(struct ab_events *self)
{
    while (self->first) {
        struct frame *f = self->first;
        self->first = f->next;
        free(f);
    }
    self->last = &self->first;
}

static void finish_frame(struct ab_events *self)
{
    struct frame *f = malloc(sizeof(*f) + self->partial.len + 1);

    if (f) {
        f->next = NULL;
        f->len = self->partial.len;
        if (f->len)
            memcpy(f->text, self->partial.data, f->len);
        f->text[f->len] = '\0';
        *self->last = f;
        self->last = &f->next;
    }
    ab_buf_clear(&self->partial);
}

/* -1: the connection is of no use any more. */
static int on_bytes(struct ab_events *self, struct lws *wsi, const void *in, size_t len)
{
    ab_buf_add(&self->partial, in, len);
    if (self->partial.failed) {
        (void)snprintf(self->why, sizeof(self->why), "a frame larger than 64 MiB came");
        return -1;
    }
    if (lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0)
        finish_frame(self);
    return 0;
}

static int add_token(struct ab_events *self, struct lws *wsi, unsigned char **at,
                     unsigned char *end)
{
    AB_AUTO(ab_buf_free) struct ab_buf value = {0};

    if (!self->file.token)
        return 0;
    ab_buf_printf(&value, "Bearer %s", self->file.token);
    return lws_add_http_header_by_name(wsi, (const unsigned char *)"authorization:",
                                       (const unsigned char *)value.data, (int)value.len, at, end);
}

static void on_gone(struct ab_events *self)
{
    self->wsi = NULL;
    self->open = false;
    ab_buf_clear(&self->partial);
}

/* 16 bits of code, then text. */
static void on_close_frame(struct ab_events *self, const unsigned char *in, size_t len)
{
    if (len < 2)
        return;
    int code = in[0] << 8 | in[1];
    (void)snprintf(self->why, sizeof(self->why), "the server closed with %d %.*s", code,
                   (int)(len - 2 < 100 ? len - 2 : 100), (const char *)in + 2);
    if (code == CLOSE_TOKEN || code == CLOSE_TOKEN_ENDED)
        self->refused = code;
    if (code == CLOSE_FORGOTTEN)
        self->refused = AB_EGONE;
}

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct ab_events *self = lws_get_opaque_user_data(wsi);
    unsigned char **at = in;

    (void)user;
    if (!self)
        return 0;
    switch (reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_token(self, wsi, at, *at + len) ? -1 : 0;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        self->open = true;
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return on_bytes(self, wsi, in, len);
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        on_close_frame(self, in, len);
        return 0;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR: {
        int status = (int)lws_http_client_http_response(wsi);
        if (status >= 400 && status < 500)
            self->refused = status;
        (void)snprintf(self->why, sizeof(self->why), "%.*s", in ? (int)(len < 150 ? len : 150) : 11,
                       in ? (const char *)in : "no connection");
        on_gone(self);
        return 0;
    }
    case LWS_CALLBACK_CLIENT_CLOSED:
        on_gone(self);
        return 0;
    default:
        return 0;
    }
}

static const struct lws_protocols protocols[] = {
    {.name = "abies.events.v1", .callback = on_event, .rx_buffer_size = 16384},
    {0},
};

/* A server that says nothing for 45 s, not even to a ping, is gone. */
static const lws_retry_bo_t silence = {.secs_since_valid_ping = 20, .secs_since_valid_hangup = 45};

/* ---- start */

static char *copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static int start_lws(struct ab_events *self, struct ab_error *err)
{
    char proxy[256];
    bool has = ab_proxy_for(self->file.api_root, self->file.proxy, proxy, sizeof(proxy));
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .protocols = protocols,
        .pt_serv_buf_size = 16384,
        .retry_and_idle_policy = &silence,
        .client_ssl_ca_filepath = self->file.ca_file,
        .http_proxy_address = has ? proxy : "", /* "": not the environment's, we have looked */
        .fd_limit_per_thread = 16,
        .gid = (int)-1,
        .uid = (int)-1,
    };

    lws_set_log_level(0, NULL);
    self->lws = lws_create_context(&info);
    self->vhost = self->lws ? lws_create_vhost(self->lws, &info) : NULL;
    if (!self->vhost)
        return ab_fail(err, AB_EINTERNAL, "the WebSocket client does not start%s%s",
                       self->file.ca_file ? "; can this CA file be read? " : "",
                       self->file.ca_file ? self->file.ca_file : "");
    return 0;
}

ab_events_t *ab_events_new(const struct ab_client_file *file, const char *query, const char *since,
                           struct ab_error *err)
{
    AB_AUTO(ab_events_destroy) ab_events_t *self = calloc(1, sizeof(*self));

    if (!self) {
        (void)ab_fail(err, AB_EINTERNAL, "no memory for events");
        return NULL;
    }
    self->last = &self->first;
    self->partial.limit = FRAME_MAX;
    if (!file->api_root) {
        (void)ab_fail(err, AB_EINVAL, "no server is set: log in first");
        return NULL;
    }
    self->file = (struct ab_client_file){
        .path = copy(file->path),
        .api_root = copy(file->api_root),
        .ca_file = copy(file->ca_file),
        .proxy = copy(file->proxy),
        .token = copy(file->token),
        .refresh_token = copy(file->refresh_token),
        .token_expiry_us = file->token_expiry_us,
        .connect_timeout_ms = file->connect_timeout_ms,
        .read_timeout_ms = file->read_timeout_ms,
        .retry_count = file->retry_count,
    };
    self->query = copy(query);
    if (since && strlen(since) >= CURSOR_MAX) {
        (void)ab_fail(err, AB_EINVAL, "`%.40s...` is no cursor of events", since);
        return NULL;
    }
    (void)snprintf(self->cursor, sizeof(self->cursor), "%s", since ? since : "");
    return start_lws(self, err) < 0 ? NULL : AB_TAKE(self);
}

void ab_events_destroy(ab_events_t **pself)
{
    ab_events_t *self = *pself;

    if (!self)
        return;
    if (self->lws)
        lws_context_destroy(self->lws); /* may still call back: self lives until after it */
    drop_frames(self);
    free(self->given);
    ab_buf_free(&self->partial);
    ab_client_file_free(&self->file);
    free(self->query);
    free(self);
    *pself = NULL;
}

/* ---- connecting */

static void make_path(const struct ab_events *self, const char *base, struct ab_buf *out)
{
    const char *sep = "?";

    if (base[0] != '/')
        ab_buf_char(out, '/');
    ab_buf_str(out, base);
    while (out->len > 0 && out->data[out->len - 1] == '/')
        out->len--;
    ab_buf_str(out, "/events/stream");
    if (self->query && *self->query) {
        ab_buf_printf(out, "?%s", self->query);
        sep = "&";
    }
    if (self->cursor[0])
        ab_buf_printf(out, "%ssince=%s", sep, self->cursor);
}

/* 0: under way, or to be tried again later; -1: it never can. */
static int dial(struct ab_events *self, struct ab_error *err)
{
    AB_AUTO(ab_free) char *url = strdup(self->file.api_root);
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    const char *scheme, *host, *base;
    int port;

    if (!url || lws_parse_uri(url, &scheme, &host, &port, &base) != 0
        || (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0))
        return ab_fail(err, AB_EINVAL, "`%s` is not https://HOST[:PORT]", self->file.api_root);
    make_path(self, base, &path);

    char name[300];
    (void)snprintf(name, sizeof(name), "%s:%d", host, port);
    const struct lws_client_connect_info info = {
        .context = self->lws,
        .vhost = self->vhost,
        .address = host,
        .port = port,
        .path = path.data,
        .host = name,
        .ssl_connection = strcmp(scheme, "https") == 0 ? LCCSCF_USE_SSL : 0,
        .local_protocol_name = protocols[0].name,
        .protocol = protocols[0].name,
        .ietf_version_or_minus_one = -1,
        .opaque_user_data = self,
        .pwsi = &self->wsi,
    };
    self->attempt++;
    self->give_up_ms = ab_now_ms() + CONNECT_MS;
    self->connect_ms = ab_now_ms() + ab_backoff_ms(self->attempt, BACKOFF_MS, BACKOFF_CAP_MS);
    if (!lws_client_connect_via_info(&info))
        self->wsi = NULL; /* said why in a callback, or ran out of something */
    return 0;
}

/* Somebody else (the agent, another program of this user) may have renewed it; else ab_api does. */
static bool newer_token(struct ab_events *self)
{
    struct ab_client_file now = {0};
    bool changed = false;

    if (self->file.path && ab_client_file_load_path(&now, self->file.path, NULL) == 0) {
        changed = now.token && (!self->file.token || strcmp(now.token, self->file.token) != 0);
        if (changed) {
            free(self->file.token);
            free(self->file.refresh_token);
            self->file.token = copy(now.token);
            self->file.refresh_token = copy(now.refresh_token);
        }
    }
    ab_client_file_free(&now);
    return changed;
}

static void renew(struct ab_events *self)
{
    AB_AUTO(ab_api_destroy) ab_api_t *api = ab_api_new(&self->file, true, NULL);
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    const struct ab_api_options options = {.timeout_ms = CONNECT_MS, .retries = 1};

    if (api)
        (void)ab_api_call(api, "GET", "/auth/password/me", NULL, 0, &options, &reply, NULL);
}

/* Refused: with a new token once more, then for good. 0 or -1. */
static int after_refusal(struct ab_events *self, struct ab_error *err)
{
    int refused = self->refused;

    self->refused = 0;
    if (refused == 401 || refused == CLOSE_TOKEN || refused == CLOSE_TOKEN_ENDED) {
        if (newer_token(self))
            return 0;
        if (!self->renewed && self->file.path && self->file.refresh_token) {
            self->renewed = true;
            renew(self);
            if (newer_token(self))
                return 0;
        }
        return ab_fail(err, AB_EAUTH, "the token was refused (%s): log in again", self->why);
    }
    if (refused == 408 || refused == 429)
        return 0;
    if (refused == AB_EGONE)
        return ab_fail(err, AB_EGONE,
                       "events behind the cursor %s are kept no longer: begin again without it, or "
                       "from 0-0, the oldest that there is",
                       self->cursor);
    return ab_fail(err, refused, "the server refuses the event stream (HTTP %d): %s", refused,
                   refused == 422 ? "check the filters and the cursor" : self->why);
}

/* ---- frames out */

/* The cursor stands first in what our server sends; any other order is found by parsing. */
static void take_cursor(struct ab_events *self, const struct frame *f)
{
    static const char front[] = "{\"cursor\":\"";
    const char *from = f->text + sizeof(front) - 1, *end = NULL;

    if (strncmp(f->text, front, sizeof(front) - 1) == 0)
        end = strchr(from, '"');
    if (end && (size_t)(end - from) < CURSOR_MAX) {
        memcpy(self->cursor, from, (size_t)(end - from));
        self->cursor[end - from] = '\0';
        return;
    }
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *text =
        ab_value_text(ab_value_get(ab_value_parse(arena, f->text, f->len, NULL), "cursor"), "");
    if (*text && strlen(text) < CURSOR_MAX)
        (void)snprintf(self->cursor, sizeof(self->cursor), "%s", text);
}

static int give(struct ab_events *self, const char **text, size_t *len)
{
    free(self->given);
    self->given = self->first;
    self->first = self->first->next;
    if (!self->first)
        self->last = &self->first;
    take_cursor(self, self->given);
    self->attempt = 0;
    self->renewed = false;
    *text = self->given->text;
    *len = self->given->len;
    return 1;
}

static void on_alarm(lws_sorted_usec_list_t *alarm)
{
    (void)alarm; /* only ends the wait */
}

/* Turn lws's loop until something happens, at most until `until_ms`. */
static void wait_for(struct ab_events *self, int64_t until_ms)
{
    int64_t left_ms = until_ms - ab_now_ms();

    if (left_ms < 1)
        left_ms = 1;
    lws_sul_schedule(self->lws, 0, &self->alarm, on_alarm, left_ms * LWS_US_PER_MS);
    (void)lws_service(self->lws, 0);
    lws_sul_cancel(&self->alarm);
}

/* When to look again if nothing comes; a connection that takes too long to open is given up. */
static int64_t look_again_ms(struct ab_events *self, int64_t now_ms, int64_t end_ms)
{
    if (!self->wsi)
        return self->connect_ms < end_ms ? self->connect_ms : end_ms;
    if (self->open)
        return end_ms;
    if (now_ms >= self->give_up_ms)
        lws_set_timeout(self->wsi, PENDING_TIMEOUT_CLOSE_SEND, LWS_TO_KILL_ASYNC);
    else if (self->give_up_ms < end_ms)
        return self->give_up_ms;
    return end_ms;
}

int ab_events_next(ab_events_t *self, int64_t timeout_ms, const char **text, size_t *len,
                   struct ab_error *err)
{
    int64_t end_ms = ab_now_ms() + timeout_ms;

    for (;;) {
        if (self->first)
            return give(self, text, len);
        if (self->refused && after_refusal(self, err) < 0)
            return -1;
        int64_t now_ms = ab_now_ms();
        if (!self->wsi && now_ms >= self->connect_ms) {
            if (dial(self, err) < 0)
                return -1;
            if (self->refused)
                continue;
        }
        if (now_ms >= end_ms)
            return 0;
        wait_for(self, look_again_ms(self, now_ms, end_ms));
    }
}
