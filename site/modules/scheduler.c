/* scheduler.c - batch jobs of the centre become jobs of the local batch system, and their states go
 * back
 *
 * It does not decide how many nodes are needed; it carries out. A batch job that the batch system
 * does not list is looked up in its history, and only then finished.
 */
#include "scheduler/scheduler.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "schema/json.h"
#include "site/module.h"
#include "template.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIVE_MS 15000 /* the centre hears of us at least this often */
#define CANCEL_AGAIN_MS 10000
#define STOP_MS 5500 /* a launcher reports and gives back in that time */
#define TEMPLATE_MAX 65536
#define UPDATES_MAX 1000
#define MISSES 2 /* cycles in a row before a job that no history knows is over */

struct watched { /* what is remembered of a batch job between cycles */
    int64_t id;
    int misses;
    int64_t cancelled_ms;
    bool seen;
};

struct scheduler_module {
    const struct scheduler *system;
    char *folder; /* qsubmit/ */
    struct watched *watched;
    size_t n_watched;
    struct ab_buf updates[UPDATES_MAX];
    size_t n_updates;
    struct ab_buf said; /* the site's fields as they were last sent */
    int64_t said_ms;
    uint64_t submitted, failed;
};

/* ---------------------------------------------------------------- what is remembered */

static struct watched *watch(struct scheduler_module *s, int64_t id)
{
    for (size_t i = 0; i < s->n_watched; i++)
        if (s->watched[i].id == id)
            return &s->watched[i];
    s->watched = realloc(s->watched, (s->n_watched + 1) * sizeof(*s->watched));
    if (!s->watched)
        abort();
    s->watched[s->n_watched] = (struct watched){.id = id};
    return &s->watched[s->n_watched++];
}

static void forget_unseen(struct scheduler_module *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_watched; i++)
        if (s->watched[i].seen) {
            s->watched[kept] = s->watched[i];
            s->watched[kept++].seen = false;
        }
    s->n_watched = kept;
}

/* ---------------------------------------------------------------- updates */

static void flush(struct module *m, struct scheduler_module *s)
{
    struct ab_error err = {0};
    if (s->n_updates > 0 && module_put(m, "/batch-jobs/", s->updates, s->n_updates, &err) < 0)
        ab_log(AB_ERROR, "updates.lost", AB_KV("updates", s->n_updates),
               AB_KV("error", err.text)); /* seen again next time */
    for (size_t i = 0; i < s->n_updates; i++)
        ab_buf_free(&s->updates[i]);
    s->n_updates = 0;
}

static struct ab_buf *new_update(struct module *m, struct scheduler_module *s,
                                 const struct batch_job *job, const char *state)
{
    if (s->n_updates == UPDATES_MAX)
        flush(m, s);
    struct ab_buf *out = &s->updates[s->n_updates++];
    ab_buf_printf(out, "{\"id\":%" PRId64 ",\"state\":\"%s\"", job->id, state);
    ab_log(AB_INFO, "batch_job.moved", AB_KV("batch_job", job->id), AB_KV("state", state));
    return out;
}

static void utc_now(char out[AB_TIME_TEXT])
{
    ab_time_format(ab_utc_us(), true, out);
}

/* status_info is replaced as a whole: what is there, without the keys given, then these. Ends with
 * NULL. */
static void add_info(struct ab_buf *out, const struct batch_job *job, const char *const *pairs)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *old =
        job->status_info.n ? ab_value_parse(arena, job->status_info.p, job->status_info.n, NULL)
                           : NULL;
    const char *comma = "";
    ab_buf_str(out, ",\"status_info\":{");
    for (size_t i = 0; old && old->type == AB_V_MAP && i < old->n; i++) {
        bool replaced = false;
        for (const char *const *p = pairs; *p; p += 2)
            replaced = replaced || strcmp(*p, old->keys[i]) == 0;
        if (replaced)
            continue;
        ab_buf_str(out, comma);
        ab_buf_json_str(out, old->keys[i], strlen(old->keys[i]));
        ab_buf_char(out, ':');
        ab_value_write(out, &old->items[i]);
        comma = ",";
    }
    for (const char *const *p = pairs; *p; p += 2) {
        ab_buf_printf(out, "%s\"%s\":", comma, p[0]);
        ab_buf_json_str(out, p[1], strlen(p[1]));
        comma = ",";
    }
    ab_buf_char(out, '}');
}

