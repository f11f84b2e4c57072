/* module.c - see module.h */
#include "module.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/spawn.h"
#include "base/str.h"
#include "base/trace.h"
#include "bus/local.h"
#include "http/metric.h"
#include "http/process.h"
#include "schema/json.h"
#include "sitedir/figures.h"
#include "wire.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define WATCH_MAX 512
#define WAIT_MAX_MS 60000
#define PUT_WAIT_MS 20000
#define EARLY_MAX 64
#define HEALTH_MS 1000
#define WAKE_GATHER_MS 100 /* from the first word of new work to its cycle: more may come */
#define WAKE_REST_MS 500   /* after a cycle: a busy centre is not asked all the time */
#define COMPLAIN_MS 60000

/* Answers to module_send that came while a module_call was waiting for its own. */
struct early {
    uint64_t number;
    int status;
    struct ab_error err;
    struct ab_buf body;
};

struct module {
    const struct module_def *def;
    void *self;
    struct ab_site site;
    struct ab_settings *settings;
    ab_link_t *link;
    int signals, broker; /* descriptors: SIGTERM; pidfd of the broker, -1 if there are none */
    int fds[WATCH_MAX + 2];
    size_t n_fds;
    uint64_t number;
    char trace[AB_TRACE_ID]; /* of the last call: log lines that follow carry it */
    struct early early[EARLY_MAX];
    size_t n_early;
    int64_t next_ms, last_ms; /* of cycles: begin of the next, end of the last */
    ab_figures_t *figures;
    ab_calls_t *calls; /* to the centre, through the broker */
    struct ab_histogram cycles;
    uint64_t updates;
    char health[2048]; /* what was last said, and when the next may be */
    int64_t health_ms;
    char figure_words[2048]; /* the latest, said or not */
    char complaint[64], complaint_why[480];
    int64_t complain_ms;
    bool woken, roused;           /* by ourselves; by the broker */
    bool stopping, closing, gone; /* asked to end; in close(); the broker is */
};

struct module_view module_view(const struct module *m)
{
    return (struct module_view){&m->site, m->settings};
}

bool module_stopping(const struct module *m)
{
    return m->stopping;
}

void module_wake(struct module *m)
{
    m->woken = true;
}

/* ------------------------------------------------------------------ what makes it end */

static void lose_broker(struct module *m)
{
    if (!m->gone)
        ab_log(AB_WARN, "broker.gone");
    m->gone = m->stopping = true;
}

/* Signals and the broker's death; cheap, looked at after each wait. */
static void look_around(struct module *m)
{
    struct signalfd_siginfo info;
    struct pollfd broker = {.fd = m->broker, .events = POLLIN};

    while (read(m->signals, &info, sizeof(info)) == sizeof(info)) {
        if (!m->stopping)
            ab_log(AB_INFO, "module.stops");
        m->stopping = true;
    }
    if (m->broker >= 0 && poll(&broker, 1, 0) > 0)
        lose_broker(m);
    (void)ab_link_tick(m->link, ab_now_ms());
}

static int receive(struct module *m, struct ab_message *out)
{
    int got = m->gone ? 0 : ab_link_receive(m->link, out);
    if (got < 0)
        lose_broker(m);
    return got > 0;
}

/* ------------------------------------------------------------------ questions to the broker */

static void keep_early(struct module *m, const struct ab_message *message)
{
    struct early *e = &m->early[m->n_early];

    m->roused = m->roused || strcmp(message->kind, WIRE_WAKE) == 0;
    if (m->n_early == EARLY_MAX || strcmp(message->kind, WIRE_REPLY) != 0)
        return;
    *e = (struct early){.number = message->number};
    if (wire_read_reply(message->body, message->len, &e->status, &e->err, &e->body) == 0)
        m->n_early++;
    else
        ab_buf_free(&e->body);
}

static bool give_up(const struct module *m)
{
    return m->gone || (m->stopping && !m->closing);
}

/* Wait for the answer `kind` to question `number`. 1 there, -1 time or end. */
static int await(struct module *m, const char *kind, uint64_t number, int64_t timeout_ms,
                 struct ab_message *out, struct ab_error *err)
{
    int64_t end = ab_now_ms() + timeout_ms;
    int fds[2] = {m->signals, m->broker};

