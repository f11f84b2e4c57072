/* loop.c - see loop.h
 *
 * The bus descriptors are edge triggered: they only wake the loop, and the bus is drained once
 * before every sleep (uv_prepare), which covers sends made anywhere in the turn. Our timers are
 * libuv's: lws's own do not fire when they are set from a libuv callback.
 */
#include "loop.h"
#include "auth.h"
#include "base/clock.h"
#include "base/log.h"
#include "conn.h"
#include "door.h"
#include "live.h"
#include "metrics.h"
#include "share.h"
#include "tls.h"
#include "ws.h"
#include <openssl/ssl.h>
#include <signal.h>
#include <string.h>

#define TICK_MS 250
#define LAST_ASK_MS 1000
#define CERT_TICKS 8  /* two seconds */
#define DRAIN_US 2000 /* of the bus in one turn; then sockets get theirs */

static struct {
    uv_poll_t bus_poll, hint_poll;
    uv_prepare_t prepare;
    uv_idle_t more;
    uv_timer_t tick, bus_tick;
    uv_signal_t term, interrupt, hangup;
    uint64_t ticks;
    int64_t now_ms;     /* of the tick under way */
    int64_t leaving_ms; /* when SIGTERM came */
    int64_t stop_by_ms; /* 0: not stopping */
    bool initialised, started;
} loop;

/* ---- the bus */

static void on_hint(void *arg, char topic, int64_t owner, const void *body, size_t len)
{
    (void)arg;
    switch (topic) {
    case 'e':
        gw.count.hints++;
        live_hint(owner);
        break;
    case 'n':
        gw.count.notices++;
        ws_notice(owner, body, len);
        break;
    case 'r':
    case 'k':
        auth_hint(topic, body, len);
        break;
    default:
        break;
    }
}

static void on_more(uv_idle_t *handle)
{
    (void)handle; /* only keeps the loop from sleeping: the work is done in before_poll */
}

static void before_poll(uv_prepare_t *handle)
{
    int64_t until_us = ab_now_us() + DRAIN_US;
    bool more;

    (void)handle;
    do {
        bool requests = ab_bus_drain(gw.bus, 256);
        bool hints = ab_bus_hint_drain(gw.bus, 1000, on_hint, NULL);
        more = requests || hints;
    } while (more && ab_now_us() < until_us);
    if (more)
        uv_idle_start(&loop.more, on_more);
    else
        uv_idle_stop(&loop.more);
}

static void on_bus_readable(uv_poll_t *handle, int status, int events)
{
    (void)handle; /* before_poll drains */
    (void)status;
    (void)events;
}

static void on_bus_tick(uv_timer_t *handle)
{
    int64_t next_ms = ab_bus_tick(gw.bus, ab_now_ms());
    uv_timer_start(handle, on_bus_tick, next_ms > 0 ? (uint64_t)next_ms : 1, 0);
}

/* ---- time, and the end */

static void check_time(struct conn *c)
{
    conn_check_time(c, loop.now_ms);
}

/* While draining: what has begun is finished, and a connection that is still open may ask once more: a client
 * that is about to would take its end for a failure. Then its answer says `connection: close`. Those that stay
 * quiet are closed after a moment. */
static void wind_up(struct conn *c)
{
    int64_t now = ab_now_ms();
    bool idle = c->state == CONN_HEAD && c->in_len == c->in_at && !c->x.begun;
    bool fresh = c->served == 0 && c->until_ms - now > HEAD_MS - LINGER_MS;

    if (c->state == CONN_WS) {
        ws_leave(c);
    } else if (idle && !fresh && !c->closing && now >= loop.leaving_ms + LAST_ASK_MS) {
        c->closing = true;
        conn_wake(c);
    }
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)handle;
    if (gw.draining) {
        loop.stop_by_ms = ab_now_ms();
        return;
    }
    ab_log(AB_INFO, "gateway.draining", AB_KV("signal", signum),
           AB_KV("connections", conn_count()));
    gw.draining = true;
    loop.leaving_ms = ab_now_ms();
    loop.stop_by_ms = loop.leaving_ms + ab_conf_ms(gw.conf, "drain");
    door_leave(loop.leaving_ms);
    conn_each(wind_up);
}

static void on_hangup(uv_signal_t *handle, int signum)
{
    (void)handle;
    (void)signum;
    tls_check(true);
}

static void on_tick(uv_timer_t *handle)
{
    (void)handle;
    loop.ticks++;
    loop.now_ms = ab_now_ms();
    conn_each(check_time);
    door_tick(loop.now_ms);
    live_tick();
    if (loop.ticks % 2 == 0)
        metrics_tick();
    if (loop.ticks % CERT_TICKS == 0)
        tls_check(false);
    if (loop.ticks % (AUTH_PERIOD_MS / TICK_MS) == 0 || !auth_ready())
        auth_fetch();
    if (!gw.draining)
        return;
    conn_each(wind_up);
    if ((conn_count() == 0 && !door_is_open()) || loop.now_ms >= loop.stop_by_ms)
        uv_stop(&gw.loop);
}