static void refuse(struct module *m, struct scheduler_module *s, const struct batch_job *job,
                   const char *why)
{
    char when[AB_TIME_TEXT];
    utc_now(when);
    const char *pairs[] = {"error", why, "error_time", when, NULL};
    struct ab_buf *out = new_update(m, s, job, "submit_failed");
    add_info(out, job, pairs);
    ab_buf_char(out, '}');
    s->failed++;
    ab_log(AB_WARN, "batch_job.refused", AB_KV("batch_job", job->id), AB_KV("why", why));
}

/* ---------------------------------------------------------------- submitting */

static bool in_words(const struct ab_words *words, const char *text)
{
    for (size_t i = 0; i < words->n; i++)
        if (strcmp(words->v[i], text) == 0)
            return true;
    return false;
}

/* Every pair of the site's filter_tags is among the batch job's. */
static bool is_ours(const struct ab_settings *settings, const struct ab_value *tags)
{
    for (size_t i = 0; i < settings->filter_tags.n; i++) {
        const char *has = ab_value_text(ab_value_get(tags, settings->filter_tags.v[i].key), NULL);
        if (!has || strcmp(has, settings->filter_tags.v[i].value) != 0)
            return false;
    }
    return true;
}

/* The rules of the contract that only a site can check (data-model: BatchJob.validate). */
static int validate(const struct ab_settings *settings, const struct batch_job *job,
                    const struct ab_value *parts, const struct ab_value *params,
                    struct ab_error *err)
{
    const struct ab_queue *queue = ab_settings_queue(settings, job->queue);
    if (!queue)
        return ab_fail(err, AB_EINVAL,
                       "this site has no queue `%s` (settings.yml: scheduler.allowed_queues)",
                       job->queue);
    if (job->num_nodes < 1 || job->num_nodes > queue->max_nodes)
        return ab_fail(err, AB_EINVAL, "%d nodes: queue `%s` has 1 to %" PRId64, job->num_nodes,
                       job->queue, queue->max_nodes);
    if (job->wall_time_min < 1 || job->wall_time_min > queue->max_walltime)
        return ab_fail(err, AB_EINVAL, "%d minutes: queue `%s` allows 1 to %" PRId64,
                       job->wall_time_min, job->queue, queue->max_walltime);
    if (!in_words(&settings->scheduler.allowed_projects, job->project))
        return ab_fail(
            err, AB_EINVAL,
            "`%s` is not among this site's projects (settings.yml: scheduler.allowed_projects)",
            job->project);
    int64_t sum = 0;
    for (size_t i = 0; parts && parts->type == AB_V_LIST && i < parts->n; i++)
        sum += ab_value_int(ab_value_get(&parts->items[i], "num_nodes"), 0);
    if (parts && parts->type == AB_V_LIST && parts->n > 0 && sum != job->num_nodes)
        return ab_fail(err, AB_EINVAL, "the partitions have %" PRId64 " nodes, the batch job %d",
                       sum, job->num_nodes);
    for (size_t i = 0; params && params->type == AB_V_MAP && i < params->n; i++) {
        bool known = false;
        for (size_t k = 0; k < settings->scheduler.optional_batch_job_params.n; k++)
            known =
                known
                || strcmp(settings->scheduler.optional_batch_job_params.v[k].key, params->keys[i])
                       == 0;
        if (!known)
            return ab_fail(err, AB_EINVAL,
                           "`%s` is not among this site's optional_batch_job_params",
                           params->keys[i]);
    }
    return 0;
}

static void quoted(struct ab_buf *out, const char *option, const char *text)
{
    ab_buf_printf(out, "%s%s ", out->len ? " " : "", option);
    template_quote(out, text);
}

