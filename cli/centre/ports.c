/* ports.c - which ports a centre listens on */
#include "ports.h"

#include "base/cleanup.h"
#include "base/rand.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRIES 200
/* below the range from which the kernel takes ports for outgoing connections */
#define ANY_FIRST 20000
#define ANY_LAST 32000

static int bound_socket(const char *host, int port, bool share)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM},
                    *found;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) {
        errno = EINVAL;
        return -1;
    }
    if (found->ai_family == AF_INET)
        ((struct sockaddr_in *)(void *)found->ai_addr)->sin_port = htons((uint16_t)port);
    else if (found->ai_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_port = htons((uint16_t)port);
    AB_AUTO(ab_close) int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1, rc = fd < 0 ? -1 : 0;
    /* A look: connections of an earlier run that still linger do not make the port taken. A holder
     * must not say so, or whoever looks would not see it. */
    if (rc == 0)
        rc = setsockopt(fd, SOL_SOCKET, share ? SO_REUSEPORT : SO_REUSEADDR, &one, sizeof(one));
    if (rc == 0)
        rc = bind(fd, found->ai_addr, found->ai_addrlen);
    /* two that only bind with REUSEADDR do not clash: the second to listen would */
    if (rc == 0 && !share)
        rc = listen(fd, 1);
    int number = errno;
    freeaddrinfo(found);
    errno = number;
    return rc < 0 ? -1 : AB_TAKE_FD(fd);
}

static bool is_free(const char *host, int port)
{
    AB_AUTO(ab_close) int fd = bound_socket(host, port, false);
    return fd >= 0;
}

/* `width` free ports in a row, none of them among the taken ones. */
static bool fits(const struct centre *self, const char *host, int port, int width)
{
    for (int i = 0; i < width; i++) {
        if (port + i > 65535 || !is_free(host, port + i))
            return false;
        for (int g = 0; width > 1 && g < GATEWAYS_MAX; g++)
            if (self->bus_ports[g]
                && (port + i == self->bus_ports[g] || port + i == self->bus_ports[g] + 1))
                return false;
        if (width > 1 && port + i == self->port)
            return false;
    }
    return true;
}

/* From `wish` upwards, or anywhere for 0. */
static int pick(const struct centre *self, const char *host, int wish, int width)
{
    for (int i = 0; i < TRIES; i++) {
        int port = wish ? wish + i * width : ANY_FIRST + (int)ab_random_below(ANY_LAST - ANY_FIRST);
        if (fits(self, host, port, width))
            return port;
    }
    return -1;
}

static int check_host(const struct centre *self, struct ab_error *err)
{
    AB_AUTO(ab_close) int fd = bound_socket(self->host, 0, false);
    return fd >= 0 ? 0
                   : ab_fail_errno(err, AB_EINVAL,
                                   "cannot listen at `%s`: --host takes an address of this machine",
                                   self->host);
}

int ports_choose(struct centre *self, struct ab_error *err)
{
    static const char loopback[] = "127.0.0.1";
    bool any = self->port == 0;
    if (check_host(self, err) < 0)
        return -1;
    int port = pick(self, self->host, self->port, 1);
    if (port < 0)
        return ab_fail(err, AB_EINVAL,
                       "port %d and the ones after it are taken: choose another with --port",
                       self->port);
    self->changed |= port != self->port;
    self->port = port;
    for (int g = 0; g < self->gateways; g++) {
        int wish = self->bus_ports[g];
        if (!wish && !any && g > 0)
            wish = self->bus_ports[g - 1] + 2;
        self->bus_ports[g] = 0;
        port = pick(self, loopback, wish, 2);
        if (port < 0)
            return ab_fail(err, AB_EINVAL, "no two free ports in a row for the bus: use --port 0");
        self->changed |= port != wish;
        self->bus_ports[g] = port;
    }
    return 0;
}

int ports_hold(const struct centre *self, struct ab_error *err)
{
    int fd = bound_socket(self->host, self->port, true);
    if (fd < 0)
        (void)ab_fail_errno(err, AB_EINVAL, "cannot take port %d at %s", self->port, self->host);
    return fd;
}
