/* health.c - see health.h */
#include "health.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "schema/json.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_MS 1000
#define MOST_MS 30000
#define LEFTOVER_MS 2000
#define FILE_MAX ((size_t)1 << 20)

struct health {
    char *path;
    int64_t site_id, started_us;
    struct {
        char module[64];
        char json[HEALTH_WORDS];
    } words[HEALTH_MODULES];
    size_t n_words;
    const char *metrics; /* address */
    bool changed, known;
    char why[256];
    int64_t written_ms;
};

health_t *health_new(const struct ab_site *site)
{
    health_t *self = calloc(1, sizeof(*self));

    self->path = ab_site_path(site, "run/health.json");
    self->site_id = site->id;
    self->started_us = ab_utc_us();
    self->changed = true;
    self->written_ms = ab_now_ms() - LEAST_MS;
    return self;
}

void health_destroy(health_t **self)
{
    if (!*self)
        return;
    (void)unlink((*self)->path);
    free((*self)->path);
    free(*self);
    *self = NULL;
}

void health_metrics(health_t *self, const char *address)
{
    self->metrics = address;
}

void health_change(health_t *self)
{
    self->changed = true;
}

void health_settings(health_t *self, bool known, const char *why)
{
    self->known = known;
    snprintf(self->why, sizeof(self->why), "%s", why);
    self->changed = true;
}

void health_word(health_t *self, const char *module, const char *json, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    size_t i = 0;

    if (len >= HEALTH_WORDS || !ab_value_parse(arena, json, len, NULL))
        return;
    while (i < self->n_words && strcmp(self->words[i].module, module) != 0)
        i++;
    if (i == HEALTH_MODULES)
        return;
    if (i == self->n_words)
        snprintf(self->words[self->n_words++].module, sizeof(self->words[i].module), "%s", module);
    memcpy(self->words[i].json, json, len);
    self->words[i].json[len] = '\0';
    self->changed = true;
}

/* ------------------------------------------------------------------ writing */

static void add_text(struct ab_buf *out, const char *key, const char *value)
{
    ab_buf_printf(out, "\"%s\":", key);
    ab_buf_json_str(out, value, strlen(value));
}

static void add_time(struct ab_buf *out, const char *key, int64_t utc_us)
{
    char text[AB_TIME_TEXT];

    ab_time_format(utc_us, true, text);
    if (utc_us)
        add_text(out, key, text);
    else
        ab_buf_printf(out, "\"%s\":null", key);
}

static void add_modules(struct ab_buf *out, const health_t *self, const ab_supervise_t *modules)
{
    struct ab_ward_status status;

    ab_buf_str(out, "\"modules\":[");
    for (size_t i = 0; ab_supervise_status(modules, i, &status); i++) {
        ab_buf_str(out, i ? ",{" : "{");
        add_text(out, "name", status.name);
        ab_buf_printf(out, ",\"pid\":%d,\"start\":%" PRIu64 ",\"restarts\":%d,\"last_exit\":%d,",
                      (int)status.pid, status.pid ? ab_pid_start_time(status.pid) : 0,
                      status.restarts, status.last_exit);
        add_time(out, "started", status.started_utc_us);
        for (size_t k = 0; k < self->n_words; k++)
            if (strcmp(self->words[k].module, status.name) == 0)
                ab_buf_printf(out, ",\"says\":%s", self->words[k].json);
        ab_buf_char(out, '}');
    }
    ab_buf_char(out, ']');
}

