/* report.c - see report.h
 *
 * Every report carries the lease number, so that one that comes too late changes nothing.
 */
#include "report.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <string.h>

static struct job update_of(const struct task *t, int state, const char *data)
{
    struct job update = {
        .id = t->job->id, .lease = t->job->lease, .state = state, .state_timestamp = ab_utc_us()};
    AB_SET(job, &update, id);
    AB_SET(job, &update, state);
    AB_SET(job, &update, state_timestamp);
    if (AB_HAS(job, t->job, lease))
        AB_SET(job, &update, lease);
    if (data) {
        update.state_data = (struct ab_bytes){data, strlen(data)};
        AB_SET(job, &update, state_data);
    }
    return update;
}

void report(status_t *status, const struct task *t, int state, const char *data, const int *code)
{
    struct job update = update_of(t, state, data);
    if (code) {
        update.return_code = *code;
        AB_SET(job, &update, return_code);
    }
    status_put(status, &update);
}

void report_running(status_t *status, const struct task *t, bool ahead)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    double nodes = t->job->num_nodes > 1 ? t->job->num_nodes : t->placement->occupancy;
    ab_buf_printf(&data, "{\"num_nodes\":%g}", nodes);
    struct job update = update_of(t, AB_JOB_RUNNING, data.data);
    if (ahead)
        status_claim(status, &update);
    else
        status_put(status, &update);
}

void report_text(status_t *status, const struct task *t, int state, const char *message,
                 const int *code, const char *output)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_buf_char(&data, '{');
    if (code && output) {
        ab_buf_printf(&data, "\"returncode\":%d,\"error\":", *code);
        ab_buf_json_str(&data, output, strlen(output));
    }
    if (message) {
        ab_buf_str(&data, data.len > 1 ? ",\"message\":" : "\"message\":");
        ab_buf_json_str(&data, message, strlen(message));
    }
    ab_buf_char(&data, '}');
    report(status, t, state, data.data, code);
}

void report_node_loss(status_t *status, const struct task *t, const char *message)
{
    AB_AUTO(ab_buf_free) struct ab_buf data = {0};
    ab_buf_str(&data, "{\"cause\":\"node_loss\",\"message\":");
    ab_buf_json_str(&data, message, strlen(message));
    ab_buf_char(&data, '}');
    report(status, t, AB_JOB_RUN_TIMEOUT, data.data, NULL);
}
