/* transfer.c - brings files of jobs in and out
 *
 * Pending items are grouped by direction and location into tasks; each task is a worker process
 * that survives this one. Items come in only for jobs that are READY: one that waits for its
 * parents may stage in what they stage out.
 */
#include "transfer/transfer.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "client/api.h"
#include "schema/json.h"
#include "site/module.h"
#include "task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS_IN_A_QUERY 500
#define STARTS_MAX 3 /* of a task whose worker dies */
#define DRAIN_MS 10000
#define ORPHANS_MS 30000

struct transfers {
    struct task *tasks;
    size_t n_tasks;
    int64_t orphans_ms; /* when to look for items that are active without a task */
    uint64_t done, failed, bytes;
};

/* Pending items of one direction and location. */
struct group {
    const char *alias;
    bool out;
    const struct transfer **items;
    size_t n;
};

/* ------------------------------------------------------------------ telling the centre */

static void put_all(struct module *m, struct ab_buf *updates, size_t n, bool *stored)
{
    struct ab_error err = {0};

    *stored = module_put(m, "/transfers/", updates, n, &err) == 0;
    if (!*stored)
        ab_log(AB_ERROR, "updates.lost", AB_KV("updates", n), AB_KV("why", err.text));
    for (size_t i = 0; i < n; i++)
        ab_buf_free(&updates[i]);
    free(updates);
}

static void say_state(struct ab_buf *out, int64_t id, const char *state, const struct task *task)
{
    ab_buf_printf(out, "{\"id\":%" PRId64 ",\"state\":\"%s\"", id, state);
    if (task)
        ab_buf_printf(out, ",\"task_id\":\"%s:%s\"", task->kind->name, task->data.id);
}

static void say_error(struct ab_buf *out, const char *why)
{
    ab_buf_str(out, ",\"transfer_info\":{\"error\":");
    ab_buf_json_str(out, why, strlen(why));
    ab_buf_str(out, "}}");
}

static bool report_active(struct module *m, const struct task *task)
{
    struct ab_buf *updates = calloc(task->data.n, sizeof(*updates));
    bool stored;

    for (size_t i = 0; i < task->data.n; i++) {
        say_state(&updates[i], task->data.items[i].id, "active", task);
        ab_buf_char(&updates[i], '}');
    }
    put_all(m, updates, task->data.n, &stored);
    return stored;
}

static bool report_result(struct module *m, struct transfers *t, const struct task *task)
{
    struct ab_buf *updates = calloc(task->data.n, sizeof(*updates));
    bool stored;

    for (size_t i = 0; i < task->data.n; i++) {
        const struct transfer_item *item = &task->data.items[i];
        say_state(&updates[i], item->id, item->done ? "done" : "error", task);
        if (item->done)
            ab_buf_printf(&updates[i], ",\"transfer_info\":{\"bytes\":%" PRId64 "}}", item->bytes);
        else
            say_error(&updates[i], item->error ? item->error : "unknown");
        if (!item->done)
            ab_log(AB_WARN, "item.failed", AB_KV("item", item->id), AB_KV("job", item->job_id),
                   AB_KV("why", item->error ? item->error : ""));
        t->done += item->done;
        t->failed += !item->done;
        t->bytes += (uint64_t)item->bytes;
    }
    put_all(m, updates, task->data.n, &stored);
    return stored;
}

static void report_error(struct module *m, const struct transfer *const *items, size_t n,
                         const char *why)
{
    struct ab_buf *updates = calloc(n ? n : 1, sizeof(*updates));
    bool stored;

    for (size_t i = 0; i < n; i++) {
        say_state(&updates[i], items[i]->id, "error", NULL);
        say_error(&updates[i], why);
        ab_log(AB_WARN, "item.failed", AB_KV("item", items[i]->id), AB_KV("why", why));
    }
    put_all(m, updates, n, &stored);
}

/* ------------------------------------------------------------------ tasks */

static void add_task(struct module *m, struct transfers *t, struct task *task)
{
    task->next = t->tasks;
    t->tasks = task;
    t->n_tasks++;
    if (task->fd >= 0)
        module_watch(m, task->fd);
}

static void drop_task(struct transfers *t, struct task *task)
{
    struct task **at = &t->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    t->n_tasks--;
    task_destroy(&task);
}

static void fail_all(struct task *task, const char *why)
{
    for (size_t i = 0; i < task->data.n; i++)
        transfer_fail(&task->data, &task->data.items[i], "%s", why);
}

