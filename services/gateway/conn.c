/* conn.c - the connection's buffers, timers and its meeting with lws */
#include "conn.h"
#include "base/clock.h"
#include "base/log.h"
#include "share.h"
#include "stream.h"
#include "tls.h"
#include "ws.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KILL_MS 2000
#define RX_MAX ((size_t)64 << 10) /* of later requests, while one is worked on */
#define READ_TURNS 16             /* records that were read ahead, then others have a turn */
#define DIRECT_PIECES                                                                              \
    8 /* of an answer, written at once while the socket takes them; then others have a turn */

static struct {
    struct conn **slot; /* NULL: free */
    uint32_t *generation;
    uint32_t *free_slots;
    size_t n, n_free;
    size_t limit;
} table;

int conn_table_init(size_t max_connections)
{
    table.slot = calloc(max_connections, sizeof(*table.slot));
    table.generation = calloc(max_connections, sizeof(*table.generation));
    table.free_slots = calloc(max_connections, sizeof(*table.free_slots));
    if (!table.slot || !table.generation || !table.free_slots)
        return -1;
    table.n = table.n_free = table.limit = max_connections;
    for (size_t i = 0; i < max_connections; i++)
        table.free_slots[i] = (uint32_t)(max_connections - 1 - i);
    return 0;
}

void conn_limit(size_t connections)
{
    table.limit = connections;
}

bool conn_full(size_t more)
{
    return conn_count() + more >= table.limit;
}

void conn_table_free(void)
{
    free(table.slot);
    free(table.generation);
    free(table.free_slots);
    memset(&table, 0, sizeof(table));
}

struct conn *conn_find(uint64_t number)
{
    uint32_t slot = (uint32_t)number;

    if (slot >= table.n || !table.slot[slot] || table.slot[slot]->number != number)
        return NULL;
    return table.slot[slot];
}

size_t conn_count(void)
{
    return table.n - table.n_free;
}

void conn_each(void (*fn)(struct conn *c))
{
    for (size_t i = 0; i < table.n; i++)
        if (table.slot[i])
            fn(table.slot[i]);
}

static struct conn *conn_new(void)
{
    if (table.n_free == 0 || conn_count() >= table.limit)
        return NULL;
    struct conn *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    uint32_t slot = table.free_slots[--table.n_free];
    c->number = (uint64_t)++table.generation[slot] << 32 | slot;
    table.slot[slot] = c;
    return c;
}

static void in_free(struct conn *c)
{
    if (c->in_cap > BUDGET_FREE)
        budget_give(c->in_cap);
    free(c->in);
    c->in = NULL;
    c->in_at = c->in_len = c->in_cap = 0;
}

static void conn_free(struct conn *c)
{
    uint32_t slot = (uint32_t)c->number;

    share_give(SHARE_ADDRESS, c->party);
    http_reset(c);
    stream_free(c);
    ws_free(c);
    in_free(c);
    ab_buf_free(&c->out);
    table.slot[slot] = NULL;
    table.free_slots[table.n_free++] = slot;
    free(c);
}

void conn_adopt(int fd, const char *peer)
{
    uint64_t party = share_of_address(peer);
    bool fair = share_take(SHARE_ADDRESS, party, gw.per_address) == 0;
    struct conn *c = fair ? conn_new() : NULL;

    if (!c) {
        if (fair)
            share_give(SHARE_ADDRESS, party);
        gw.count.refused++;
        close(fd);
        return;
    }
    c->party = party;
    gw.count.accepted++;
    c->until_ms = ab_now_ms() + HEAD_MS;
    (void)snprintf(c->peer, sizeof(c->peer), "%s", peer);
    uint64_t number = c->number;
    const lws_adopt_desc_t what = {
        .vh = gw.vhost,
        .type = LWS_ADOPT_SOCKET | (gw.tls ? LWS_ADOPT_ALLOW_SSL : 0),
        .fd.sockfd = fd,
        .vh_prot_name = conn_protocols[0].name,
        .opaque = c,
    };
    /* On failure lws has closed the descriptor, with or without a RAW_CLOSE. */
    if (!lws_adopt_descriptor_vhost_via_info(&what) && (c = conn_find(number)) != NULL)
        conn_free(c);
}

/* ---- out */

bool conn_sent_all(const struct conn *c)
{
    return c->out_at == c->out.len;
}

bool conn_idle(const struct conn *c)
{
    return !c->dying && c->wsi && conn_sent_all(c) && !lws_partial_buffered(c->wsi);
}

void conn_wake(struct conn *c)
{
    if (c->wsi)
        lws_callback_on_writable(c->wsi);
}

void conn_kill(struct conn *c)
{
    if (c->dying)
        return;
    c->dying = true;
    c->until_ms = ab_now_ms() + KILL_MS;
    if (!c->wsi)
        return;
    /* A peer that does not read never becomes writable; a socket that is shut down always is. After
     * a failed write lws gives no WRITEABLE at all: then the end of the input must wake it. */
    (void)shutdown(lws_get_socket_fd(c->wsi), SHUT_RDWR);
    if (c->rx_off) {
        c->rx_off = false;
        (void)lws_rx_flow_control(c->wsi, 1);
    }
    conn_wake(c);
}

