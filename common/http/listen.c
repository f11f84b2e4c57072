/* listen.c - see listen.h */
#include "listen.h"
#include "base/cleanup.h"
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void free_addresses(struct addrinfo **list)
{
    if (*list)
        freeaddrinfo(*list);
}

/* "host:port" or "[v6]:port" into its two parts. */
static int split(const char *listen, char *host, size_t host_size, const char **port,
                 struct ab_error *err)
{
    const char *colon = strrchr(listen, ':');

    if (!colon || colon == listen || colon[1] == '\0')
        return ab_fail(err, AB_EINVAL,
                       "listen address `%s` is not HOST:PORT, e.g. 127.0.0.1:8443 or [::]:8443",
                       listen);
    size_t n = (size_t)(colon - listen);
    if (listen[0] == '[' && listen[n - 1] == ']') {
        listen++;
        n -= 2;
    }
    if (n >= host_size)
        return ab_fail(err, AB_EINVAL, "listen address `%s` is too long", listen);
    memcpy(host, listen, n);
    host[n] = '\0';
    *port = colon + 1;
    return 0;
}

int ab_listen_tcp(const char *listen_on, bool share, int backlog, struct ab_error *err)
{
    char host[256];
    const char *port;
    AB_AUTO(free_addresses) struct addrinfo *list = NULL;
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};

    if (split(listen_on, host, sizeof(host), &port, err) < 0)
        return -1;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return ab_fail(err, AB_EINVAL, "listen address `%s` cannot be resolved: %s", listen_on,
                       gai_strerror(rc));

    AB_AUTO(ab_close)
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot make a socket for `%s`", listen_on);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int)) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot share the port of `%s`", listen_on);
    if (bind(fd, list->ai_addr, list->ai_addrlen) < 0)
        return ab_fail_errno(err, AB_EINVAL,
                             "cannot listen on `%s` (choose another port or stop what holds it)",
                             listen_on);
    if (backlog > 0 && listen(fd, backlog) < 0)
        return ab_fail_errno(err, AB_EINVAL, "cannot listen on `%s`", listen_on);
    return AB_TAKE_FD(fd);
}

void ab_listen_address(int fd, char *out)
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof(at);
    char host[64], port[8];

    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&at, &n) < 0
        || getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port),
                       NI_NUMERICHOST | NI_NUMERICSERV)
               != 0)
        return;
    (void)snprintf(out, AB_ADDRESS_TEXT, at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                   port);
}
