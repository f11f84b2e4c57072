/* spawn.c - child processes
 *
 * The child shares our memory until it execs (CLONE_VM | CLONE_VFORK): starting a process costs the
 * same from a small program as from one with gigabytes, and an exec failure is a number in a
 * struct. In exchange the child may only make system calls between clone and exec: everything that
 * allocates or looks up is done before. Signals stay blocked meanwhile, so that no handler of ours
 * runs in it.
 */
#include "spawn.h"

#include "buf.h"
#include "cleanup.h"
#include "clock.h"
#include "str.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK ((size_t)128 << 10)

/* The sanitizers' view of stacks does not cover the child's. */
#define PLAIN __attribute__((no_sanitize("address", "undefined", "thread")))

/* Written by a child that could not exec. */
struct report {
    const char *step;
    int number;
};

/* What the child needs, ready made. */
struct start {
    const struct ab_spawn *what;
    const char *path;
    cpu_set_t *cpus;
    size_t cpus_size;
    pid_t parent;
    struct report *report;
};

PLAIN static int fail_in_child(struct start *s, const char *step)
{
    s->report->step = step;
    s->report->number = errno;
    _exit(127);
}

/* Put `from` on 0, 1 and 2 in an order that overwrites none before it is copied. */
PLAIN static int set_stdio(const struct ab_spawn *what)
{
    int from[3] = {what->in, what->out, what->err};
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0)
            from[i] = open("/dev/null", i == 0 ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
        if (from[i] >= 0 && from[i] < 3)
            from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3);
        if (from[i] < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(from[i], i) < 0)
            return -1;
    return 0;
}

PLAIN static void default_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int signal_no = 1; signal_no < NSIG; signal_no++)
        if (signal_no != SIGKILL && signal_no != SIGSTOP)
            (void)sigaction(signal_no, &action, NULL);
}

PLAIN static int child_main(void *arg)
{
    struct start *s = arg;
    const struct ab_spawn *what = s->what;
    sigset_t none;

    default_signals();
    if (what->new_session && setsid() < 0)
        return fail_in_child(s, "new session");
    if (what->new_group && !what->new_session && setpgid(0, 0) < 0)
        return fail_in_child(s, "new process group");
    if (what->die_with_parent) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            return fail_in_child(s, "PR_SET_PDEATHSIG");
        if (getppid() != s->parent) /* it died before we asked */
            _exit(127);
    }
    if (s->cpus && sched_setaffinity(0, s->cpus_size, s->cpus) < 0)
        return fail_in_child(s, "set CPU affinity");
    if (set_stdio(what) < 0)
        return fail_in_child(s, "set standard streams");
    if (what->cwd && chdir(what->cwd) < 0)
        return fail_in_child(s, "enter working folder");
    /* Libraries open descriptors of their own, and not all with O_CLOEXEC. */
    (void)syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    execve(s->path, (char *const *)what->argv, what->env ? (char *const *)what->env : environ);
    return fail_in_child(s, "execute");
}

/* Absolute folders of PATH only: a relative one would depend on where we stand. */
static int look_up(const char *name, char *out, size_t size, struct ab_error *err)
{
    if (strchr(name, '/')) {
        snprintf(out, size, "%s", name);
        return strlen(name) < size ? 0 : ab_fail(err, AB_EINVAL, "program path is too long");
    }
    const char *path = getenv("PATH");
    if (!path || !*path)
        path = "/usr/local/bin:/usr/bin:/bin";
    while (*name && *path) {
        size_t len = strcspn(path, ":");
        struct stat st;
        if (*path == '/' && (size_t)snprintf(out, size, "%.*s/%s", (int)len, path, name) < size
            && stat(out, &st) == 0 && S_ISREG(st.st_mode) && access(out, X_OK) == 0)
            return 0;
        path += len + (path[len] == ':');
    }
    return ab_fail(err, AB_ENOENT,
                   "program `%.100s` is not in PATH: install it or give its full path", name);
}

