/* metric.h - figures in the text that Prometheus reads, and what counts calls
 *
 * A family is its HELP and TYPE lines, then its samples, all together: a name may not come again
 * further down. `labels` is e.g. "service=\"jobs\"" or NULL; a value that is not ours goes through
 * ab_metric_label.
 */
#ifndef AB_HTTP_METRIC_H
#define AB_HTTP_METRIC_H

#include "base/buf.h"
#include <stdatomic.h>
#include <stdint.h>

void ab_metric_type(struct ab_buf *out, const char *name, const char *type, const char *help);
void ab_metric(struct ab_buf *out, const char *name, const char *labels, double value);
/* name="value", escaped, with a comma in front if the buffer is not empty. */
void ab_metric_label(struct ab_buf *labels, const char *name, const char *value);

/* Times, in buckets of 0.5 ms to 10 s. Any thread adds, any thread writes. */
#define AB_HISTOGRAM_BUCKETS 14
struct ab_histogram {
    _Atomic uint64_t by_time[AB_HISTOGRAM_BUCKETS], us;
};
void ab_histogram_add(struct ab_histogram *self, int64_t us);
uint64_t ab_histogram_count(struct ab_histogram *self);
uint64_t ab_histogram_us(struct ab_histogram *self);
/* The samples name_bucket, name_sum, name_count of one set of labels. */
void ab_histogram_write(struct ab_buf *out, const char *name, const char *labels,
                        struct ab_histogram *self);

/* Calls of one verb. */
#define AB_CALL_CODES 20
struct ab_call_figures {
    _Atomic uint64_t by_code[AB_CALL_CODES];
    struct ab_histogram time;
};
/* status -1: there was no answer; one that is not in the list is counted as 0. */
void ab_call_add(struct ab_call_figures *self, int status, int64_t us);
uint64_t ab_call_errors(struct ab_call_figures *self); /* 500 and above */
/* A sample for each status that was seen, with the label code. */
void ab_call_codes(struct ab_buf *out, const char *name, const char *labels,
                   struct ab_call_figures *self);

/* Calls by name; a name that finds no room any more is counted as "other". */
typedef struct ab_calls ab_calls_t;
ab_calls_t *ab_calls_new(size_t max);
void ab_calls_destroy(ab_calls_t **self);
void ab_calls_add(ab_calls_t *self, const char *name, int status, int64_t us);
/* Two families: `total` by verb and code, `seconds` by verb. labels NULL or those of every sample. */
void ab_calls_write(ab_calls_t *self, struct ab_buf *out, const char *total, const char *seconds,
                    const char *what, const char *labels);

#endif
