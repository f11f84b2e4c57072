/* cmd_up.c - up, down, status, logs: a whole centre on this machine */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/spawn.h"
#include "base/str.h"
#include "centre/centre.h"
#include "centre/certificate.h"
#include "centre/cluster.h"
#include "centre/keeper.h"
#include "centre/known.h"
#include "centre/leftovers.h"
#include "centre/ports.h"
#include "centre/ready.h"
#include "centre/secrets.h"
#include "centre/state.h"
#include "cli.h"
#include "local_user.h"
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_LIMIT_MS 120000
#define PROCESSES_SHOWN 256

struct up {
    const char *host, *replicas, *home;
    int64_t port, gateways;
    struct ab_opt_list set;
    bool foreground, json;
};

static void show_progress(const char *text)
{
    progress("%s", text);
}

static int apply_options(struct centre *c, const struct up *o, struct ab_error *err)
{
    if (o->host) {
        c->changed |= strcmp(o->host, c->host) != 0;
        c->host = o->host;
    }
    if (o->port >= 0) {
        if (o->port > 65535)
            return ab_fail(err, AB_EINVAL, "--port: there is no port %" PRId64, o->port);
        /* 0 means any: what a centre has already is as good as another */
        if (o->port > 0 || !centre_exists(c)) {
            c->changed |= c->port != (int)o->port;
            c->port = (int)o->port;
            c->bus_ports[0] = o->port == 0 ? 0 : c->bus_ports[0];
        }
    }
    if (o->gateways >= 0 && centre_set_gateways(c, o->gateways, err) < 0)
        return -1;
    if (o->replicas && centre_set_replicas(c, o->replicas, err) < 0)
        return -1;
    for (size_t i = 0; i < o->set.n; i++)
        if (centre_set(c, o->set.v[i], err) < 0)
            return -1;
    return 0;
}

