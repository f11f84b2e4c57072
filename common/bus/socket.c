/* socket.c - how every socket of the mesh is set up, and frames in and out of it */
#include "socket.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIN_DESCRIPTORS 64
#define GOOD_DESCRIPTORS 1024
#define SPARE_DESCRIPTORS 8 /* what one more link may take */

/* A low soft limit is a habit of shells, not somebody's will: up to the hard one it is ours to raise. */
static rlim_t raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return RLIM_INFINITY;
    if (limit.rlim_cur < GOOD_DESCRIPTORS && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < GOOD_DESCRIPTORS ? limit.rlim_max : GOOD_DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur;
}

int ab_socket_room(struct ab_error *err)
{
    rlim_t limit = raise_limit();

    if (limit < MIN_DESCRIPTORS)
        return ab_fail(err, AB_EINTERNAL,
                       "this process may open %d files only, the bus needs %d; raise `ulimit -n`",
                       (int)limit, MIN_DESCRIPTORS);
    return 0;
}

bool ab_socket_spare(void)
{
    struct rlimit limit;
    int next = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0); /* the lowest free one */

    if (next < 0)
        return errno != EMFILE && errno != ENFILE;
    close(next);
    return getrlimit(RLIMIT_NOFILE, &limit) < 0
           || (rlim_t)next + SPARE_DESCRIPTORS < limit.rlim_cur;
}

zsock_t *ab_socket_new(int type)
{
    zsock_t *sock = zsock_new(type);

    zsock_set_linger(sock, AB_SOCKET_LINGER_MS);
    zsock_set_sndhwm(sock, AB_SOCKET_HWM);
    zsock_set_rcvhwm(sock, AB_SOCKET_HWM);
    zsock_set_maxmsgsize(sock, (int)AB_BUS_BODY_MAX);
    zsock_set_heartbeat_ivl(sock, 5000);
    zsock_set_heartbeat_timeout(sock, 15000);
    zsock_set_heartbeat_ttl(sock, 30000);
    zsock_set_reconnect_ivl(sock, 50);
    zsock_set_reconnect_ivl_max(sock, 1000);
    zsock_set_connect_timeout(sock, 5000);
    zsock_set_sndtimeo(sock, 0);
    return sock;
}

void ab_socket_serve_curve(zsock_t *sock, zcert_t *own)
{
    zsock_set_zap_domain(sock, AB_ZAP_DOMAIN);
    zcert_apply(own, sock);
    zsock_set_curve_server(sock, 1);
}

void ab_socket_use_curve(zsock_t *sock, zcert_t *own, const char *server_key)
{
    zcert_apply(own, sock);
    zsock_set_curve_serverkey(sock, server_key);
}

/* Only where it is asked for: otherwise IPv4 addresses come back in the IPv6 spelling. */
static void allow_ipv6(zsock_t *sock, const char *address)
{
    if (strchr(address, '['))
        zsock_set_ipv6(sock, 1);
}

int ab_socket_connect(zsock_t *sock, const char *address)
{
    allow_ipv6(sock, address);
    return zmq_connect(zsock_resolve(sock), address);
}

int ab_socket_bind(zsock_t *sock, const char *address, char **endpoint, struct ab_error *err)
{
    allow_ipv6(sock, address);
    if (zmq_bind(zsock_resolve(sock), address) < 0) {
        const char *why = zmq_strerror(errno);
        if (errno == EADDRINUSE)
            return ab_fail(err, AB_EINTERNAL, "cannot listen on %s: %s; choose another port",
                           address, why);
        if (errno == ENAMETOOLONG)
            return ab_fail(
                err, AB_EINTERNAL,
                "cannot listen on %s: a socket's path may have 107 bytes; use a shorter folder",
                address);
        return ab_fail(err, AB_EINTERNAL, "cannot listen on %s: %s", address, why);
    }
    char last[512] = "";
    size_t len = sizeof(last);
    (void)zmq_getsockopt(zsock_resolve(sock), ZMQ_LAST_ENDPOINT, last, &len);
    if (endpoint)
        *endpoint = strdup(last);
    return 0;
}

int ab_next_port(const char *endpoint, char *out, size_t size)
{
    const char *colon = strrchr(endpoint, ':');
    int64_t port;

    if (!colon || ab_parse_i64(colon + 1, strlen(colon + 1), 1, 65534, &port) < 0)
        return -1;
    int n = snprintf(out, size, "%.*s:%d", (int)(colon - endpoint), endpoint, (int)port + 1);
    return n < 0 || (size_t)n >= size ? -1 : 0;
}

int ab_parts_receive(void *socket, int max, struct ab_parts *out)
{
    out->n = 0;
    for (bool more = true; more;) {
        zmq_msg_t dropped;
        zmq_msg_t *to = out->n < max ? &out->part[out->n] : &dropped;

        zmq_msg_init(to);
        if (zmq_msg_recv(to, socket, ZMQ_DONTWAIT) < 0) {
            int error = errno;
            zmq_msg_close(to);
            ab_parts_close(out); /* a message comes whole: only the first frame can be missing */
            return error == EAGAIN || error == EINTR ? 0 : -1;
        }
        more = zmq_msg_more(to);
        if (to == &dropped)
            zmq_msg_close(to);
        else
            out->n++;
    }
    return 1;
}

void ab_parts_close(struct ab_parts *self)
{
    while (self->n > 0)
        zmq_msg_close(&self->part[--self->n]);
}

int ab_send_msg(void *socket, zmq_msg_t *msg, bool more)
{
    int rc;
    do
        rc = zmq_msg_send(msg, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
    while (rc < 0 && errno == EINTR);
    if (rc >= 0)
        return 0;
    int error = errno;
    zmq_msg_close(msg);
    errno = error;
    return -1;
}

int ab_send_frame(void *socket, const void *bytes, size_t len, bool more)
{
    zmq_msg_t msg;
    if (zmq_msg_init_size(&msg, len) < 0)
        return -1;
    if (len)
        memcpy(zmq_msg_data(&msg), bytes, len);
    return ab_send_msg(socket, &msg, more);
}