/* --tag 'k=v' for each pair */
static char *tag_words(ab_arena_t *arena, const struct ab_value *tags)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    for (size_t i = 0; tags && tags->type == AB_V_MAP && i < tags->n; i++)
        quoted(&out, "--tag",
               ab_printf(arena, "%s=%s", tags->keys[i], ab_value_text(&tags->items[i], "")));
    return ab_strndup(arena, out.data ? out.data : "", out.len);
}

/* --part 'serial:2:k=v' for each partition */
static char *part_words(ab_arena_t *arena, const struct ab_value *parts)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    for (size_t i = 0; parts && parts->type == AB_V_LIST && i < parts->n; i++) {
        const struct ab_value *part = &parts->items[i], *tags = ab_value_get(part, "filter_tags");
        char *text =
            ab_printf(arena, "%s:%" PRId64, ab_value_text(ab_value_get(part, "job_mode"), ""),
                      ab_value_int(ab_value_get(part, "num_nodes"), 0));
        for (size_t k = 0; tags && tags->type == AB_V_MAP && k < tags->n; k++)
            text = ab_printf(arena, "%s:%s=%s", text, tags->keys[k],
                             ab_value_text(&tags->items[k], ""));
        quoted(&out, "--part", text);
    }
    return ab_strndup(arena, out.data ? out.data : "", out.len);
}

/* One placeholder per setting of optional_batch_job_params, with the batch job's value or the
 * default. */
static size_t param_values(ab_arena_t *arena, const struct ab_settings *settings,
                           const struct ab_value *params, struct template_value *out)
{
    const struct ab_pairs *known = &settings->scheduler.optional_batch_job_params;
    for (size_t i = 0; i < known->n; i++)
        out[i] = (struct template_value){
            ab_printf(arena, "param_%s", known->v[i].key),
            ab_value_text(ab_value_get(params, known->v[i].key), known->v[i].value), 0};
    return known->n;
}

static int write_script(struct module *m, const struct scheduler_module *s,
                        const struct batch_job *job, const struct ab_value *tags,
                        const struct ab_value *parts, const struct ab_value *params,
                        ab_arena_t *arena, const char **script, struct ab_error *err)
{
    const struct ab_settings *settings = module_view(m).settings;
    const struct ab_site *site = module_view(m).site;
    AB_AUTO(ab_buf_free) struct ab_buf source = {0}, text = {0};
    const char *path = settings->scheduler.job_template_path;
    path = path[0] == '/' ? path : ab_printf(arena, "%s/%s", site->path, path);
    const char *launcher = ab_find_program("abies-launcher");
    if (!launcher)
        return ab_fail(err, AB_EINTERNAL, "abies-launcher is not installed beside this program");
    const char *slash = strrchr(launcher, '/');
    struct template_value fixed[] = {
        {"batch_job_id", ab_printf(arena, "%" PRId64, job->id), 0},
        {"project", job->project, 0},
        {"queue", job->queue, 0},
        {"num_nodes", ab_printf(arena, "%d", job->num_nodes), 0},
        {"wall_time_min", ab_printf(arena, "%d", job->wall_time_min), 0},
        {"job_mode", ab_enum_batch_mode.names[job->job_mode], 0},
        {"site_path", site->path, 0},
        {"abies_bin", ab_strndup(arena, launcher, (size_t)(slash - launcher)), 0},
        {"launcher_cmd", launcher, 0},
        {"tag_args", tag_words(arena, tags), 1},
        {"part_args", part_words(arena, parts), 1},
    };
    size_t n = AB_COUNT(fixed);
    struct template_value *values =
        ab_alloc(arena, n + settings->scheduler.optional_batch_job_params.n, sizeof(*values));
    memcpy(values, fixed, sizeof(fixed));
    n += param_values(arena, settings, params, values + n);
    if (ab_file_read(path, TEMPLATE_MAX, &source, err) < 0)
        return -1;
    if (template_render(source.data ? source.data : "", source.len, values, n, &text, err) < 0)
        return ab_fail_within(err, "%s", path);
    *script = ab_printf(arena, "%s/qlaunch%05" PRId64 ".sh", s->folder, job->id);
    return ab_file_write(*script, text.data, text.len, 0700, err);
}