    for (;;) {
        while (receive(m, out)) {
            if (out->number == number && strcmp(out->kind, kind) == 0)
                return 1;
            keep_early(m, out);
        }
        int64_t left = end - ab_now_ms();
        if (give_up(m))
            return ab_fail_kind(err, AB_EBUSY, "stopped", "the site is being stopped");
        if (left <= 0)
            return ab_fail(err, AB_ETIMEOUT, "the site's broker did not answer in time");
        ab_link_wait(m->link, fds, m->broker >= 0 ? 2 : 1, left < 1000 ? left : 1000);
        look_around(m);
    }
}

static uint64_t ask(struct module *m, const char *kind, const struct ab_buf *body,
                    struct ab_error *err)
{
    uint64_t number = ++m->number;

    if (m->gone || body->failed || ab_link_send(m->link, kind, number, body->data, body->len) < 0) {
        ab_fail(err, AB_EBUSY, "the site's broker cannot be reached");
        return 0;
    }
    return number;
}

/* A call begins a trace, which the centre's log lines and statements carry, too. */
static void pack_call(struct module *m, struct ab_buf *out, const char *method, const char *path,
                      const struct ab_buf *body, int64_t timeout_ms)
{
    uint8_t uuid[16];
    char header[AB_TRACE_TEXT];

    ab_uuid7(uuid);
    ab_trace_of(uuid, m->trace);
    ab_trace_write(m->trace, uuid, header);
    ab_log_trace(m->trace);
    wire_pack_call(out, method, path, timeout_ms, body, header);
}

int module_call(struct module *m, const char *method, const char *path, const struct ab_buf *body,
                int64_t timeout_ms, struct ab_buf *reply, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf message = {0};
    struct ab_message answer;
    struct ab_error why = {0};
    int status;

    pack_call(m, &message, method, path, body, timeout_ms);
    uint64_t number = ask(m, WIRE_CALL, &message, err);
    /* the broker ends the call in time; a little more for the way */
    int64_t way = m->closing ? 500 : 5000, from_us = ab_now_us();
    int got = number ? await(m, WIRE_REPLY, number, timeout_ms + way, &answer, err) : -1;
    if (got < 0) {
        ab_calls_add(m->calls, method, -1, ab_now_us() - from_us);
        return -1;
    }
    if (reply)
        ab_buf_clear(reply);
    if (wire_read_reply(answer.body, answer.len, &status, &why, reply) < 0)
        return ab_fail(err, AB_EINTERNAL, "a broken answer of the broker");
    ab_calls_add(m->calls, method, status, ab_now_us() - from_us);
    if (err && why.code)
        *err = why;
    return status;
}

uint64_t module_send(struct module *m, const char *method, const char *path,
                     const struct ab_buf *body, int64_t timeout_ms)
{
    AB_AUTO(ab_buf_free) struct ab_buf message = {0};

    pack_call(m, &message, method, path, body, timeout_ms);
    return ask(m, WIRE_CALL, &message, NULL);
}

int module_put(struct module *m, const char *target, const struct ab_buf *updates, size_t n,
               struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf message = {0};
    struct ab_message answer;

    if (!n)
        return 0;
    wire_pack_put(&message, target, updates, n);
    bool closing = m->closing;
    m->closing = true; /* a result that is there is stored, stopping or not */
    uint64_t number = ask(m, WIRE_PUT, &message, err);
    int rc = number ? await(m, WIRE_STORED, number, PUT_WAIT_MS, &answer, err) : -1;
    m->closing = closing;
    m->updates += rc < 0 ? 0 : n;
    return rc < 0 ? -1 : wire_read_stored(answer.body, answer.len, err);
}

int module_drain(struct module *m, const char *target, int64_t timeout_ms, struct ab_error *err)
{
    struct ab_buf body = {.data = (char *)(uintptr_t)target, .len = strlen(target)};
    struct ab_message answer;
    uint64_t number = ask(m, WIRE_DRAIN, &body, err);

    if (!number)
        return -1;
    if (await(m, WIRE_DRAINED, number, timeout_ms, &answer, err) > 0)
        return 0;
    return -1;
}

void module_complain(struct module *m, const char *event, const char *why)
{
    int64_t now = ab_now_ms();
    bool same = strcmp(event, m->complaint) == 0 && strcmp(why, m->complaint_why) == 0;

    if (m->stopping || (same && now < m->complain_ms))
        return;
    snprintf(m->complaint, sizeof(m->complaint), "%s", event);
    snprintf(m->complaint_why, sizeof(m->complaint_why), "%s", why);
    m->complain_ms = now + COMPLAIN_MS;
    ab_log(AB_WARN, event, AB_KV("why", why));
}