static void write_file(health_t *self, const ab_supervise_t *modules, outbox_t *outbox,
                       post_t *post, uplink_t *uplink)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct outbox_figures waits;
    struct uplink_state up;
    struct post_state sent;
    struct ab_error err = {0};

    outbox_figures(outbox, &waits);
    uplink_state(uplink, &up);
    post_state(post, &sent);
    ab_buf_printf(&out, "{\"site_id\":%" PRId64 ",\"pid\":%d,", self->site_id, (int)getpid());
    add_text(&out, "version", AB_VERSION);
    ab_buf_char(&out, ',');
    if (self->metrics) {
        add_text(&out, "metrics", self->metrics);
        ab_buf_char(&out, ',');
    }
    add_time(&out, "started", self->started_us);
    ab_buf_char(&out, ',');
    add_time(&out, "written", ab_utc_us());
    ab_buf_printf(&out,
                  ",\"uplink\":{\"reached\":%s,\"calls\":%" PRIu64 ",\"failures\":%" PRIu64
                  ",\"waiting\":%zu,",
                  up.reached ? "true" : "false", up.calls, up.failures, up.waiting);
    add_time(&out, "last_answer", up.reached_utc_us);
    ab_buf_char(&out, ',');
    add_text(&out, "why", up.why);
    ab_buf_printf(&out,
                  "},\"outbox\":{\"updates\":%zu,\"bytes\":%zu,\"sent\":%" PRIu64
                  ",\"dropped\":%" PRIu64 ",",
                  waits.updates, waits.bytes, sent.sent, sent.dropped);
    add_time(&out, "oldest", waits.oldest_utc_us);
    ab_buf_char(&out, ',');
    add_text(&out, "why", sent.why);
    ab_buf_printf(&out, "},\"settings\":{\"known\":%s,", self->known ? "true" : "false");
    add_text(&out, "why", self->why);
    ab_buf_str(&out, "},");
    add_modules(&out, self, modules);
    ab_buf_str(&out, "}\n");
    if (ab_file_write(self->path, out.data, out.len, 0600, &err) < 0)
        ab_log(AB_WARN, "health.unwritten", AB_KV("why", err.text));
}

int64_t health_step(health_t *self, const ab_supervise_t *modules, outbox_t *outbox, post_t *post,
                    uplink_t *uplink)
{
    int64_t since = ab_now_ms() - self->written_ms, pause = self->changed ? LEAST_MS : MOST_MS;

    if (since < pause)
        return pause - since;
    write_file(self, modules, outbox, post, uplink);
    self->changed = false;
    self->written_ms = ab_now_ms();
    return MOST_MS;
}

/* ------------------------------------------------------------------ what a killed broker left */

static bool runs(const struct ab_value *module, pid_t *pid)
{
    int64_t number = ab_value_int(ab_value_get(module, "pid"), 0);
    int64_t start = ab_value_int(ab_value_get(module, "start"), 0);

    *pid = (pid_t)number;
    return number > 1 && ab_process_runs(*pid, (uint64_t)start);
}

/* Modules see that their broker is gone and end; one that cannot is ended. */
static void end_one(const struct ab_value *module)
{
    pid_t pid;

    if (!runs(module, &pid))
        return;
    AB_AUTO(ab_close) int fd = ab_pidfd(pid);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    if (fd < 0 || poll(&ended, 1, LEFTOVER_MS) > 0 || !runs(module, &pid))
        return;
    ab_log(AB_WARN, "module.leftover", AB_KV("pid", (int64_t)pid),
           AB_KV("module", ab_value_text(ab_value_get(module, "name"), "?")));
    (void)kill(-pid, SIGKILL);
    (void)kill(pid, SIGKILL);
    (void)poll(&ended, 1, LEFTOVER_MS);
}

void health_end_leftovers(const struct ab_site *site)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    AB_AUTO(ab_free) char *path = ab_site_path(site, "run/health.json");

    if (ab_file_read(path, FILE_MAX, &text, NULL) < 0 || !text.len)
        return;
    const struct ab_value *modules =
        ab_value_get(ab_value_parse(arena, text.data, text.len, NULL), "modules");
    for (size_t i = 0; modules && modules->type == AB_V_LIST && i < modules->n; i++)
        end_one(&modules->items[i]);
    (void)unlink(path);
}
