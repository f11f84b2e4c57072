/* processing.c - the steps between transfers and runs: hooks of apps, or nothing but the next state
 *
 * A session without a batch job leases jobs in STAGED_IN, RUN_DONE, RUN_ERROR and RUN_TIMEOUT. A
 * job whose app has no hook for its state moves on at once; the others get one of num_workers child
 * processes. Results go to the outbox with the job's lease, so that a session which was given up
 * for dead changes nothing.
 */
#include "app/app.h"
#include "appnames.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "held.h"
#include "schema/json.h"
#include "site/module.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_MAX 500
#define CLOSE_MS 2500
#define BEAT_LEAST_MS 100
#define BEAT_MOST_MS 60000
#define BEAT_FIRST_MS 1000
#define PUT_MAX 500
#define ANSWER_MS 10000 /* more than a call's time: its answer is lost */

struct processing {
    ab_apps_t *apps;
    appnames_t *names;
    char *spool, *session_file;
    struct held_list held;
    int64_t session, leftover;          /* ours; one that a killed module left (0: none) */
    uint64_t creating, asking, beating; /* numbers of calls that run */
    int64_t ask_ms, beat_ms, create_ms; /* when next */
    int64_t asked_ms, beaten_ms;        /* when last */
    bool tired; /* an answer with jobs may be lost: end this session when nothing is held */
    struct ab_buf updates[PUT_MAX];
    size_t n_updates;
    uint64_t done, failed;
};

static const struct {
    int state;
    enum ab_app_hook hook;
    const char *next;
} steps[] = {
    {AB_JOB_STAGED_IN, AB_HOOK_PREPROCESS, "PREPROCESSED"},
    {AB_JOB_RUN_DONE, AB_HOOK_POSTPROCESS, "POSTPROCESSED"},
    {AB_JOB_RUN_ERROR, AB_HOOK_HANDLE_ERROR, "FAILED"},
    {AB_JOB_RUN_TIMEOUT, AB_HOOK_HANDLE_TIMEOUT, "RESTART_READY"},
};

static int step_of(const struct job *job)
{
    for (size_t i = 0; i < AB_COUNT(steps); i++)
        if (steps[i].state == job->state)
            return (int)i;
    return -1;
}

/* ------------------------------------------------------------------ updates */

static void flush_updates(struct module *m, struct processing *p)
{
    struct ab_error err = {0};

    if (module_put(m, "/jobs/", p->updates, p->n_updates, &err) < 0) {
        p->tired = true; /* those jobs become free with the session, and are done again */
        ab_log(AB_ERROR, "updates.lost", AB_KV("updates", p->n_updates), AB_KV("why", err.text));
    }
    for (size_t i = 0; i < p->n_updates; i++)
        ab_buf_free(&p->updates[i]);
    p->n_updates = 0;
}

static void say(struct ab_buf *out, const char *key, const char *text)
{
    ab_buf_printf(out, ",\"%s\":", key);
    ab_buf_json_str(out, text, strlen(text));
}

static struct ab_buf *new_update(struct module *m, struct processing *p, const struct job *job,
                                 const char *state)
{
    char when[AB_TIME_TEXT];

    if (p->n_updates == PUT_MAX)
        flush_updates(m, p);
    struct ab_buf *out = &p->updates[p->n_updates++];
    ab_buf_printf(out, "{\"id\":%" PRId64, job->id);
    if (AB_HAS(job, job, lease))
        ab_buf_printf(out, ",\"lease\":%" PRId32, job->lease);
    say(out, "state", state);
    ab_time_format(ab_utc_us(), true, when);
    say(out, "state_timestamp", when);
    return out;
}

static void move_job(struct module *m, struct processing *p, const struct job *job,
                     const char *state, const struct hook_result *result)
{
    struct ab_buf *out = new_update(m, p, job, state);

    if (result && result->data.n) {
        ab_buf_str(out, ",\"data\":");
        ab_buf_add(out, result->data.p, result->data.n);
    }
    if (result && result->tags.n) {
        ab_buf_str(out, ",\"tags\":");
        ab_buf_add(out, result->tags.p, result->tags.n);
    }
    ab_buf_char(out, '}');
    p->done++;
}

static void fail_job(struct module *m, struct processing *p, const struct job *job, const char *why)
{
    struct ab_buf *out = new_update(m, p, job, "FAILED");

    ab_buf_str(out, ",\"state_data\":{\"message\":");
    ab_buf_json_str(out, why, strlen(why));
    ab_buf_str(out, "}}");
    p->failed++;
    ab_log(AB_WARN, "job.failed", AB_KV("job", job->id), AB_KV("why", why));
}

/* ------------------------------------------------------------------ one job */

static bool worker_free(const struct module *m, const struct processing *p)
{
    return p->held.running < (size_t)module_view(m).settings->processing.num_workers;
}

