/* health.c - one thread, poll, a fixed table of connections */
#include "health.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "head.h"
#include "listen.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_MAX 4096
#define LIMIT_MS 5000

struct visit {
    int fd; /* -1: free */
    int64_t until_ms;
    struct ab_http_head head;
    char in[IN_MAX];
    size_t in_len;
    struct ab_buf out;
    size_t sent;
    bool answered; /* out is complete */
    bool shut;     /* sent; what the peer still sends is dropped until it closes */
};

struct ab_health {
    struct ab_health_options options;
    int listen_fd, stop_fd;
    char address[AB_ADDRESS_TEXT];
    pthread_t thread;
    bool running;
    struct visit visits[AB_HEALTH_CONNECTIONS];
};

static void answer(struct visit *v, int status, const char *type, const struct ab_buf *body,
                   bool with_body)
{
    ab_buf_printf(&v->out,
                  "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\n"
                  "connection: close\r\ncache-control: no-store\r\n%s\r\n",
                  status, ab_http_reason(status), type, body->len,
                  status == 405 ? "allow: GET\r\n" : "");
    if (with_body)
        ab_buf_add(&v->out, body->data, body->len);
    v->answered = true;
}

static void answer_text(struct visit *v, int status, const char *text, bool with_body)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    ab_buf_printf(&body, "%s\n", text);
    answer(v, status, "text/plain; charset=utf-8", &body, with_body);
}

static void answer_check(struct visit *v, int (*check)(void *, struct ab_buf *), void *arg)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    int rc = check ? check(arg, &body) : 0;

    if (body.len == 0)
        ab_buf_str(&body, rc == 0 ? "ok\n" : "not ready\n");
    answer(v, rc == 0 ? 200 : 503, "text/plain; charset=utf-8", &body, true);
}

static void serve(struct ab_health *self, struct visit *v)
{
    const struct ab_health_options *o = &self->options;
    const struct ab_http_head *h = &v->head;

    if (!ab_http_span_is(v->in, h->method, "GET")) {
        answer_text(v, 405, "only GET is served here", !ab_http_span_is(v->in, h->method, "HEAD"));
    } else if (ab_http_span_is(v->in, h->path, "/healthz")) {
        answer_check(v, o->live, o->arg);
    } else if (ab_http_span_is(v->in, h->path, "/readyz")) {
        answer_check(v, o->ready, o->arg);
    } else if (ab_http_span_is(v->in, h->path, "/metrics")) {
        AB_AUTO(ab_buf_free) struct ab_buf body = {0};
        if (o->metrics)
            o->metrics(o->arg, &body);
        answer(v, 200, "text/plain; version=0.0.4; charset=utf-8", &body, true);
    } else {
        answer_text(v, 404, "here are /healthz, /readyz and /metrics", true);
    }
}

static void leave(struct visit *v)
{
    close(v->fd);
    v->fd = -1;
    ab_buf_free(&v->out);
}

/* Bytes of the request, or the end of the peer. */
static void read_some(struct ab_health *self, struct visit *v)
{
    if (v->answered) { /* drop the rest, so that our close is no reset */
        char waste[512];
        ssize_t n = recv(v->fd, waste, sizeof(waste), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            leave(v);
        return;
    }
    ssize_t n = recv(v->fd, v->in + v->in_len, IN_MAX - v->in_len, 0);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            leave(v);
        return;
    }
    v->in_len += (size_t)n;
    int rc = ab_http_head_parse(&v->head, v->in, v->in_len);
    if (rc > 0)
        serve(self, v);
    else if (rc < 0)
        answer_text(v, v->head.status, v->head.why, true);
    else if (v->in_len == IN_MAX)
        answer_text(v, 431, "the request is longer than 4 kB", true);
}

static void write_some(struct visit *v)
{
    ssize_t n = send(v->fd, v->out.data + v->sent, v->out.len - v->sent, MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            leave(v);
        return;
    }
    v->sent += (size_t)n;
    if (v->sent == v->out.len) {
        (void)shutdown(v->fd, SHUT_WR);
        v->shut = true;
    }
}

/* A free place, or that of the oldest visitor: those who hold a connection and say nothing shall
 * not keep a probe waiting. */
static struct visit *place_for(struct ab_health *self)
{
    struct visit *oldest = &self->visits[0];

    for (size_t i = 0; i < AB_HEALTH_CONNECTIONS; i++) {
        struct visit *v = &self->visits[i];
        if (v->fd < 0)
            return v;
        if (v->until_ms < oldest->until_ms)
            oldest = v;
    }
    leave(oldest);
    return oldest;
}

