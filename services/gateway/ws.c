/* ws.c - see ws.h */
#include "ws.h"
#include "auth.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "conn.h"
#include "live.h"
#include "reply.h"
#include "share.h"
#include "stream.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wslay/wslay.h>

#define RING 64
#define RING_BYTES ((size_t)4 << 20)
#define FRAMES ((size_t)128 << 20) /* of all connections together; past it a ring has only */
#define FRAMES_FAIR ((size_t)64 << 10)
#define TOKEN_MS 5000 /* for the first frame with the token */
#define CLOSE_MS 2000 /* for the peer's answer to our close */
#define SLOW_MS 30000 /* for a slow reader to come to our close */
#define FROM_CLIENT 4096
#define BUCKETS 1024

struct ws {
    wslay_event_context_ptr wslay;
    bool authed;
    bool counted; /* as one of its user */
    struct ab_token token;
    struct live *live; /* NULL: /subscribe-user */
    struct frame *ring[RING];
    size_t first, count, bytes;
    size_t sent;    /* bytes of the first frame that are on their way */
    int close_code; /* asked for; sent when the ring is empty */
    char close_reason[124];
    bool close_queued;
    int64_t heard_ms, pinged_ms;
    const char *in; /* what wslay may read now */
    size_t in_len;
    struct conn *next, **prev; /* /subscribe-user: others in the same bucket of owners */
};

static struct conn *listeners[BUCKETS];
static size_t frames_bytes; /* a shared frame counts once */

/* ---- frames and the ring */

struct frame *frame_new(int opcode, const void *payload, size_t len)
{
    struct frame *f = malloc(sizeof(*f) + 10 + len);
    size_t n = 0;

    if (!f)
        return NULL;
    f->bytes[n++] = (unsigned char)(0x80 | opcode);
    if (len < 126) {
        f->bytes[n++] = (unsigned char)len;
    } else if (len <= 0xffff) {
        f->bytes[n++] = 126;
        f->bytes[n++] = (unsigned char)(len >> 8);
        f->bytes[n++] = (unsigned char)len;
    } else {
        f->bytes[n++] = 127;
        for (int i = 7; i >= 0; i--)
            f->bytes[n++] = (unsigned char)((uint64_t)len >> (8 * i));
    }
    memcpy(f->bytes + n, payload, len);
    f->len = n + len;
    f->refs = 1;
    frames_bytes += f->len;
    return f;
}

void frame_drop(struct frame *f)
{
    if (!f || --f->refs > 0)
        return;
    frames_bytes -= f->len;
    free(f);
}

bool ws_crowded(void)
{
    return frames_bytes > FRAMES;
}

static void ring_pop(struct ws *ws)
{
    struct frame *f = ws->ring[ws->first];

    ws->first = (ws->first + 1) % RING;
    ws->count--;
    ws->bytes -= f->len;
    ws->sent = 0;
    frame_drop(f);
}

int ws_push(struct conn *c, struct frame *f)
{
    struct ws *ws = c->ws;

    if (ws->close_code || c->closing || wslay_event_get_close_sent(ws->wslay))
        return 0; /* it ends anyway */
    size_t room = ws_crowded() ? FRAMES_FAIR : RING_BYTES;
    if (ws->count == RING || (ws->count > 0 && ws->bytes + f->len > room))
        return -1;
    gw.count.ws_frames++;
    if (ws->count == 0 && f->len <= PIECE
        && conn_idle(c)) { /* half the cost of asking for WRITEABLE */
        conn_write(c, f->bytes, f->len);
        return 0;
    }
    f->refs++;
    ws->ring[(ws->first + ws->count) % RING] = f;
    ws->count++;
    ws->bytes += f->len;
    conn_wake(c);
    return 0;
}

/* ---- who listens to an owner's notices */

static struct conn **bucket(int64_t owner)
{
    return &listeners[(uint64_t)owner * UINT64_C(0x9E3779B97F4A7C15) >> 54 & (BUCKETS - 1)];
}

static void listen_to(struct conn *c, int64_t owner)
{
    struct conn **head = bucket(owner);

    c->ws->next = *head;
    c->ws->prev = head;
    if (*head)
        (*head)->ws->prev = &c->ws->next;
    *head = c;
}

static void unlisten(struct ws *ws)
{
    if (!ws->prev)
        return;
    *ws->prev = ws->next;
    if (ws->next)
        ws->next->ws->prev = ws->prev;
    ws->prev = NULL;
}

