/* doctor_running.c - the processes of a local centre: run/centre.json, their health, the bus */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include "client/http.h"
#include "doctor.h"
#include "schema/json.h"
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STATE_MAX = 1 << 20,
    PAGE_MAX = 4 << 20,
    ANSWER_MS = 5000,
    CONNECT_MS = 3000
};

#define NAME_MAX_TEXT 64

/* Runs, and is the process that was written down. */
static bool runs(const struct ab_value *v)
{
    int64_t pid = ab_value_int(ab_value_get(v, "pid"), 0);
    int64_t start = ab_value_int(ab_value_get(v, "start"), 0);
    return pid > 1 && kill((pid_t)pid, 0) == 0
           && (start == 0 || ab_pid_start_time((pid_t)pid) == (uint64_t)start);
}

/* ---- a process */

static int get(struct doctor *self, const char *health, const char *page, struct ab_buf *out,
               struct ab_error *err)
{
    const struct ab_http_options options = {.proxy = "", .connect_timeout_ms = CONNECT_MS};
    AB_AUTO(ab_http_destroy) ab_http_t *http = ab_http_new(&options, err);
    const char *url = ab_printf(self->arena, "%s%s%s",
                                ab_str_starts(health, "http") ? "" : "http://", health, page);
    const struct ab_http_request request = {.method = "GET", .url = url, .timeout_ms = ANSWER_MS};
    struct ab_http_reply reply = {.body = out};
    out->limit = PAGE_MAX;
    if (!http || ab_http_call(http, &request, &reply, err) < 0)
        return -1;
    return reply.status;
}

static const char *one_line(struct doctor *self, const struct ab_buf *text)
{
    char *line =
        ab_strndup(self->arena, text->data ? text->data : "", text->len < 300 ? text->len : 300);
    for (char *p = line; *p; p++)
        if (*p == '\n')
            *p = p[1] ? ';' : '\0';
    return line;
}

/* A timer that fails at least every second time: sweeping or housekeeping does not happen. */
static void look_at_timers(struct doctor *self, const char *name, const char *text)
{
    static const char runs_of[] = "abies_timer_runs_total{",
                      failures_of[] = "abies_timer_failures_total{";
    for (const char *at = text; (at = strstr(at, failures_of)); at++) {
        const char *end = strchr(at, '}');
        size_t n = end ? (size_t)(end - at) - strlen(failures_of) : 0;
        const char *labels = ab_strndup(self->arena, at + strlen(failures_of), n);
        const char *other = strstr(text, ab_printf(self->arena, "%s%s} ", runs_of, labels));
        double failed = end ? strtod(end + 1, NULL) : 0,
               ran = other ? strtod(strchr(other, '}') + 1, NULL) : 0;
        if (ran > 0 && failed * 2 >= ran)
            report_find(self->report, REPORT_BROKEN, "timer",
                        "look into its log for timer.failed: mostly a missing right or a full disk",
                        "%s: %.0f of %.0f runs failed (%s)", name, failed, ran, labels);
    }
}

static bool look_at_process(struct doctor *self, const struct ab_value *v)
{
    const char *name = ab_value_text(ab_value_get(v, "name"), "?");
    const char *health = ab_value_text(ab_value_get(v, "health"), NULL);
    AB_AUTO(ab_buf_free) struct ab_buf ready = {0}, figures = {0};
    struct ab_error err = {0};
    if (!runs(v)) {
        report_find(
            self->report, REPORT_BROKEN, "process",
            "its log says why it ends; the supervisor starts it again and again: `abies logs NAME`",
            "%s does not run (it last ended with %" PRId64 ")", name,
            ab_value_int(ab_value_get(v, "last_exit"), 0));
        return false;
    }
    if (!health)
        return true;
    int status = get(self, health, "/readyz", &ready, &err);
    if (status == 200) {
        report_find(self->report, REPORT_OK, "process", NULL, "%s is ready", name);
    } else {
        report_find(self->report, REPORT_BROKEN, "process",
                    status < 0 ? "it runs and does not answer: look into its log, then restart it "
                                 "(SIGTERM, then SIGKILL)"
                               : "look at what it waits for",
                    "%s is not ready: %s", name, status < 0 ? err.text : one_line(self, &ready));
    }
    if (status > 0 && get(self, health, "/metrics", &figures, NULL) == 200) {
        ab_buf_char(&figures, '\0');
        if (!figures.failed)
            look_at_timers(self, name, figures.data);
    }
    return status == 200;
}

