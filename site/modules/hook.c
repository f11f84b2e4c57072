/* hook.c - see hook.h */
#include "hook.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include "schema/json.h"
#include "sitedir/workdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG "abies.log"
#define TERM_MS 5000 /* between SIGTERM and SIGKILL */
#define RESULT_MAX ((size_t)4 << 20)

struct hook {
    enum ab_app_hook which;
    pid_t pid; /* 0: collected */
    int fd;
    int64_t limit_ms, end_ms, kill_ms; /* kill_ms 0: not asked to end yet */
    char *job_file, *result_file, *pid_file;
};

static char *file_of(const char *folder, int64_t job_id, const char *what)
{
    struct ab_buf path = {0};
    ab_buf_printf(&path, "%s/%" PRId64 ".%s", folder, job_id, what);
    return ab_buf_take(&path);
}

void hook_destroy(hook_t **self)
{
    hook_t *hook = *self;

    if (!hook)
        return;
    if (hook->pid > 0) {
        (void)kill(-hook->pid, SIGKILL);
        (void)waitpid(hook->pid, NULL, 0);
    }
    ab_close(&hook->fd);
    if (hook->pid_file)
        (void)unlink(hook->pid_file);
    if (hook->result_file)
        (void)unlink(hook->result_file);
    if (hook->job_file)
        (void)unlink(hook->job_file);
    free(hook->pid_file);
    free(hook->result_file);
    free(hook->job_file);
    free(hook);
    *self = NULL;
}

/* ------------------------------------------------------------------ start */

static int open_log(int workdir, enum ab_app_hook which, int64_t job_id, struct ab_error *err)
{
    char when[AB_TIME_TEXT];
    int fd = openat(workdir, LOG, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0)
        return ab_fail_errno(err, ab_errno_code(errno),
                             "cannot open " LOG " in the work directory");
    ab_time_format(ab_utc_us(), true, when);
    dprintf(fd, "=== %s: %s of job %" PRId64 "\n", when, ab_app_hook_names[which], job_id);
    return fd;
}

/* With the values under `parameters`, whichever way they came. */
static int write_job(const hook_t *self, const struct job *job, const struct ab_value *parameters,
                     struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf json = {0}, values = {0};
    struct job shown = *job;

    if (parameters) {
        ab_value_write(&values, parameters);
        shown.parameters = (struct ab_bytes){values.data, values.len};
    }
    ab_json_write(&json, &ab_schema_job, AB_OUT, &shown);
    (void)unlink(self->result_file);
    return ab_file_write(self->job_file, json.data, json.len, 0600, err);
}

static int write_pid(const hook_t *self, struct ab_error *err)
{
    char text[64];
    int n = snprintf(text, sizeof(text), "%d\n%" PRIu64 "\n", (int)self->pid,
                     ab_pid_start_time(self->pid));
    return ab_file_write(self->pid_file, text, (size_t)n, 0600, err);
}

static int run(hook_t *self, const struct ab_site *site, const struct ab_app *app,
               const struct job *job, const struct ab_value *parameters, ab_arena_t *arena,
               struct ab_error *err)
{
    AB_AUTO(ab_free) char *path = NULL;
    AB_AUTO(ab_close) int workdir = ab_workdir_open(site, job->workdir, true, &path, err);
    AB_AUTO(ab_close) int log = workdir < 0 ? -1 : open_log(workdir, self->which, job->id, err);

    if (log < 0)
        return -1;
    const char **argv = ab_app_hook_command(app, self->which, parameters, arena, err);
    if (!argv)
        return -1;
    struct ab_app_env env = {
        .job_id = job->id,
        .workdir = path,
        .attempt = job->attempts,
        .site_path = site->path,
        .num_nodes = job->num_nodes,
        .ranks_per_node = job->ranks_per_node,
        .threads_per_rank = job->threads_per_rank,
        .hook = ab_app_hook_names[self->which],
        .job_file = self->job_file,
        .result_file = self->result_file,
    };
    struct ab_spawn what = {
        .argv = ab_app_wrap(app, argv, arena),
        .env = ab_app_environment(app, &env, arena),
        .cwd = path,
        .in = -1,
        .out = log,
        .err = log,
        .new_group = true,
        .die_with_parent = true,
        .pidfd = &self->fd,
    };
    return ab_spawn(&what, &self->pid, err);
}

hook_t *hook_start(const struct ab_site *site, const char *folder, const struct ab_app *app,
                   enum ab_app_hook which, const struct job *job, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(hook_destroy) hook_t *self = calloc(1, sizeof(*self));
    const struct ab_value *parameters;

    self->which = which;
    self->fd = -1;
    self->job_file = file_of(folder, job->id, "job");
    self->result_file = file_of(folder, job->id, "result");
    self->pid_file = file_of(folder, job->id, "pid");
    self->limit_ms = app->hook_timeout_ms;
    self->end_ms = ab_now_ms() + self->limit_ms;
    if (ab_app_parameters(job, arena, &parameters, err) < 0)
        return NULL;
    if (write_job(self, job, parameters, err) < 0) {
        if (err)
            err->code = AB_EBUSY; /* the site's disk, not the job */
        return NULL;
    }
    if (run(self, site, app, job, parameters, arena, err) < 0) {
        ab_fail_within(err, "%s hook", ab_app_hook_names[which]);
        return NULL;
    }
    if (write_pid(self, err) < 0) {
        if (err)
            err->code = AB_EBUSY;
        return NULL;
    }
    return AB_TAKE(self);
}

/* ------------------------------------------------------------------ end */

