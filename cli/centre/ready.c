/* ready.c - are the processes of a centre ready? */
#include "ready.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "client/http.h"
#include "cluster.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define ASK_LIMIT_MS 5000
#define LOOK_MS 50
#define PROCESSES_MAX 256
#define RESTARTS_ENOUGH 5 /* it ends by itself again and again: no use in waiting on */

/* *says: the answer's first line, in the arena. */
static bool answers_200(const struct centre *self, ab_http_t *http, const char *url,
                        const char **says)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {.limit = 65536};
    struct ab_http_request request = {.method = "GET", .url = url, .timeout_ms = ASK_LIMIT_MS};
    struct ab_http_reply reply = {.body = &body};
    struct ab_error err = {0};
    bool answered = ab_http_call(http, &request, &reply, &err) == 0;
    if (says && !answered)
        *says = ab_strdup(self->arena, err.text);
    else if (says && body.len > 0)
        *says = ab_strndup(self->arena, body.data, strcspn(body.data, "\r\n"));
    return answered && reply.status == 200;
}

static bool one_ready(const struct centre *self, ab_http_t *http, const struct state_process *p,
                      const char **why)
{
    bool ready = false;
    *why = NULL;
    if (!p->pid)
        return false;
    if (strcmp(p->role, "postgres") == 0)
        return cluster_pid(self, &ready) == p->pid && ready;
    if (!p->health)
        return false;
    const char *scheme = strstr(p->health, "://") ? "" : "http://";
    return answers_200(self, http, ab_printf(self->arena, "%s%s/readyz", scheme, p->health), why);
}

bool ready_now(const struct centre *self, const struct state *state, bool *ready, const char **why)
{
    struct ab_http_options options = {.proxy = "", .connect_timeout_ms = 2000};
    AB_AUTO(ab_http_destroy) ab_http_t *http = ab_http_new(&options, NULL);
    bool all = http && state->n > 1;
    for (size_t i = 0; i < state->n; i++) {
        ready[i] = http && one_ready(self, http, &state->processes[i], &why[i]);
        all &= ready[i];
    }
    return all;
}

/* Over HTTPS, as clients come. */
static bool https_answers(const struct centre *self)
{
    struct ab_http_options options = {
        .ca_file = centre_path(self, "tls/ca.pem"), .proxy = "", .connect_timeout_ms = 2000};
    AB_AUTO(ab_http_destroy) ab_http_t *http = ab_http_new(&options, NULL);
    return http
           && answers_200(self, http, ab_printf(self->arena, "%s/readyz", centre_url(self)), NULL);
}

static const char *last_line(const struct centre *self, const char *name)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *path = ab_printf(self->arena, "%s/log/%s.log", self->home, name);
    if (ab_file_read(path, (size_t)32 << 20, &text, NULL) < 0 || text.len == 0)
        return "(its log is empty)";
    while (text.len > 0 && text.data[text.len - 1] == '\n')
        text.data[--text.len] = '\0';
    const char *line = strrchr(text.data, '\n');
    return ab_strdup(self->arena, line ? line + 1 : text.data);
}

/* Which one is to blame: gateways wait for services, so those count last. */
static size_t to_blame(const struct state *state, const bool *ready)
{
    size_t found = state->n;
    for (size_t i = 0; i < state->n; i++) {
        if (ready[i])
            continue;
        if (strcmp(state->processes[i].role, "gateway") != 0)
            return i;
        if (found == state->n)
            found = i;
    }
    return found;
}

int ready_wait(const struct centre *self, int64_t limit_ms, void (*progress)(const char *text),
               struct ab_error *err)
{
    int64_t until = ab_now_ms() + limit_ms;
    for (;;) {
        AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
        struct state state;
        bool ready[PROCESSES_MAX] = {false};
        const char *why[PROCESSES_MAX] = {NULL};
        if (state_read(self, arena, &state, err) < 0)
            return -1;
        if (state.n <= PROCESSES_MAX && ready_now(self, &state, ready, why) && https_answers(self))
            return 0;
        size_t n = 0, first = to_blame(&state, ready);
        for (size_t i = 0; i < state.n; i++)
            n += ready[i];
        if (progress)
            progress(ab_printf(arena, "%zu of %zu processes are ready", n, state.n));
        bool hopeless = first < state.n && state.processes[first].restarts >= RESTARTS_ENOUGH;
        if ((hopeless || ab_now_ms() > until) && first < state.n)
            return ab_fail(
                err, AB_ETIMEOUT, "%s is not ready (%.80s); the end of %s/log/%s.log: %.200s",
                state.processes[first].name, why[first] ? why[first] : "it does not answer",
                self->home, state.processes[first].name,
                last_line(self, state.processes[first].name));
        if (ab_now_ms() > until)
            return ab_fail(err, AB_ETIMEOUT, "%s does not answer", centre_url(self));
        (void)poll(NULL, 0, LOOK_MS); /* other processes' readiness can only be asked for */
    }
}
