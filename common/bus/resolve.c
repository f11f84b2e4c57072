/* resolve.c - a thread that asks for names every 5 s */
#include "resolve.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EVERY_SEC 5
#define MAX_NAMES 64
#define MAX_EACH 64

struct name {
    char host[256], port[8];
    bool failed;       /* said so in the log */
    char (*found)[96]; /* the last good answer */
    size_t n;
};

struct ab_resolver {
    pthread_mutex_t lock;
    pthread_cond_t stop_cond;
    int refs; /* owner and thread: a lookup that hangs must not hold up the end */
    bool stop, changed, threaded;
    int wake_fd;
    struct ab_addresses now;
    struct name names[MAX_NAMES];
    size_t n_names;
};

static void release(ab_resolver_t *self)
{
    pthread_mutex_lock(&self->lock);
    int left = --self->refs;
    pthread_mutex_unlock(&self->lock);
    if (left > 0)
        return;
    for (size_t i = 0; i < self->n_names; i++)
        free(self->names[i].found);
    if (self->wake_fd >= 0)
        close(self->wake_fd);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->stop_cond);
    free(self);
}

static int parse(struct name *out, const char *endpoint, struct ab_error *err)
{
    const char *host = endpoint + 6, *colon = strrchr(endpoint, ':');
    int64_t port;

    if (!ab_str_starts(endpoint, "tcp://") || !colon || colon <= host)
        return ab_fail(err, AB_EINVAL, "gateway %s: an address looks like tcp://host:7440",
                       endpoint);
    if (ab_parse_i64(colon + 1, strlen(colon + 1), 1, 65534, &port) < 0)
        return ab_fail(err, AB_EINVAL, "gateway %s: the port must be between 1 and 65534",
                       endpoint);
    size_t n = (size_t)(colon - host);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof(out->host))
        return ab_fail(err, AB_EINVAL, "gateway %s: the host name is empty or too long", endpoint);
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    snprintf(out->port, sizeof(out->port), "%d", (int)port);
    return 0;
}

/* The answer for one name replaces the last good one; a failure keeps it. */
static int look_up(struct name *name, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV}, *list;

    int rc = getaddrinfo(name->host, name->port, &hints, &list);
    if (rc != 0)
        return rc;
    char(*found)[96] = calloc(MAX_EACH, sizeof(*found));
    size_t n = 0;
    for (struct addrinfo *a = list; found && a && n < MAX_EACH; a = a->ai_next) {
        char host[64];
        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6)
            || getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST)
                   != 0)
            continue;
        snprintf(found[n++], sizeof(found[0]),
                 a->ai_family == AF_INET6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host, name->port);
    }
    freeaddrinfo(list);
    if (n == 0) {
        free(found);
        return EAI_NODATA;
    }
    free(name->found);
    name->found = found;
    name->n = n;
    return 0;
}

static bool has(const struct ab_addresses *all, const char *endpoint)
{
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(all->endpoint[i], endpoint) == 0)
            return true;
    }
    return false;
}

/* Names -> one list; tells the I/O thread if it differs from what it has. */
static void publish(ab_resolver_t *self)
{
    struct ab_addresses *all = calloc(1, sizeof(*all));
    if (!all)
        return;
    for (size_t i = 0; i < self->n_names; i++) {
        for (size_t k = 0; k < self->names[i].n && all->n < AB_RESOLVE_MAX; k++) {
            if (!has(all, self->names[i].found[k]))
                memcpy(all->endpoint[all->n++], self->names[i].found[k], sizeof(all->endpoint[0]));
        }
    }
    pthread_mutex_lock(&self->lock);
    bool same = all->n == self->now.n;
    for (size_t i = 0; same && i < all->n; i++)
        same = has(&self->now, all->endpoint[i]);
    if (!same) {
        self->now = *all;
        self->changed = true;
        (void)!write(self->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&self->lock);
    free(all);
}

static void look_up_all(ab_resolver_t *self)
{
    for (size_t i = 0; i < self->n_names; i++) {
        struct name *name = &self->names[i];
        int rc = look_up(name, 0);
        if (rc != 0 && !name->failed)
            ab_log(AB_WARN, "bus.resolve.failed", AB_KV("name", name->host),
                   AB_KV("error", gai_strerror(rc)));
        if (rc == 0 && name->failed)
            ab_log(AB_INFO, "bus.resolve.ok", AB_KV("name", name->host),
                   AB_KV("addresses", name->n));
        name->failed = rc != 0;
    }
    publish(self);
}

static void *run(void *arg)
{
    ab_resolver_t *self = arg;
    for (;;) {
        look_up_all(self);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += EVERY_SEC;
        pthread_mutex_lock(&self->lock);
        int rc = 0;
        while (!self->stop && rc == 0)
            rc = pthread_cond_timedwait(&self->stop_cond, &self->lock, &until);
        bool stop = self->stop;
        pthread_mutex_unlock(&self->lock);
        if (stop)
            break;
    }
    release(self);
    return NULL;
}

static int start(ab_resolver_t *self, struct ab_error *err)
{
    pthread_t thread;
    sigset_t all, before;

    self->refs = 2;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        self->refs = 1;
        return ab_fail(err, AB_EINTERNAL, "cannot start the thread that looks up names: %s",
                       strerror(rc));
    }
    pthread_detach(thread);
    return 0;
}

ab_resolver_t *ab_resolver_new(const char *const *endpoints, int wake_fd, struct ab_error *err)
{
    AB_AUTO(ab_resolver_destroy) ab_resolver_t *self = calloc(1, sizeof(*self));
    pthread_condattr_t attr;

    if (!self) {
        (void)ab_fail(err, AB_EINTERNAL, "out of memory");
        return NULL;
    }
    self->refs = 1;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->stop_cond, &attr);
    pthread_condattr_destroy(&attr);
    self->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 3);
    bool all_numeric = true;
    for (; *endpoints; endpoints++) {
        if (self->n_names == MAX_NAMES) {
            (void)ab_fail(err, AB_EINVAL, "at most %d gateways can be named", MAX_NAMES);
            return NULL;
        }
        struct name *name = &self->names[self->n_names++];
        if (parse(name, *endpoints, err) < 0)
            return NULL;
        if (look_up(name, AI_NUMERICHOST) != 0)
            all_numeric = false;
    }
    publish(self);
    if (!all_numeric && start(self, err) < 0)
        return NULL;
    return AB_TAKE(self);
}

void ab_resolver_destroy(ab_resolver_t **self_p)
{
    ab_resolver_t *self = *self_p;
    if (!self)
        return;
    pthread_mutex_lock(&self->lock);
    self->stop = true;
    pthread_cond_signal(&self->stop_cond);
    pthread_mutex_unlock(&self->lock);
    release(self);
    *self_p = NULL;
}

bool ab_resolver_take(ab_resolver_t *self, struct ab_addresses *out)
{
    pthread_mutex_lock(&self->lock);
    bool changed = self->changed;
    if (changed)
        *out = self->now;
    self->changed = false;
    pthread_mutex_unlock(&self->lock);
    return changed;
}