/* The supervisor, in a process of its own that nothing of this terminal can reach. */
static pid_t fork_keeper(const struct centre *c, const struct cluster *cluster,
                         const struct known *known, int report_fd, struct ab_error *err)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        ab_fail_errno(err, AB_EINTERNAL, "cannot start the supervisor");
        return -1;
    }
    if (pid > 0)
        return pid;
    int log =
        open(centre_path(c, "log/supervisor.log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    (void)!chdir("/");
    umask(077);
    if (log < 0 || null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(1);
    ab_log_open("supervisor", NULL, AB_INFO);
    exit(keeper_run(c, cluster, known, report_fd));
}

/* Follow its report up to "started". */
static int follow_report(const struct centre *c, int fd, struct ab_error *err)
{
    FILE *f = fdopen(fd, "r");
    char line[1100];
    int rc = -1;
    if (!f) {
        ab_close(&fd);
        return ab_fail_errno(err, AB_EINTERNAL, "cannot follow the supervisor");
    }
    (void)ab_fail(err, AB_EINTERNAL, "the supervisor ended at once; see %s/log/supervisor.log",
                  c->home);
    while (rc < 0 && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (ab_str_starts(line, "step "))
            progress("%s", line + 5);
        else if (ab_str_starts(line, "error "))
            (void)ab_fail(err, AB_EINTERNAL, "%s", line + 6);
        else if (ab_str_starts(line, "started"))
            rc = 0;
    }
    fclose(f);
    return rc;
}

/* All that needs no running process. */
static int prepare(struct centre *c, struct cluster *cluster, struct ab_error *err)
{
    bool first = !centre_exists(c);
    progress("ports, passwords and certificates");
    if (leftovers_end(c, err) < 0 || ports_choose(c, err) < 0 || secrets_make(c, err) < 0
        || certificate_make(c, err) < 0)
        return -1;
    if ((c->changed || first) && centre_save(c, err) < 0)
        return -1;
    progress(first ? "making a PostgreSQL cluster" : "looking at the PostgreSQL cluster");
    if (cluster_find(c, cluster, err) < 0 || cluster_make(c, cluster, err) < 0)
        return -1;
    if (cluster->elsewhere)
        fprintf(stderr,
                "user namespaces are refused here: PostgreSQL runs as user postgres, its data is "
                "in %s\n",
                cluster->data);
    return 0;
}

static int start(struct centre *c, const struct known *known, bool foreground, int *exit_status,
                 struct ab_error *err)
{
    struct cluster cluster;
    if (prepare(c, &cluster, err) < 0)
        return -1;
    AB_AUTO(ab_close) int port = ports_hold(c, err); /* inherited by the supervisor, closed here */
    if (port < 0)
        return -1;
    if (foreground) {
        progress_end();
        ab_log_open("supervisor", NULL, AB_INFO);
        *exit_status = keeper_run(c, &cluster, known, -1);
        return 1;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "no pipe");
    pid_t pid = fork_keeper(c, &cluster, known, ends[1], err);
    ab_close(&ends[1]);
    if (pid < 0) {
        ab_close(&ends[0]);
        return -1;
    }
    int rc = follow_report(c, ends[0], err);
    if (rc < 0)
        (void)waitpid(pid, NULL, 0); /* it has stopped what it had started */
    return rc;
}

static int print_status(const struct centre *c, bool json, bool *all_ready, struct ab_error *err);

/* The centre runs (or is starting); with other options than before it is started again. */
static int up_again(struct centre *c, struct up *o, int *lock, struct ab_error *err)
{
    if (!c->changed)
        return 0;
    progress("settings have changed: stopping");
    struct centre wanted = *c;
    if (keeper_stop(c, err) < 0)
        return -1;
    *c = wanted;
    int held = keeper_lock(c, lock, err);
    (void)o;
    return held == 1  ? 1
           : held < 0 ? -1
                      : ab_fail(err, AB_ECONFLICT, "another `abies up` is at work in %s", c->home);
}

static int bring_up(struct centre *c, struct up *o, int *exit_status, struct ab_error *err)
{
    AB_AUTO(ab_close) int lock = -1;
    struct known known;
    /* what is wrong is said before anything is stopped or made */
    if (apply_options(c, o, err) < 0 || known_find(c, &known, err) < 0
        || centre_make_folders(c, err) < 0)
        return -1;
    int held = keeper_lock(c, &lock, err);
    if (held == 0)
        held = up_again(c, o, &lock, err);
    if (held < 0)
        return -1;
    if (held == 0 && o->foreground)
        return ab_fail(err, AB_ECONFLICT, "the centre in %s is up already: `abies down` first",
                       c->home);
    if (held == 1) {
        int rc = start(c, &known, o->foreground, exit_status, err);
        if (rc != 0)
            return rc;
    }
    if (ready_wait(c, READY_LIMIT_MS, show_progress, err) < 0)
        return -1;
    progress("the local user");
    return 0;
}

int cmd_up(int argc, char **argv, struct ab_error *err)
{
    struct up o = {.port = -1, .gateways = -1};
    const struct ab_opt options[] = {
        AB_OPT_INT('p', "port", &o.port, "PORT", "port of HTTPS [8443]; 0 takes any that is free"),
        AB_OPT_TEXT(0, "host", &o.host, "ADDRESS", "address that HTTPS listens at [127.0.0.1]"),
        AB_OPT_INT('g', "gateways", &o.gateways, "N", "gateway processes on that port [1]"),
        AB_OPT_TEXT('r', "replicas", &o.replicas, "SERVICE=N,...",
                    "processes of each service [1]: auth, jobs, sessions, transfers"),
        AB_OPT_LIST('s', "set", &o.set, "NAME=VALUE",
                    "a setting of the gateways and services (repeat); an empty value forgets it"),
        AB_OPT_TEXT(0, "home", &o.home, "FOLDER",
                    "the centre's folder [ABIES_HOME, ~/.abies/centre]"),
        AB_OPT_FLAG(0, "foreground", &o.foreground,
                    "stay, and stop everything at SIGTERM or Ctrl-C"),
        AB_OPT_FLAG('j', "json", &o.json, "print the status as JSON"),
        {0},
    };
    int rc = ab_opt_parse(
        "abies up", "[OPTIONS]",
        "Start a whole centre on this machine: a private PostgreSQL, gateways and services.\n\n"
        "Everything lives in one folder (ABIES_HOME, else ~/.abies/centre); nothing system-wide is "
        "touched, and\n"
        "root may run it. Returns when the centre is ready. Running it again shows the status, or "
        "restarts the\n"
        "centre when options have changed; options are kept in centre.yml. What dies is started "
        "again.\n"
        "The first time it registers you and writes ~/.abies/client.yml, so that the other "
        "commands work.\n\n"
        "  abies up\n"
        "  abies up --gateways 2 --replicas jobs=2,sessions=2 --set session_ttl=1m",
        options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (argc > 0)
        return ab_fail(err, AB_EINVAL, "unexpected argument `%s`; see --help", argv[0]);
    AB_AUTO(centre_destroy) struct centre *c = centre_load(o.home, err);
    int exit_status = 0;
    if (!c)
        return -1;
    rc = bring_up(c, &o, &exit_status, err);
    if (rc != 0)
        return rc < 0 ? -1 : exit_status;
    int mine = local_user_make(c, err);
    progress_end();
    if (mine < 0)
        return -1;
    bool all_ready;
    if (mine == 2)
        fprintf(
            stderr,
            "people sign in elsewhere and come here without a password: `abies login` does that\n");
    if (mine == 0)
        fprintf(stderr,
                "your client file points to another centre and was left alone; to use this one:\n"
                "  abies login --url %s --ca-file %s\n",
                centre_url(c), centre_path(c, "tls/ca.pem"));
    return print_status(c, o.json, &all_ready, err);
}

int cmd_down(int argc, char **argv, struct ab_error *err)
{
    const char *home = NULL;
    bool json = false;
    const struct ab_opt options[] = {
        AB_OPT_TEXT(0, "home", &home, "FOLDER",
                    "the centre's folder [ABIES_HOME, ~/.abies/centre]"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies down", "[OPTIONS]",
                          "Stop the centre of this machine.\n\nGateways finish what is under way, "
                          "then services stop, then PostgreSQL. "
                          "Data stays; `abies up` starts it again.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    AB_AUTO(centre_destroy) struct centre *c = centre_load(home, err);
    if (!c)
        return -1;
    progress("stopping the centre in %s", c->home);
    rc = keeper_stop(c, err);
    progress_end();
    if (rc < 0)
        return -1;
    if (json)
        printf("{\"stopped\":%s}\n", rc ? "true" : "false");
    else
        printf(rc ? "stopped\n" : "no centre runs in %s\n", c->home);
    return 0;
}

static void print_json(const struct centre *c, const struct state *s, const bool *ready,
                       bool all_ready)
{
    AB_AUTO(ab_buf_free) struct ab_buf out = {0};
    char time[AB_TIME_TEXT];
    ab_buf_printf(&out, "{\"running\":%s,\"ready\":%s,\"supervisor\":%d,\"home\":",
                  s->supervisor ? "true" : "false", all_ready ? "true" : "false",
                  (int)s->supervisor);
    ab_buf_json_str(&out, c->home, strlen(c->home));
    ab_buf_str(&out, ",\"supervisor_health\":");
    if (s->supervisor && s->health)
        ab_buf_json_str(&out, s->health, strlen(s->health));
    else
        ab_buf_str(&out, "null");
    ab_buf_str(&out, ",\"url\":");
    ab_buf_json_str(&out, centre_url(c), strlen(centre_url(c)));
    ab_buf_str(&out, ",\"processes\":[");
    for (size_t i = 0; i < s->n; i++) {
        const struct state_process *p = &s->processes[i];
        ab_buf_str(&out, i ? ",{\"name\":" : "{\"name\":");
        ab_buf_json_str(&out, p->name, strlen(p->name));
        ab_time_format(p->started_us, true, time);
        ab_buf_printf(&out,
                      ",\"pid\":%d,\"ready\":%s,\"restarts\":%" PRId64 ",\"last_exit\":%" PRId64
                      ",\"started\":\"%s\",\"health\":",
                      (int)p->pid, ready[i] ? "true" : "false", p->restarts, p->last_exit, time);
        if (p->health)
            ab_buf_json_str(&out, p->health, strlen(p->health));
        else
            ab_buf_str(&out, "null");
        ab_buf_char(&out, '}');
    }
    ab_buf_str(&out, "]}\n");
    fputs(out.data, stdout);
}

static void print_table(const struct centre *c, const struct state *s, const bool *ready)
{
    static const char *const heads[] = {"NAME", "PID", "STATE", "SINCE", "RESTARTS", "HEALTH"};
    struct table t;
    table_begin(&t, c->arena, heads, AB_COUNT(heads));
    t.right = 1 << 1 | 1 << 3 | 1 << 4;
    for (size_t i = 0; i < s->n; i++) {
        const struct state_process *p = &s->processes[i];
        const char *cells[] = {
            p->name,
            p->pid ? ab_printf(c->arena, "%d", (int)p->pid) : "-",
            !p->pid    ? "down"
            : ready[i] ? "ready"
                       : "starting",
            p->pid ? short_time(c->arena, (double)(ab_utc_us() - p->started_us) / 1e6) : "-",
            ab_printf(c->arena, "%" PRId64, p->restarts),
            p->health ? p->health : "",
        };
        table_add(&t, cells);
    }
    table_print(&t, stdout, terminal_width());
}

/* 0 all is well, 1 not (exit status), -1 error. */
static int print_status(const struct centre *c, bool json, bool *all_ready, struct ab_error *err)
{
    struct state s;
    bool ready[PROCESSES_SHOWN] = {false};
    const char *why[PROCESSES_SHOWN] = {NULL};
    if (state_read(c, c->arena, &s, err) < 0)
        return -1;
    if (s.n > PROCESSES_SHOWN)
        s.n = PROCESSES_SHOWN;
    *all_ready = s.n > 0 && ready_now(c, &s, ready, why) && s.supervisor;
    if (json) {
        print_json(c, &s, ready, *all_ready);
        return *all_ready ? 0 : 1;
    }
    if (s.n == 0) {
        printf("no centre runs in %s; `abies up` starts it\n", c->home);
        return 1;
    }
    print_table(c, &s, ready);
    for (size_t i = 0; i < s.n; i++)
        if (!ready[i] && why[i])
            printf("%s: %s\n", s.processes[i].name, why[i]);
    printf("\n%s  (%s)\n", centre_url(c), c->home);
    if (s.supervisor && s.health)
        printf("supervisor: pid %d, health %s\n", (int)s.supervisor, s.health);
    if (!s.supervisor)
        printf("the supervisor is gone: `abies up` takes over, `abies down` stops the rest\n");
    return *all_ready ? 0 : 1;
}

int cmd_status(int argc, char **argv, struct ab_error *err)
{
    const char *home = NULL;
    bool json = false, all_ready;
    const struct ab_opt options[] = {
        AB_OPT_TEXT(0, "home", &home, "FOLDER",
                    "the centre's folder [ABIES_HOME, ~/.abies/centre]"),
        AB_OPT_FLAG('j', "json", &json, "print JSON"),
        {0},
    };
    int rc = ab_opt_parse("abies status", "[OPTIONS]",
                          "Show the processes of the centre of this machine.\n\nExit status 0 if "
                          "all are ready, else 1.",
                          options, &argc, &argv, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (no_arguments(argc, argv, err) < 0)
        return -1;
    AB_AUTO(centre_destroy) struct centre *c = centre_load(home, err);
    return c ? print_status(c, json, &all_ready, err) : -1;
}
