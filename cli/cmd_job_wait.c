/* cmd_job_wait.c - job wait: until all of some jobs have ended
 *
 * Counts are asked for, never rows. Live events say when to ask again; without a WebSocket it is
 * done every second.
 */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli.h"
#include "client/events.h"
#include "output.h"
#include "pick.h"
#include "remote.h"
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define ASK_EVERY_MS 250
#define ASK_ANYWAY_MS 5000
#define POLL_MS 1000
#define FAILED_SHOWN 5

struct counts {
    int64_t all, finished, failed, running;
};

static int count_state(struct remote *r, const struct ab_buf *path, const char *state, int64_t *n,
                       struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf with = {0};
    ab_buf_str(&with, path->data);
    if (state)
        ab_api_query(&with, "state", state);
    return remote_count(r, &with, n, err);
}

static int ask(struct remote *r, const struct ab_buf *path, struct counts *c, struct ab_error *err)
{
    return count_state(r, path, NULL, &c->all, err) < 0
                   || count_state(r, path, "JOB_FINISHED", &c->finished, err) < 0
                   || count_state(r, path, "FAILED", &c->failed, err) < 0
                   || count_state(r, path, "RUNNING", &c->running, err) < 0
               ? -1
               : 0;
}

static void print_failed(struct remote *r, const struct ab_buf *path)
{
    AB_AUTO(ab_buf_free) struct ab_buf failed = {0};
    const struct ab_value *jobs, *events;
    struct ab_error err = {0};
    ab_buf_str(&failed, path->data);
    ab_api_query(&failed, "state", "FAILED");
    ab_api_query_int(&failed, "limit", FAILED_SHOWN);
    if (remote_list(r, failed.data, &jobs, NULL, &err) < 0)
        return;
    for (size_t i = 0; i < jobs->n; i++) {
        int64_t id = ab_value_int(ab_value_get(&jobs->items[i], "id"), 0);
        const char *url =
            ab_printf(r->arena, "/events/?job_id=%" PRId64 "&to_state=FAILED&limit=1", id);
        fprintf(stderr, "job %" PRId64 " failed: ", id);
        if (remote_list(r, url, &events, NULL, &err) == 0 && events->n > 0)
            print_clean(stderr, value_cell(r->arena, ab_value_get(&events->items[0], "data")));
        fputc('\n', stderr);
    }
}

/* Until an event of these jobs comes, or it is time to ask anyway. */
static void wait_a_little(ab_events_t *events, int64_t left_ms)
{
    const char *text;
    size_t len;
    struct ab_error err = {0};
    int64_t most = events ? ASK_ANYWAY_MS : POLL_MS, until;
    most = left_ms < most ? left_ms : most;
    until = ab_now_ms() + most;
    while (events && ab_now_ms() < until) {
        int rc = ab_events_next(events, until - ab_now_ms(), &text, &len, &err);
        if (rc < 0)
            break;
        if (rc > 0 && memmem(text, len, "\"job_id\"", 8)) { /* not the empty first frame */
            (void)poll(NULL, 0,
                       (int)(most < ASK_EVERY_MS
                                 ? most
                                 : ASK_EVERY_MS)); /* one question for a burst of events */
            return;
        }
    }
    if (ab_now_ms() < until)
        (void)poll(NULL, 0, (int)(until - ab_now_ms()));
}

static int end(struct remote *r, const struct ab_buf *path, const struct counts *c, bool json,
               bool timed_out)
{
    progress_end();
    if (json)
        printf("{\"jobs\":%" PRId64 ",\"finished\":%" PRId64 ",\"failed\":%" PRId64
               ",\"timeout\":%s}\n",
               c->all, c->finished, c->failed, timed_out ? "true" : "false");
    else
        printf("%" PRId64 " %s: %" PRId64 " finished, %" PRId64 " failed%s\n", c->all, JOBS(c->all),
               c->finished, c->failed, timed_out ? "; the time is over" : "");
    if (c->failed > 0)
        print_failed(r, path);
    return c->failed > 0 || timed_out;
}

static int wait_for(struct remote *r, const struct pick *pick, const struct ab_buf *path,
                    int64_t timeout_ms, bool json, struct ab_error *err)
{
    AB_AUTO(ab_events_destroy) ab_events_t *events = NULL;
    AB_AUTO(ab_buf_free) struct ab_buf query = {0};
    int64_t until = ab_now_ms() + timeout_ms;
    struct counts c;
    ab_api_query(&query, "state", "JOB_FINISHED");
    ab_api_query(&query, "state", "FAILED");
    if (pairs_query(&pick->tags, "tag", "tags", &query, err) < 0)
        return -1;
    events = ab_events_new(&r->file, query.data + 1, NULL, NULL); /* NULL: it goes without */
    for (;;) {
        if (ask(r, path, &c, err) < 0)
            return -1;
        if (c.all == 0)
            return ab_fail(err, AB_ENOENT,
                           "no job matches; `abies job ls` with the same options shows what does");
        progress("%" PRId64 " of %" PRId64 " jobs have ended, %" PRId64 " failed, %" PRId64
                 " run now",
                 c.finished + c.failed, c.all, c.failed, c.running);
        bool done = c.finished + c.failed >= c.all, late = ab_now_ms() >= until;
        if (done || late)
            return end(r, path, &c, json, !done);
        wait_a_little(events, until - ab_now_ms());
    }
}

int cmd_job_wait(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    struct pick pick = {0};
    const char *timeout = NULL;
    int64_t timeout_ms = INT64_MAX / 4;
    bool json = false;
    const struct ab_opt options[] = {
        PICK_OPTIONS(pick),
        PICK_MORE(pick),
        AB_OPT_TEXT(0, "timeout", &timeout, "TIME", "give up after 30s, 10m, 2h [never]"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies job wait", "[ID...] [OPTIONS]",
                          "Wait until jobs have ended: all are JOB_FINISHED or FAILED.\n\nExit "
                          "status 1 if one failed or the time was over.\n\n"
                          "  abies job wait --tag workflow=a --timeout 10m",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (timeout && ab_parse_duration(timeout, &timeout_ms) < 0)
        return ab_fail(err, AB_EINVAL, "--timeout takes a time such as 30s or 10m, not `%.40s`",
                       timeout);
    if (!pick_is_some(&pick, argc))
        return ab_fail(err, AB_EINVAL, "which jobs? Give ids or --tag");
    if (remote_open(&r, err) < 0 || pick_query(&r, &pick, argc, argv, &path, err) < 0)
        return -1;
    return wait_for(&r, &pick, &path, timeout_ms, json, err);
}
