/* metrics.c - see metrics.h */
#include "metrics.h"
#include "auth.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "conn.h"
#include "http/health.h"
#include "http/process.h"
#include "schema/schema.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STUCK_MS 5000 /* the loop renews the snapshot every 500 ms */

static const char *const services[] = {"auth", "jobs", "sessions", "transfers"};

static struct {
    pthread_mutex_t lock;
    struct ab_buf text, why;
    bool ready;
    int64_t renewed_ms;
    ab_health_t *health;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* By route; the last one is what has none. Made at the start. */
static struct ab_call_figures *answers;
static struct ab_histogram event_lag;

static int live_replicas(const char *service)
{
    struct ab_bus_service_stats stats;

    for (size_t i = 0; ab_bus_stats(gw.bus, i, &stats); i++)
        if (strcmp(stats.service, service) == 0)
            return stats.replicas;
    return 0;
}

bool metrics_ready(struct ab_buf *why)
{
    bool ready = true;

    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++)
        if (live_replicas(services[i]) == 0) {
            ab_buf_printf(why, "no replica of %s\n", services[i]);
            ready = false;
        }
    if (!auth_ready()) {
        ab_buf_str(why, "the keys of tokens are not known yet\n");
        ready = false;
    }
    if (gw.draining) {
        ab_buf_str(why, "stopping\n");
        ready = false;
    }
    return ready;
}

static void render_own(struct ab_buf *out)
{
    const struct counters *n = &gw.count;
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"abies_gateway_connections", "gauge", "open connections", (double)conn_count()},
        {"abies_gateway_accepted_total", "counter", "connections taken", (double)n->accepted},
        {"abies_gateway_refused_total", "counter", "connections over the limit",
         (double)n->refused},
        {"abies_gateway_accept_errors_total", "counter", "out of descriptors",
         (double)n->accept_errors},
        {"abies_gateway_requests_total", "counter", "requests begun", (double)n->requests},
        {"abies_gateway_request_seconds_total", "counter", "time to the first byte of all answers",
         (double)n->took_us / 1e6},
        {"abies_gateway_late_replies_total", "counter", "answers nobody waited for",
         (double)n->late},
        {"abies_gateway_timeouts_total", "counter", "connections ended by a time limit",
         (double)n->killed_idle},
        {"abies_gateway_request_bytes", "gauge", "bytes of large requests held",
         (double)gw.budget_used},
        {"abies_gateway_over_budget_total", "counter", "requests refused for want of room",
         (double)n->over_budget},
        {"abies_gateway_pooled_total", "counter", "requests parsed off the loop",
         (double)n->pooled},
        {"abies_gateway_pages_total", "counter", "pages of long lists", (double)n->pages},
        {"abies_gateway_websockets_total", "counter", "WebSockets opened", (double)n->ws_opened},
        {"abies_gateway_websocket_frames_total", "counter", "frames sent", (double)n->ws_frames},
        {"abies_gateway_websocket_slow_total", "counter", "subscribers dropped for being slow",
         (double)n->ws_slow},
        {"abies_gateway_hints_total", "counter", "event hints heard", (double)n->hints},
        {"abies_gateway_notices_total", "counter", "notices heard", (double)n->notices},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ab_metric_type(out, rows[i].name, rows[i].type, rows[i].help);
        ab_metric(out, rows[i].name, NULL, rows[i].value);
    }
    ab_metric_type(out, "abies_gateway_answers_total", "counter", "answers by class of status");
    ab_metric(out, "abies_gateway_answers_total", "class=\"2xx\"", (double)n->s2xx);
    ab_metric(out, "abies_gateway_answers_total", "class=\"4xx\"", (double)n->s4xx);
    ab_metric(out, "abies_gateway_answers_total", "class=\"5xx\"", (double)n->s5xx);
}

static const char *labels_of(size_t route, char labels[96])
{
    (void)snprintf(labels, 96, "verb=\"%s\"", route < ab_n_routes ? ab_routes[route].verb : "none");
    return labels;
}

void metrics_answer(const struct ab_route *route, int status, int64_t us)
{
    if (answers)
        ab_call_add(&answers[route ? (size_t)(route - ab_routes) : ab_n_routes], status, us);
}

void metrics_event_lag(int64_t us)
{
    ab_histogram_add(&event_lag, us);
}

static void render_answers(struct ab_buf *out)
{
    char labels[96];

    ab_metric_type(out, "abies_http_requests_total", "counter", "answers by verb and status");
    for (size_t i = 0; answers && i <= ab_n_routes; i++)
        ab_call_codes(out, "abies_http_requests_total", labels_of(i, labels), &answers[i]);
    ab_metric_type(out, "abies_http_request_seconds", "histogram",
                   "from a request's head to the first byte of its answer");
    for (size_t i = 0; answers && i <= ab_n_routes; i++)
        if (ab_histogram_count(&answers[i].time))
            ab_histogram_write(out, "abies_http_request_seconds", labels_of(i, labels),
                               &answers[i].time);
}

static void render_events(struct ab_buf *out)
{
    ab_metric_type(out, "abies_event_lag_seconds", "histogram",
                   "from the news of an event to the frames of its subscribers");
    ab_histogram_write(out, "abies_event_lag_seconds", NULL, &event_lag);
}