/* False: cannot be decided now (the centre is away); it stays where it is. */
static bool begin_job(struct module *m, struct processing *p, struct held *one)
{
    const struct job *job = one->job;
    struct ab_error err = {0};
    int step = step_of(job);

    if (one->needs_worker && !worker_free(m, p))
        return false;
    if (step < 0) { /* not what we asked for: given back with the session */
        ab_log(AB_WARN, "job.state", AB_KV("job", job->id), AB_KV("state", (int64_t)job->state));
        p->tired = true;
        held_remove(&p->held, one);
        return true;
    }
    const char *name = appnames_get(p->names, m, job->app_id, &err);
    if (!name && err.code != AB_ENOENT)
        return false;
    const struct ab_app *app = name ? ab_apps_get(p->apps, name, &err) : NULL;
    if (app && app->hooks[steps[step].hook].n) {
        one->needs_worker = true;
        if (!worker_free(m, p))
            return false;
        one->hook = hook_start(module_view(m).site, p->spool, app, steps[step].hook, job, &err);
        if (one->hook) {
            p->held.running++;
            module_watch(m, hook_fd(one->hook));
            return true;
        }
    }
    if (err.code == AB_EBUSY) { /* a full disk is not the job's fault */
        module_complain(m, "job.delayed", err.text);
        return false;
    }
    if (err.code)
        fail_job(m, p, job, err.text);
    else
        move_job(m, p, job, steps[step].next, NULL);
    held_remove(&p->held, one);
    return true;
}

static void end_job(struct module *m, struct processing *p, struct held *one)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct job *job = one->job;
    struct hook_result result;
    struct ab_error err = {0};
    const char *now = steps[step_of(job)].next;

    module_unwatch(m, hook_fd(one->hook));
    if (hook_result(one->hook, job, arena, &result, &err) < 0)
        fail_job(m, p, job, err.text);
    else if (result.state && strcmp(result.state, ab_enum_job_state.names[job->state]) == 0)
        fail_job(m, p, job,
                 "the hook leaves the job's state as it is; a job that is to wait has no place to "
                 "do so");
    else
        move_job(m, p, job, result.state ? result.state : now, &result);
    held_remove(&p->held, one);
}

static void drop_job(struct module *m, struct processing *p, struct held *one)
{
    if (one->hook)
        module_unwatch(m, hook_fd(one->hook));
    held_remove(&p->held, one);
}

static void drop_all(struct module *m, struct processing *p)
{
    while (p->held.first)
        drop_job(m, p, p->held.first);
}

/* Jobs that wait for a worker do not keep those that need none from passing. */
static int64_t begin_jobs(struct module *m, struct processing *p)
{
    int64_t now = ab_now_ms(), wait = BEAT_MOST_MS;

    for (struct held *one = p->held.first, *next; one && !module_stopping(m); one = next) {
        next = one->next;
        if (one->hook) {
            int64_t ms = hook_watch(one->hook, now);
            wait = ms < wait ? ms : wait;
        } else if (!begin_job(m, p, one) && p->held.running == 0) {
            break; /* the centre is away */
        }
    }
    flush_updates(m, p);
    return wait;
}

/* ------------------------------------------------------------------ the session */

static void write_session(struct processing *p)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct ab_error err = {0};

    if (!p->session) {
        (void)unlink(p->session_file);
        return;
    }
    ab_buf_printf(&text, "{\"session\":%" PRId64 "}\n", p->session);
    if (ab_file_write(p->session_file, text.data, text.len, 0600, &err) < 0)
        ab_log(AB_WARN, "session.unwritten", AB_KV("why", err.text));
}

static int64_t read_session(const struct processing *p)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};

    if (ab_file_read(p->session_file, 1024, &text, NULL) < 0 || !text.len)
        return 0;
    return ab_value_int(ab_value_get(ab_value_parse(arena, text.data, text.len, NULL), "session"),
                        0);
}

static int delete_session(struct module *m, int64_t id, int64_t timeout_ms)
{
    char path[64];
    snprintf(path, sizeof(path), "/sessions/%" PRId64, id);
    int status = module_call(m, "DELETE", path, NULL, timeout_ms, NULL, NULL);
    return (status >= 200 && status < 300) || status == 404 ? 0 : -1;
}

static void create_session(struct module *m, struct processing *p)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};

    p->create_ms = ab_now_ms() + 2000;
    if (p->leftover && delete_session(m, p->leftover, MODULE_CALL_MS) < 0)
        return;
    p->leftover = 0;
    ab_buf_printf(&body, "{\"site_id\":%" PRId64 "}", module_view(m).site->id);
    p->creating = module_send(m, "POST", "/sessions/", &body, MODULE_CALL_MS);
}

