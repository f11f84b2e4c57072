/* wards.c - copies of ward descriptions, their start, their log files */
#include "wards.h"

#include "cleanup.h"
#include "log.h"
#include "spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_LARGE ((off_t)16 << 20)
#define LOG_KEEP 4

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list && list[n])
        n++;
    return n;
}

static bool same_variable(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

static void list_free(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

static int list_add(char **list, size_t *n, const char *text)
{
    list[*n] = strdup(text);
    if (!list[*n])
        return -1;
    ++*n;
    return 0;
}

/* All of `base` but what `over` sets, then `over`. */
static char **list_copy(const char *const *base, const char *const *over)
{
    size_t n = 0, n_base = count(base), n_over = over ? count(over) : 0;
    char **list = calloc(n_base + n_over + 1, sizeof(*list));
    int rc = list ? 0 : -1;
    for (size_t i = 0; i < n_base && rc == 0; i++) {
        bool hidden = false;
        for (size_t k = 0; k < n_over && !hidden; k++)
            hidden = same_variable(base[i], over[k]);
        if (!hidden)
            rc = list_add(list, &n, base[i]);
    }
    for (size_t i = 0; i < n_over && rc == 0; i++)
        rc = list_add(list, &n, over[i]);
    if (rc < 0) {
        list_free(list);
        return NULL;
    }
    return list;
}

static int copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? -1 : 0;
}

int ward_plan_copy(struct ward_plan *self, const struct ab_ward *ward, struct ab_error *err)
{
    *self = (struct ward_plan){.stop_ms = ward->stop_ms,
                               .stop_signal = ward->stop_signal ? ward->stop_signal : SIGTERM,
                               .die_with_parent = ward->die_with_parent};
    self->argv = list_copy(ward->argv, NULL);
    self->env = list_copy((const char *const *)environ, ward->env);
    if (!self->argv || !self->env || copy_text(&self->name, ward->name) < 0
        || copy_text(&self->cwd, ward->cwd) < 0 || copy_text(&self->log_path, ward->log_path) < 0) {
        ward_plan_free(self);
        return ab_fail(err, AB_EINTERNAL, "no memory for process `%s`", ward->name);
    }
    return 0;
}

void ward_plan_free(struct ward_plan *self)
{
    list_free(self->argv);
    list_free(self->env);
    free(self->name);
    free(self->cwd);
    free(self->log_path);
    *self = (struct ward_plan){0};
}

int ward_plan_spawn(const struct ward_plan *self, pid_t *pid, int *pidfd, struct ab_error *err)
{
    AB_AUTO(ab_close) int log_fd = -1;
    if (self->log_path) {
        log_fd = open(self->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
        if (log_fd < 0)
            return ab_fail_errno(err, AB_EINTERNAL, "cannot open log file `%s`", self->log_path);
    }
    struct ab_spawn spawn = {
        .argv = (const char *const *)self->argv,
        .env = (const char *const *)self->env,
        .cwd = self->cwd,
        .in = -1,
        .out = self->log_path ? log_fd : STDERR_FILENO,
        .err = self->log_path ? log_fd : STDERR_FILENO,
        .new_group = true,
        .die_with_parent = self->die_with_parent,
        .pidfd = pidfd,
    };
    return ab_spawn(&spawn, pid, err);
}

/* Append what is in `from` behind `done` to `to`; the new place, or -1. */
static off_t copy_rest(int from, int to, off_t done)
{
    char piece[65536];
    for (;;) {
        ssize_t n = pread(from, piece, sizeof(piece), done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -1 : done;
        for (ssize_t k = 0; k < n;) {
            ssize_t w = write(to, piece + k, (size_t)(n - k));
            if (w < 0 && errno != EINTR)
                return -1;
            k += w > 0 ? w : 0;
        }
        done += n;
    }
}

void ward_log_rotate(const char *path)
{
    struct stat st;
    char older[PATH_MAX], newer[PATH_MAX];
    if (stat(path, &st) < 0 || st.st_size <= LOG_LARGE || strlen(path) > PATH_MAX - 8)
        return;
    for (int i = LOG_KEEP; i > 1; i--) {
        snprintf(older, sizeof(older), "%s.%d", path, i);
        snprintf(newer, sizeof(newer), "%s.%d", path, i - 1);
        (void)rename(newer, older);
    }
    snprintf(newer, sizeof(newer), "%s.1", path);
    AB_AUTO(ab_close) int from = open(path, O_RDWR | O_CLOEXEC);
    AB_AUTO(ab_close) int to = open(newer, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (from < 0 || to < 0)
        return;
    /* What is written between the last look and the cut is lost: microseconds, for a file of 16
     * MiB. */
    off_t done = copy_rest(from, to, 0);
    if (done >= 0)
        done = copy_rest(from, to, done);
    if (done < 0)
        ab_log(AB_WARN, "log.not_copied", AB_KV("path", path), AB_KV("errno", errno));
    (void)!ftruncate(from, 0); /* also then: a full disk must not be what a log file does */
}
