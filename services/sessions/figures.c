/* figures.c - see figures.h */
#include "figures.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "figures.sql.h"
#include "http/metric.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    STATES = 16 /* more than there are */
};

struct seen {
    bool known;
    int64_t sessions, leases, last_event, held, at_ms;
    double oldest_heartbeat_sec;
    struct {
        char name[24];
        int64_t jobs, events;
    } states[STATES];
    int n_states;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct seen last; /* under the lock */
static atomic_llong leased, ended, freed_jobs, timed_out_jobs;

void figures_leased(int64_t jobs)
{
    atomic_fetch_add(&leased, jobs);
}

void figures_swept(int64_t sessions, int64_t freed, int64_t timed_out)
{
    atomic_fetch_add(&ended, sessions);
    atomic_fetch_add(&freed_jobs, freed);
    atomic_fetch_add(&timed_out_jobs, timed_out);
}

int figures_look(struct ab_call *call, struct ab_error *err)
{
    static const struct ab_sql *const blocks[] = {&SQL_figures_look, &SQL_figures_jobs};
    PGresult *r[2];
    struct seen now = {.known = true, .at_ms = ab_now_ms()};

    if (ab_run_many(call, blocks, AB_COUNT(blocks), r, err) < 0)
        return -1;
    now.sessions = ab_col_int(r[0], 0, ab_col(r[0], "sessions"));
    now.oldest_heartbeat_sec = ab_col_real(r[0], 0, ab_col(r[0], "oldest_heartbeat"));
    now.leases = ab_col_int(r[0], 0, ab_col(r[0], "leases"));
    now.last_event = ab_col_int(r[0], 0, ab_col(r[0], "last_event"));
    now.held = ab_col_int(r[0], 0, ab_col(r[0], "held"));
    int state = ab_col(r[1], "state"), jobs = ab_col(r[1], "jobs"), events = ab_col(r[1], "events");
    for (int i = 0; i < PQntuples(r[1]) && now.n_states < STATES; i++) {
        size_t n;
        const char *name = ab_col_text(r[1], i, state, &n);
        snprintf(now.states[now.n_states].name, sizeof(now.states[0].name), "%.*s", (int)n, name);
        now.states[now.n_states].jobs = ab_col_int(r[1], i, jobs);
        now.states[now.n_states++].events = ab_col_int(r[1], i, events);
    }
    pthread_mutex_lock(&lock);
    last = now;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void one(struct ab_buf *out, const char *name, const char *type, const char *help, double v)
{
    ab_metric_type(out, name, type, help);
    ab_metric(out, name, NULL, v);
}

static void write_states(struct ab_buf *out, const struct seen *now)
{
    char label[40];

    ab_metric_type(out, "abies_jobs", "gauge", "jobs by state");
    for (int i = 0; i < now->n_states; i++) {
        snprintf(label, sizeof(label), "state=\"%s\"", now->states[i].name);
        ab_metric(out, "abies_jobs", label, (double)now->states[i].jobs);
    }
    ab_metric_type(out, "abies_job_events", "gauge",
                   "events of the jobs there are, by the state reached");
    for (int i = 0; i < now->n_states; i++) {
        snprintf(label, sizeof(label), "state=\"%s\"", now->states[i].name);
        ab_metric(out, "abies_job_events", label, (double)now->states[i].events);
    }
}

void figures_write(struct ab_buf *out)
{
    pthread_mutex_lock(&lock);
    struct seen now = last;
    pthread_mutex_unlock(&lock);
    one(out, "abies_leases_granted_total", "counter", "jobs leased by this replica",
        (double)leased);
    one(out, "abies_sessions_swept_total", "counter", "sessions ended by this replica's sweeper",
        (double)ended);
    one(out, "abies_leases_freed_total", "counter", "jobs given back by the sweeper",
        (double)freed_jobs);
    one(out, "abies_leases_timed_out_total", "counter", "running jobs that the sweeper timed out",
        (double)timed_out_jobs);
    if (!now.known)
        return;
    one(out, "abies_figures_age_seconds", "gauge", "how old the figures below are",
        (double)(ab_now_ms() - now.at_ms) / 1e3);
    one(out, "abies_sessions", "gauge", "sessions that are open", (double)now.sessions);
    one(out, "abies_session_oldest_heartbeat_seconds", "gauge",
        "silence of the most silent session", now.oldest_heartbeat_sec);
    one(out, "abies_leases", "gauge", "jobs that a session holds", (double)now.leases);
    one(out, "abies_event_last_id", "gauge", "number of the newest event", (double)now.last_event);
    one(out, "abies_event_held_transactions", "gauge",
        "transactions whose events wait for an older open one", (double)now.held);
    write_states(out, &now);
}