static void on_created(struct module *m, struct processing *p, int status,
                       const struct ab_buf *body, const struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();

    p->creating = 0;
    if (status != 201 && status != 200) {
        module_complain(m, "session.refused", err->text);
        return;
    }
    p->session =
        ab_value_int(ab_value_get(ab_value_parse(arena, body->data, body->len, NULL), "id"), 0);
    p->tired = false;
    p->ask_ms = 0;
    p->beat_ms = ab_now_ms() + BEAT_FIRST_MS;
    write_session(p);
    ab_log(AB_INFO, "session.open", AB_KV("session", p->session));
}

static void lose_session(struct module *m, struct processing *p)
{
    ab_log(AB_WARN, "session.lost", AB_KV("session", p->session), AB_KV("jobs", p->held.n));
    drop_all(m, p);
    p->session = 0;
    p->asking = p->beating = 0; /* late answers are of no use */
    write_session(p);
    module_wake(m);
}

/* ------------------------------------------------------------------ asking for jobs */

static void ask(struct module *m, struct processing *p)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    char path[64];
    int64_t room = settings->processing.prefetch_depth - (int64_t)p->held.n;

    p->ask_ms = ab_now_ms() + settings->processing.poll_period_ms;
    if (room <= 0)
        return;
    ab_buf_printf(
        &body, "{\"max_num_jobs\":%" PRId64 ",\"filter_tags\":", room < ASK_MAX ? room : ASK_MAX);
    ab_pairs_json(&settings->filter_tags, &body);
    ab_buf_str(&body, ",\"states\":[\"STAGED_IN\",\"RUN_DONE\",\"RUN_ERROR\",\"RUN_TIMEOUT\"]}");
    snprintf(path, sizeof(path), "/sessions/%" PRId64, p->session);
    p->asking = module_send(m, "POST", path, &body, MODULE_CALL_MS);
    p->asked_ms = ab_now_ms();
}

static void on_jobs(struct module *m, struct processing *p, int status, const struct ab_buf *body,
                    const struct ab_error *err)
{
    struct ab_error why = {0};

    p->asking = 0;
    if (status == 404) {
        lose_session(m, p);
        return;
    }
    if (status < 200 || status >= 300) {
        /* jobs may have been leased by a call whose answer did not come */
        p->tired = p->tired || status < 0 || status >= 500;
        module_complain(m, "jobs.refused", err->text);
        return;
    }
    int64_t n = held_add(&p->held, body->data, body->len, &why);
    if (n < 0) {
        p->tired = true;
        ab_log(AB_ERROR, "jobs.unreadable", AB_KV("why", why.text));
    }
    if (n > 0) {
        p->ask_ms = 0; /* there may be more */
        module_wake(m);
    }
}

/* ------------------------------------------------------------------ heartbeat */

static void beat(struct module *m, struct processing *p)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    char path[64];

    ab_buf_str(&body, "{\"jobs\":[");
    for (struct held *one = p->held.first; one; one = one->next) {
        ab_buf_printf(&body, "%s%" PRId64, one == p->held.first ? "" : ",", one->job->id);
        one->named = true;
    }
    ab_buf_str(&body, "]}");
    snprintf(path, sizeof(path), "/sessions/%" PRId64 "/heartbeat", p->session);
    p->beating = module_send(m, "POST", path, &body, MODULE_CALL_MS);
    p->beaten_ms = ab_now_ms();
    p->beat_ms = p->beaten_ms + BEAT_FIRST_MS;
}

/* `cancelled`: the user's wish, which is reported; else the job is somebody else's by now. A job
 * that left and was leased again while the heartbeat was under way is not meant. */
static void drop_named(struct module *m, struct processing *p, const struct ab_value *ids,
                       bool cancelled)
{
    for (size_t i = 0; ids && ids->type == AB_V_LIST && i < ids->n; i++) {
        struct held *one = held_find(&p->held, ab_value_int(&ids->items[i], 0));
        if (!one || !one->named)
            continue;
        if (cancelled)
            fail_job(m, p, one->job, "cancelled");
        drop_job(m, p, one);
    }
}

static void on_beat(struct module *m, struct processing *p, int status, const struct ab_buf *body)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();

    p->beating = 0;
    if (status == 404) {
        lose_session(m, p);
        return;
    }
    if (status < 200 || status >= 300)
        return; /* beat_ms is set already: soon again */
    const struct ab_value *v = ab_value_parse(arena, body->data, body->len, NULL);
    int64_t ms = (int64_t)(ab_value_real(ab_value_get(v, "expires_in_sec"), 3) * 1000 / 3);
    p->beat_ms = ab_now_ms()
                 + (ms < BEAT_LEAST_MS  ? BEAT_LEAST_MS
                    : ms > BEAT_MOST_MS ? BEAT_MOST_MS
                                        : ms);
    drop_named(m, p, ab_value_get(v, "cancel"), true);
    drop_named(m, p, ab_value_get(v, "lost"), false);
    flush_updates(m, p);
}

