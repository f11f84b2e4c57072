/* relay.c - see relay.h */
#include "relay.h"
#include "base/clock.h"
#include "base/log.h"
#include "conn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING_MAX 1024 /* whose line has not come */
#define TELL_MS 60000    /* between two complaints */
#define TCP_LINE "PROXY TCP"

struct relay {
    uv_poll_t poll; /* first: the handle is the relay */
    struct relay *next, **self;
    int fd;
    int64_t until_ms;
    bool good; /* the line has come: the client may in */
    char line[RELAY_LINE];
    size_t len;
    char peer[INET6_ADDRSTRLEN];
};

static struct {
    struct relay *first;
    size_t n;
    int64_t told_ms; /* 0: not yet */
} waiting;

/* ---- the line */

/* The next word, up to one space or the end. NULL: there is none. */
static const char *word(const char **at, const char *end, char *out, size_t size)
{
    const char *stop = memchr(*at, ' ', (size_t)(end - *at));
    size_t n = (size_t)((stop ? stop : end) - *at);

    if (n == 0 || n >= size)
        return NULL;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + (stop ? 1 : 0);
    return strlen(out) == n ? out : NULL;
}

static bool is_port(const char *text)
{
    return text && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 5
           && strtoul(text, NULL, 10) <= UINT16_MAX;
}

/* What stands behind `PROXY TCP`: `4 CLIENT SERVER PORT PORT`. */
static int parse_tcp(const char *at, const char *end, char *peer)
{
    char family[2], address[INET6_ADDRSTRLEN], port[6];
    struct in6_addr client, server;

    if (!word(&at, end, family, sizeof(family)) || (*family != '4' && *family != '6'))
        return -1;
    int af = *family == '4' ? AF_INET : AF_INET6;
    if (!word(&at, end, address, sizeof(address)) || inet_pton(af, address, &client) != 1
        || !word(&at, end, address, sizeof(address)) || inet_pton(af, address, &server) != 1
        || !is_port(word(&at, end, port, sizeof(port))) || end[-1] == ' '
        || !is_port(word(&at, end, port, sizeof(port))) || at != end)
        return -1;
    return inet_ntop(af, &client, peer, INET6_ADDRSTRLEN) ? 0 : -1;
}

int relay_parse(const char *bytes, size_t n, char *peer)
{
    static const char unknown[] = "PROXY UNKNOWN";
    const char *end = memmem(bytes, n < RELAY_LINE ? n : RELAY_LINE, "\r\n", 2);

    *peer = '\0';
    if (!end) { /* no need to wait for the rest of what does not begin like one */
        size_t some = n < 6 ? n : 6;
        return n >= RELAY_LINE || memcmp(bytes, TCP_LINE, some) != 0 ? -1 : 0;
    }
    size_t len = (size_t)(end - bytes);
    if (len >= sizeof(unknown) - 1 && memcmp(bytes, unknown, sizeof(unknown) - 1) == 0)
        return (int)len + 2; /* the rest of it is to be ignored */
    if (len < sizeof(TCP_LINE) || memcmp(bytes, TCP_LINE, sizeof(TCP_LINE) - 1) != 0
        || parse_tcp(bytes + sizeof(TCP_LINE) - 1, end, peer) < 0)
        return -1;
    return (int)len + 2;
}

/* ---- waiting for it */

static void on_closed(uv_handle_t *handle)
{
    struct relay *r = (struct relay *)(void *)handle;

    *r->self = r->next;
    if (r->next)
        r->next->self = r->self;
    waiting.n--;
    if (r->good)
        conn_adopt(r->fd, r->peer);
    else
        close(r->fd);
    free(r);
}

/* lws gets the socket when libuv has let go of it. */
static void leave(struct relay *r, bool good)
{
    r->good = good;
    if (!uv_is_closing((uv_handle_t *)&r->poll))
        uv_close((uv_handle_t *)&r->poll, on_closed);
}

static void refuse(struct relay *r)
{
    int64_t now_ms = ab_now_ms();

    gw.count.refused++;
    if (!waiting.told_ms || now_ms > waiting.told_ms + TELL_MS) {
        waiting.told_ms = now_ms;
        ab_log(AB_WARN, "gateway.no_proxy_line", AB_KV("peer", (const char *)r->peer),
               AB_KV("text", "with proxy_protocol each connection begins with a PROXY line "
                             "(version 1): set the balancer to send it"));
    }
    leave(r, false);
}

/* What is looked at stays in the socket until it is known to be of the line: behind it TLS begins. */
static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct relay *r = (struct relay *)(void *)handle;
    char *room = r->line + r->len, peer[INET6_ADDRSTRLEN];
    ssize_t n = recv(r->fd, room, sizeof(r->line) - r->len, MSG_PEEK);

    (void)status;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* it went away, as one that only asks whether we are there */
        leave(r, false);
        return;
    }
    int used = relay_parse(r->line, r->len + (size_t)n, peer);
    size_t take = used > 0 ? (size_t)used - r->len : (size_t)n;
    if (used < 0 || recv(r->fd, room, take, 0) != (ssize_t)take) {
        refuse(r);
        return;
    }
    r->len += take;
    if (used == 0)
        return;
    if (*peer)
        memcpy(r->peer, peer, sizeof(peer));
    leave(r, true);
}

void relay_adopt(int fd, const char *peer)
{
    struct relay *r =
        waiting.n < WAITING_MAX && !conn_full(waiting.n) ? calloc(1, sizeof(*r)) : NULL;

    if (!r || uv_poll_init(&gw.loop, &r->poll, fd) != 0) {
        free(r);
        gw.count.refused++;
        close(fd);
        return;
    }
    r->fd = fd;
    r->until_ms = ab_now_ms() + HEAD_MS;
    (void)snprintf(r->peer, sizeof(r->peer), "%s", peer);
    r->next = waiting.first;
    r->self = &waiting.first;
    if (r->next)
        r->next->self = &r->next;
    waiting.first = r;
    waiting.n++;
    uv_poll_start(&r->poll, UV_READABLE, on_readable);
}

void relay_tick(int64_t now_ms)
{
    for (struct relay *r = waiting.first; r; r = r->next)
        if (now_ms >= r->until_ms && !uv_is_closing((uv_handle_t *)&r->poll))
            refuse(r);
}

size_t relay_count(void)
{
    return waiting.n;
}

void relay_close(void)
{
    for (struct relay *r = waiting.first; r; r = r->next)
        leave(r, false);
}
