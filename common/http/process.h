/* process.h - figures that every process has, and those of processes that it keeps running */
#ifndef AB_HTTP_PROCESS_H
#define AB_HTTP_PROCESS_H

#include "base/buf.h"
#include "base/supervise.h"
#include "base/usage.h"

/* What n processes use: abies_process_*, each with its labels. */
struct ab_process {
    const char *labels;
    struct ab_usage usage;
};
void ab_process_write(struct ab_buf *out, const struct ab_process *processes, size_t n);

/* abies_up (1) and what this process uses. service: "jobs", "site", "module" ...; labels: of its
 * own, beside that. */
void ab_process_self(struct ab_buf *out, const char *service, const char *labels, bool up);

/* Those that are kept running: PREFIX_up, PREFIX_restarts_total by cause, PREFIX_backoff_seconds,
 * PREFIX_uptime_seconds; a name is the label `label`, beside `labels` (NULL: none). */
void ab_process_wards(struct ab_buf *out, const char *prefix, const char *labels, const char *label,
                      const ab_supervise_t *wards);

#endif