void ws_notice(int64_t owner, const void *body, size_t len)
{
    struct frame *f = NULL;
    struct ab_buf text = {0};

    for (struct conn *c = *bucket(owner); c; c = c->ws->next) {
        if (c->ws->token.user != owner)
            continue;
        if (!f) {
            if (render_value(&text, body, len) < 0)
                break;
            f = frame_new(WS_BINARY, text.data, text.len);
            if (!f)
                break;
        }
        if (ws_push(c, f) < 0) {
            gw.count.ws_slow++;
            ws_close(c, WS_SLOW, "");
        }
    }
    frame_drop(f);
    ab_buf_free(&text);
}

struct live *ws_live(struct conn *c)
{
    return c->ws->live;
}

/* ---- the end */

void ws_close(struct conn *c, int code, const char *reason)
{
    struct ws *ws = c->ws;

    if (ws->close_code)
        return;
    ws->close_code = code;
    (void)snprintf(ws->close_reason, sizeof(ws->close_reason), "%s", reason);
    c->until_ms = ab_now_ms() + (code == WS_SLOW ? SLOW_MS : CLOSE_MS);
    conn_wake(c);
}

void ws_leave(struct conn *c)
{
    ws_close(c, WS_RESTART, "this server restarts: connect again");
}

void ws_free(struct conn *c)
{
    struct ws *ws = c->ws;

    if (!ws)
        return;
    unlisten(ws);
    live_destroy(&ws->live);
    while (ws->count)
        ring_pop(ws);
    if (ws->counted)
        share_give(SHARE_USER, (uint64_t)ws->token.user);
    wslay_event_context_free(ws->wslay);
    free(ws);
    c->ws = NULL;
}

void ws_check(struct conn *c, int64_t now_ms)
{
    struct ws *ws = c->ws;

    if (!ws->authed || ws->close_code || c->closing)
        return;
    if (ws->token.exp <= (int64_t)time(NULL) || auth_ended(&ws->token)) {
        ws_close(c, WS_TOKEN_ENDED, "the token has ended: renew it and connect again");
    } else if (now_ms - ws->heard_ms > gw.ping_ms * 9 / 4) {
        gw.count.killed_idle++;
        conn_kill(c);
    } else if (now_ms - ws->pinged_ms >= gw.ping_ms) {
        const struct wslay_event_msg ping = {.opcode = WSLAY_PING};
        ws->pinged_ms = now_ms;
        (void)wslay_event_queue_msg(ws->wslay, &ping);
        if (ws->live)
            live_remind(ws->live);
        conn_wake(c);
    }
}

/* ---- the token */

static void begin(struct conn *c)
{
    struct ws *ws = c->ws;

    ws->authed = true;
    c->until_ms = 0; /* pings from now on */
    ws->heard_ms = ws->pinged_ms = ab_now_ms();
    if (ws->live)
        live_begin(c, ws->live, ws->token.user, ws->token.site);
    else
        listen_to(c, ws->token.user);
}

/* What happens to a user's resources is told whole, of all sites: not to a token of one site. */
static bool may_listen(const struct ws *ws, const struct ab_token *token)
{
    unsigned scopes = AB_SCOPE_USER | AB_SCOPE_READ | (ws->live ? AB_SCOPE_SITE : 0);
    return (token->scopes & scopes) != 0;
}

static int take_place(struct ws *ws, const struct ab_token *token)
{
    ws->counted = share_take(SHARE_USER, (uint64_t)token->user, gw.per_user) == 0;
    return ws->counted ? 0 : -1;
}

static void take_token(struct conn *c, const char *text, size_t n)
{
    switch (auth_check_token(text, n, &c->ws->token)) {
    case AUTH_OK:
        if (!may_listen(c->ws, &c->ws->token))
            ws_close(c, WS_POLICY, "this token may not listen");
        else if (take_place(c->ws, &c->ws->token) < 0)
            ws_close(c, WS_TOO_MANY, WS_TOO_MANY_TEXT);
        else
            begin(c);
        break;
    case AUTH_NOT_YET:
        ws_close(c, 1013, "the server does not know yet how to check tokens");
        break;
    default:
        ws_close(c, WS_POLICY, "Could not validate credentials");
        break;
    }
}

/* ---- frames from the client: wslay */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *user)
{
    struct ws *ws = ((struct conn *)user)->ws;
    size_t n = len < ws->in_len ? len : ws->in_len;

    (void)flags;
    if (n == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(buf, ws->in, n);
    ws->in += n;
    ws->in_len -= n;
    return (ssize_t)n;
}

/* The connection takes everything: what does not fit the socket is queued. */
static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
                       void *user)
{
    (void)ctx;
    (void)flags;
    conn_write(user, data, len);
    return (ssize_t)len;
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *arg,
                       void *user)
{
    struct conn *c = user;

    (void)ctx;
    if (wslay_is_ctrl_frame(arg->opcode) || c->ws->authed || c->ws->close_code)
        return; /* nothing else is expected from a client, and it does no harm */
    if (arg->opcode == WSLAY_TEXT_FRAME)
        take_token(c, (const char *)arg->msg, arg->msg_length);
    else
        ws_close(c, WS_POLICY, "the first frame must be text: the token");
}

