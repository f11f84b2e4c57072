/* keeper.c - the supervisor of a centre
 *
 * PostgreSQL first; when it takes connections abies-admin makes what is missing (keys, schema,
 * passwords of the roles); then gateways and services, which wait for each other by themselves.
 * Down the other way round. Whatever dies comes back; when this process itself dies the others go
 * on, and the next `abies up` ends them and takes over.
 */
#include "keeper.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/supervise.h"
#include "certificate.h"
#include "leftovers.h"
#include "members.h"
#include "monitor.h"
#include "secrets.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define POSTGRES_LIMIT_MS 120000 /* it may have to recover from a crash */
#define ADMIN_LIMIT_MS 120000
#define STOP_LIMIT_MS 60000
#define TICK_MS 1000
#define CERTIFICATE_SEC (24 * INT64_C(3600)) /* of its 397 days the last month is for renewal */

struct keeper {
    const struct centre *centre;
    const struct cluster *cluster;
    const struct known *known;
    ab_supervise_t *supervise;
    monitor_t *monitor;
    int signal_fd, notify_fd, report_fd;
    bool stop, changed, started;
};

static void report(const struct keeper *self, const char *word, const char *text)
{
    if (self->report_fd < 0)
        return;
    char line[1024];
    int n = snprintf(line, sizeof(line) - 1, "%s %s", word, text);
    n = n < (int)sizeof(line) - 1 ? n : (int)sizeof(line) - 2;
    for (int i = 0; i < n; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    line[n++] = '\n';
    (void)!write(self->report_fd, line, (size_t)n); /* nobody listens any more: nothing lost */
}

static void note_change(void *arg, const char *name)
{
    struct keeper *self = arg;
    struct ab_ward_status st;
    self->changed = true;
    /* what a dead process said about itself is not true any more */
    for (size_t i = 0; ab_supervise_status(self->supervise, i, &st); i++)
        if (strcmp(st.name, name) == 0 && !st.pid)
            (void)unlink(member_run_file(self->centre, name));
}

static void write_state(struct keeper *self)
{
    struct ab_error err = {0};
    if (self->changed
        && state_write(self->centre, self->cluster, self->supervise, monitor_address(self->monitor),
                       &err)
               < 0)
        ab_log(AB_ERROR, "state.not_written", AB_KV("error", (const char *)err.text));
    self->changed = false;
}

/* A run file has come (or PostgreSQL's lock file was written). Our own files do not count: a change
 * that we make must not lead to the next one. */
static void read_notices(struct keeper *self)
{
    char space[8192] __attribute__((aligned(8)));
    ssize_t n;
    while ((n = read(self->notify_fd, space, sizeof(space))) > 0) {
        for (char *p = space; p < space + n;) {
            const struct inotify_event *e = (const struct inotify_event *)(void *)p;
            size_t len = e->len ? strlen(e->name) : 0;
            if (len > 5 && strcmp(e->name + len - 5, ".json") == 0
                && strcmp(e->name, "centre.json") != 0)
                self->changed = true;
            p += sizeof(*e) + e->len;
        }
    }
}

/* Wait for whatever comes first, and deal with it. */
static void turn(struct keeper *self, int timeout_ms)
{
    struct pollfd fds[] = {{ab_supervise_fd(self->supervise), POLLIN, 0},
                           {self->signal_fd, POLLIN, 0},
                           {self->notify_fd, POLLIN, 0}};
    struct signalfd_siginfo info;
    if (poll(fds, AB_COUNT(fds), timeout_ms) < 0)
        return;
    if (fds[1].revents && read(self->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        ab_log(AB_INFO, "centre.stopping", AB_KV("signal", info.ssi_signo));
        self->stop = true;
    }
    if (fds[2].revents)
        read_notices(self);
    if (fds[0].revents)
        ab_supervise_step(self->supervise);
    write_state(self);
    monitor_show(self->monitor, self->supervise, self->started && !self->stop);
}

/* Of a log: what was fatal last, with the line behind it, which has the detail; else its last line. */
static const char *last_words(const struct keeper *self, const char *log)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    const char *words = NULL;
    if (ab_file_read(centre_path(self->centre, log), (size_t)64 << 20, &text, NULL) < 0
        || text.len == 0)
        return "its log is empty";
    while (text.len > 0 && text.data[text.len - 1] == '\n')
        text.data[--text.len] = '\0';
    for (char *at = text.data; (at = strstr(at, "FATAL:")); at++)
        words = at;
    if (!words) {
        const char *line = strrchr(text.data, '\n');
        return ab_strdup(self->centre->arena, line ? line + 1 : text.data);
    }
    size_t first = strcspn(words, "\n");
    const char *detail = strstr(words + first, "DETAIL:");
    return ab_printf(self->centre->arena, "%.*s%s%.*s%s", (int)first, words, detail ? " " : "",
                     detail ? (int)strcspn(detail, "\n") : 0, detail ? detail : "",
                     strstr(words, "file descriptors") ? "; raise `ulimit -n`" : "");
}

static int start_postgres(struct keeper *self, struct ab_error *err)
{
    struct ab_ward ward = member_postgres(self->centre, self->cluster);
    struct ab_ward_status st;
    int watch = inotify_add_watch(self->notify_fd, self->cluster->data, IN_MODIFY | IN_CLOSE_WRITE);
    if (cluster_configure(self->centre, self->cluster, err) < 0
        || ab_supervise_add(self->supervise, &ward, err) < 0)
        return -1;
    for (int64_t until = ab_now_ms() + POSTGRES_LIMIT_MS; !self->stop; turn(self, 100)) {
        bool ready;
        pid_t pid = cluster_pid(self->centre, &ready);
        (void)ab_supervise_status(self->supervise, 0, &st);
        if (pid && pid == st.pid && ready) {
            if (watch >= 0)
                (void)inotify_rm_watch(self->notify_fd, watch);
            return 0;
        }
        if (st.restarts >= 5 || ab_now_ms() > until)
            return ab_fail(err, AB_EINTERNAL,
                           "PostgreSQL does not start; see %s/log/postgres.log: %.250s",
                           self->centre->home, last_words(self, "log/postgres.log"));
    }
    return ab_fail(err, AB_EINTERNAL, "stopped while it started");
}

/* One of abies-admin's commands. Its words hold no secret; where the database is stands in a file.
 */
static int admin(const struct keeper *self, const char *const *words, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf output = {.limit = 8192};
    const char *argv[12] = {ab_find_program("abies-admin")};
    const char *env[64];
    size_t n = 0;
    int status = 0;
    if (!argv[0])
        return ab_fail(err, AB_ENOENT,
                       "program abies-admin is not installed beside this one (in %s)",
                       ab_self_dir());
    for (int i = 0; words[i] && i < 10; i++)
        argv[i + 1] = words[i];
    for (char **v = environ; *v && n < AB_COUNT(env) - 2; v++)
        if (strncmp(*v, "ABIES_", 6) != 0)
            env[n++] = *v;
    env[n++] = ab_printf(self->centre->arena, "ABIES_DATABASE_URL_FILE=%s/secrets/url-abies",
                         self->centre->home);
    env[n] = NULL;
    struct ab_spawn what = {.argv = argv, .env = env, .cwd = "/", .in = -1, .out = -1, .err = -1};
    if (ab_run_command(&what, ADMIN_LIMIT_MS, &output, &status, err) < 0)
        return ab_fail_within(err, "abies-admin %s", words[0]);
    if (output.len > 0)
        ab_log(AB_INFO, "admin.said", AB_KV("command", words[0]),
               AB_KV("text", (const char *)output.data));
    if (ab_exit_code(status) == 0)
        return 0;
    const char *text = output.data ? output.data : "";
    size_t len = strlen(text);
    return ab_fail(err, AB_EINTERNAL, "abies-admin %s failed: %s", words[0],
                   len > 350 ? text + len - 350 : text);
}

static int prepare(struct keeper *self, struct ab_error *err)
{
    const struct centre *c = self->centre;
    report(self, "step", "starting PostgreSQL");
    if (secrets_write_urls(c, self->cluster->socket_dir, err) < 0 || start_postgres(self, err) < 0)
        return -1;
    report(self, "step", "keys, tables and roles");
    const char *keys[] = {"keys",        "init",
                          "--curve-dir", centre_path(c, "curve"),
                          "--secrets",   centre_path(c, "secrets"),
                          NULL};
    const char *migrate[] = {"migrate", NULL};
    const char *roles[] = {"roles", "--passwords-dir", centre_path(c, "secrets"), NULL};
    if (admin(self, keys, err) < 0 || admin(self, migrate, err) < 0 || admin(self, roles, err) < 0)
        return -1;
    report(self, "step", "starting gateways and services");
    size_t n;
    struct ab_ward *wards = members_make(c, self->known, &n);
    for (size_t i = 0; i < n; i++) {
        (void)unlink(member_run_file(c, wards[i].name));
        if (ab_supervise_add(self->supervise, &wards[i], err) < 0)
            return -1;
    }
    self->changed = true;
    write_state(self);
    return 0;
}

/* Stop all whose role is (or, with `not`, is not) this one, and wait. */
static void stop_some(struct keeper *self, const char *role, bool not )
{
    struct ab_ward_status st;
    const char *names[512];
    size_t n = 0;
    for (size_t i = 0; ab_supervise_status(self->supervise, i, &st) && n < AB_COUNT(names); i++)
        if ((strcmp(member_role(self->centre, st.name), role) == 0) != not )
            names[n++] = ab_strdup(self->centre->arena, st.name);
    for (size_t i = 0; i < n; i++)
        (void)ab_supervise_remove(self->supervise, names[i]);
    for (int64_t until = ab_now_ms() + STOP_LIMIT_MS; ab_now_ms() < until; turn(self, TICK_MS)) {
        bool left = false;
        for (size_t i = 0; ab_supervise_status(self->supervise, i, &st); i++)
            left |= (strcmp(member_role(self->centre, st.name), role) == 0) != not ;
        if (!left)
            return;
    }
}

static void stop_all(struct keeper *self)
{
    stop_some(self, "gateway", false); /* no new requests; those under way get their answers */
    stop_some(self, "postgres", true);
    stop_some(self, "postgres", false);
    (void)unlink(centre_path(self->centre, "run/centre.json"));
    ab_log(AB_INFO, "centre.stopped");
}

/* The caller's ABIES_* are not for the processes of the centre, but for faults that a test asks
 * for. */
static void clear_environment(void)
{
    for (bool again = true; again;) {
        again = false;
        for (char **v = environ; *v && !again; v++) {
            char name[128];
            size_t len = strcspn(*v, "=");
            if (strncmp(*v, "ABIES_", 6) != 0 || strncmp(*v, "ABIES_FAULT=", 12) == 0
                || len >= sizeof(name))
                continue;
            memcpy(name, *v, len);
            name[len] = '\0';
            unsetenv(name);
            again = true;
        }
    }
}

static int open_all(struct keeper *self, struct ab_error *err)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    self->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    self->notify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (self->signal_fd < 0 || self->notify_fd < 0
        || inotify_add_watch(self->notify_fd, centre_path(self->centre, "run"),
                             IN_MOVED_TO | IN_CLOSE_WRITE)
               < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot watch %s/run", self->centre->home);
    self->supervise = ab_supervise_new(err);
    if (!self->supervise)
        return -1;
    ab_supervise_on_change(self->supervise, note_change, self);
    self->monitor = monitor_new(err);
    return self->monitor ? 0 : -1;
}

/* A day by either clock: the monotonic one stands still while the machine sleeps, the time of day
 * may be set back. */
struct daily {
    int64_t mono_ms, utc_us;
};

static struct daily tomorrow(void)
{
    return (struct daily){ab_now_ms() + CERTIFICATE_SEC * 1000,
                          ab_utc_us() + CERTIFICATE_SEC * 1000000};
}

static bool day_is_over(const struct daily *day)
{
    return ab_now_ms() >= day->mono_ms || ab_utc_us() >= day->utc_us;
}

/* Gateways see that the files have changed. */
static void look_at_certificate(const struct centre *centre)
{
    struct ab_error err = {0};
    int made = certificate_make(centre, &err);
    if (made < 0)
        ab_log(AB_WARN, "certificate.not_renewed", AB_KV("error", (const char *)err.text));
    else
        ab_log(AB_INFO, made ? "certificate.renewed" : "certificate.good");
}

int keeper_run(const struct centre *centre, const struct cluster *cluster,
               const struct known *known, int report_fd)
{
    struct keeper self = {centre,          cluster,         known,
                          .signal_fd = -1, .notify_fd = -1, .report_fd = report_fd};
    struct ab_error err = {0};
    int status = 0;
    clear_environment();
    if (open_all(&self, &err) < 0 || prepare(&self, &err) < 0) {
        ab_log(AB_ERROR, "centre.not_started", AB_KV("error", (const char *)err.text));
        report(&self, "error", err.text);
        status = 1;
    } else {
        ab_log(AB_INFO, "centre.started", AB_KV("url", centre_url(centre)));
        self.started = true;
        report(&self, "started", "");
        ab_close(&self.report_fd);
        struct daily day = tomorrow();
        for (; !self.stop; turn(&self, TICK_MS))
            if (day_is_over(&day)) {
                look_at_certificate(centre);
                day = tomorrow();
            }
    }
    if (self.supervise)
        stop_all(&self);
    monitor_destroy(&self.monitor);
    ab_supervise_destroy(&self.supervise);
    ab_close(&self.signal_fd);
    ab_close(&self.notify_fd);
    return status;
}

int keeper_lock(const struct centre *self, int *fd, struct ab_error *err)
{
    AB_AUTO(ab_close)
    int lock = open(centre_path(self, "run/lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot open %s/run/lock", self->home);
    if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        return ab_fail_errno(err, AB_EINTERNAL,
                             "cannot lock %s/run/lock; is it on a network file system? Set "
                             "ABIES_HOME to a local folder",
                             self->home);
    }
    *fd = AB_TAKE_FD(lock);
    return 1;
}

/* Until the lock is free: who held it has ended, whether it was a supervisor or an `up` on its way.
 */
static int wait_for_lock(const struct centre *self, struct ab_error *err)
{
    for (int64_t until = ab_now_ms() + STOP_LIMIT_MS + 30000; ab_now_ms() < until;
         (void)poll(NULL, 0, 50)) {
        AB_AUTO(ab_close) int fd = -1;
        int rc = keeper_lock(self, &fd, err);
        if (rc != 0)
            return rc < 0 ? -1 : 0;
    }
    return ab_fail(err, AB_ETIMEOUT,
                   "the supervisor of %s does not end; see its log/supervisor.log", self->home);
}

int keeper_stop(const struct centre *self, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_close) int lock = -1;
    struct state state;
    if (access(centre_path(self, "run"), F_OK) < 0)
        return 0;
    int held = keeper_lock(self, &lock, err);
    if (held < 0 || state_read(self, arena, &state, err) < 0)
        return -1;
    if (held == 0) {
        AB_AUTO(ab_close) int pidfd = state.supervisor ? ab_pidfd(state.supervisor) : -1;
        if (state.supervisor && pidfd >= 0 && kill(state.supervisor, SIGTERM) == 0) {
            struct pollfd p = {pidfd, POLLIN, 0};
            (void)poll(&p, 1, STOP_LIMIT_MS + 30000);
        }
        if (wait_for_lock(self, err) < 0)
            return -1;
    }
    int left = leftovers_end(self, err);
    if (left < 0)
        return -1;
    (void)unlink(centre_path(self, "run/centre.json"));
    return held == 0 || left > 0;
}
