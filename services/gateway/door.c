/* door.c - see door.h */
#include "door.h"
#include "base/clock.h"
#include "base/log.h"
#include "conn.h"
#include "http/listen.h"
#include "metrics.h"
#include "relay.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024
#define AGAIN_MS 100 /* out of descriptors: until the next look */
#define LEAVE_MS 250 /* the rest of a handshake that has begun */
#define OWN_FILES                                                                                  \
    24 /* of the bus's peers, its watch and the health port, besides what is open at the start */
#define PEER_FILES 16 /* one in so many for further replicas */

static struct {
    int fd;
    char address[AB_ADDRESS_TEXT];
    uv_poll_t poll;
    uv_timer_t again;
    int64_t open_by_ms;  /* 0: it is open, or was */
    int64_t close_at_ms; /* 0: not leaving */
} door = {.fd = -1};

/* ---- taking connections */

static void peer_text(const struct sockaddr_storage *from, char *out, size_t size)
{
    const void *addr = from->ss_family == AF_INET6
                           ? (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr
                           : (const void *)&((const struct sockaddr_in *)from)->sin_addr;
    if (!inet_ntop(from->ss_family, addr, out, (socklen_t)size))
        (void)snprintf(out, size, "-");
}

static void on_knock(uv_poll_t *handle, int status, int events);

static void on_again(uv_timer_t *handle)
{
    (void)handle;
    if (door.fd >= 0)
        uv_poll_start(&door.poll, UV_READABLE, on_knock);
}

static void on_knock(uv_poll_t *handle, int status, int events)
{
    (void)events;
    (void)status;
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof(from);
        char peer[INET6_ADDRSTRLEN];
        int fd = accept4(door.fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            /* Out of descriptors: without a pause the loop would spin on the waiting connection. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                gw.count.accept_errors++;
                uv_poll_stop(handle);
                uv_timer_start(&door.again, on_again, AGAIN_MS, 0);
            }
            return;
        }
        /* We accept, so this is ours to set; without it answers wait 40 ms now and then. */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
        peer_text(&from, peer, sizeof(peer));
        if (gw.relayed)
            relay_adopt(fd, peer);
        else
            conn_adopt(fd, peer);
    }
}

/* ---- how many */

/* lws sizes its tables by the limit of descriptors: make that what we need, not what the host allows. */
void door_raise_limit(size_t connections)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t want = (rlim_t)connections + connections / 8 + 512;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* With fewer descriptors than asked for, clients over the limit are refused one by one, and the bus and the
 * health port keep theirs: libzmq would spin without one. */
static int limit_connections(struct ab_error *err)
{
    size_t want = (size_t)ab_conf_int(gw.conf, "max_connections");
    struct rlimit limit;
    int next = dup(STDERR_FILENO); /* the lowest free one: so many are open */

    if (next < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot count open files");
    close(next);
    rlim_t own = (rlim_t)next + OWN_FILES + limit.rlim_cur / PEER_FILES;
    size_t room = limit.rlim_cur > own ? (size_t)(limit.rlim_cur - own) : 0;
    if (room == 0)
        return ab_fail(err, AB_EINTERNAL,
                       "this process may open %" PRIu64 " files only and needs %" PRIu64
                       " for itself; raise `ulimit -n`",
                       (uint64_t)limit.rlim_cur, (uint64_t)own);
    if (room < want)
        ab_log(AB_WARN, "gateway.few_files", AB_KV("files", limit.rlim_cur),
               AB_KV("connections", room), AB_KV("max_connections", want));
    conn_limit(room < want ? room : want);
    return 0;
}

/* ---- open and close */

int door_bind(struct ab_error *err)
{
    if (limit_connections(err) < 0)
        return -1;
    door.fd = ab_listen_tcp(ab_conf_text(gw.conf, "listen"), true, 0, err);
    if (door.fd < 0)
        return -1;
    ab_listen_address(door.fd, door.address);
    door.open_by_ms = ab_now_ms() + ab_conf_ms(gw.conf, "join");
    gw.relayed = ab_conf_bool(gw.conf, "proxy_protocol");
    uv_poll_init(&gw.loop, &door.poll, door.fd);
    uv_timer_init(&gw.loop, &door.again);
    return 0;
}

static void open_when_ready(int64_t now_ms)
{
    struct ab_buf why = {0};
    bool ready = metrics_ready(&why);

    if (ready || now_ms >= door.open_by_ms) {
        door.open_by_ms = 0;
        if (listen(door.fd, BACKLOG) < 0) {
            /* Somebody who does not share has taken the port meanwhile: better another try elsewhere. */
            ab_log(AB_ERROR, "gateway.listen", AB_KV("address", (const char *)door.address),
                   AB_KV("error", strerror(errno)));
            uv_stop(&gw.loop);
        } else {
            uv_poll_start(&door.poll, UV_READABLE, on_knock);
            ab_log(AB_INFO, "gateway.open", AB_KV("listen", (const char *)door.address),
                   AB_KV("ready", ready));
        }
    }
    ab_buf_free(&why);
}

void door_tick(int64_t now_ms)
{
    relay_tick(now_ms);
    if (door.fd < 0)
        return;
    if (door.close_at_ms && now_ms >= door.close_at_ms) {
        on_knock(&door.poll, 0, UV_READABLE); /* who waits to be accepted would get a reset */
        uv_poll_stop(&door.poll);
        close(door.fd);
        door.fd = -1;
    } else if (door.open_by_ms && !door.close_at_ms) {
        open_when_ready(now_ms);
    }
}

/* A client whose first packet is dropped sends it again after a second, to whoever listens then; one that is in
 * the queue of a listener that closes gets a reset. */
static void drop_newcomers(void)
{
    const struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS,
                 13), /* the flags; a listener's filter begins at the TCP header */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x02 /* SYN */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    const struct sock_fprog program = {.len = 4, .filter = (struct sock_filter *)(uintptr_t)code};

    if (setsockopt(door.fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) < 0)
        ab_log(AB_DEBUG, "gateway.filter", AB_KV("error", strerror(errno)));
}

void door_leave(int64_t now_ms)
{
    if (door.fd < 0 || door.close_at_ms)
        return;
    if (door.open_by_ms == 0)
        drop_newcomers();
    door.close_at_ms = now_ms + (door.open_by_ms ? 0 : LEAVE_MS);
}

void door_close(void)
{
    if (door.address[0] == '\0')
        return;
    if (door.fd >= 0) {
        uv_poll_stop(&door.poll);
        close(door.fd);
        door.fd = -1;
    }
    relay_close();
    uv_close((uv_handle_t *)&door.poll, NULL);
    uv_close((uv_handle_t *)&door.again, NULL);
    door.address[0] = '\0';
}

bool door_is_open(void)
{
    return door.fd >= 0 || relay_count() > 0;
}

const char *door_address(void)
{
    return door.address;
}
