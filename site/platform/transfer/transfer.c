/* transfer.c - what all kinds of transfer share: URLs, task files, both ends of an item */
#include "transfer.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "schema/json.h"
#include "sitedir/workdir.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct transfer_kind *const kinds[] = {&transfer_local, &transfer_rsync};

const struct transfer_kind *transfer_of(const char *scheme)
{
    for (size_t i = 0; i < AB_COUNT(kinds); i++)
        for (const char *const *s = kinds[i]->schemes; *s; s++)
            if (strcmp(*s, scheme) == 0)
                return kinds[i];
    return NULL;
}

const struct transfer_kind *transfer_named(const char *name, size_t len)
{
    for (size_t i = 0; i < AB_COUNT(kinds); i++)
        if (strlen(kinds[i]->name) == len && memcmp(kinds[i]->name, name, len) == 0)
            return kinds[i];
    return NULL;
}

/* ------------------------------------------------------------------ URLs */

/* What may become part of an ssh command line: nothing that starts an option or needs quotes. */
static bool is_plain(const char *text)
{
    if (!isalnum((unsigned char)*text) && *text != '_')
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("._-", *text))
            return false;
    return true;
}

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c ? strchr(digits, c) : NULL;
    if (!at)
        return -1;
    return at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* %20 -> a space, in place. -1: no two digits, or a NUL. */
static int decode(char *path)
{
    char *to = path;
    for (const char *at = path; *at; at++) {
        *to = *at;
        if (*at == '%') {
            int high = digit_of(at[1]), low = high < 0 ? -1 : digit_of(at[2]);
            if (low < 0 || high + low == 0)
                return -1;
            *to = (char)(high * 16 + low);
            at += 2;
        }
        to++;
    }
    *to = '\0';
    return 0;
}

int transfer_url_parse(const char *url, ab_arena_t *arena, struct transfer_url *out,
                       struct ab_error *err)
{
    const char *sep = strstr(url, "://");
    int64_t port = 0;

    *out = (struct transfer_url){.path = "/"};
    if (!sep || sep == url)
        return ab_fail(err, AB_EINVAL, "%s is not a URL", url);
    out->scheme = ab_strndup(arena, url, (size_t)(sep - url));
    const char *host = sep + 3, *end = host + strcspn(host, "/");
    if (*end) {
        char *path = ab_strdup(arena, end);
        if (strchr(path, ' ') || decode(path) < 0)
            return ab_fail(err, AB_EINVAL, "%s: a space is written %%20, a percent sign %%25", url);
        out->path = path;
    }
    const char *at = memchr(host, '@', (size_t)(end - host));
    if (at) {
        out->user = ab_strndup(arena, host, (size_t)(at - host));
        host = at + 1;
    }
    const char *colon = memchr(host, ':', (size_t)(end - host));
    if (colon && ab_parse_i64(colon + 1, (size_t)(end - colon) - 1, 1, 65535, &port) < 0)
        return ab_fail(err, AB_EINVAL, "the port in %s is no number up to 65535", url);
    out->port = (int)port;
    out->host = ab_strndup(arena, host, (size_t)((colon ? colon : end) - host));
    if ((*out->host && !is_plain(out->host)) || (out->user && !is_plain(out->user)))
        return ab_fail(err, AB_EINVAL, "%s: user and host are letters, digits, dots and dashes",
                       url);
    if (strpbrk(out->path, "\n\r") || strstr(out->path, "/../") || ab_str_ends(out->path, "/.."))
        return ab_fail(err, AB_EINVAL, "%s: the path must not have `..`", url);
    return 0;
}

/* ------------------------------------------------------------------ files of a task */

static void text(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, "\"%s\":", key);
    if (value)
        ab_buf_json_str(out, value, strlen(value));
    else
        ab_buf_str(out, "null");
}

void transfer_task_json(const struct transfer_task *task, struct ab_buf *out)
{
    ab_buf_char(out, '{');
    text(out, "id", task->id);
    ab_buf_char(out, ',');
    text(out, "location", task->location);
    ab_buf_char(out, ',');
    text(out, "ssh_config", task->ssh_config);
    ab_buf_printf(out, ",\"out\":%s,\"retries\":%" PRId64 ",\"items\":[",
                  task->out ? "true" : "false", task->retries);
    for (size_t i = 0; i < task->n; i++) {
        const struct transfer_item *item = &task->items[i];
        ab_buf_printf(out, "%s{\"id\":%" PRId64 ",\"job_id\":%" PRId64 ",\"recursive\":%s,",
                      i ? "," : "", item->id, item->job_id, item->recursive ? "true" : "false");
        text(out, "workdir", item->workdir);
        ab_buf_char(out, ',');
        text(out, "local_path", item->local_path);
        ab_buf_char(out, ',');
        text(out, "remote_path", item->remote_path);
        ab_buf_char(out, '}');
    }
    ab_buf_str(out, "]}\n");
}