static int prepare_cpus(const struct ab_spawn *what, struct start *s, struct ab_error *err)
{
    int most = 0;
    if (!what->cpus || what->n_cpus == 0)
        return 0;
    for (size_t i = 0; i < what->n_cpus; i++) {
        if (what->cpus[i] < 0 || what->cpus[i] >= 1 << 16)
            return ab_fail(err, AB_EINVAL, "there is no CPU %d", what->cpus[i]);
        if (what->cpus[i] > most)
            most = what->cpus[i];
    }
    s->cpus = CPU_ALLOC((size_t)most + 1);
    if (!s->cpus)
        return ab_fail(err, AB_EINTERNAL, "no memory for a CPU set");
    s->cpus_size = CPU_ALLOC_SIZE((size_t)most + 1);
    CPU_ZERO_S(s->cpus_size, s->cpus);
    for (size_t i = 0; i < what->n_cpus; i++)
        CPU_SET_S((size_t)what->cpus[i], s->cpus_size, s->cpus);
    return 0;
}

static const char *remedy(int number)
{
    switch (number) {
    case ENOEXEC:
        return " (a script needs a first line such as #!/bin/sh)";
    case EACCES:
        return " (is it executable?)";
    case E2BIG:
        return " (arguments and environment together are too long)";
    default:
        return "";
    }
}

#if defined(__SANITIZE_THREAD__)
#define HAVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAVE_TSAN 1
#endif
#endif

/* The parent goes on when the child has exec'ed or ended. `stack` is the child's, with the report
 * at its low end. The thread sanitizer cannot follow a child in our memory: there it gets a copy.
 */
#ifdef HAVE_TSAN
#define STACK_SHARING MAP_SHARED
static int start_child(struct start *s, char *stack, int *pidfd)
{
    (void)stack;
    int flags = CLONE_VFORK | SIGCHLD | (s->what->pidfd ? CLONE_PIDFD : 0);
    int child = (int)syscall(SYS_clone, flags, NULL, pidfd, NULL, NULL);
    return child == 0 ? child_main(s) : child;
}
#else
#define STACK_SHARING MAP_PRIVATE
static int start_child(struct start *s, char *stack, int *pidfd)
{
    int flags = CLONE_VM | CLONE_VFORK | SIGCHLD | (s->what->pidfd ? CLONE_PIDFD : 0);
    return clone(child_main, stack + CHILD_STACK, flags, s, pidfd);
}
#endif

static int start_code(int number)
{
    return ab_errno_code(number) == AB_EBUSY ? AB_EBUSY : AB_EINTERNAL;
}

static int fail_to_start(const struct start *s, struct ab_error *err)
{
    bool is_cwd = strcmp(s->report->step, "enter working folder") == 0;
    errno = s->report->number;
    ab_fail_errno(err, errno == ENOENT ? AB_ENOENT : start_code(errno),
                  "cannot start `%.200s`: %s%s%s", s->path, s->report->step, is_cwd ? " " : "",
                  is_cwd ? s->what->cwd : "");
    if (err)
        strncat(err->text, remedy(errno), sizeof(err->text) - strlen(err->text) - 1);
    return -1;
}

static int clone_and_exec(struct start *s, pid_t *pid, struct ab_error *err)
{
    char *stack = mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE,
                       STACK_SHARING | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        return ab_fail_errno(err, AB_EBUSY, "no memory for a child's stack");
    s->report = (struct report *)stack;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int pidfd = -1, child = start_child(s, stack, &pidfd);
    int number = errno, rc = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (child < 0) {
        errno = number;
        rc = ab_fail_errno(err, start_code(errno), "cannot start a process for `%s`", s->path);
    } else if (s->report->step) {
        (void)waitpid(child, NULL, 0);
        rc = fail_to_start(s, err);
        number = errno;
        ab_close(&pidfd);
        errno = number;
    } else {
        *pid = child;
        if (s->what->pidfd)
            *s->what->pidfd = pidfd;
    }
    number = errno;
    munmap(stack, CHILD_STACK);
    errno = number;
    return rc;
}

