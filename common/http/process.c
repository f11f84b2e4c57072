/* process.c - see process.h */
#include "process.h"

#include "base/cleanup.h"
#include "metric.h"

#include <stdio.h>

enum {
    ID,
    START,
    RESIDENT,
    CPU,
    FILES,
    FILES_MAX
};

static const struct {
    const char *name, *type, *help;
} uses[] = {
    [ID] = {"abies_process_id", "gauge", "its number on its host"},
    [START] = {"abies_process_start_seconds", "gauge", "when it began, as Unix time"},
    [RESIDENT] = {"abies_process_resident_bytes", "gauge", "memory that it holds"},
    [CPU] = {"abies_process_cpu_seconds_total", "counter", "processor time that it has used"},
    [FILES] = {"abies_process_open_files", "gauge", "descriptors that are open"},
    [FILES_MAX] = {"abies_process_max_files", "gauge", "descriptors that it may open"},
};

static double value_of(const struct ab_usage *u, size_t which)
{
    switch (which) {
    case ID:
        return (double)u->pid;
    case START:
        return (double)u->started_utc_us / 1e6;
    case RESIDENT:
        return (double)u->resident_bytes;
    case CPU:
        return (double)u->cpu_us / 1e6;
    case FILES:
        return (double)u->files;
    default:
        return (double)u->files_max;
    }
}

void ab_process_write(struct ab_buf *out, const struct ab_process *processes, size_t n)
{
    for (size_t k = 0; n > 0 && k < AB_COUNT(uses); k++) {
        ab_metric_type(out, uses[k].name, uses[k].type, uses[k].help);
        for (size_t i = 0; i < n; i++)
            ab_metric(out, uses[k].name, processes[i].labels, value_of(&processes[i].usage, k));
    }
}

void ab_process_self(struct ab_buf *out, const char *service, const char *labels, bool up)
{
    AB_AUTO(ab_buf_free) struct ab_buf who = {0}, all = {0};
    struct ab_process self = {0};

    ab_metric_label(&who, "service", service);
    if (labels && *labels)
        ab_buf_printf(&who, ",%s", labels);
    ab_buf_str(&all, who.data);
    ab_metric_label(&all, "version", AB_VERSION);
    ab_metric_type(out, "abies_up", "gauge", "1: serving");
    ab_metric(out, "abies_up", all.data, up);
    ab_usage(&self.usage);
    self.labels = who.data;
    ab_process_write(out, &self, 1);
}

/* ---- wards */

static const char *const causes[AB_WARD_CAUSES] = {
    [AB_WARD_EXIT] = "exit",
    [AB_WARD_ERROR] = "error",
    [AB_WARD_SIGNAL] = "signal",
    [AB_WARD_NOT_STARTED] = "not_started",
};

static void name_ward(struct ab_buf *out, const char *labels, const char *label, const char *name)
{
    ab_buf_clear(out);
    if (labels)
        ab_buf_str(out, labels);
    ab_metric_label(out, label, name);
}

static void write_restarts(struct ab_buf *out, const char *prefix, const char *labels,
                           const char *label, const ab_supervise_t *wards)
{
    AB_AUTO(ab_buf_free) struct ab_buf who = {0};
    struct ab_ward_status st;
    char name[96];

    snprintf(name, sizeof(name), "%s_restarts_total", prefix);
    ab_metric_type(out, name, "counter", "how often it was started again, by what ended it");
    for (size_t i = 0; ab_supervise_status(wards, i, &st); i++)
        for (size_t c = 0; c < AB_WARD_CAUSES; c++) {
            name_ward(&who, labels, label, st.name);
            ab_metric_label(&who, "cause", causes[c]);
            ab_metric(out, name, who.data, st.by_cause[c]);
        }
}

static const struct {
    const char *ending, *help;
} states[] = {
    {"up", "1: it runs"},
    {"backoff_seconds", "until it is started again; 0: it runs"},
    {"uptime_seconds", "how long it has run without a break"},
};

static double state_of(const struct ab_ward_status *st, size_t which)
{
    if (which == 0)
        return st->pid > 0;
    return (double)(which == 1 ? st->backoff_ms : st->up_ms) / 1e3;
}

void ab_process_wards(struct ab_buf *out, const char *prefix, const char *labels, const char *label,
                      const ab_supervise_t *wards)
{
    AB_AUTO(ab_buf_free) struct ab_buf who = {0};
    struct ab_ward_status st;
    char name[96];

    for (size_t k = 0; k < AB_COUNT(states); k++) {
        snprintf(name, sizeof(name), "%s_%s", prefix, states[k].ending);
        ab_metric_type(out, name, "gauge", states[k].help);
        for (size_t i = 0; ab_supervise_status(wards, i, &st); i++) {
            name_ward(&who, labels, label, st.name);
            ab_metric(out, name, who.data, state_of(&st, k));
        }
    }
    write_restarts(out, prefix, labels, label, wards);
}