/* -1: out of descriptors, so the listener stays readable. */
static int take_visitors(struct ab_health *self, int64_t now_ms)
{
    for (size_t i = 0; i < AB_HEALTH_CONNECTIONS; i++) {
        int fd = accept4(self->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return errno == EMFILE || errno == ENFILE ? -1 : 0;
        *place_for(self) = (struct visit){.fd = fd, .until_ms = now_ms + LIMIT_MS};
    }
    return 0;
}

/* Descriptors to wait for; place[k] says whose fds[2 + k] is. Returns how many. */
static size_t gather(struct ab_health *self, struct pollfd *fds, size_t *place, int64_t now_ms,
                     int *timeout)
{
    size_t n = 0;

    *timeout = -1;
    for (size_t i = 0; i < AB_HEALTH_CONNECTIONS; i++) {
        struct visit *v = &self->visits[i];
        if (v->fd >= 0 && now_ms >= v->until_ms)
            leave(v);
        if (v->fd < 0)
            continue;
        short events = v->answered && !v->shut ? POLLIN | POLLOUT : POLLIN;
        fds[2 + n] = (struct pollfd){.fd = v->fd, .events = events};
        place[n++] = i;
        int left = (int)(v->until_ms - now_ms);
        if (*timeout < 0 || left < *timeout)
            *timeout = left;
    }
    fds[0] = (struct pollfd){.fd = self->stop_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = self->listen_fd, .events = POLLIN};
    return n;
}

static void *run(void *arg)
{
    struct ab_health *self = arg;
    struct pollfd fds[2 + AB_HEALTH_CONNECTIONS];
    size_t place[AB_HEALTH_CONNECTIONS];

    for (;;) {
        int64_t now_ms = ab_now_ms();
        int timeout;
        size_t n = gather(self, fds, place, now_ms, &timeout);

        if (poll(fds, (nfds_t)(2 + n), timeout) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            break;
        for (size_t k = 0; k < n; k++) {
            struct visit *v = &self->visits[place[k]];
            if (fds[2 + k].revents & (POLLIN | POLLHUP | POLLERR))
                read_some(self, v);
            if (v->fd >= 0 && v->answered && !v->shut)
                write_some(v);
        }
        /* Out of descriptors poll would return at once for ever: give the others time to close. */
        if (fds[1].revents && take_visitors(self, ab_now_ms()) < 0)
            (void)poll(fds, 1, 100);
    }
    return NULL;
}

/* Signals belong to the main thread: block them all while the thread is made. */
static int start_thread(struct ab_health *self)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

ab_health_t *ab_health_new(const struct ab_health_options *options, struct ab_error *err)
{
    AB_AUTO(ab_health_destroy) ab_health_t *self = calloc(1, sizeof(*self));

    if (!self) {
        (void)ab_fail(err, AB_EINTERNAL, "no memory for the health port");
        return NULL;
    }
    self->options = *options;
    self->stop_fd = -1;
    for (size_t i = 0; i < AB_HEALTH_CONNECTIONS; i++)
        self->visits[i].fd = -1;
    self->listen_fd = ab_listen_tcp(options->listen, false, 32, err);
    if (self->listen_fd < 0) {
        (void)ab_fail_within(err, "health port");
        return NULL;
    }
    ab_listen_address(self->listen_fd, self->address);
    self->options.listen = self->address;
    self->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->stop_fd < 0) {
        (void)ab_fail_errno(err, AB_EINTERNAL, "health port: no eventfd");
        return NULL;
    }
    int rc = start_thread(self);
    if (rc != 0) {
        (void)ab_fail(err, AB_EINTERNAL, "health port: no thread: %s", strerror(rc));
        return NULL;
    }
    self->running = true;
    return AB_TAKE(self);
}

void ab_health_destroy(ab_health_t **pself)
{
    ab_health_t *self = *pself;

    if (!self)
        return;
    if (self->running) {
        uint64_t one = 1;
        ssize_t n = write(self->stop_fd, &one, sizeof(one));
        (void)n; /* an eventfd that is at 0 always takes 1 */
        pthread_join(self->thread, NULL);
    }
    for (size_t i = 0; i < AB_HEALTH_CONNECTIONS; i++)
        if (self->visits[i].fd >= 0)
            leave(&self->visits[i]);
    ab_close(&self->listen_fd);
    ab_close(&self->stop_fd);
    free(self);
    *pself = NULL;
}

const char *ab_health_address(const ab_health_t *self)
{
    return self->address;
}