static void render_bus(struct ab_buf *out)
{
    struct ab_bus_figures bus;

    ab_bus_figures(gw.bus, &bus);
    ab_metric_type(out, "abies_bus_strays_total", "counter", "messages that made no sense");
    ab_metric(out, "abies_bus_strays_total", NULL, (double)bus.strays);
    ab_metric_type(out, "abies_bus_self_tests_total", "counter",
                   "strangers of our own that were refused, as they should be");
    ab_metric(out, "abies_bus_self_tests_total", NULL, (double)bus.self_tests);
    ab_metric_type(out, "abies_bus_self_tests_unanswered_total", "counter",
                   "those that nothing was heard of");
    ab_metric(out, "abies_bus_self_tests_unanswered_total", NULL,
              (double)bus.self_tests_unanswered);
}

static void render_up(struct ab_buf *out)
{
    AB_AUTO(ab_buf_free) struct ab_buf labels = {0};

    ab_metric_label(&labels, "instance", gw.instance);
    ab_process_self(out, "gateway", labels.data, !gw.draining);
}

enum {
    REPLICAS,
    OUTSTANDING,
    QUEUED,
    OLDEST,
    SENT,
    RESENT,
    REFUSED,
    TIMED_OUT,
    LATE,
    FIGURES
};

static const struct {
    const char *name, *type, *help;
} figures[FIGURES] = {
    [REPLICAS] = {"abies_bus_replicas", "gauge", "live replicas"},
    [OUTSTANDING] = {"abies_bus_outstanding", "gauge", "requests at replicas"},
    [QUEUED] = {"abies_bus_queued", "gauge", "requests that wait for a replica"},
    [OLDEST] = {"abies_bus_oldest_seconds", "gauge", "age of the oldest running request"},
    [SENT] = {"abies_bus_sent_total", "counter", "requests sent"},
    [RESENT] = {"abies_bus_resent_total", "counter", "requests sent again after a death"},
    [REFUSED] = {"abies_bus_refused_total", "counter", "requests answered 503"},
    [TIMED_OUT] = {"abies_bus_timed_out_total", "counter", "requests answered 504"},
    [LATE] = {"abies_bus_late_total", "counter", "replies after their time"},
};

static double figure(const struct ab_bus_service_stats *s, int which)
{
    switch (which) {
    case REPLICAS:
        return s->replicas;
    case OUTSTANDING:
        return s->outstanding;
    case QUEUED:
        return s->queued;
    case OLDEST:
        return (double)s->oldest_ms / 1e3;
    case SENT:
        return (double)s->sent;
    case RESENT:
        return (double)s->resent;
    case REFUSED:
        return (double)s->refused;
    case TIMED_OUT:
        return (double)s->timed_out;
    default:
        return (double)s->late;
    }
}

void metrics_render(struct ab_buf *out)
{
    struct ab_bus_service_stats stats;

    render_up(out);
    render_own(out);
    render_answers(out);
    render_events(out);
    render_bus(out);
    for (int which = 0; which < FIGURES; which++) {
        ab_metric_type(out, figures[which].name, figures[which].type, figures[which].help);
        for (size_t i = 0; ab_bus_stats(gw.bus, i, &stats); i++) {
            char label[64];
            (void)snprintf(label, sizeof(label), "service=\"%s\"", stats.service);
            ab_metric(out, figures[which].name, label, figure(&stats, which));
        }
    }
}

/* ---- the health port */

void metrics_tick(void)
{
    struct ab_buf text = {0}, why = {0};
    bool ready = metrics_ready(&why);

    metrics_render(&text);
    pthread_mutex_lock(&shared.lock);
    struct ab_buf old_text = shared.text, old_why = shared.why;
    shared.text = text;
    shared.why = why;
    shared.ready = ready;
    shared.renewed_ms = ab_now_ms();
    pthread_mutex_unlock(&shared.lock);
    ab_buf_free(&old_text);
    ab_buf_free(&old_why);
}

static int on_live(void *arg, struct ab_buf *out)
{
    (void)arg;
    pthread_mutex_lock(&shared.lock);
    int64_t age_ms = ab_now_ms() - shared.renewed_ms;
    pthread_mutex_unlock(&shared.lock);
    if (age_ms < STUCK_MS)
        return 0;
    ab_buf_printf(out, "the loop has not turned for %lld ms\n", (long long)age_ms);
    return -1;
}

static int on_ready(void *arg, struct ab_buf *out)
{
    (void)arg;
    pthread_mutex_lock(&shared.lock);
    int rc = shared.ready ? 0 : -1;
    ab_buf_add(out, shared.why.data, shared.why.len);
    pthread_mutex_unlock(&shared.lock);
    return rc;
}

static void on_metrics(void *arg, struct ab_buf *out)
{
    (void)arg;
    pthread_mutex_lock(&shared.lock);
    ab_buf_add(out, shared.text.data, shared.text.len);
    pthread_mutex_unlock(&shared.lock);
}

int metrics_start(const char *listen, struct ab_error *err)
{
    const struct ab_health_options options = {
        .listen = listen,
        .live = on_live,
        .ready = on_ready,
        .metrics = on_metrics,
    };
    if (!answers && !(answers = calloc(ab_n_routes + 1, sizeof(*answers))))
        abort();
    metrics_tick();
    shared.health = ab_health_new(&options, err);
    return shared.health ? 0 : -1;
}

void metrics_stop(void)
{
    free(answers);
    answers = NULL;
    ab_health_destroy(&shared.health);
    ab_buf_free(&shared.text);
    ab_buf_free(&shared.why);
}

const char *metrics_address(void)
{
    return ab_health_address(shared.health);
}