static int64_t count_queue(const struct scheduler_job *listed, size_t n, const char *queue)
{
    int64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += strcmp(listed[i].queue, queue) == 0;
    return count;
}

/* One that is full stays pending: it is tried again in the next cycle. `quota` counts what this
 * cycle has added. */
static void submit(struct module *m, struct scheduler_module *s, const struct batch_job *job,
                   const struct scheduler_job *listed, size_t n_listed, int64_t *quota)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_settings *settings = module_view(m).settings;
    const struct ab_value *tags =
        ab_value_parse(arena, job->filter_tags.p, job->filter_tags.n, NULL);
    const struct ab_value *parts =
        job->partitions.n ? ab_value_parse(arena, job->partitions.p, job->partitions.n, NULL)
                          : NULL;
    const struct ab_value *params =
        ab_value_parse(arena, job->optional_params.p, job->optional_params.n, NULL);
    struct ab_error err = {0};
    const char *script = NULL;
    if (!is_ours(settings, tags))
        return;
    if (validate(settings, job, parts, params, &err) < 0) {
        refuse(m, s, job, err.text);
        return;
    }
    if (count_queue(listed, n_listed, job->queue) + *quota
        >= ab_settings_queue(settings, job->queue)->max_queued_jobs)
        return;
    struct scheduler_submit what = {job->id,    NULL,           job->project,
                                    job->queue, job->num_nodes, job->wall_time_min};
    int64_t id = 0;
    int rc = write_script(m, s, job, tags, parts, params, arena, &script, &err);
    what.script = script;
    if (rc == 0)
        rc = s->system->submit(s->folder, &what, &id, &err);
    if (rc < 0 && err.code == AB_EBUSY) {
        ab_log(AB_WARN, "submit.delayed", AB_KV("batch_job", job->id), AB_KV("error", err.text));
        return;
    }
    if (rc < 0) {
        refuse(m, s, job, err.text);
        return;
    }
    char when[AB_TIME_TEXT];
    utc_now(when);
    const char *pairs[] = {"submit_script", script, "submit_time", when, NULL};
    struct ab_buf *out = new_update(m, s, job, "queued");
    ab_buf_printf(out, ",\"scheduler_id\":%" PRId64, id);
    add_info(out, job, pairs);
    ab_buf_char(out, '}');
    s->submitted++;
    (*quota)++;
}

/* ---------------------------------------------------------------- following */

static void put_time(struct ab_buf *out, const char *key, int64_t us)
{
    char when[AB_TIME_TEXT];
    if (us) {
        ab_time_format(us, true, when);
        ab_buf_printf(out, ",\"%s\":\"%s\"", key, when);
    }
}

static void finish(struct module *m, struct scheduler_module *s, const struct batch_job *job)
{
    struct scheduler_past past = {0};
    struct ab_error err = {0};
    struct watched *w = watch(s, job->id);
    if (s->system->past(s->folder, job->scheduler_id, &past, &err) < 0) {
        ab_log(AB_WARN, "history.failed", AB_KV("batch_job", job->id), AB_KV("error", err.text));
        return;
    }
    if (!past.known && ++w->misses < MISSES)
        return;
    char code[16];
    snprintf(code, sizeof(code), "%d", past.exit_code);
    const char *with_code[] = {"exit_code", code, NULL},
               *without[] = {"message", "the batch system does not know it any more", NULL};
    struct ab_buf *out = new_update(m, s, job, "finished");
    put_time(out, "start_time", past.start_us);
    put_time(out, "end_time", past.end_us);
    if (past.has_exit || !past.known)
        add_info(out, job, past.has_exit ? with_code : without);
    ab_buf_char(out, '}');
}

