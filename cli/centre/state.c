/* state.c - run/centre.json */
#include "state.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "members.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define STATE_MAX ((size_t)1 << 20)

static void member_text(struct ab_buf *out, const char *name, const char *value)
{
    ab_buf_printf(out, ",\"%s\":", name);
    if (value)
        ab_buf_json_str(out, value, strlen(value));
    else
        ab_buf_str(out, "null");
}

/* What the process wrote about itself; a file of an earlier life (another pid) does not count. */
static const struct ab_value *run_file(const struct centre *self, ab_arena_t *arena,
                                       const struct ab_ward_status *st)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    if (!st->pid || ab_file_read(member_run_file(self, st->name), 65536, &text, NULL) < 0)
        return NULL;
    const struct ab_value *v = ab_value_parse(arena, text.data, text.len, NULL);
    return ab_value_int(ab_value_get(v, "pid"), 0) == st->pid ? v : NULL;
}

static void write_process(const struct centre *self, ab_arena_t *arena, struct ab_buf *out,
                          size_t i, const struct ab_ward_status *st)
{
    const struct ab_value *own = run_file(self, arena, st);
    char started[AB_TIME_TEXT];
    ab_time_format(st->started_utc_us, true, started);
    ab_buf_str(out, i ? ",\n  {\"name\":" : "\n  {\"name\":");
    ab_buf_json_str(out, st->name, strlen(st->name));
    member_text(out, "role", member_role(self, st->name));
    ab_buf_printf(out, ",\"pid\":%d,\"start\":%" PRIu64 ",\"restarts\":%d,\"last_exit\":%d",
                  (int)st->pid, st->pid ? ab_pid_start_time(st->pid) : 0, st->restarts,
                  st->last_exit);
    member_text(out, "started", started);
    member_text(out, "health", ab_value_text(ab_value_get(own, "health"), NULL));
    member_text(out, "instance", ab_value_text(ab_value_get(own, "instance"), NULL));
    ab_buf_char(out, '}');
}

int state_write(const struct centre *self, const struct cluster *cluster,
                const ab_supervise_t *supervise, const char *health, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    struct ab_ward_status st;
    ab_buf_printf(&out, "{\"version\":1,\"supervisor\":{\"pid\":%d,\"start\":%" PRIu64,
                  (int)getpid(), ab_pid_start_time(getpid()));
    member_text(&out, "health", health);
    ab_buf_char(&out, '}');
    member_text(&out, "home", self->home);
    member_text(&out, "url", centre_url(self));
    member_text(&out, "ca_file", centre_path(self, "tls/ca.pem"));
    member_text(&out, "socket_dir", cluster->socket_dir);
    ab_buf_str(&out, ",\"bus\":[");
    for (int g = 0; g < self->gateways; g++)
        ab_buf_printf(&out, "%s\"tcp://127.0.0.1:%d\"", g ? "," : "", self->bus_ports[g]);
    ab_buf_str(&out, "],\"processes\":[");
    for (size_t i = 0; ab_supervise_status(supervise, i, &st); i++)
        write_process(self, arena, &out, i, &st);
    ab_buf_str(&out, "]}\n");
    if (out.failed)
        return ab_fail(err, AB_EINTERNAL, "no memory to write centre.json");
    return ab_file_write(centre_path(self, "run/centre.json"), out.data, out.len, 0600, err);
}

static bool same_process(const struct ab_value *v)
{
    pid_t pid = (pid_t)ab_value_int(ab_value_get(v, "pid"), 0);
    int64_t start = ab_value_int(ab_value_get(v, "start"), -1);
    return pid > 0 && start > 0 && (int64_t)ab_pid_start_time(pid) == start;
}

static void read_process(ab_arena_t *arena, const struct ab_value *v, struct state_process *out)
{
    const char *started = ab_value_text(ab_value_get(v, "started"), "");
    const char *health = ab_value_text(ab_value_get(v, "health"), NULL);
    const char *instance = ab_value_text(ab_value_get(v, "instance"), NULL);
    *out = (struct state_process){
        .name = ab_strdup(arena, ab_value_text(ab_value_get(v, "name"), "?")),
        .role = ab_strdup(arena, ab_value_text(ab_value_get(v, "role"), "?")),
        .pid = same_process(v) ? (pid_t)ab_value_int(ab_value_get(v, "pid"), 0) : 0,
        .restarts = ab_value_int(ab_value_get(v, "restarts"), 0),
        .last_exit = ab_value_int(ab_value_get(v, "last_exit"), 0),
        .health = health ? ab_strdup(arena, health) : NULL,
        .instance = instance ? ab_strdup(arena, instance) : NULL,
    };
    (void)ab_time_parse(started, strlen(started), &out->started_us);
}

int state_read(const struct centre *self, ab_arena_t *arena, struct state *out,
               struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct ab_error why = {0};
    *out = (struct state){0};
    if (ab_file_read(centre_path(self, "run/centre.json"), STATE_MAX, &text, &why) < 0) {
        if (why.code == AB_ENOENT)
            return 0;
        return ab_fail(err, why.code, "%s", why.text);
    }
    const struct ab_value *doc = ab_value_parse(arena, text.data, text.len, err);
    if (!doc)
        return ab_fail_within(err, "%s/run/centre.json", self->home);
    const struct ab_value *supervisor = ab_value_get(doc, "supervisor"),
                          *list = ab_value_get(doc, "processes");
    out->health = ab_value_text(ab_value_get(supervisor, "health"), NULL);
    if (same_process(supervisor))
        out->supervisor = (pid_t)ab_value_int(ab_value_get(supervisor, "pid"), 0);
    out->url = ab_value_text(ab_value_get(doc, "url"), "");
    out->socket_dir = ab_value_text(ab_value_get(doc, "socket_dir"), "");
    if (!list || list->type != AB_V_LIST)
        return 0;
    out->processes = ab_alloc(arena, list->n, sizeof(*out->processes));
    for (size_t i = 0; i < list->n; i++)
        read_process(arena, &list->items[i], &out->processes[out->n++]);
    return 0;
}
