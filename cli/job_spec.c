/* job_spec.c - a job, or the template of an array, from options */
#include "job_spec.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_MAX_SEC 86400

/* ---- parameters and slots */

static const char *given(const struct ab_opt_list *pairs, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < pairs->n; i++)
        if (strncmp(pairs->v[i], name, len) == 0 && pairs->v[i][len] == '=')
            return pairs->v[i] + len + 1;
    return NULL;
}

static int check_known(const struct ab_value *known, const struct ab_opt_list *pairs,
                       const char *what, struct ab_error *err)
{
    for (size_t i = 0; i < pairs->n; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(pairs->v[i], "="), pairs->v[i]);
        if (ab_value_get(known, name))
            continue;
        const char *near =
            known && known->type == AB_V_MAP ? ab_str_nearest(name, known->keys, known->n) : NULL;
        return ab_fail(err, AB_EINVAL, "the app has no %s `%s`%s%s%s", what, name,
                       near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
    }
    return 0;
}

static int check_needed(const struct ab_value *known, const struct ab_opt_list *pairs,
                        const struct ab_opt_list *more, const char *what, const char *option,
                        struct ab_error *err)
{
    for (size_t i = 0; known && known->type == AB_V_MAP && i < known->n; i++)
        if (ab_value_bool(ab_value_get(&known->items[i], "required"), false)
            && !given(pairs, known->keys[i]) && !given(more, known->keys[i]))
            return ab_fail(err, AB_EINVAL, "the app needs %s `%.80s`: give --%s %.80s=...", what,
                           known->keys[i], option, known->keys[i]);
    return 0;
}

/* SLOT=ALIAS:/path */
static int stage_json(const struct ab_opt_list *stage, struct ab_buf *out, struct ab_error *err)
{
    ab_buf_char(out, '{');
    for (size_t i = 0; i < stage->n; i++) {
        const char *slot = stage->v[i], *equals = strchr(slot, '='),
                   *colon = equals ? strchr(equals, ':') : NULL;
        if (!colon || equals == slot || colon == equals + 1 || colon[1] != '/')
            return ab_fail(err, AB_EINVAL, "--stage-data takes SLOT=LOCATION:/PATH, not `%.100s`",
                           slot);
        if (i)
            ab_buf_char(out, ',');
        ab_buf_json_str(out, slot, (size_t)(equals - slot));
        ab_buf_str(out, ":{\"location_alias\":");
        ab_buf_json_str(out, equals + 1, (size_t)(colon - equals - 1));
        ab_buf_str(out, ",\"path\":");
        ab_buf_json_str(out, colon + 1, strlen(colon + 1));
        ab_buf_char(out, '}');
    }
    ab_buf_char(out, '}');
    return 0;
}

static int parents_json(struct remote *r, const struct ab_opt_list *parents, struct ab_buf *out,
                        struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0};
    int64_t id, found = 0, n = 0;
    ab_buf_str(&path, "/jobs/");
    ab_buf_char(out, '[');
    for (size_t i = 0; i < parents->n; i++) {
        char *rest = ab_strdup(r->arena, parents->v[i]), *word;
        while ((word = strsep(&rest, ","))) {
            if (parse_id(word, &id, err) < 0)
                return -1;
            ab_buf_printf(out, "%s%" PRId64, n++ ? "," : "", id);
            ab_api_query_int(&path, "id", id);
        }
    }
    ab_buf_char(out, ']');
    if (n > 0 && remote_count(r, &path, &found, err) < 0)
        return -1;
    return found == n ? 0
                      : ab_fail(err, AB_ENOENT, "only %" PRId64 " of the %" PRId64 " parents exist",
                                found, n);
}

/* ---- what to do after a failure */

static int causes_json(const char *list, struct ab_buf *out, struct ab_error *err)
{
    AB_AUTO(ab_free) char *copy = strdup(list);
    char *rest = copy, *word;
    size_t n = 0;
    ab_buf_str(out, ",\"on\":[");
    while ((word = strsep(&rest, ","))) {
        const char *name;
        if (parse_name(&ab_enum_retry_cause, "retry-on", word, &name, err) < 0)
            return -1;
        ab_buf_printf(out, "%s\"%s\"", n++ ? "," : "", name);
    }
    ab_buf_char(out, ']');
    return 0;
}