static void cancel(struct module *m, struct scheduler_module *s, const struct batch_job *job,
                   bool listed)
{
    struct ab_error err = {0};
    struct watched *w = watch(s, job->id);
    if (!AB_HAS(batch_job, job, scheduler_id) || AB_IS_NULL(batch_job, job, scheduler_id)) {
        const char *pairs[] = {"message", "cancelled before it was submitted", NULL};
        struct ab_buf *out = new_update(m, s, job, "finished");
        add_info(out, job, pairs);
        ab_buf_char(out, '}');
    } else if (!listed) {
        finish(m, s, job);
    } else if (ab_now_ms() - w->cancelled_ms >= CANCEL_AGAIN_MS || !w->cancelled_ms) {
        w->cancelled_ms = ab_now_ms();
        if (s->system->cancel(s->folder, job->scheduler_id, &err) < 0)
            ab_log(AB_WARN, "cancel.failed", AB_KV("batch_job", job->id), AB_KV("error", err.text));
    }
}

static const struct scheduler_job *find_listed(const struct scheduler_job *listed, size_t n,
                                               const struct batch_job *job)
{
    if (AB_HAS(batch_job, job, scheduler_id) && !AB_IS_NULL(batch_job, job, scheduler_id))
        for (size_t i = 0; i < n; i++)
            if (listed[i].id == job->scheduler_id)
                return &listed[i];
    return NULL;
}

/* It was submitted, and we were killed before we could tell: it is cancelled like any other. */
static struct batch_job with_id(const struct scheduler_module *s, const struct batch_job *job)
{
    struct batch_job known = *job;
    bool has = AB_HAS(batch_job, job, scheduler_id) && !AB_IS_NULL(batch_job, job, scheduler_id);
    int64_t id = has || job->state != AB_BATCH_PENDING_DELETION || !s->system->find
                     ? 0
                     : s->system->find(s->folder, job->id);
    if (id) {
        known.scheduler_id = id;
        AB_SET(batch_job, &known, scheduler_id);
        known.null &= ~(UINT64_C(1) << AB_FIELD_batch_job_scheduler_id);
    }
    return known;
}

static void follow(struct module *m, struct scheduler_module *s, const struct batch_job *told,
                   const struct scheduler_job *listed, size_t n, int64_t *quota)
{
    const struct batch_job known = with_id(s, told), *job = &known;
    const struct scheduler_job *found = find_listed(listed, n, job);
    watch(s, job->id)->seen = true;
    if (job->state == AB_BATCH_PENDING_SUBMISSION) {
        submit(m, s, job, listed, n, quota);
    } else if (job->state == AB_BATCH_PENDING_DELETION) {
        cancel(m, s, job, found != NULL);
    } else if (!found) {
        finish(m, s, job);
    } else {
        watch(s, job->id)->misses = 0;
        if (found->running != (job->state == AB_BATCH_RUNNING)) {
            struct ab_buf *out = new_update(m, s, job, found->running ? "running" : "queued");
            ab_buf_char(out, '}');
        }
    }
}

/* ---------------------------------------------------------------- the site's own fields */

static void queued_jobs(struct ab_buf *out, const struct scheduler_job *listed, size_t n)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        const struct scheduler_job *j = &listed[i];
        ab_buf_printf(out,
                      "%s\"%" PRId64 "\":{\"scheduler_id\":%" PRId64
                      ",\"state\":\"%s\",\"num_nodes\":%d,\"wall_time_min\":%" PRId64,
                      i ? "," : "", j->id, j->id, j->running ? "running" : "queued", j->num_nodes,
                      j->wall_time_min);
        ab_buf_printf(
            out, ",\"time_remaining_min\":%" PRId64 ",\"queued_time_min\":%" PRId64 ",\"queue\":",
            j->time_remaining_min, j->queued_time_min);
        ab_buf_json_str(out, j->queue, strlen(j->queue));
        ab_buf_str(out, ",\"project\":");
        ab_buf_json_str(out, j->project, strlen(j->project));
        ab_buf_char(out, '}');
    }
    ab_buf_char(out, '}');
}

