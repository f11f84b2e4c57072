/* cmd_job_times.c - job times: how long jobs took in each stage, from their events */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli.h"
#include "output.h"
#include "pick.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 20000

struct sample {
    int64_t job, us, id;
    int from, to;
};

struct samples {
    struct sample *v;
    size_t n, cap;
};

/* A stage begins with a change to one of its first states and ends with the next change to one of
 * its last ones. */
struct stage {
    const char *name;
    uint32_t begin, end; /* bits of states */
};

#define BIT(state) (UINT32_C(1) << AB_JOB_##state)

static const struct stage stages[] = {
    {"stage in", BIT(READY), BIT(STAGED_IN)},
    {"queue", BIT(PREPROCESSED) | BIT(RESTART_READY), BIT(RUNNING)},
    {"run", BIT(RUNNING), BIT(RUN_DONE) | BIT(RUN_ERROR) | BIT(RUN_TIMEOUT)},
    {"stage out", BIT(POSTPROCESSED), BIT(JOB_FINISHED)},
    {"whole", 0, BIT(JOB_FINISHED)}, /* from the job's first event */
};

static int add_event(struct samples *list, const struct ab_value *e, struct ab_error *err)
{
    const char *when = ab_value_text(ab_value_get(e, "timestamp"), "");
    const char *from = ab_value_text(ab_value_get(e, "from_state"), ""),
               *to = ab_value_text(ab_value_get(e, "to_state"), "");
    struct sample s = {.job = ab_value_int(ab_value_get(e, "job_id"), 0),
                       .id = ab_value_int(ab_value_get(e, "id"), 0)};
    s.from = ab_enum_find(&ab_enum_job_state, from, strlen(from));
    s.to = ab_enum_find(&ab_enum_job_state, to, strlen(to));
    if (s.to < 0 || ab_time_parse(when, strlen(when), &s.us) < 0)
        return 0; /* a newer centre may know more states */
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 1024;
        struct sample *v = realloc(list->v, cap * sizeof(*v));
        if (!v)
            return ab_fail(err, AB_EINTERNAL, "no memory for %zu events", cap);
        list->v = v;
        list->cap = cap;
    }
    list->v[list->n++] = s;
    return 0;
}

static int load(struct remote *r, const struct ab_buf *path, struct samples *list,
                struct ab_error *err)
{
    int64_t total = 1, seen = 0;
    while (seen < total) {
        AB_AUTO(ab_buf_free) struct ab_buf page = {0};
        const struct ab_value *events;
        ab_buf_str(&page, path->data);
        ab_api_query(&page, "ordering", "timestamp");
        ab_api_query_int(&page, "limit", PAGE);
        ab_api_query_int(&page, "offset", seen);
        if (remote_list(r, page.data, &events, &total, err) < 0)
            return -1;
        for (size_t i = 0; i < events->n; i++)
            if (add_event(list, &events->items[i], err) < 0)
                return -1;
        if (events->n == 0)
            break;
        seen += (int64_t)events->n;
        progress("%" PRId64 " of %" PRId64 " events", seen, total);
    }
    progress_end();
    return 0;
}

static int by_job_and_time(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->job != y->job)
        return x->job < y->job ? -1 : 1;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Durations in seconds; at most one for each event. */
static size_t measure(const struct samples *list, const struct stage *stage, double *out)
{
    size_t n = 0;
    int64_t job = -1, begun = -1;
    for (size_t i = 0; i < list->n; i++) {
        const struct sample *s = &list->v[i];
        if (s->job != job) {
            job = s->job;
            begun = stage->begin == 0 ? s->us : -1;
        }
        if (begun >= 0 && (stage->end >> s->to & 1)) {
            out[n++] = (double)(s->us - begun) / 1e6;
            begun = -1;
        }
        if (stage->begin >> s->to & 1)
            begun = s->us;
    }
    qsort(out, n, sizeof(*out), by_value);
    return n;
}

/* Nearest rank. */
static double percentile(const double *sorted, size_t n, int percent)
{
    size_t rank = (n * (size_t)percent + 99) / 100;
    return n ? sorted[rank > 0 ? rank - 1 : 0] : 0;
}

struct totals {
    size_t jobs, finished, failed;
    double seconds;
};