static int read_item(const struct ab_value *v, struct transfer_item *item)
{
    item->id = ab_value_int(ab_value_get(v, "id"), 0);
    item->job_id = ab_value_int(ab_value_get(v, "job_id"), 0);
    item->recursive = ab_value_bool(ab_value_get(v, "recursive"), false);
    item->workdir = ab_value_text(ab_value_get(v, "workdir"), NULL);
    item->local_path = ab_value_text(ab_value_get(v, "local_path"), NULL);
    item->remote_path = ab_value_text(ab_value_get(v, "remote_path"), NULL);
    return item->id > 0 && item->workdir && item->local_path && item->remote_path ? 0 : -1;
}

int transfer_task_read(struct transfer_task *task, const char *json, size_t len,
                       struct ab_error *err)
{
    const struct ab_value *v = ab_value_parse(task->arena, json, len, err);
    const struct ab_value *items = ab_value_get(v, "items");

    if (!v)
        return -1;
    task->id = ab_value_text(ab_value_get(v, "id"), NULL);
    task->location = ab_value_text(ab_value_get(v, "location"), NULL);
    task->ssh_config = ab_value_text(ab_value_get(v, "ssh_config"), NULL);
    task->out = ab_value_bool(ab_value_get(v, "out"), false);
    task->retries = ab_value_int(ab_value_get(v, "retries"), 0);
    if (!task->id || !task->location || !items || items->type != AB_V_LIST)
        return ab_fail(err, AB_EINVAL, "this is no task file");
    task->items = ab_alloc(task->arena, items->n + 1, sizeof(*task->items));
    for (size_t i = 0; i < items->n; i++)
        if (read_item(&items->items[i], &task->items[task->n++]) < 0)
            return ab_fail(err, AB_EINVAL, "item %zu of the task file is incomplete", i);
    return transfer_url_parse(task->location, task->arena, &task->url, err);
}

void transfer_result_json(const struct transfer_task *task, double seconds, struct ab_buf *out)
{
    ab_buf_printf(out, "{\"seconds\":%.3f,\"items\":[", seconds);
    for (size_t i = 0; i < task->n; i++) {
        const struct transfer_item *item = &task->items[i];
        ab_buf_printf(out, "%s{\"id\":%" PRId64 ",\"done\":%s,\"bytes\":%" PRId64 ",", i ? "," : "",
                      item->id, item->done ? "true" : "false", item->bytes);
        text(out, "error", item->error);
        ab_buf_char(out, '}');
    }
    ab_buf_str(out, "]}\n");
}

int transfer_result_read(struct transfer_task *task, const char *json, size_t len,
                         struct ab_error *err)
{
    const struct ab_value *v = ab_value_parse(task->arena, json, len, err);
    const struct ab_value *items = ab_value_get(v, "items");

    if (!v)
        return -1;
    for (size_t i = 0; i < task->n; i++) {
        task->items[i].done = false;
        task->items[i].error = "the worker says nothing about this item";
    }
    for (size_t i = 0; items && items->type == AB_V_LIST && i < items->n && i < task->n; i++) {
        struct transfer_item *item = &task->items[i];
        if (ab_value_int(ab_value_get(&items->items[i], "id"), 0) != item->id)
            return ab_fail(err, AB_EINVAL, "the result file does not belong to its task");
        item->done = ab_value_bool(ab_value_get(&items->items[i], "done"), false);
        item->bytes = ab_value_int(ab_value_get(&items->items[i], "bytes"), 0);
        item->error = ab_value_text(ab_value_get(&items->items[i], "error"), NULL);
    }
    return 0;
}

/* ------------------------------------------------------------------ ends of an item */

void transfer_fail(struct transfer_task *task, struct transfer_item *item, const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    item->done = false;
    item->error = ab_strdup(task->arena, line);
}

const char *transfer_remote(const struct transfer_item *item, struct ab_error *err)
{
    const char *path = item->remote_path + strspn(item->remote_path, "/");

    if (*item->remote_path != '/' || !ab_path_stays_below(*path ? path : ".")
        || strpbrk(path, "\n\r")) {
        ab_fail(err, AB_EINVAL, "the path %s leaves its location (absolute, without `..`)",
                item->remote_path);
        return NULL;
    }
    return *path ? path : ".";
}

int transfer_local_end(const struct transfer_task *task, const struct transfer_item *item,
                       const char **name, struct ab_error *err)
{
    *name = item->local_path;
    if (!ab_path_stays_below(item->local_path))
        return ab_fail(err, AB_EINVAL, "the local path %s leaves the work directory",
                       item->local_path);
    if (!task->out && !item->recursive && strcmp(item->local_path, ".") == 0) {
        const char *slash = strrchr(item->remote_path, '/');
        *name = slash ? slash + 1 : item->remote_path;
        if (!**name || strcmp(*name, "..") == 0)
            return ab_fail(err, AB_EINVAL, "%s has no file name", item->remote_path);
    }
    return ab_workdir_open(task->site, item->workdir, true, NULL, err);
}