/* The sign of life; also when nothing has changed, but then not in every cycle. */
static void tell_site(struct module *m, struct scheduler_module *s,
                      const struct scheduler_job *listed, size_t n)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0}, windows = {0}, reply = {0};
    struct ab_error err = {0};
    char path[64];
    if (s->system->backfill(s->folder, &windows, &err) < 0) {
        ab_log(AB_WARN, "backfill.failed", AB_KV("error", err.text));
        ab_buf_clear(&windows);
        ab_buf_str(&windows, "{}");
    }
    ab_buf_printf(&body, "{\"backfill_windows\":%s,\"queued_jobs\":", windows.data);
    queued_jobs(&body, listed, n);
    ab_buf_char(&body, '}');
    bool same = s->said.len == body.len && memcmp(s->said.data, body.data, body.len) == 0;
    if (same && ab_now_ms() - s->said_ms < ALIVE_MS)
        return;
    snprintf(path, sizeof(path), "/sites/%" PRId64, module_view(m).site->id);
    int status = module_call(m, "PUT", path, &body, MODULE_CALL_MS, &reply, &err);
    if (status < 200 || status >= 300) {
        ab_log(AB_WARN, "site.not_told", AB_KV("code", status), AB_KV("error", err.text));
        return;
    }
    s->said_ms = ab_now_ms();
    ab_buf_clear(&s->said);
    ab_buf_add(&s->said, body.data, body.len);
}

/* ---------------------------------------------------------------- the module */

static int open_scheduler(struct module *m, void *self, struct ab_error *err)
{
    struct scheduler_module *s = self;
    s->system = scheduler_find(module_view(m).settings->scheduler.type, err);
    s->folder = ab_site_path(module_view(m).site, "qsubmit");
    return s->system ? ab_mkdirs(s->folder, 0700, err) : -1;
}

static int get_batch_jobs(struct module *m, ab_arena_t *arena, struct ab_list *jobs,
                          struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    char path[200];
    snprintf(path, sizeof(path),
             "/batch-jobs/?site_id=%" PRId64
             "&state=pending_submission&state=queued&state=running&state=pending_deletion",
             module_view(m).site->id);
    int status = module_call(m, "GET", path, NULL, MODULE_CALL_MS, &reply, err);
    if (status < 200 || status >= 300)
        return -1;
    return ab_json_read(&ab_schema_batch_job, reply.data, reply.len, arena, jobs, NULL, err);
}

static int64_t cycle(struct module *m, void *self)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct scheduler_module *s = self;
    struct ab_list jobs = {0};
    struct scheduler_job *listed = NULL;
    size_t n_listed = 0;
    struct ab_error err = {0};
    int64_t quota = 0, period = module_view(m).settings->scheduler.sync_period_ms;
    /* First what the centre wants, then what is there: a job submitted in between is then listed.
     */
    if (get_batch_jobs(m, arena, &jobs, &err) < 0
        || s->system->list(s->folder, arena, &listed, &n_listed, &err) < 0) {
        module_complain(m, "cycle.skipped", err.text);
        return period > 1000 ? period : 1000;
    }
    const struct batch_job *list = jobs.v;
    for (size_t i = 0; i < jobs.n; i++)
        follow(m, s, &list[i], listed, n_listed, &quota);
    forget_unseen(s);
    bool changed = s->n_updates > 0;
    flush(m, s);
    tell_site(m, s, listed, n_listed);
    char json[128];
    snprintf(json, sizeof(json),
             "{\"listed\":%zu,\"submitted\":%" PRIu64 ",\"failed\":%" PRIu64 "}", n_listed,
             s->submitted, s->failed);
    module_health(m, json);
    /* What was put is on its way: look again only when it has arrived, or it would be done twice.
     */
    if (changed)
        (void)module_drain(m, "/batch-jobs/", MODULE_CALL_MS, NULL);
    return period;
}

static void close_scheduler(struct module *m, void *self, bool broker_gone)
{
    struct scheduler_module *s = self;
    (void)m;
    if (!broker_gone && s->system && s->system->stop)
        s->system->stop(s->folder, STOP_MS);
    for (size_t i = 0; i < s->n_updates; i++)
        ab_buf_free(&s->updates[i]);
    ab_buf_free(&s->said);
    free(s->watched);
    free(s->folder);
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "scheduler",
        .size = sizeof(struct scheduler_module),
        .open = open_scheduler,
        .cycle = cycle,
        .close = close_scheduler,
    };
    if (argc > 1 && strcmp(argv[1], "job") == 0)
        return scheduler_local_job(argc - 1, argv + 1);
    return module_main(&def, argc, argv);
}