/* wslay ends a few violations with an empty close frame; the peer shall hear 1002 each time. */
static void violation(struct conn *c)
{
    static const unsigned char protocol_error[] = {0x88, 2, 1002 >> 8, 1002 & 0xff};
    struct ws *ws = c->ws;

    if (ws->sent > 0) { /* in the middle of a frame: nothing can be said */
        conn_kill(c);
        return;
    }
    while (ws->count)
        ring_pop(ws);
    conn_write(c, protocol_error, sizeof(protocol_error));
    c->closing = c->linger = true;
    c->until_ms = ab_now_ms() + CLOSE_MS;
    conn_wake(c);
}

void ws_input(struct conn *c, const char *bytes, size_t n)
{
    struct ws *ws = c->ws;

    ws->heard_ms = ab_now_ms();
    ws->in = bytes;
    ws->in_len = n;
    int rc = wslay_event_get_read_enabled(ws->wslay) ? wslay_event_recv(ws->wslay) : 0;
    ws->in = NULL;
    ws->in_len = 0;
    if (rc != 0) {
        violation(c);
        return;
    }
    if (wslay_event_want_write(ws->wslay) || ws->close_queued
        || !wslay_event_get_read_enabled(ws->wslay))
        conn_wake(c);
}

/* ---- frames to the client */

static void send_ring(struct conn *c)
{
    static char piece[PIECE];
    struct ws *ws = c->ws;
    size_t n = 0;

    while (ws->count && n < PIECE) {
        struct frame *f = ws->ring[ws->first];
        size_t left = f->len - ws->sent, room = PIECE - n;
        size_t now = left < room ? left : room;
        memcpy(piece + n, f->bytes + ws->sent, now);
        n += now;
        ws->sent += now;
        if (ws->sent == f->len)
            ring_pop(ws);
    }
    conn_write(c, piece, n);
    conn_wake(c);
}

/* Both closes are through, or nothing more can be understood. */
static bool close_finished(const struct ws *ws)
{
    return wslay_event_get_close_sent(ws->wslay)
           && (wslay_event_get_close_received(ws->wslay)
               || !wslay_event_get_read_enabled(ws->wslay));
}

void ws_more(struct conn *c)
{
    struct ws *ws = c->ws;

    if (ws->sent == 0 && wslay_event_want_write(ws->wslay)) {
        if (wslay_event_send(ws->wslay) != 0)
            conn_kill(c);
        conn_wake(c);
    } else if (close_finished(ws)) {
        c->closing = true;
        c->linger = !wslay_event_get_close_received(ws->wslay);
        c->until_ms = ab_now_ms() + STALL_MS;
        conn_wake(c);
    } else if (ws->count) {
        send_ring(c);
    } else if (ws->close_code && !ws->close_queued) {
        ws->close_queued = true;
        (void)wslay_event_queue_close(ws->wslay, (uint16_t)ws->close_code,
                                      (const uint8_t *)ws->close_reason, strlen(ws->close_reason));
        conn_wake(c);
    } else if (ws->live && !ws->close_code) {
        live_drained(c, ws->live);
    }
}

/* ---- the beginning */

static int make_wslay(struct ws *ws, struct conn *c)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_msg_recv_callback = on_message,
    };
    if (wslay_event_context_server_init(&ws->wslay, &callbacks, c) != 0)
        return -1;
    wslay_event_config_set_max_recv_msg_length(ws->wslay, FROM_CLIENT);
    return 0;
}

int ws_make(struct conn *c, struct live *part, const struct ab_token *token)
{
    struct ws *ws = calloc(1, sizeof(*ws));
    int status = 503;

    if (!ws || make_wslay(ws, c) < 0)
        goto fail;
    if (token) {
        ws->authed = true;
        ws->token = *token;
        status = 429;
        if (take_place(ws, token) < 0)
            goto fail;
    }
    ws->live = part;
    c->ws = ws;
    return 0;

fail:
    if (ws && ws->wslay)
        wslay_event_context_free(ws->wslay);
    free(ws);
    live_destroy(&part);
    return status;
}

void ws_begin(struct conn *c, const char *text, size_t len)
{
    c->state = CONN_WS;
    c->until_ms = ab_now_ms() + TOKEN_MS;
    gw.count.ws_opened++;
    if (c->ws->authed)
        begin(c);
    else if (len)
        take_token(c, text, len);
}