int ab_spawn(const struct ab_spawn *what, pid_t *pid, struct ab_error *err)
{
    char path[PATH_MAX];
    struct start s = {.what = what, .path = path, .parent = getpid()};
    if (!what->argv || !what->argv[0] || !what->argv[0][0])
        return ab_fail(err, AB_EINVAL, "no program to start: the command is empty");
    if (look_up(what->argv[0], path, sizeof(path), err) < 0 || prepare_cpus(what, &s, err) < 0)
        return -1;
    int rc = clone_and_exec(&s, pid, err);
    if (s.cpus)
        CPU_FREE(s.cpus);
    return rc;
}

/* Read what is there. 1: more may come, 0: end of file. */
static int drain(int fd, struct ab_buf *output, size_t limit)
{
    char piece[16384];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof(piece));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        size_t room = output && output->len < limit ? limit - output->len : 0;
        if (room > 0)
            ab_buf_add(output, piece, (size_t)n < room ? (size_t)n : room);
    }
}

/* Until the child has ended (its pidfd) or the deadline. 0 ended, -1 timed out. What is in the pipe
 * by then is read; a grandchild that keeps the pipe open is not waited for. */
static int follow(int pipe_fd, int pidfd, int64_t deadline_ms, struct ab_buf *output, size_t limit)
{
    bool open = true;
    for (;;) {
        struct pollfd fds[2] = {{pidfd, POLLIN, 0}, {pipe_fd, POLLIN, 0}};
        int64_t left = deadline_ms - ab_now_ms();
        if (left <= 0)
            return -1;
        int n = poll(fds, open ? 2 : 1, left > INT_MAX ? INT_MAX : (int)left);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n <= 0)
            continue;
        if (fds[1].revents && open)
            open = drain(pipe_fd, output, limit) > 0;
        if (fds[0].revents) {
            if (open)
                (void)drain(pipe_fd, output, limit);
            return 0;
        }
    }
}

int ab_run_command(const struct ab_spawn *what, int64_t timeout_ms, struct ab_buf *output,
                   int *status, struct ab_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ab_fail_errno(err, start_code(errno), "no pipe for `%s`", what->argv[0]);
    AB_AUTO(ab_close) int reader = ends[0];
    AB_AUTO(ab_close) int writer = ends[1];
    (void)fcntl(reader, F_SETFL, O_NONBLOCK);

    AB_AUTO(ab_close) int pidfd = -1;
    struct ab_spawn spawn = *what;
    pid_t pid = -1;
    spawn.out = spawn.err = writer;
    spawn.new_group = true;
    spawn.pidfd = &pidfd;
    if (ab_spawn(&spawn, &pid, err) < 0)
        return -1;
    ab_close(&writer);
    size_t limit = output && output->limit ? output->limit : AB_BUF_MAX;
    int rc = follow(reader, pidfd, ab_now_ms() + timeout_ms, output, limit);
    if (rc < 0)
        (void)kill(-pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    if (rc < 0)
        return ab_fail(err, AB_ETIMEOUT, "`%s` did not end within %lld ms and was killed",
                       what->argv[0], (long long)timeout_ms);
    return 0;
}

int ab_exit_code(int status)
{
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int ab_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* always close-on-exec */
}

uint64_t ab_pid_start_time(pid_t pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    AB_AUTO(ab_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    /* the name (field 2) may hold spaces and parentheses: count from the last ')' */
    const char *p = strrchr(text, ')');
    if (p && (p[2] == 'Z' || p[2] == 'X'))
        return 0; /* dead; nobody has asked for its exit status yet */
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p, ' ');
        if (p)
            p++;
    }
    return p ? strtoull(p, NULL, 10) : 0;
}