/* ------------------------------------------------------------------ the module */

static void say_health(struct module *m, const struct processing *p)
{
    char json[256];
    snprintf(json, sizeof(json),
             "{\"session\":%" PRId64 ",\"held\":%zu,\"hooks\":%zu,\"done\":%" PRIu64
             ",\"failed\":%" PRIu64 "}",
             p->session, p->held.n, p->held.running, p->done, p->failed);
    module_health(m, json);
}

static int open_processing(struct module *m, void *self, struct ab_error *err)
{
    struct processing *p = self;
    const struct ab_site *site = module_view(m).site;

    held_init(&p->held);
    p->apps = ab_apps_new(site->path);
    p->names = appnames_new();
    p->spool = ab_site_path(site, "run/spool/hooks");
    p->session_file = ab_site_path(site, "run/processing.json");
    if (ab_mkdirs(p->spool, 0700, err) < 0)
        return -1;
    hook_end_leftovers(p->spool);
    p->leftover = read_session(p);
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A session whose answers went astray is ended when we hold nothing, and its jobs become free.
 */
static void renew_session(struct module *m, struct processing *p)
{
    if (!p->tired || p->held.n || p->asking || p->beating)
        return;
    if (module_drain(m, "/jobs/", MODULE_CALL_MS, NULL) < 0
        || delete_session(m, p->session, MODULE_CALL_MS) < 0)
        return;
    p->session = 0;
    write_session(p);
}

/* The broker answers in time; an answer that got lost on the way must not be waited for for ever.
 */
static void give_up_answers(struct module *m, struct processing *p)
{
    int64_t before = ab_now_ms() - MODULE_CALL_MS - ANSWER_MS;

    if (p->creating && p->create_ms < before)
        p->creating = 0;
    if (p->beating && p->beaten_ms < before)
        p->beating = 0;
    if (p->asking && p->asked_ms < before) {
        p->asking = 0;
        p->tired = true; /* it may have brought jobs */
        module_complain(m, "jobs.unanswered", "the broker's answer did not come");
    }
}

static int64_t cycle(struct module *m, void *self)
{
    struct processing *p = self;
    int64_t wait = begin_jobs(m, p);
    give_up_answers(m, p);

    if (p->session)
        renew_session(m, p);
    int64_t now = ab_now_ms();
    if (!p->session) {
        if (!p->creating && now >= p->create_ms)
            create_session(m, p);
        say_health(m, p);
        return 500;
    }
    if (!p->asking && !p->tired && now >= p->ask_ms)
        ask(m, p);
    if (!p->beating && now >= p->beat_ms)
        beat(m, p);
    say_health(m, p);
    if (!p->asking)
        wait = least(wait, p->tired ? 1000 : p->ask_ms - now);
    if (!p->beating)
        wait = least(wait, p->beat_ms - now);
    return wait < 10 ? 10 : wait;
}

static void woken(struct module *m, void *self)
{
    struct processing *p = self;

    (void)m;
    p->ask_ms = 0;
}

static void reply(struct module *m, void *self, uint64_t number, int status,
                  const struct ab_buf *body, const struct ab_error *err)
{
    struct processing *p = self;

    if (number == p->creating)
        on_created(m, p, status, body, err);
    else if (number == p->asking)
        on_jobs(m, p, status, body, err);
    else if (number == p->beating)
        on_beat(m, p, status, body);
    else
        return;
    module_wake(m);
}

static void readable(struct module *m, void *self, int fd)
{
    struct processing *p = self;
    struct held *one = held_of_fd(&p->held, fd);

    if (one)
        end_job(m, p, one);
    module_wake(m);
}

static void close_processing(struct module *m, void *self, bool broker_gone)
{
    struct processing *p = self;

    drop_all(m, p);
    if (!broker_gone) {
        flush_updates(m, p);
        (void)module_drain(m, "/jobs/", CLOSE_MS, NULL);
        if (p->session && delete_session(m, p->session, CLOSE_MS) == 0) {
            ab_log(AB_INFO, "session.closed", AB_KV("session", p->session));
            p->session = 0;
            write_session(p);
        }
    }
    for (size_t i = 0; i < p->n_updates; i++)
        ab_buf_free(&p->updates[i]);
    ab_apps_destroy(&p->apps);
    appnames_destroy(&p->names);
    free(p->spool);
    free(p->session_file);
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "processing",
        .size = sizeof(struct processing),
        .open = open_processing,
        .cycle = cycle,
        .woken = woken,
        .reply = reply,
        .readable = readable,
        .close = close_processing,
    };
    return module_main(&def, argc, argv);
}
