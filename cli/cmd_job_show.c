/* cmd_job_show.c - job show: one job with its files and its history */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli.h"
#include "listing.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct column job_fields[] = {
    {"id", "id", false, false},
    {"app", "app_id", false, false},
    {"state", "state", false, false},
    {"workdir", "workdir", false, false},
    {"tags", "tags", false, false},
    {"parameters", "parameters", false, false},
    {"parents", "parent_ids", false, false},
    {"files", "transfers", false, false},
    {"nodes", "num_nodes", false, false},
    {"ranks per node", "ranks_per_node", false, false},
    {"threads per rank", "threads_per_rank", false, false},
    {"threads per core", "threads_per_core", false, false},
    {"gpus per rank", "gpus_per_rank", false, false},
    {"packed per node", "node_packing_count", false, false},
    {"wall time (min)", "wall_time_min", false, false},
    {"launch options", "launch_params", false, false},
    {"priority", "priority", false, false},
    {"retry", "retry", false, false},
    {"attempts", "attempts", false, false},
    {"exit status", "return_code", false, false},
    {"batch job", "batch_job_id", false, false},
    {"session", "session_id", false, false},
    {"data", "data", false, false},
    {"changed", "last_update", false, true},
    {0},
};

static void print_transfers(const struct remote *r, const struct ab_value *list)
{
    static const struct column columns[] = {{"FILE", "local_path", false, false},
                                            {"DIRECTION", "direction", false, false},
                                            {"STATE", "state", false, false},
                                            {"LOCATION", "location_alias", false, false},
                                            {"PATH", "remote_path", false, false},
                                            {"NOTES", "transfer_info", false, false},
                                            {0}};
    if (list->n == 0)
        return;
    printf("\n");
    listing_print(r->arena, list, columns, false);
}

/* Each change of state, and how long the job had been in the one before. */
static void print_events(const struct remote *r, const struct ab_value *list)
{
    static const char *const heads[] = {"WHEN", "AFTER", "FROM", "TO", "NOTES"};
    struct table t;
    int64_t before = 0;
    table_begin(&t, r->arena, heads, AB_COUNT(heads));
    t.right = 2;
    for (size_t i = 0; i < list->n; i++) {
        const struct ab_value *e = &list->items[i];
        const char *when = ab_value_text(ab_value_get(e, "timestamp"), "");
        int64_t us = 0;
        (void)ab_time_parse(when, strlen(when), &us);
        const char *cells[] = {
            when,
            before ? short_time(r->arena, (double)(us - before) / 1e6) : "",
            value_cell(r->arena, ab_value_get(e, "from_state")),
            value_cell(r->arena, ab_value_get(e, "to_state")),
            value_cell(r->arena, ab_value_get(e, "data")),
        };
        table_add(&t, cells);
        before = us;
    }
    printf("\n");
    table_print(&t, stdout, terminal_width());
}

static int show_one(struct remote *r, int64_t id, bool json, bool first, struct ab_error *err)
{
    const struct ab_value *job, *events, *transfers;
    if (remote_get(r, ab_printf(r->arena, "/jobs/%" PRId64, id), &job, err) < 0)
        return err->code == AB_ENOENT
                   ? ab_fail(err, AB_ENOENT, "there is no job %" PRId64 " of yours", id)
                   : -1;
    if (remote_list(r, ab_printf(r->arena, "/events/?job_id=%" PRId64 "&ordering=timestamp", id),
                    &events, NULL, err)
            < 0
        || remote_list(r, ab_printf(r->arena, "/transfers/?job_id=%" PRId64, id), &transfers, NULL,
                       err)
               < 0)
        return -1;
    if (!json) {
        if (!first)
            printf("\n");
        listing_fields(stdout, r->arena, job, job_fields);
        print_transfers(r, transfers);
        print_events(r, events);
        return 0;
    }
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    ab_buf_str(&out, first ? "{\"job\":" : ",\n{\"job\":");
    ab_value_write(&out, job);
    ab_buf_str(&out, ",\"transfers\":");
    ab_value_write(&out, transfers);
    ab_buf_str(&out, ",\"events\":");
    ab_value_write(&out, events);
    ab_buf_str(&out, "}");
    fputs(out.data, stdout);
    return 0;
}

int cmd_job_show(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    bool json = false;
    const struct ab_opt options[] = {
        AB_OPT_FLAG('j', "json", &json, "print JSON: a list of {job, transfers, events}"), {0}};
    int rc = ab_opt_parse("abies job show", "ID... [OPTIONS]",
                          "Show jobs: their fields, their files, and every change of state.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc == 0)
        return ab_fail(err, AB_EINVAL, "which job? Give its id; `abies job ls` shows them");
    return remote_open(&r, err) < 0 ? -1 : show_ids(&r, argc, argv, json, show_one, err);
}