static void look_at_processes(struct doctor *self, const struct ab_value *list)
{
    int there[DOCTOR_SERVICES] = {0};
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        const char *role = ab_value_text(ab_value_get(&list->items[i], "role"), "");
        bool good = look_at_process(self, &list->items[i]);
        for (int s = 0; s < DOCTOR_SERVICES; s++)
            there[s] += good && strcmp(doctor_services[s], role) == 0;
    }
    for (int s = 0; s < DOCTOR_SERVICES; s++) {
        int wanted = self->wanted[s] > 0 ? self->wanted[s] : 1;
        report_find(self->report, there[s] >= wanted ? REPORT_OK : REPORT_BROKEN, "replicas",
                    "`abies up` starts what is missing; their logs say why they end",
                    "%d of %d of %s are ready%s", there[s], wanted, doctor_services[s],
                    there[s] ? "" : ": its requests get 503");
    }
}

/* ---- the bus */

/* Somebody listens at "tcp://host:port"? */
static int reach(const char *endpoint, struct ab_error *err)
{
    char host[256];
    const char *at = strstr(endpoint, "://"), *colon = strrchr(endpoint, ':');
    if (!at || !colon || colon < at + 3 || colon - at - 3 >= (ptrdiff_t)sizeof(host))
        return ab_fail(err, AB_EINVAL, "it is no tcp://HOST:PORT");
    snprintf(host, sizeof(host), "%.*s", (int)(colon - at - 3), at + 3);
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &want, &found);
    if (rc != 0)
        return ab_fail(err, AB_EUPSTREAM, "%s", gai_strerror(rc));
    AB_AUTO(ab_close)
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t len = sizeof(error);
    if (connect(fd, found->ai_addr, found->ai_addrlen) < 0)
        error = errno;
    freeaddrinfo(found);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (error == EINPROGRESS)
        error =
            poll(&p, 1, CONNECT_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0
                ? error
                : ETIMEDOUT;
    return error ? ab_fail(err, AB_EUPSTREAM, "%s", strerror(error)) : 0;
}

static void look_at_bus(struct doctor *self, const struct ab_value *list)
{
    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        const char *endpoint = ab_value_text(&list->items[i], "");
        struct ab_error err = {0};
        bool ok = reach(endpoint, &err) == 0;
        report_find(self->report, ok ? REPORT_OK : REPORT_BROKEN, "bus",
                    "start the gateway; else a firewall is in between: services need this port and "
                    "the next one",
                    "%s %s%s", endpoint,
                    ok ? "is reached" : "is not reached: ", ok ? "" : err.text);
    }
}

void doctor_running(struct doctor *self)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *path = ab_printf(self->arena, "%s/run/centre.json", self->admin->home);
    const struct ab_value *state = NULL;
    if (ab_file_read(path, STATE_MAX, &text, NULL) == 0)
        state = ab_value_parse(self->arena, text.data, text.len, NULL);
    if (!state) {
        report_find(self->report, REPORT_BROKEN, "centre", "`abies up`", "it is not started");
        return;
    }
    bool kept = runs(ab_value_get(state, "supervisor"));
    report_find(self->report, kept ? REPORT_OK : REPORT_BROKEN, "supervisor",
                "`abies up`: a new one takes over what runs",
                kept ? "" : "it is gone: what dies now is not started again");
    look_at_processes(self, ab_value_get(state, "processes"));
    look_at_bus(self, ab_value_get(state, "bus"));
}