void conn_check_time(struct conn *c, int64_t now_ms)
{
    if (c->until_ms == 0 || now_ms < c->until_ms)
        return;
    if (c->dying) { /* it should have gone long ago: lws's own way out, which is slow on libuv */
        c->until_ms = now_ms + KILL_MS;
        lws_set_timeout(c->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
        return;
    }
    gw.count.killed_idle++;
    conn_kill(c);
}

/* One piece to lws, which keeps what the socket does not take. */
static void send_piece(struct conn *c, const void *bytes, size_t n)
{
    if (lws_write(c->wsi, (unsigned char *)(uintptr_t)bytes, n, LWS_WRITE_RAW) < 0)
        conn_kill(c);
}

void conn_write(struct conn *c, const void *bytes, size_t n)
{
    const char *p = bytes;

    if (c->dying || n == 0)
        return;
    for (int i = 0; i < DIRECT_PIECES && n > 0 && conn_idle(c); i++) {
        size_t now = n < PIECE ? n : PIECE;
        send_piece(c, p, now);
        p += now;
        n -= now;
    }
    if (n == 0 || c->dying)
        return;
    if (conn_sent_all(c)) {
        ab_buf_clear(&c->out);
        c->out_at = 0;
    }
    ab_buf_add(&c->out, p, n);
    if (c->out.failed)
        conn_kill(c);
    conn_wake(c);
}

static void out_drained(struct conn *c)
{
    c->out_at = 0;
    if (c->out.cap > BUDGET_FREE)
        ab_buf_free(&c->out);
    else
        ab_buf_clear(&c->out);
}

/* Everything has left that was to leave before the end. */
static int on_closing(struct conn *c)
{
    if (!c->linger)
        return -1;
    if (c->state != CONN_LINGER) {
        c->state = CONN_LINGER;
        c->until_ms = ab_now_ms() + LINGER_MS;
        in_free(c);
        if (!gw.tls) /* under TLS a half-closed socket would look like an attack */
            (void)shutdown(lws_get_socket_fd(c->wsi), SHUT_WR);
        if (c->rx_off) {
            c->rx_off = false;
            (void)lws_rx_flow_control(c->wsi, 1);
        }
    }
    return 0;
}

static int on_writable(struct conn *c)
{
    if (c->dying)
        return -1;
    if (!conn_sent_all(c)) {
        size_t n = c->out.len - c->out_at;
        n = n < PIECE ? n : PIECE;
        send_piece(c, c->out.data + c->out_at, n);
        c->out_at += n;
        if (c->state != CONN_WS)
            c->until_ms = ab_now_ms() + STALL_MS;
        if (conn_sent_all(c))
            out_drained(c);
        conn_wake(c);
    } else if (c->closing) {
        return on_closing(c);
    } else if (c->state == CONN_STREAM) {
        stream_more(c);
    } else if (c->state == CONN_WS) {
        ws_more(c);
    }
    return c->dying ? -1 : 0;
}

/* ---- in */

int conn_in_reserve(struct conn *c, size_t n)
{
    size_t have = c->in_len - c->in_at;

    if (c->in_at > 0 && (c->in_cap - c->in_at < n || have == 0)) {
        memmove(c->in, c->in + c->in_at, have);
        c->in_at = 0;
        c->in_len = have;
    }
    if (c->in_cap - c->in_at >= n)
        return 0;
    size_t cap = 4096;
    while (cap < n && cap < RX_MAX)
        cap *= 2;
    if (cap < n)
        cap = n;
    if (cap > BUDGET_FREE && budget_take(cap) < 0)
        return -1;
    char *in = realloc(c->in, cap);
    if (!in) {
        if (cap > BUDGET_FREE)
            budget_give(cap);
        return -1;
    }
    if (c->in_cap > BUDGET_FREE)
        budget_give(c->in_cap);
    c->in = in;
    c->in_cap = cap;
    return 0;
}

void conn_in_drop(struct conn *c, size_t n)
{
    c->in_at += n;
    if (c->in_at == c->in_len) {
        c->in_at = c->in_len = 0;
        if (c->in_cap > BUDGET_FREE
            || c->state == CONN_WS) /* which takes its frames as they come */
            in_free(c);
    }
}

char *conn_in_take(struct conn *c, size_t used, size_t *cap)
{
    size_t rest = c->in_len - c->in_at - used;
    char *more = NULL;

    if (c->in_at > 0) { /* the buffer that is given away begins with the request */
        memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
        c->in_len -= c->in_at;
        c->in_at = 0;
    }
    size_t more_cap = rest > 4096 ? rest : 4096;
    if (rest > 0) {
        if (more_cap > BUDGET_FREE && budget_take(more_cap) < 0)
            return NULL;
        more = malloc(more_cap);
        if (!more) {
            if (more_cap > BUDGET_FREE)
                budget_give(more_cap);
            return NULL;
        }
        memcpy(more, c->in + used, rest);
    }
    char *taken = c->in;
    *cap = c->in_cap > BUDGET_FREE ? c->in_cap : 0; /* what was counted */
    c->in = more;
    c->in_at = 0;
    c->in_len = rest;
    c->in_cap = more ? more_cap : 0;
    return taken;
}

/* While a request is worked on, the next ones wait in the buffer, up to a point. */
static void flow(struct conn *c)
{
    bool off = (c->state == CONN_WAIT || c->state == CONN_STREAM) && c->in_len - c->in_at > RX_MAX;

    if (off == c->rx_off || c->dying || !c->wsi)
        return;
    c->rx_off = off;
    (void)lws_rx_flow_control(c->wsi, off ? 0 : 1);
    if (!off)
        conn_wake(c); /* for what was read ahead */
}

void conn_feed(struct conn *c)
{
    if (c->feeding)
        return;
    c->feeding = true;
    while (!c->dying && !c->closing && c->state == CONN_HEAD && c->in_len > c->in_at) {
        if (http_take(c) != 1)
            break;
    }
    c->feeding = false;
    flow(c);
}

void conn_done(struct conn *c)
{
    bool close_now = c->x.close || gw.draining;

    http_reset(c);
    c->served++;
    if (c->closing)
        return;
    if (close_now) {
        c->closing = true;
        c->until_ms = ab_now_ms() + STALL_MS;
        conn_wake(c);
        return;
    }
    c->state = CONN_HEAD;
    c->until_ms = ab_now_ms() + (c->in_len > c->in_at ? HEAD_MS : IDLE_MS);
    conn_feed(c);
}

static void on_bytes(struct conn *c, const char *bytes, size_t n)
{
    if (c->state == CONN_LINGER || c->closing || n == 0)
        return;
    if (c->state == CONN_WS) {
        ws_input(c, bytes, n);
        return;
    }
    size_t have = c->in_len - c->in_at;
    if (have == 0 && c->state == CONN_HEAD) {
        int64_t limit = ab_now_ms() + HEAD_MS;
        if (limit < c->until_ms)
            c->until_ms = limit;
    }
    size_t need = have + n;
    /* A long line comes in many pieces: grow by doubling, or each piece would be a copy of all. */
    if (need > c->in_cap && need > BUDGET_FREE && need < 2 * c->in_cap)
        need = 2 * c->in_cap;
    if (conn_in_reserve(c, need) < 0) {
        http_overload(c);
        return;
    }
    memcpy(c->in + c->in_len, bytes, n);
    c->in_len += n;
    conn_feed(c);
}

/* What was read ahead, while it is wanted. Not all of a flood at once: others have a turn. */
static void read_rest(struct conn *c)
{
    static char bytes[PIECE]; /* the loop is one thread */

    if (!gw.tls || c->reading)
        return;
    c->reading = true;
    int turns = 0;
    while (!c->dying && !c->rx_off && c->wsi && tls_has_more(c->wsi)) {
        if (turns++ == READ_TURNS) {
            conn_wake(c);
            break;
        }
        int n = tls_read(c->wsi, bytes, sizeof(bytes));
        if (n < 0)
            conn_kill(c);
        if (n <= 0)
            break;
        on_bytes(c, bytes, (size_t)n);
    }
    c->reading = false;
}

/* lws limits the TLS handshake, and in the raw role it never takes that limit back: without this a
 * TLS connection ends timeout_secs after it began, whatever goes over it. */
static void settle(struct lws *wsi)
{
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    if (gw.tls)
        tls_read_ahead(wsi); /* not sooner: lws reads behind the handshake by itself */
}

static void on_read(struct conn *c, const char *bytes, size_t n)
{
    if (!c->heard) {
        c->heard = true;
        settle(c->wsi);
    }
    if (!c->dying)
        on_bytes(c, bytes, n);
    read_rest(c);
}

static int on_event(struct lws *wsi, enum lws_callback_reasons why, void *user, void *in,
                    size_t len)
{
    struct conn *c = lws_get_opaque_user_data(wsi);

    if (why == LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS)
        tls_use(user);
    if (!c)
        return 0;
    switch (why) {
    case LWS_CALLBACK_RAW_ADOPT:
        c->wsi = wsi;
        return 0;
    case LWS_CALLBACK_RAW_RX:
        on_read(c, in, len);
        return c->dying ? -1 : 0;
    case LWS_CALLBACK_RAW_WRITEABLE:
        read_rest(c);
        return on_writable(c);
    case LWS_CALLBACK_RAW_CLOSE:
        lws_set_opaque_user_data(wsi, NULL);
        c->wsi = NULL;
        conn_free(c);
        return 0;
    default:
        return 0;
    }
}

const struct lws_protocols conn_protocols[] = {
    {.name = "http", .callback = on_event},
    {0},
};
