/* log.c - logfmt lines: built on the stack, written by one write() */
#include "log.h"

#include "clock.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096

static atomic_int least_level = AB_INFO;
static char service_name[64];
static char instance_name[96];
static _Thread_local const char *request, *trace;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

int ab_level_of(const char *word)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(word, level_names[i]) == 0)
            return i;
    return -1;
}

void ab_log_open(const char *service, const char *instance, enum ab_level least)
{
    snprintf(service_name, sizeof(service_name), "%s", service ? service : "");
    snprintf(instance_name, sizeof(instance_name), "%s", instance ? instance : "");
    atomic_store(&least_level, (int)least);
}

enum ab_level ab_log_level(void)
{
    return (enum ab_level)atomic_load_explicit(&least_level, memory_order_relaxed);
}

void ab_log_request(const char *request_id)
{
    request = request_id;
}

void ab_log_trace(const char *trace_id)
{
    trace = trace_id;
}

const char *ab_log_current_trace(void)
{
    return trace;
}

struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};

/* Room for the newline is always kept. */
static void put(struct line *line, const char *text, size_t n)
{
    size_t room = sizeof(line->text) - 1 - line->len;
    if (n > room) {
        n = room;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
            n--;
    }
    memcpy(line->text + line->len, text, n);
    line->len += n;
}

static void put_str(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static bool needs_quotes(const char *text)
{
    if (!*text)
        return true;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p <= ' ' || *p == '"' || *p == '=' || *p == '\\' || *p == 0x7F)
            return true;
    return false;
}

static void put_text(struct line *line, const char *text)
{
    if (!text) {
        put_str(line, "null");
        return;
    }
    if (!needs_quotes(text)) {
        put_str(line, text);
        return;
    }
    put_str(line, "\"");
    for (const char *p = text; *p && line->len < sizeof(line->text) - 8; p++) {
        unsigned char c = (unsigned char)*p;
        char escape[5];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof(escape), "\\%c", c);
        else if (c == '\n')
            snprintf(escape, sizeof(escape), "\\n");
        else if (c == '\t')
            snprintf(escape, sizeof(escape), "\\t");
        else if (c < ' ' || c == 0x7F)
            snprintf(escape, sizeof(escape), "\\x%02x", c);
        else
            snprintf(escape, sizeof(escape), "%c", c);
        put_str(line, escape);
    }
    put_str(line, "\"");
}

static void put_value(struct line *line, const struct ab_kv *kv)
{
    char number[40];
    switch (kv->type) {
    case AB_KV_INT:
        snprintf(number, sizeof(number), "%" PRId64, kv->value.i);
        break;
    case AB_KV_UINT:
        snprintf(number, sizeof(number), "%" PRIu64, kv->value.u);
        break;
    case AB_KV_REAL:
        snprintf(number, sizeof(number), "%.6g", kv->value.f);
        break;
    case AB_KV_BOOL:
        snprintf(number, sizeof(number), "%s", kv->value.b ? "true" : "false");
        break;
    case AB_KV_TEXT:
        put_text(line, kv->value.s);
        return;
    }
    put_str(line, number);
}

static void put_time(struct line *line)
{
    char text[AB_TIME_TEXT];
    int64_t now = ab_utc_us();
    ab_time_format(now - now % 1000000, false, text);
    put_str(line, text);
    snprintf(text, sizeof(text), ".%03dZ", (int)(now % 1000000 / 1000));
    put_str(line, text);
}

static void compose(struct line *line, enum ab_level level, const struct ab_kv *kvs, size_t n)
{
    line->len = 0;
    put_str(line, "ts=");
    put_time(line);
    put_str(line, " level=");
    put_str(line, level_names[level]);
    if (service_name[0]) {
        put_str(line, " svc=");
        put_text(line, service_name);
    }
    if (instance_name[0]) {
        put_str(line, " inst=");
        put_text(line, instance_name);
    }
    if (request) {
        put_str(line, " req=");
        put_text(line, request);
    }
    if (trace) {
        put_str(line, " trace=");
        put_text(line, trace);
    }
    for (size_t i = 0; i < n; i++) {
        put_str(line, " ");
        put_str(line, kvs[i].key);
        put_str(line, "=");
        put_value(line, &kvs[i]);
    }
    line->text[line->len++] = '\n';
}

/* False: the disk is full, or the reader of the pipe has gone. A line that was cut off is ended
 * before the next one. */
static bool emit(const struct line *line)
{
    static atomic_bool torn;
    size_t cut = atomic_exchange(&torn, false);
    struct iovec parts[] = {{(void *)(uintptr_t) "\n", 1},
                            {(void *)(uintptr_t)line->text, line->len}};
    ssize_t n = writev(STDERR_FILENO, cut ? parts : parts + 1, cut ? 2 : 1);

    if (n == (ssize_t)(cut + line->len))
        return true;
    atomic_store(&torn, n <= 0 ? cut > 0 : (size_t)n > cut);
    return false;
}

void ab_log_write(enum ab_level level, const struct ab_kv *kvs, size_t n)
{
    static atomic_uint lost;
    struct line line;
    unsigned missing = atomic_exchange(&lost, 0);

    if (missing > 0) {
        const struct ab_kv note[] = {AB_KV("event", "log.lost"), AB_KV("lines", missing)};
        compose(&line, AB_WARN, note, 2);
        if (!emit(&line))
            atomic_fetch_add(&lost, missing);
    }
    compose(&line, level, kvs, n);
    if (!emit(&line))
        atomic_fetch_add(&lost, 1);
}