/* ---- start and stop */

static void on_lws_log(int level, const char *line)
{
    char text[512];
    size_t n = strcspn(line, "\n");

    (void)snprintf(text, sizeof(text), "%.*s", (int)(n < 400 ? n : 400), line);
    ab_log(level == LLL_ERR ? AB_WARN : AB_DEBUG, "lws", AB_KV("text", (const char *)text));
}

static int start_lws(struct ab_error *err)
{
    void *foreign[1] = {&gw.loop};
    const char *cert = ab_conf_text(gw.conf, "tls_cert");
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = conn_protocols,
        .options = LWS_SERVER_OPTION_LIBUV,
        .foreign_loops = foreign,
        .pt_serv_buf_size = PIECE,
        .vhost_name = "default",
        .alpn = "http/1.1", /* the raw role speaks no HTTP/2 */
        .timeout_secs = HEAD_MS / 1000,
        .gid = (int)-1,
        .uid = (int)-1,
    };

    lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
    gw.tls = cert != NULL;
    if (gw.tls) {
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = cert;
        info.ssl_private_key_filepath = ab_conf_text(gw.conf, "tls_key");
        info.ssl_options_set = SSL_OP_NO_TLSv1 | SSL_OP_NO_TLSv1_1 | SSL_OP_NO_RENEGOTIATION;
    }
    gw.lws = lws_create_context(&info);
    if (!gw.lws)
        return ab_fail(err, AB_EINTERNAL,
                       "libwebsockets does not start: is the package libwebsockets-evlib-uv "
                       "installed, and are tls_cert and tls_key a certificate and its key?");
    gw.vhost = lws_get_vhost_by_name(gw.lws, "default");
    if (!gw.vhost)
        return ab_fail(err, AB_EINTERNAL, "libwebsockets has no default host");
    return 0;
}

int loop_init(struct ab_error *err)
{
    size_t connections = (size_t)ab_conf_int(gw.conf, "max_connections");

    door_raise_limit(connections);
    if (conn_table_init(connections) < 0)
        return ab_fail(err, AB_EINTERNAL, "no memory for %zu connections", connections);
    if (uv_loop_init(&gw.loop) != 0)
        return ab_fail(err, AB_EINTERNAL, "libuv does not start");
    loop.initialised = true;
    return 0;
}

static void start_timers(void)
{
    uv_prepare_init(&gw.loop, &loop.prepare);
    uv_prepare_start(&loop.prepare, before_poll);
    uv_idle_init(&gw.loop, &loop.more);
    uv_timer_init(&gw.loop, &loop.tick);
    uv_timer_start(&loop.tick, on_tick, TICK_MS, TICK_MS);
    uv_timer_init(&gw.loop, &loop.bus_tick);
    uv_timer_start(&loop.bus_tick, on_bus_tick, 1, 0);
    uv_signal_init(&gw.loop, &loop.term);
    uv_signal_start(&loop.term, on_signal, SIGTERM);
    uv_signal_init(&gw.loop, &loop.interrupt);
    uv_signal_start(&loop.interrupt, on_signal, SIGINT);
    uv_signal_init(&gw.loop, &loop.hangup);
    uv_signal_start(&loop.hangup, on_hangup, SIGHUP);
}

int loop_start(struct ab_error *err)
{
    if (start_lws(err) < 0)
        return -1;
    if (door_bind(err) < 0)
        return -1;
    uv_poll_init(&gw.loop, &loop.bus_poll, ab_bus_fd(gw.bus));
    uv_poll_start(&loop.bus_poll, UV_READABLE, on_bus_readable);
    uv_poll_init(&gw.loop, &loop.hint_poll, ab_bus_hint_fd(gw.bus));
    uv_poll_start(&loop.hint_poll, UV_READABLE, on_bus_readable);
    start_timers();
    loop.started = true;
    return 0;
}

void loop_run(void)
{
    auth_fetch();
    uv_run(&gw.loop, UV_RUN_DEFAULT);
}

static void close_handles(void)
{
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&loop.bus_poll, (uv_handle_t *)&loop.hint_poll,
        (uv_handle_t *)&loop.prepare,  (uv_handle_t *)&loop.more,
        (uv_handle_t *)&loop.tick,     (uv_handle_t *)&loop.bus_tick,
        (uv_handle_t *)&loop.term,     (uv_handle_t *)&loop.interrupt,
        (uv_handle_t *)&loop.hangup,
    };
    for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
        uv_close(handles[i], NULL);
}

/* Ours first, then lws closes its own (only lws may), in as many turns as it wants. */
void loop_free(void)
{
    if (!loop.initialised)
        return;
    door_close();
    if (loop.started)
        close_handles();
    if (gw.lws)
        lws_context_destroy(gw.lws);
    gw.lws = NULL;
    while (uv_run(&gw.loop, UV_RUN_DEFAULT) != 0)
        ;
    if (uv_loop_close(&gw.loop) != 0)
        ab_log(AB_WARN, "loop.left");
    conn_table_free();
    share_free();
    loop.initialised = loop.started = false;
}