void module_health(struct module *m, const char *json)
{
    int64_t now = ab_now_ms();

    snprintf(m->figure_words, sizeof(m->figure_words), "%s", json);
    if (m->gone || now < m->health_ms || strcmp(json, m->health) == 0)
        return;
    snprintf(m->health, sizeof(m->health), "%s", json);
    m->health_ms = now + HEALTH_MS;
    (void)ab_link_send(m->link, WIRE_HEALTH, 0, json, strlen(json));
}

/* ------------------------------------------------------------------ figures */

/* The numbers of what the module says for health.json: {"held": 3} -> abies_module_state. */
static void write_words(const struct module *m, struct ab_buf *out, const char *label)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *words =
        m->figure_words[0] ? ab_value_parse(arena, m->figure_words, strlen(m->figure_words), NULL)
                           : NULL;

    ab_metric_type(out, "abies_module_state", "gauge", "what a module counts, by name");
    for (size_t i = 0; words && words->type == AB_V_MAP && i < words->n; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf labels = {0};
        if (words->items[i].type != AB_V_INT)
            continue;
        ab_buf_str(&labels, label);
        ab_metric_label(&labels, "name", words->keys[i]);
        ab_metric(out, "abies_module_state", labels.data, (double)words->items[i].i);
    }
}

static void write_figures(struct module *m)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0}, label = {0};

    ab_metric_label(&label, "module", m->def->name);
    ab_process_self(&out, "module", label.data, true);
    ab_metric_type(&out, "abies_module_cycle_seconds", "histogram", "rounds of a module's work");
    ab_histogram_write(&out, "abies_module_cycle_seconds", label.data, &m->cycles);
    ab_calls_write(m->calls, &out, "abies_module_calls_total", "abies_module_call_seconds",
                   "calls to the centre through the broker", label.data);
    ab_metric_type(&out, "abies_module_updates_total", "counter", "updates put into the outbox");
    ab_metric(&out, "abies_module_updates_total", label.data, (double)m->updates);
    write_words(m, &out, label.data);
    ab_figures_write(m->figures, &out, ab_now_ms());
}

/* ------------------------------------------------------------------ descriptors */

void module_watch(struct module *m, int fd)
{
    if (m->n_fds < AB_COUNT(m->fds))
        m->fds[m->n_fds++] = fd;
}

void module_unwatch(struct module *m, int fd)
{
    for (size_t i = 0; i < m->n_fds; i++) {
        if (m->fds[i] != fd)
            continue;
        m->fds[i] = m->fds[--m->n_fds];
        return;
    }
}

static void run_readable(struct module *m)
{
    struct pollfd ready[WATCH_MAX + 2];
    size_t n = 0;

    for (size_t i = 0; i < m->n_fds; i++)
        if (m->fds[i] != m->signals && m->fds[i] != m->broker)
            ready[n++] = (struct pollfd){.fd = m->fds[i], .events = POLLIN};
    if (!n || poll(ready, n, 0) <= 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (ready[i].revents)
            m->def->readable(m, m->self, ready[i].fd);
}

/* ------------------------------------------------------------------ the loop */

static void give(struct module *m, struct early *e)
{
    if (m->def->reply)
        m->def->reply(m, m->self, e->number, e->status, &e->body, &e->err);
    ab_buf_free(&e->body);
}

static void run_replies(struct module *m)
{
    struct ab_message message;

    while (!m->stopping && (m->n_early || receive(m, &message))) {
        if (!m->n_early)
            keep_early(m, &message);
        if (!m->n_early)
            continue;
        struct early first = m->early[0];
        memmove(m->early, m->early + 1, --m->n_early * sizeof(m->early[0]));
        give(m, &first);
    }
}

static void rouse(struct module *m)
{
    int64_t soon = ab_now_ms() + WAKE_GATHER_MS, rested = m->last_ms + WAKE_REST_MS;
    int64_t at = soon > rested ? soon : rested;

    if (!m->roused)
        return;
    m->roused = false;
    if (m->def->woken)
        m->def->woken(m, m->self);
    if (at < m->next_ms)
        m->next_ms = at;
}

static void loop(struct module *m)
{
    while (!m->stopping) {
        ab_log_trace(NULL);
        if (m->woken || ab_now_ms() >= m->next_ms) {
            m->woken = false;
            int64_t from_us = ab_now_us(), pause = m->def->cycle(m, m->self);
            m->last_ms = ab_now_ms();
            m->next_ms = m->last_ms + pause;
            ab_histogram_add(&m->cycles, ab_now_us() - from_us);
        }
        if (ab_figures_due(m->figures, ab_now_ms()) == 0)
            write_figures(m);
        int64_t now = ab_now_ms(), wait = m->next_ms - now, tick = ab_link_tick(m->link, now);
        int64_t figures = ab_figures_due(m->figures, now);
        tick = tick < figures ? tick : figures;
        wait = m->woken || wait < 0 ? 0 : wait > WAIT_MAX_MS ? WAIT_MAX_MS : wait;
        if (m->n_early)
            wait = 0;
        ab_link_wait(m->link, m->fds, m->n_fds, tick < wait ? tick : wait);
        look_around(m);
        run_replies(m);
        rouse(m);
        if (!m->stopping)
            run_readable(m);
    }
}

/* ------------------------------------------------------------------ start and end */

static int open_signals(struct ab_error *err)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? ab_fail_errno(err, AB_EINTERNAL, "signalfd") : fd;
}