static struct totals sum_up(const struct samples *list)
{
    struct totals t = {0};
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = 0; i < list->n; i++) {
        const struct sample *s = &list->v[i];
        bool is_last = i + 1 == list->n || list->v[i + 1].job != s->job;
        t.jobs += is_last;
        t.finished += is_last && s->to == AB_JOB_JOB_FINISHED;
        t.failed += is_last && s->to == AB_JOB_FAILED;
        first = s->us < first ? s->us : first;
        last = s->us > last ? s->us : last;
    }
    t.seconds = t.jobs ? (double)(last - first) / 1e6 : 0;
    return t;
}

static int print(struct remote *r, const struct samples *list, bool json, struct ab_error *err)
{
    static const char *const heads[] = {"STAGE", "COUNT", "MEDIAN", "95 %", "LONGEST"};
    AB_AUTO(ab_free) double *values = calloc(list->n + 1, sizeof(*values));
    struct totals total = sum_up(list);
    struct table t;
    if (!values)
        return ab_fail(err, AB_EINTERNAL, "no memory for %zu events", list->n);
    table_begin(&t, r->arena, heads, AB_COUNT(heads));
    t.right = 0x1E;
    if (json)
        printf("{\"jobs\":%zu,\"finished\":%zu,\"failed\":%zu,\"seconds\":%.6f,\"stages\":[",
               total.jobs, total.finished, total.failed, total.seconds);
    for (size_t i = 0; i < AB_COUNT(stages); i++) {
        size_t n = measure(list, &stages[i], values);
        double median = percentile(values, n, 50), p95 = percentile(values, n, 95),
               most = percentile(values, n, 100);
        if (json)
            printf("%s{\"stage\":\"%s\",\"count\":%zu,\"median\":%.6f,\"p95\":%.6f,\"max\":%.6f}",
                   i ? "," : "", stages[i].name, n, median, p95, most);
        const char *cells[] = {
            stages[i].name, ab_printf(r->arena, "%zu", n), ab_printf(r->arena, "%.2f s", median),
            ab_printf(r->arena, "%.2f s", p95), ab_printf(r->arena, "%.2f s", most)};
        if (n == 0)
            cells[2] = cells[3] = cells[4] = "-";
        table_add(&t, cells);
    }
    if (json) {
        printf("]}\n");
        return 0;
    }
    table_print(&t, stdout, terminal_width());
    printf("\n%zu %s (%zu finished, %zu failed) in %.2f s\n", total.jobs, JOBS(total.jobs),
           total.finished, total.failed, total.seconds);
    return 0;
}

int cmd_job_times(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct pick pick = {0};
    struct samples list = {0};
    bool json = false;
    const struct ab_opt options[] = {
        {'t', "tag", "tag", AB_OPT_KIND_LIST, &pick.tags, "KEY=VALUE",
         "jobs with this tag (repeat: with all of them)"},
        AB_OPT_LIST('i', "id", &pick.ids, "ID", "jobs with this number (repeat, or by comma)"),
        AB_OPT_FLAG('j', "json", &json, "print JSON (seconds)"),
        {0},
    };
    int rc = ab_opt_parse("abies job times", "[ID...] [OPTIONS]",
                          "Show how long jobs took in each stage.\n\nFrom their events: stage in "
                          "READY to STAGED_IN, queue PREPROCESSED or RESTART_READY to "
                          "RUNNING, run RUNNING to\nRUN_DONE, RUN_ERROR or RUN_TIMEOUT, stage out "
                          "POSTPROCESSED to JOB_FINISHED, whole from creation to "
                          "JOB_FINISHED.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!pick_is_some(&pick, argc))
        return ab_fail(err, AB_EINVAL, "which jobs? Give ids or --tag");
    if (remote_open(&r, err) < 0 || pick_events_query(&pick, argc, argv, &path, err) < 0)
        return -1;
    rc = load(&r, &path, &list, err);
    if (rc == 0 && list.n == 0)
        rc = ab_fail(err, AB_ENOENT, "no job matches");
    if (rc == 0) {
        qsort(list.v, list.n, sizeof(*list.v), by_job_and_time);
        rc = print(&r, &list, json, err);
    }
    free(list.v);
    return rc;
}