/* A task without a worker: finished, or its worker died. True: it is gone from the list. */
static bool settle(struct module *m, struct transfers *t, struct task *task)
{
    struct ab_error err = {0};
    int got = task_result(task, &err);

    if (got == 0 && task->starts < STARTS_MAX) {
        if (task_start(task, &err) == 0) {
            module_watch(m, task->fd);
            return false;
        }
        got = -1;
    }
    if (got < 0 && err.code == AB_EBUSY) { /* no descriptors, no room: not the files' fault */
        module_complain(m, "task.delayed", err.text);
        return false;
    }
    if (got == 0)
        ab_fail(&err, AB_EINTERNAL, "the transfer's worker process died %d times", task->starts);
    if (got <= 0)
        fail_all(task, err.text);
    if (!report_result(m, t, task))
        return false; /* its folder is the memory: next cycle */
    task_remove(task);
    drop_task(t, task);
    return true;
}

static void settle_all(struct module *m, struct transfers *t)
{
    for (struct task *task = t->tasks, *next; task; task = next) {
        next = task->next;
        if (!task->pid)
            (void)settle(m, t, task);
    }
}

static bool is_busy(const struct transfers *t, int64_t item_id)
{
    for (const struct task *task = t->tasks; task; task = task->next)
        for (size_t i = 0; i < task->data.n; i++)
            if (task->data.items[i].id == item_id)
                return true;
    return false;
}

/* ------------------------------------------------------------------ asking the centre */

static int list_items(struct module *m, const char *path, ab_arena_t *arena, struct ab_list *out,
                      struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    int64_t count;
    int status = module_call(m, "GET", path, NULL, MODULE_CALL_MS, &reply, err);

    if (status < 200 || status >= 300)
        return -1;
    return ab_json_read(&ab_schema_transfer, reply.data, reply.len, arena, out, &count, err);
}

static int list_pending(struct module *m, bool out, ab_arena_t *arena, struct ab_list *items,
                        struct ab_error *err)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};

    ab_buf_str(&path, "/transfers/");
    ab_api_query_int(&path, "site_id", module_view(m).site->id);
    ab_api_query(&path, "state", "pending");
    ab_api_query(&path, "direction", out ? "out" : "in");
    if (!out)
        ab_api_query(&path, "job_state", "READY");
    ab_api_query_int(&path, "limit", settings->transfers.query_limit);
    for (size_t i = 0; i < settings->filter_tags.n; i++) {
        AB_AUTO(ab_buf_free) struct ab_buf pair = {0};
        ab_buf_printf(&pair, "%s:%s", settings->filter_tags.v[i].key,
                      settings->filter_tags.v[i].value);
        ab_api_query(&path, "tags", pair.data);
    }
    return list_items(m, path.data, arena, items, err);
}

/* Work directories of the jobs of n items, into jobs[n]. */
static int fetch_workdirs(struct module *m, const struct transfer *const *items, size_t n,
                          ab_arena_t *arena, const char **workdirs, struct ab_error *err)
{
    for (size_t from = 0; from < n; from += IDS_IN_A_QUERY) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};
        struct ab_list jobs = {0};
        size_t to = from + IDS_IN_A_QUERY < n ? from + IDS_IN_A_QUERY : n;
        int64_t count;

        ab_buf_str(&path, "/jobs/");
        for (size_t i = from; i < to; i++)
            ab_api_query_int(&path, "id", items[i]->job_id);
        int status = module_call(m, "GET", path.data, NULL, MODULE_CALL_MS, &reply, err);
        if (status < 200 || status >= 300
            || ab_json_read(&ab_schema_job, reply.data, reply.len, arena, &jobs, &count, err) < 0)
            return -1;
        for (size_t i = from; i < to; i++)
            for (size_t k = 0; k < jobs.n; k++)
                if (((const struct job *)jobs.v)[k].id == items[i]->job_id)
                    workdirs[i] = ((const struct job *)jobs.v)[k].workdir;
    }
    return 0;
}

/* ------------------------------------------------------------------ new tasks */