static int open_link(struct module *m, struct ab_error *err)
{
    const char *endpoint = getenv(WIRE_ENDPOINT), *pid = getenv(WIRE_PID);
    int64_t number;

    if (!endpoint)
        return ab_fail(
            err, AB_EINVAL,
            "abies-module-%s is started by abies-site, not by hand; use `abies site start`",
            m->def->name);
    if (pid && ab_parse_i64(pid, strlen(pid), 1, INT32_MAX, &number) == 0) {
        m->broker = ab_pidfd((pid_t)number);
        if (m->broker < 0 && errno == ESRCH)
            return ab_fail(err, AB_EBUSY, "the broker (pid %s) is gone", pid);
    }
    struct ab_local_options options = {
        .endpoint = endpoint,
        .name = m->def->name,
        .beat_ms = WIRE_BEAT_MS,
        .dead_ms = WIRE_DEAD_MS,
    };
    m->link = ab_link_new(&options, err);
    return m->link ? 0 : -1;
}

static int open_all(struct module *m, struct ab_error *err)
{
    m->signals = open_signals(err);
    if (m->signals < 0 || ab_site_find(&m->site, NULL, err) < 0)
        return -1;
    AB_AUTO(ab_free) char *file = ab_site_path(&m->site, "settings.yml");
    m->settings = ab_settings_load(file, err);
    if (!m->settings)
        return -1;
    ab_log_open("site", m->def->name, (enum ab_level)ab_level_of(m->settings->logging.level));
    if (open_link(m, err) < 0)
        return -1;
    module_watch(m, m->signals);
    if (m->broker >= 0)
        module_watch(m, m->broker);
    /* answers to the questions of a predecessor that was killed may still come: ours have other
     * numbers */
    m->number = ab_random_below(UINT64_C(1) << 40) << 20;
    m->self = calloc(1, m->def->size ? m->def->size : 1);
    m->calls = ab_calls_new(8);
    m->figures = ab_figures_new(&m->site, m->def->name);
    return m->def->open ? m->def->open(m, m->self, err) : 0;
}

static void close_all(struct module *m)
{
    if (m->self && m->def->close) {
        m->closing = true;
        m->def->close(m, m->self, m->gone);
    }
    for (size_t i = 0; i < m->n_early; i++)
        ab_buf_free(&m->early[i].body);
    ab_link_destroy(&m->link);
    ab_figures_destroy(&m->figures);
    ab_calls_destroy(&m->calls);
    free(m->self);
    ab_settings_destroy(&m->settings);
    ab_site_free(&m->site);
    ab_close(&m->signals);
    ab_close(&m->broker);
}

int module_main(const struct module_def *def, int argc, char **argv)
{
    struct module m = {.def = def, .signals = -1, .broker = -1};
    struct ab_error err = {0};

    (void)argc, (void)argv;
    ab_fault_init();
    ab_log_open("site", def->name, AB_INFO);
    int rc = open_all(&m, &err);
    if (rc == 0) {
        ab_log(AB_INFO, "module.runs", AB_KV("pid", (int64_t)getpid()));
        loop(&m);
    } else {
        ab_log(AB_ERROR, "module.fails", AB_KV("why", err.text));
    }
    close_all(&m);
    return rc == 0 ? 0 : 1;
}