int hook_fd(const hook_t *self)
{
    return self->fd;
}

int64_t hook_watch(hook_t *self, int64_t now_ms)
{
    if (self->kill_ms) {
        if (now_ms >= self->kill_ms && self->pid > 0)
            (void)kill(-self->pid, SIGKILL);
        return now_ms >= self->kill_ms ? TERM_MS : self->kill_ms - now_ms;
    }
    if (now_ms < self->end_ms)
        return self->end_ms - now_ms;
    (void)kill(-self->pid, SIGTERM);
    self->kill_ms = now_ms + TERM_MS;
    return TERM_MS;
}

static void add_member(struct ab_buf *out, const char *key, const struct ab_value *value)
{
    ab_buf_char(out, out->len ? ',' : '{');
    ab_buf_json_str(out, key, strlen(key));
    ab_buf_char(out, ':');
    ab_value_write(out, value);
}

/* What the hook names is set, null removes, the rest of the job's object stays. */
static int merge(const struct ab_value *result, const char *key, struct ab_bytes old,
                 ab_arena_t *arena, struct ab_bytes *out, struct ab_error *err)
{
    const struct ab_value *change = ab_value_get(result, key);
    const struct ab_value *now = old.n ? ab_value_parse(arena, old.p, old.n, NULL) : NULL;
    AB_AUTO(ab_buf_free) struct ab_buf json = {0};

    if (!change)
        return 0;
    if (change->type != AB_V_MAP)
        return ab_fail(err, AB_EINVAL, "`%s` in the hook's result file is not an object", key);
    for (size_t i = 0; now && now->type == AB_V_MAP && i < now->n; i++)
        if (!ab_value_get(change, now->keys[i]))
            add_member(&json, now->keys[i], &now->items[i]);
    for (size_t i = 0; i < change->n; i++)
        if (change->items[i].type != AB_V_NULL)
            add_member(&json, change->keys[i], &change->items[i]);
    ab_buf_str(&json, json.len ? "}" : "{}");
    if (json.failed)
        return ab_fail(err, AB_ETOOBIG, "`%s` in the hook's result file is too large", key);
    *out = (struct ab_bytes){ab_memdup(arena, json.data, json.len), json.len};
    return 0;
}

static int read_result(const hook_t *self, const struct job *job, ab_arena_t *arena,
                       struct hook_result *out, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *name = ab_app_hook_names[self->which];

    if (access(self->result_file, F_OK) < 0)
        return 0;
    if (ab_file_read(self->result_file, RESULT_MAX, &text, err) < 0)
        return -1;
    const struct ab_value *v = ab_value_parse(arena, text.data ? text.data : "", text.len, err);
    if (!v || v->type != AB_V_MAP)
        return ab_fail(err, AB_EINVAL, "the result file of the %s hook is not a JSON object", name);
    out->state = ab_value_text(ab_value_get(v, "state"), NULL);
    if (out->state && ab_enum_find(&ab_enum_job_state, out->state, strlen(out->state)) < 0)
        return ab_fail(err, AB_EINVAL, "the %s hook asks for a state that does not exist: %.40s",
                       name, out->state);
    return merge(v, "data", job->data, arena, &out->data, err) < 0
                   || merge(v, "tags", job->tags, arena, &out->tags, err) < 0
               ? -1
               : 0;
}

int hook_result(hook_t *self, const struct job *job, ab_arena_t *arena, struct hook_result *out,
                struct ab_error *err)
{
    const char *name = ab_app_hook_names[self->which];
    int status;

    *out = (struct hook_result){0};
    if (self->pid <= 0 || waitpid(self->pid, &status, 0) != self->pid)
        return ab_fail(err, AB_EINTERNAL, "the %s hook is lost", name);
    (void)kill(-self->pid, SIGKILL); /* what it left in the background */
    self->pid = 0;
    ab_close(&self->fd); /* one descriptor at least is there to read the result with */
    if (self->kill_ms)
        return ab_fail(err, AB_EINVAL,
                       "the %s hook took longer than %" PRId64 " s (hook_timeout_sec)", name,
                       self->limit_ms / 1000);
    int code = ab_exit_code(status);
    if (code < 0)
        return ab_fail(err, AB_EINVAL, "the %s hook was killed by signal %d; see " LOG, name,
                       -code);
    if (code > 0)
        return ab_fail(err, AB_EINVAL, "the %s hook ended with status %d; see " LOG, name, code);
    return read_result(self, job, arena, out, err);
}

/* ------------------------------------------------------------------ after a crash of ours */

static void end_group(const char *path)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    int pid;
    uint64_t start;

    if (ab_file_read(path, 64, &text, NULL) < 0)
        return;
    ab_buf_char(&text, '\0');
    if (sscanf(text.data, "%d %" SCNu64, &pid, &start) != 2 || pid <= 1)
        return;
    uint64_t now = ab_pid_start_time(pid);
    if (now == 0 || now == start) /* the leader, or only its group, is left */
        (void)kill(-pid, SIGKILL);
}

void hook_end_leftovers(const char *folder)
{
    DIR *dir = opendir(folder);

    for (const struct dirent *file; dir && (file = readdir(dir));) {
        AB_AUTO(ab_buf_free) struct ab_buf path = {0};
        if (file->d_name[0] == '.')
            continue;
        ab_buf_printf(&path, "%s/%s", folder, file->d_name);
        if (ab_str_ends(file->d_name, ".pid"))
            end_group(path.data);
        (void)unlink(path.data);
    }
    if (dir)
        closedir(dir);
}