static int start_task(struct module *m, struct transfers *t, const char *url, bool out,
                      const struct transfer *const *items, size_t n, const char *const *workdirs)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct transfer_task what = {
        .location = url,
        .out = out,
        .retries = settings->transfers.retries,
        .ssh_config = settings->transfers.ssh_config,
        .items = ab_alloc(arena, n, sizeof(struct transfer_item)),
    };
    struct ab_error err = {0};

    for (size_t i = 0; i < n; i++) {
        if (!workdirs[i])
            continue; /* its job was deleted a moment ago */
        what.items[what.n++] = (struct transfer_item){
            .id = items[i]->id,
            .job_id = items[i]->job_id,
            .workdir = workdirs[i],
            .local_path = items[i]->local_path,
            .remote_path = items[i]->remote_path,
            .recursive = items[i]->recursive,
        };
    }
    if (!what.n)
        return 0;
    struct task *task = task_new(module_view(m).site, &what, &err);
    if (!task || task_start(task, &err) < 0) {
        ab_log(AB_ERROR, "task.refused", AB_KV("why", err.text));
        if (task)
            task_remove(task);
        task_destroy(&task);
        return -1;
    }
    ab_log(AB_INFO, "task.started", AB_KV("task", task->data.id), AB_KV("items", task->data.n),
           AB_KV("out", out), AB_KV("location", url));
    add_task(m, t, task);
    (void)report_active(m, task);
    return 0;
}

static void start_group(struct module *m, struct transfers *t, const struct group *group,
                        size_t *slots)
{
    const struct ab_settings *settings = module_view(m).settings;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const char *url = ab_settings_location(settings, group->alias);
    size_t batch = (size_t)settings->transfers.batch_size;
    struct transfer_url parsed;
    struct ab_error err = {0};
    const struct transfer_kind *kind = NULL;

    if (!url)
        ab_fail(&err, AB_EINVAL,
                "%s is no transfer location of this site (transfers.transfer_locations in "
                "settings.yml)",
                group->alias);
    else if (transfer_url_parse(url, arena, &parsed, &err) == 0
             && !(kind = transfer_of(parsed.scheme)))
        ab_fail(&err, AB_EINVAL, "%s://: no such kind of transfer (local, file, rsync)",
                parsed.scheme);
    if (!kind || kind->check(&parsed, &err) < 0) {
        report_error(m, group->items, group->n, err.text);
        return;
    }
    for (size_t from = 0; *slots > 0 && from < group->n && !module_stopping(m);
         from += batch, --*slots) {
        size_t n = group->n - from < batch ? group->n - from : batch;
        const char **workdirs = ab_alloc(arena, n, sizeof(*workdirs));
        if (fetch_workdirs(m, group->items + from, n, arena, workdirs, &err) < 0
            || start_task(m, t, url, group->out, group->items + from, n, workdirs) < 0)
            return; /* left pending */
    }
}

static int larger_first(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    return (x->n < y->n) - (x->n > y->n);
}

/* Items that no task has, by direction and location. */
static size_t group_items(const struct transfers *t, const struct ab_list lists[2],
                          ab_arena_t *arena, struct group **out)
{
    size_t all = lists[0].n + lists[1].n, n = 0;
    struct group *groups = ab_alloc(arena, all + 1, sizeof(*groups));

    for (int which = 0; which < 2; which++) {
        for (size_t i = 0; i < lists[which].n; i++) {
            const struct transfer *item = (const struct transfer *)lists[which].v + i;
            size_t g = 0;
            if (is_busy(t, item->id) || !item->location_alias || !item->local_path
                || !item->remote_path)
                continue;
            while (g < n
                   && (groups[g].out != (which == 1)
                       || strcmp(groups[g].alias, item->location_alias) != 0))
                g++;
            if (g == n)
                groups[n++] = (struct group){item->location_alias, which == 1,
                                             ab_alloc(arena, all, sizeof(item)), 0};
            groups[g].items[groups[g].n++] = item;
        }
    }
    qsort(groups, n, sizeof(*groups), larger_first);
    *out = groups;
    return n;
}

static void start_tasks(struct module *m, struct transfers *t)
{
    size_t most = (size_t)module_view(m).settings->transfers.max_concurrent;
    size_t slots = most > t->n_tasks ? most - t->n_tasks : 0;
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    struct ab_list lists[2] = {{0}, {0}};
    struct ab_error err = {0};
    struct group *groups;

    if (!slots)
        return;
    if (list_pending(m, false, arena, &lists[0], &err) < 0
        || list_pending(m, true, arena, &lists[1], &err) < 0) {
        module_complain(m, "items.unknown", err.text);
        return;
    }
    size_t n = group_items(t, lists, arena, &groups);
    for (size_t i = 0; i < n && slots > 0 && !module_stopping(m); i++)
        start_group(m, t, &groups[i], &slots);
}

/* ------------------------------------------------------------------ items whose task is lost */

static bool is_ours(const struct transfer *item)
{
    const char *colon = item->task_id ? strchr(item->task_id, ':') : NULL;
    return colon && transfer_named(item->task_id, (size_t)(colon - item->task_id));
}

