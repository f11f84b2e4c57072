/* cmd_job_array.c - job array: one job for each combination of parameters, in one request */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli.h"
#include "job_spec.h"
#include "output.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MAX 100000 /* jobs in one array, as the API has it */
#define FILE_MAX ((size_t)16 << 20)

struct array {
    struct job_spec spec;
    struct ab_opt_list sweeps;
    const char *workdir;
    bool zip, yes, json;
};

/* ---- the values of a parameter: by comma, LO..HI[..STEP], or the lines of @FILE */

static void add_value(struct ab_buf *out, const char *text, size_t len, size_t *n)
{
    if ((*n)++)
        ab_buf_char(out, ',');
    ab_buf_json_str(out, text, len);
}

static int too_many(const char *sweep, struct ab_error *err)
{
    return ab_fail(err, AB_EINVAL, "--sweep %.60s has more than %d values, the most in one array",
                   sweep, VALUES_MAX);
}

/* 1: it is a range, and its numbers are there. 0: it is none. */
static int add_range(const char *sweep, const char *text, struct ab_buf *out, size_t *n,
                     struct ab_error *err)
{
    const char *to = strstr(text, ".."), *by = to ? strstr(to + 2, "..") : NULL;
    int64_t low, high, step = 1;
    if (!to || ab_parse_i64(text, (size_t)(to - text), -INT32_MAX, INT32_MAX, &low) < 0
        || ab_parse_i64(to + 2, by ? (size_t)(by - to - 2) : strlen(to + 2), -INT32_MAX, INT32_MAX,
                        &high)
               < 0
        || (by && ab_parse_i64(by + 2, strlen(by + 2), 1, INT32_MAX, &step) < 0))
        return 0;
    if (high < low)
        return ab_fail(err, AB_EINVAL, "--sweep %.60s: a range goes from the smaller number up",
                       sweep);
    if ((high - low) / step >= VALUES_MAX)
        return too_many(sweep, err);
    for (int64_t i = low; i <= high; i += step) {
        char number[24];
        int len = snprintf(number, sizeof(number), "%" PRId64, i);
        add_value(out, number, (size_t)len, n);
    }
    return 1;
}

/* Pieces between separators. Empty lines are left out; between commas something was forgotten. */
static int add_split(const char *sweep, const char *text, char separator, struct ab_buf *out,
                     size_t *n, struct ab_error *err)
{
    for (const char *end;; text = end + 1) {
        end = strchrnul(text, separator);
        size_t len = (size_t)(end - text);
        if (separator == '\n' && len > 0 && text[len - 1] == '\r')
            len--;
        if (len == 0 && separator == ',')
            return ab_fail(err, AB_EINVAL, "--sweep %.60s has an empty value", sweep);
        if (len > 0)
            add_value(out, text, len, n);
        if (*n > VALUES_MAX)
            return too_many(sweep, err);
        if (!*end)
            return 0;
    }
}

static int add_lines(const char *sweep, const char *file, struct ab_buf *out, size_t *n,
                     struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (ab_file_read(strcmp(file, "-") == 0 ? "/dev/stdin" : file, FILE_MAX, &text, err) < 0)
        return -1;
    if (text.len > 0 && !ab_utf8_ok(text.data, text.len))
        return ab_fail(err, AB_EINVAL, "%s: this is no UTF-8 text", file);
    return text.len > 0 ? add_split(sweep, text.data, '\n', out, n, err) : 0;
}

/* "name":["1","2"]; how many values it has. */
static int sweep_json(const char *sweep, struct ab_buf *out, size_t *n, struct ab_error *err)
{
    const char *values = strchr(sweep, '=') + 1;
    ab_buf_json_str(out, sweep, (size_t)(values - 1 - sweep));
    ab_buf_str(out, ":[");
    int rc = 1;
    if (*values == '@')
        rc = add_lines(sweep, values + 1, out, n, err);
    else if ((rc = add_range(sweep, values, out, n, err)) == 0)
        rc = add_split(sweep, values, ',', out, n, err);
    ab_buf_char(out, ']');
    if (rc >= 0 && *n == 0)
        return ab_fail(err, AB_EINVAL, "--sweep %.60s has no values", sweep);
    return rc < 0 ? -1 : 0;
}

/* ---- the array */

