/* leftovers.c - processes of a centre whose supervisor is gone */
#include "leftovers.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/spawn.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOUND_MAX 256
#define PATIENCE_MS 15000
#define KILLED_MS 10000

struct found {
    pid_t pid;
    int pidfd;
    bool postgres;
};

/* "ABIES_RUN_FILE=<home>/run/NAME.json" among the NUL-terminated strings of its environment. */
static bool is_ours(const struct centre *self, pid_t pid, bool *postgres)
{
    AB_AUTO(ab_buf_free) struct ab_buf env = {0};
    char path[40];
    snprintf(path, sizeof(path), "/proc/%ld/environ", (long)pid);
    if (ab_file_read(path, 1 << 20, &env, NULL) < 0)
        return false;
    const char *mark = ab_printf(self->arena, "ABIES_RUN_FILE=%s/run/", self->home);
    for (size_t at = 0; at < env.len; at += strlen(env.data + at) + 1) {
        if (!ab_str_starts(env.data + at, mark))
            continue;
        *postgres = strcmp(env.data + at + strlen(mark), "postgres.json") == 0;
        return true;
    }
    return false;
}

static size_t find(const struct centre *self, struct found *out)
{
    size_t n = 0;
    DIR *dir = opendir("/proc");
    for (const struct dirent *e; dir && (e = readdir(dir)) && n < FOUND_MAX;) {
        int64_t pid;
        struct found f = {.pidfd = -1};
        if (ab_parse_i64(e->d_name, strlen(e->d_name), 2, INT32_MAX, &pid) < 0 || pid == getpid()
            || !is_ours(self, (pid_t)pid, &f.postgres))
            continue;
        f.pid = (pid_t)pid;
        f.pidfd = ab_pidfd(f.pid);
        /* looked at again: the number may have been another's by the time the descriptor was made
         */
        if (f.pidfd >= 0 && is_ours(self, f.pid, &f.postgres))
            out[n++] = f;
        else
            ab_close(&f.pidfd);
    }
    if (dir)
        closedir(dir);
    return n;
}

static void signal_all(struct found *list, size_t n, bool postgres, int signal_no)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].postgres == postgres && list[i].pidfd >= 0)
            (void)kill(list[i].pid, signal_no);
}

/* Until those of this kind have ended. How many are left. */
static size_t wait_all(struct found *list, size_t n, bool postgres, int64_t patience_ms)
{
    int64_t until = ab_now_ms() + patience_ms;
    for (;;) {
        struct pollfd fds[FOUND_MAX];
        size_t left = 0;
        for (size_t i = 0; i < n; i++)
            if (list[i].postgres == postgres && list[i].pidfd >= 0)
                fds[left++] = (struct pollfd){list[i].pidfd, POLLIN, 0};
        int64_t ms = until - ab_now_ms();
        if (left == 0 || ms <= 0)
            return left;
        if (poll(fds, left, (int)ms) <= 0)
            continue;
        for (size_t k = 0; k < left; k++)
            for (size_t i = 0; fds[k].revents && i < n; i++)
                if (list[i].pidfd == fds[k].fd)
                    ab_close(&list[i].pidfd);
    }
}

static size_t end_kind(struct found *list, size_t n, bool postgres)
{
    signal_all(list, n, postgres, postgres ? SIGINT : SIGTERM);
    signal_all(list, n, postgres, SIGCONT);
    if (wait_all(list, n, postgres, PATIENCE_MS) == 0)
        return 0;
    signal_all(list, n, postgres, SIGKILL);
    return wait_all(list, n, postgres, KILLED_MS);
}

int leftovers_end(const struct centre *self, struct ab_error *err)
{
    struct found *list = ab_alloc(self->arena, FOUND_MAX, sizeof(*list));
    size_t n = find(self, list), left = 0;
    if (n > 0) {
        left = end_kind(list, n, false);
        left += end_kind(list, n, true);
    }
    for (size_t i = 0; i < n; i++)
        ab_close(&list[i].pidfd);
    if (left > 0)
        return ab_fail(err, AB_EINTERNAL, "%zu processes of the centre in %s do not end", left,
                       self->home);
    return (int)n;
}
