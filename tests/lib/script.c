/* script.c - see script.h: a thread a connection, which is closed after each answer */
#include "script.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MOST = 512, /* calls, answers and connections of one test */
    WAIT_MS = 20000
};

struct answer {
    char route[256];
    int status;
    const char *body;
    bool always, used;
};

struct script {
    int fd, wake[2]; /* the pipe is closed at the end */
    char root[64];
    pthread_t thread, workers[MOST];
    size_t n_workers;
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct answer answers[MOST];
    size_t n_answers;
    struct script_call calls[MOST];
    size_t n_calls;
};

struct visit {
    script_t *script;
    int fd;
};

/* ---------------------------------------------------------------- one connection */

static bool read_call(int fd, struct ab_buf *text)
{
    char part[4096];
    ssize_t n;
    while ((n = recv(fd, part, sizeof(part), 0)) > 0) {
        ab_buf_add(text, part, (size_t)n);
        ab_buf_char(text, '\0');
        text->len--;
        const char *head = strstr(text->data, "\r\n\r\n");
        const char *length = strstr(text->data, "Content-Length: ");
        if (head
            && text->len >= (size_t)(head + 4 - text->data)
                                + (length ? strtoul(length + 16, NULL, 10) : 0))
            return true;
    }
    return false;
}

static void parse_call(struct script_call *call, const char *text)
{
    char method[16] = "", path[240] = "";
    const char *key = strstr(text, "Idempotency-Key: "), *body = strstr(text, "\r\n\r\n");
    sscanf(text, "%15s %239[^ ?]", method, path);
    snprintf(call->route, sizeof(call->route), "%s %s", method, path);
    if (key)
        sscanf(key + 17, "%63[^\r]", call->key);
    call->body = strdup(body ? body + 4 : "");
    call->at_ms = ab_now_ms();
}

static struct answer answer_to(script_t *self, const char *route)
{
    struct answer *best = NULL;
    for (size_t i = 0; i < self->n_answers; i++) {
        struct answer *a = &self->answers[i];
        if (a->used || strcmp(a->route, route) != 0)
            continue;
        if (!best || (best->always && !a->always) || (best->always && a->always))
            best = a;
        if (!best->always)
            break;
    }
    if (!best)
        return (struct answer){.status = 404, .body = "{\"error\":\"Not found\"}"};
    best->used = !best->always;
    return *best;
}

static void *serve_one(void *arg)
{
    struct visit visit = *(struct visit *)arg;
    script_t *self = visit.script;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0}, reply = {0};
    free(arg);
    if (read_call(visit.fd, &text)) {
        pthread_mutex_lock(&self->lock);
        parse_call(&self->calls[self->n_calls], text.data);
        struct answer a = answer_to(self, self->calls[self->n_calls].route);
        if (self->n_calls < MOST - 1)
            self->n_calls++;
        pthread_cond_broadcast(&self->came);
        pthread_mutex_unlock(&self->lock);
        if (a.status == SCRIPT_STALL) {
            struct pollfd end = {.fd = self->wake[0], .events = POLLIN};
            (void)poll(&end, 1, -1);
        } else if (a.status != SCRIPT_LOSE) {
            ab_buf_printf(&reply,
                          "HTTP/1.1 %d It\r\nConnection: close\r\nContent-Type: "
                          "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                          a.status, strlen(a.body), a.body);
            (void)!send(visit.fd, reply.data, reply.len, MSG_NOSIGNAL);
        }
    }
    shutdown(visit.fd, SHUT_RDWR);
    close(visit.fd);
    return NULL;
}

static void *serve(void *arg)
{
    script_t *self = arg;
    for (;;) {
        struct pollfd p[2] = {{.fd = self->fd, .events = POLLIN},
                              {.fd = self->wake[0], .events = POLLIN}};
        (void)poll(p, 2, -1);
        if (p[1].revents || self->n_workers == MOST)
            return NULL;
        struct visit *visit = malloc(sizeof(*visit));
        *visit = (struct visit){self, accept(self->fd, NULL, NULL)};
        if (visit->fd >= 0
            && pthread_create(&self->workers[self->n_workers], NULL, serve_one, visit) == 0)
            self->n_workers++;
        else
            free(visit);
    }
}

/* ---------------------------------------------------------------- the test's side */

script_t *script_new(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    script_t *self = calloc(1, sizeof(*self));
    pthread_condattr_t attr;
    assert_non_null(self);
    self->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(self->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(self->fd, 64), 0);
    assert_int_equal(getsockname(self->fd, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(pipe(self->wake), 0);
    snprintf(self->root, sizeof(self->root), "http://127.0.0.1:%d", ntohs(at.sin_port));
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->came, &attr);
    pthread_condattr_destroy(&attr);
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    return self;
}

void script_destroy(script_t **self_p)
{
    script_t *self = *self_p;
    close(self->wake[1]);
    pthread_join(self->thread, NULL);
    for (size_t i = 0; i < self->n_workers; i++)
        pthread_join(self->workers[i], NULL);
    for (size_t i = 0; i < self->n_calls; i++)
        free(self->calls[i].body);
    close(self->wake[0]);
    close(self->fd);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->came);
    free(self);
    *self_p = NULL;
}

static void add_answer(script_t *self, const char *route, int status, const char *body, bool always)
{
    pthread_mutex_lock(&self->lock);
    assert_true(self->n_answers < MOST);
    struct answer *a = &self->answers[self->n_answers++];
    *a = (struct answer){.status = status, .body = body, .always = always};
    snprintf(a->route, sizeof(a->route), "%s", route);
    pthread_mutex_unlock(&self->lock);
}

void script_say(script_t *self, const char *route, int status, const char *body)
{
    add_answer(self, route, status, body, false);
}

void script_always(script_t *self, const char *route, int status, const char *body)
{
    add_answer(self, route, status, body, true);
}

static const struct script_call *nth(const script_t *self, const char *route, size_t n)
{
    for (size_t i = 0; i < self->n_calls; i++)
        if (strcmp(self->calls[i].route, route) == 0 && n-- == 0)
            return &self->calls[i];
    return NULL;
}

const struct script_call *script_wait(script_t *self, const char *route, size_t n)
{
    const struct script_call *call;
    int64_t end = ab_now_ms() + WAIT_MS;
    struct timespec until = {.tv_sec = end / 1000, .tv_nsec = end % 1000 * 1000000};
    pthread_mutex_lock(&self->lock);
    while (!(call = nth(self, route, n)))
        if (pthread_cond_timedwait(&self->came, &self->lock, &until) != 0)
            break;
    pthread_mutex_unlock(&self->lock);
    if (!call)
        fail_msg("%s was not called %zu times within %d s", route, n + 1, WAIT_MS / 1000);
    return call;
}

size_t script_count(script_t *self, const char *route)
{
    size_t n = 0;
    pthread_mutex_lock(&self->lock);
    while (nth(self, route, n))
        n++;
    pthread_mutex_unlock(&self->lock);
    return n;
}

struct ab_client_file script_client(script_t *self)
{
    return (struct ab_client_file){
        .api_root = self->root,
        .token = "token",
        .connect_timeout_ms = 2000,
        .read_timeout_ms = 5000,
        .retry_count = 2,
    };
}