static int array_json(struct remote *r, const struct array *o, struct ab_buf *out, size_t *jobs,
                      struct ab_error *err)
{
    *jobs = 1;
    ab_buf_str(out, "{\"workdir\":");
    ab_buf_json_str(out, o->workdir, strlen(o->workdir));
    ab_buf_printf(out, ",\"combine\":\"%s\",\"parameters\":{", o->zip ? "zip" : "product");
    for (size_t i = 0; i < o->sweeps.n; i++) {
        size_t n = 0;
        if (i)
            ab_buf_char(out, ',');
        if (sweep_json(o->sweeps.v[i], out, &n, err) < 0)
            return -1;
        if (o->zip && i > 0 && n != *jobs)
            return ab_fail(
                err, AB_EINVAL,
                "--zip takes the same number of values of each parameter: %.60s has %zu, "
                "those before it %zu",
                o->sweeps.v[i], n, *jobs);
        *jobs = o->zip ? n : *jobs * n;
        if (*jobs > VALUES_MAX)
            return ab_fail(err, AB_EINVAL, "an array has at most %d jobs: make several of it",
                           VALUES_MAX);
    }
    ab_buf_str(out, "},\"template\":{");
    if (job_spec_json(r, &o->spec, &o->sweeps, out, err) < 0)
        return -1;
    ab_buf_str(out, "}}");
    return 0;
}

static int create(struct remote *r, const struct array *o, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf body = {0};
    const struct ab_value *reply;
    size_t jobs;
    if (pairs_check(&o->sweeps, "sweep", err) < 0 || array_json(r, o, &body, &jobs, err) < 0
        || (!o->yes
            && ask_yes(err, "Create %zu %s of app %.60s in %.120s?", jobs, JOBS(jobs), o->spec.app,
                       o->workdir)
                   < 0)
        || remote_call(r, "POST", "/jobs/array", &body, &reply, err) < 0)
        return -1;
    if (o->json) {
        print_value(reply);
        return 0;
    }
    const struct ab_value *ids = ab_value_get(reply, "ids");
    for (size_t i = 0; ids && i < ids->n; i++)
        printf("%" PRId64 "\n", ab_value_int(&ids->items[i], 0));
    return 0;
}

int cmd_job_array(int argc, char **argv, struct ab_error *err)
{
    AB_AUTO(remote_close) struct remote r = {0};
    struct array o = {.spec = JOB_SPEC};
    const struct ab_opt options[] = {
        AB_OPT_TEXT('w', "workdir", &o.workdir, "PATTERN",
                    "their folders: {{NAME}} is replaced by the value of a parameter"),
        AB_OPT_LIST(0, "sweep", &o.sweeps, "NAME=VALUES",
                    "a parameter and its values (repeat): 1,2,5 or 1..100 or 0..90..10 or @FILE"),
        AB_OPT_FLAG(0, "zip", &o.zip,
                    "the first values together, the second ones, ... [each with each]"),
        JOB_SPEC_OPTIONS(o.spec),
        AB_OPT_FLAG('y', "yes", &o.yes, "do not ask"),
        AB_OPT_FLAG('j', "json", &o.json, "print JSON: {count, ids}"),
        {0},
    };
    int rc = ab_opt_parse(
        "abies job array", "--app APP --workdir PATTERN --sweep NAME=VALUES... [OPTIONS]",
        "Create a job for each combination of parameters: all of them, or none.\n\nPrints their "
        "ids, one a line, the last parameter changing fastest. Paths of --stage-data may have\n"
        "{{NAME}}, too. A file has a value a line.\n\n"
        "  abies job array -y --app eigen --workdir 'sweep/{{n}}-{{mode}}' --sweep n=100..500..100 "
        "--sweep mode=fast,safe\n"
        "  abies job array -y --app scan --workdir 'scan/{{id}}' --sweep id=@scans.txt "
        "--stage-data 'in=lab:/scans/{{id}}.h5'",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    if (!o.workdir || !o.spec.app || o.sweeps.n == 0)
        return ab_fail(err, AB_EINVAL,
                       "an array needs --app NAME, --workdir PATTERN and --sweep NAME=VALUES; see "
                       "--help");
    return remote_open(&r, err) < 0 ? -1 : create(&r, &o, err);
}