int retry_spec_json(const struct retry_spec *spec, struct ab_buf *out, struct ab_error *err)
{
    int64_t ms = 0;
    if (spec->max_attempts == 0)
        return spec->on || spec->backoff ? ab_fail(
                   err, AB_EINVAL, "how often? Give --max-attempts N with --retry-on and --backoff")
                                         : 0;
    if (spec->backoff && ab_parse_duration(spec->backoff, &ms) < 0)
        return ab_fail(err, AB_EINVAL, "--backoff takes 30s, 10m, 2h, not `%.60s`", spec->backoff);
    if (ms > INT64_C(1000) * BACKOFF_MAX_SEC)
        return ab_fail(err, AB_EINVAL, "--backoff is a day at most, not `%.60s`", spec->backoff);
    ab_buf_printf(out, "{\"max_attempts\":%" PRId64 ",\"backoff_sec\":%" PRId64, spec->max_attempts,
                  (ms + 999) / 1000);
    if (spec->on && causes_json(spec->on, out, err) < 0)
        return -1;
    ab_buf_char(out, '}');
    return 1;
}

/* ---- the whole */

static int check(const struct job_spec *spec, const struct ab_value *app,
                 const struct ab_opt_list *more, struct ab_error *err)
{
    const struct ab_opt_list none = {0};
    const struct ab_value *parameters = ab_value_get(app, "parameters"),
                          *slots = ab_value_get(app, "transfers");
    more = more ? more : &none;
    if (check_known(parameters, &spec->params, "parameter", err) < 0
        || check_known(parameters, more, "parameter", err) < 0
        || check_needed(parameters, &spec->params, more, "parameter", "param", err) < 0)
        return -1;
    return check_known(slots, &spec->stage, "transfer slot", err) < 0
               ? -1
               : check_needed(slots, &spec->stage, &none, "transfer slot", "stage-data", err);
}

static int numbers_json(const struct job_spec *spec, struct ab_buf *out, struct ab_error *err)
{
    ab_buf_printf(out,
                  ",\"num_nodes\":%" PRId64 ",\"ranks_per_node\":%" PRId64
                  ",\"threads_per_rank\":%" PRId64 ",\"threads_per_core\":%" PRId64
                  ",\"node_packing_count\":%" PRId64 ",\"wall_time_min\":%" PRId64
                  ",\"priority\":%" PRId64 ",\"gpus_per_rank\":",
                  spec->num_nodes, spec->ranks, spec->threads_per_rank, spec->threads_per_core,
                  spec->packing, spec->minutes, spec->priority);
    ab_buf_json_str(out, spec->gpus, strlen(spec->gpus));
    AB_AUTO(ab_buf_free) struct ab_buf retry = {0};
    int rc = retry_spec_json(&spec->retry, &retry, err);
    if (rc > 0)
        ab_buf_printf(out, ",\"retry\":%s", retry.data);
    return rc < 0 ? -1 : 0;
}

int job_spec_json(struct remote *r, const struct job_spec *spec, const struct ab_opt_list *more,
                  struct ab_buf *out, struct ab_error *err)
{
    const struct ab_value *app;
    int64_t site = 0;
    if (pairs_check(&spec->tags, "tag", err) < 0 || pairs_check(&spec->params, "param", err) < 0
        || pairs_check(&spec->launch_params, "launch-param", err) < 0
        || pairs_check(&spec->stage, "stage-data", err) < 0)
        return -1;
    if ((spec->site || r->here.path) && remote_one_site(r, spec->site, &site, err) < 0)
        return -1;
    if (remote_app(r, spec->app, site, &app, err) < 0 || check(spec, app, more, err) < 0)
        return -1;
    ab_buf_printf(out,
                  "\"app_id\":%" PRId64 ",\"tags\":", ab_value_int(ab_value_get(app, "id"), 0));
    pairs_json(&spec->tags, out);
    ab_buf_str(out, ",\"parameters\":");
    pairs_json(&spec->params, out);
    ab_buf_str(out, ",\"launch_params\":");
    pairs_json(&spec->launch_params, out);
    if (numbers_json(spec, out, err) < 0)
        return -1;
    ab_buf_str(out, ",\"transfers\":");
    if (stage_json(&spec->stage, out, err) < 0)
        return -1;
    ab_buf_str(out, ",\"parent_ids\":");
    return parents_json(r, &spec->parents, out, err);
}
