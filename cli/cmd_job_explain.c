/* cmd_job_explain.c - job explain: why a job does not run, and what can be done about it */
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli.h"
#include "output.h"
#include "remote.h"
#include <inttypes.h>
#include <stdio.h>

#define INDENT 2

static void print_reasons(const struct remote *r, const struct ab_value *why)
{
    const struct ab_value *reasons = ab_value_get(why, "reasons");
    printf("job %" PRId64 " is %s\n", ab_value_int(ab_value_get(why, "id"), 0),
           ab_value_text(ab_value_get(why, "state"), "in no state"));
    for (size_t i = 0; reasons && i < reasons->n; i++) {
        const struct ab_value *reason = &reasons->items[i];
        const struct ab_value *ids = ab_value_get(reason, "ids");
        const char *numbers = value_cell(r->arena, ids);
        const char *text =
            ab_printf(r->arena, "%s: %s%s%s%s", ab_value_text(ab_value_get(reason, "code"), ""),
                      ab_value_text(ab_value_get(reason, "text"), ""), *numbers ? " [" : "",
                      numbers, *numbers ? "]" : "");
        print_wrapped(stdout, text, INDENT, terminal_width());
    }
}

static int explain(struct remote *r, int64_t id, bool json, bool first, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    const struct ab_value *why;
    if (remote_get(r, ab_printf(r->arena, "/jobs/%" PRId64 "/explain", id), &why, err) < 0)
        return err->code == AB_ENOENT
                   ? ab_fail(err, AB_ENOENT, "there is no job %" PRId64 " of yours", id)
                   : -1;
    if (!json) {
        print_reasons(r, why);
        return 0;
    }
    ab_buf_str(&out, first ? "" : ",\n");
    ab_value_write(&out, why);
    fputs(out.data, stdout);
    return 0;
}

int cmd_job_explain(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    bool json = false;
    const struct ab_opt options[] = {
        AB_OPT_FLAG('j', "json", &json, "print JSON: a list of {id, state, reasons}"), {0}};
    int rc =
        ab_opt_parse("abies job explain", "ID... [OPTIONS]",
                     "Say why jobs do not run, and what can be done.\n\nThe first reason is "
                     "the first thing in a job's way. Numbers in brackets are the jobs, files, "
                     "batch jobs or\nsessions that it speaks of.",
                     options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc == 0)
        return ab_fail(err, AB_EINVAL, "which job? Give its id; `abies job ls` shows them");
    return remote_open(&r, err) < 0 ? -1 : show_ids(&r, argc, argv, json, explain, err);
}