/* The spool folder was removed, or belongs to another machine's disk: they are done again. */
static void find_orphans(struct module *m, struct transfers *t)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct ab_list items = {0};
    bool stored;

    ab_buf_str(&path, "/transfers/");
    ab_api_query_int(&path, "site_id", module_view(m).site->id);
    ab_api_query(&path, "state", "active");
    ab_api_query(&path, "state", "inactive");
    ab_api_query_int(&path, "limit", module_view(m).settings->transfers.query_limit);
    if (list_items(m, path.data, arena, &items, NULL) < 0)
        return;
    t->orphans_ms = ab_now_ms() + ORPHANS_MS;
    struct ab_buf *updates = calloc(items.n + 1, sizeof(*updates));
    size_t n = 0;
    for (size_t i = 0; i < items.n; i++) {
        const struct transfer *item = (const struct transfer *)items.v + i;
        if (!is_ours(item) || is_busy(t, item->id))
            continue;
        ab_log(AB_WARN, "item.orphan", AB_KV("item", item->id), AB_KV("task", item->task_id));
        say_state(&updates[n], item->id, "pending", NULL);
        ab_buf_str(&updates[n++], ",\"task_id\":\"\"}");
    }
    put_all(m, updates, n, &stored);
}

/* ------------------------------------------------------------------ the module */

static int open_transfers(struct module *m, void *self, struct ab_error *err)
{
    struct transfers *t = self;
    const struct ab_site *site = module_view(m).site;
    AB_AUTO(ab_free) char *spool = ab_site_path(site, "run/spool/transfer");
    char **ids;

    if (ab_mkdirs(spool, 0700, err) < 0)
        return -1;
    size_t n = task_list(site, &ids);
    for (size_t i = 0; i < n; i++) {
        struct ab_error why = {0};
        struct task *task = task_load(site, ids[i], &why);
        if (task) {
            bool runs = task_adopt(task);
            ab_log(AB_INFO, "task.found", AB_KV("task", ids[i]), AB_KV("runs", runs));
            add_task(m, t, task);
            (void)report_active(m, task);
        } else if (why.code == AB_EBUSY) {
            ab_log(AB_WARN, "task.delayed", AB_KV("task", ids[i]), AB_KV("why", why.text));
        } else { /* its file was never written whole: nothing was started */
            AB_AUTO(ab_buf_free) struct ab_buf folder = {0};
            ab_log(AB_WARN, "task.unreadable", AB_KV("task", ids[i]), AB_KV("why", why.text));
            ab_buf_printf(&folder, "%s/%s", spool, ids[i]);
            (void)ab_remove_tree(folder.data, NULL);
        }
        free(ids[i]);
    }
    free(ids);
    return 0;
}

static int64_t cycle(struct module *m, void *self)
{
    struct transfers *t = self;
    char json[200];

    settle_all(m, t);
    /* what we said must be what the centre's lists say, or an item would be taken twice */
    if (module_drain(m, "/transfers/", DRAIN_MS, NULL) == 0) {
        if (ab_now_ms() >= t->orphans_ms)
            find_orphans(m, t);
        start_tasks(m, t);
    }
    snprintf(json, sizeof(json),
             "{\"tasks\":%zu,\"done\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
             t->n_tasks, t->done, t->failed, t->bytes);
    module_health(m, json);
    return module_view(m).settings->transfers.service_period_ms;
}

static void readable(struct module *m, void *self, int fd)
{
    struct transfers *t = self;
    struct task *task = t->tasks;

    while (task && task->fd != fd)
        task = task->next;
    module_unwatch(m, fd);
    if (!task)
        return;
    task_collect(task);
    if (settle(m, t, task))
        module_wake(m); /* a slot is free */
}

/* Workers end with the site; their tasks go on, from the start, when it runs again. */
static void close_transfers(struct module *m, void *self, bool broker_gone)
{
    struct transfers *t = self;

    (void)broker_gone;
    for (struct task *task = t->tasks; task; task = task->next)
        task_kill(task);
    for (struct task *task = t->tasks, *next; task && !broker_gone; task = next) {
        next = task->next;
        if (task_result(task, NULL) > 0)
            (void)settle(m, t, task);
    }
    while (t->tasks)
        drop_task(t, t->tasks);
}

int main(int argc, char **argv)
{
    static const struct module_def def = {
        .name = "transfer",
        .size = sizeof(struct transfers),
        .open = open_transfers,
        .cycle = cycle,
        .readable = readable,
        .close = close_transfers,
    };

    if (argc == 4 && strcmp(argv[1], "run") == 0)
        return task_work(argv[2], argv[3]);
    return module_main(&def, argc, argv);
}
