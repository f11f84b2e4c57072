/* service.c - a service's process: settings, connections, threads, signals, and a clean end */
#include "skeleton.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "bus/curve.h"
#include "crypt/crypt.h"
#include "hold.h"
#include "http/health.h"
#include "http/process.h"
#include "request.sql.h"
#include "timer.h"
#include "yaml/yaml.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    MAX_WORKERS = 64,
    BACKOFF_MS = 100,
    BACKOFF_CAP_MS = 5000,
};

static const struct ab_setting common_settings[] = {
    {"gateways", AB_CONF_LIST, "tcp://127.0.0.1:7440",
     "bus addresses of the gateways; hints go to the next port"},
    {"curve_dir", AB_CONF_TEXT, NULL, "folder with our key pair and the gateways' public key"},
    {"plain_bus", AB_CONF_BOOL, "false", "no CURVE on the bus: for tests on one host only"},
    {"database_url", AB_CONF_SECRET, NULL, "PostgreSQL, with this service's own role"},
    {"database_pooled", AB_CONF_BOOL, "false",
     "a pooler is in between: PgBouncer with pool_mode = transaction"},
    {"workers", AB_CONF_INT, "4", "threads, each with a connection of its own"},
    {"log_level", AB_CONF_TEXT, "info", "debug, info, warn or error"},
    {"health_listen", AB_CONF_TEXT, "127.0.0.1:0", "address of /healthz, /readyz and /metrics"},
    {"run_file", AB_CONF_TEXT, NULL,
     "file that says, once we are up, our pid, health address and instance"},
    {"beat", AB_CONF_DURATION, "1s", "how often we tell gateways that we are there"},
    {"dead", AB_CONF_DURATION, "5s", "silence after which a gateway is gone"},
    {"piece_time", AB_CONF_DURATION, "500ms",
     "a call that changes very many rows commits a piece after this long"},
    {0},
};

/* What the threads of the process share. */
struct process {
    const struct ab_service *service;
    ab_conf_t *conf;
    char instance[128];
    int signal_fd;
    ab_replica_t *replica;
    ab_health_t *health;
    struct stats *stats;
    struct hold *hold;
    struct timers *timers;
    struct ab_worker *workers; /* n_workers, and one more for the timers */
    pthread_t *threads;
    int n_workers, n_threads;
    atomic_int stage; /* enum stage, for /readyz */
};

enum stage {
    STARTING,
    NO_DATABASE,
    OLD_SCHEMA,
    UP,
    LEAVING
};
static const char *const stages[] = {"starting", "waiting for the database",
                                     "waiting for `abies-admin migrate`", "up", "leaving"};

/* ---- the table and the descriptors */

static bool is_of(const struct ab_route *route, const struct ab_service *service)
{
    return strcmp(route->service, service->name) == 0;
}

int service_join(const struct ab_service *service, struct ab_error *err)
{
    for (const struct ab_verb *verb = service->verbs; verb->name; verb++) {
        const struct ab_route *route = ab_route_of_verb(verb->name);
        if (!route || !is_of(route, service))
            return ab_fail(err, AB_EINTERNAL,
                           "`%s` has a handler for `%s`, which is no verb of its own",
                           service->name, verb->name);
        if (!verb->handler)
            return ab_fail(err, AB_EINTERNAL, "the verb `%s` has no handler", verb->name);
    }
    for (size_t i = 0; i < ab_n_routes; i++)
        if (is_of(&ab_routes[i], service) && !worker_verb(service, ab_routes[i].verb))
            return ab_fail(err, AB_EINTERNAL, "the route of `%s` has no handler in `%s`",
                           ab_routes[i].verb, service->name);
    return 0;
}

int service_prepare(const struct ab_service *service, ab_db_t *db, struct ab_error *err)
{
    static const struct ab_sql *const *const own[] = {request_sql, NULL};
    if (ab_db_prepare(db, own, err) < 0)
        return -1;
    return service->sql ? ab_db_prepare(db, service->sql, err) : 0;
}

static ab_conf_t *new_conf(const struct ab_service *service)
{
    const struct ab_setting *tables[] = {common_settings, service->settings};
    return ab_conf_new(tables, service->settings ? 2 : 1);
}

ab_conf_t *ab_service_conf(const struct ab_service *service)
{
    return new_conf(service);
}

/* ---- health */

static int ready(void *arg, struct ab_buf *out)
{
    struct process *self = arg;
    int stage = atomic_load(&self->stage);
    if (stage != UP) {
        ab_buf_printf(out, "%s\n", stages[stage]);
        return -1;
    }
    struct ab_replica_stats bus;
    ab_replica_stats(self->replica, &bus);
    bool database = timers_database(self->timers);
    ab_buf_printf(out, "database: %s\ngateways: %d\n", database ? "there" : "away", bus.gateways);
    return database && bus.gateways > 0 ? 0 : -1;
}

static void metrics(void *arg, struct ab_buf *out)
{
    struct process *self = arg;
    int stage = atomic_load(&self->stage);
    stats_text(self->stats, stage >= UP ? self->replica : NULL, out);
    AB_AUTO(ab_buf_free) struct ab_buf labels = {0};
    ab_metric_label(&labels, "instance", self->instance);
    ab_process_self(out, self->service->name, labels.data, stage == UP);
    if (self->service->metrics)
        self->service->metrics(out);
}

static int start_health(struct process *self, struct ab_error *err)
{
    struct ab_health_options options = {.listen = ab_conf_text(self->conf, "health_listen"),
                                        .ready = ready,
                                        .metrics = metrics,
                                        .arg = self};
    self->health = ab_health_new(&options, err);
    return self->health ? 0 : -1;
}

static int write_run_file(struct process *self, struct ab_error *err)
{
    const char *path = ab_conf_text(self->conf, "run_file");
    if (!path || !*path)
        return 0;
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    ab_buf_printf(&text, "{\"pid\":%ld,\"health\":\"%s\",\"instance\":\"%s\"}\n", (long)getpid(),
                  ab_health_address(self->health), self->instance);
    return ab_file_write(path, text.data, text.len, 0644, err);
}

/* ---- signals */

/* Before any thread: they all inherit the mask, and only the signalfd sees what comes. */
static int take_signals(struct process *self, struct ab_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0
        || (self->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "cannot take signals");
    return 0;
}

/* Wait, but not longer than until we shall end. True: we shall. */
static bool ended_while_waiting(struct process *self, int64_t ms)
{
    struct pollfd p = {.fd = self->signal_fd, .events = POLLIN};
    return poll(&p, 1, (int)ms) > 0;
}

/* ---- connections */

/* 0 right, 1 not yet, -1 never: the database is at our own number or one newer. */
static int check_schema(struct process *self, ab_db_t *db, struct ab_error *err)
{
    int version, latest = ab_schema_latest();
    if (ab_schema_version(db, &version, err) < 0)
        return err->code == AB_EBUSY ? 1 : -1;
    if (version > latest + 1)
        return ab_fail(err, AB_EINTERNAL,
                       "the database is at version %d and this program at %d: install a newer one",
                       version, latest);
    if (version >= latest)
        return 0;
    atomic_store(&self->stage, OLD_SCHEMA);
    ab_fail(err, AB_EBUSY,
            "the database is at version %d, this program needs %d: run `abies-admin migrate`",
            version, latest);
    return 1;
}

/* 0 connected and prepared, 1 not yet, -1 never. */
static int connect_once(struct process *self, ab_db_t **out, struct ab_error *err)
{
    AB_AUTO(ab_db_close)
    ab_db_t *db = ab_db_open(ab_conf_text(self->conf, "database_url"), self->instance, err);
    if (!db)
        return err->code == AB_EBUSY ? 1 : -1;
    int rc = check_schema(self, db, err);
    if (rc != 0)
        return rc;
    if (service_prepare(self->service, db, err) < 0)
        return err->code == AB_EBUSY ? 1 : -1;
    *out = AB_TAKE(db);
    return 0;
}

/* Processes start in any order: wait for the database. 0, 1 a signal came first, -1. */
static int connect_db(struct process *self, ab_db_t **out, struct ab_error *err)
{
    for (int tries = 0;; tries++) {
        *err = (struct ab_error){0};
        int rc = connect_once(self, out, err);
        if (rc <= 0)
            return rc;
        ab_log(AB_WARN, "database.away", AB_KV("text", (const char *)err->text));
        if (ended_while_waiting(self,
                                ab_backoff_ms(tries < 8 ? tries : 8, BACKOFF_MS, BACKOFF_CAP_MS)))
            return 1;
    }
}

static int open_workers(struct process *self, struct ab_error *err)
{
    int64_t n = ab_conf_int(self->conf, "workers");
    if (n < 1 || n > MAX_WORKERS)
        return ab_fail(err, AB_EINVAL, "workers: %lld is not between 1 and %d", (long long)n,
                       MAX_WORKERS);
    self->workers = calloc((size_t)n + 1, sizeof(*self->workers));
    self->threads = calloc((size_t)n, sizeof(*self->threads));
    if (!self->workers || !self->threads)
        abort();
    self->n_workers = (int)n;
    for (int i = 0; i <= self->n_workers; i++) {
        struct ab_worker *worker = &self->workers[i];
        *worker = (struct ab_worker){.service = self->service,
                                     .conf = self->conf,
                                     .stats = self->stats,
                                     .arena = ab_arena_new()};
        int rc = connect_db(self, &worker->db, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* ---- running */

static int open_replica(struct process *self, struct ab_error *err)
{
    bool plain = ab_conf_bool(self->conf, "plain_bus");
    int capacity = self->service->capacity ? self->service->capacity : 4 * self->n_workers;
    struct ab_replica_options options = {
        .service = self->service->name,
        .instance = self->instance,
        .capacity = capacity,
        .gateways = ab_conf_list(self->conf, "gateways"),
        .curve_dir = plain ? NULL : ab_conf_text(self->conf, "curve_dir"),
        .beat_ms = ab_conf_ms(self->conf, "beat"),
        .dead_ms = ab_conf_ms(self->conf, "dead"),
    };
    self->replica = ab_replica_new(&options, err);
    if (!self->replica)
        return -1;
    self->hold = hold_new(self->replica);
    for (int i = 0; i <= self->n_workers; i++) {
        self->workers[i].replica = self->replica;
        self->workers[i].hold = self->hold;
    }
    return 0;
}

static int start_threads(struct process *self, struct ab_error *err)
{
    for (; self->n_threads < self->n_workers; self->n_threads++)
        if (pthread_create(&self->threads[self->n_threads], NULL, worker_main,
                           &self->workers[self->n_threads])
            != 0)
            return ab_fail(err, AB_EINTERNAL, "cannot start worker thread %d", self->n_threads);
    self->timers = timers_start(&self->workers[self->n_workers], err);
    return self->timers ? 0 : -1;
}

/* 0 ended as asked, -1. */
static int run(struct process *self, struct ab_error *err)
{
    ab_db_t *first;
    atomic_store(&self->stage, NO_DATABASE);
    ab_db_pooled(ab_conf_bool(self->conf, "database_pooled"));
    int rc = open_workers(self, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    first = self->workers[0].db;
    if (self->service->start && self->service->start(self->conf, first, err) < 0)
        return -1;
    if (open_replica(self, err) < 0 || start_threads(self, err) < 0)
        return -1;
    atomic_store(&self->stage, UP);
    if (write_run_file(self, err) < 0)
        return -1;
    ab_log(AB_INFO, "service.up", AB_KV("version", AB_VERSION), AB_KV("workers", self->n_workers),
           AB_KV("health", ab_health_address(self->health)));
    rc = ab_replica_run(self->replica, self->signal_fd, err);
    atomic_store(&self->stage, LEAVING);
    return rc;
}

/* In the order of who uses whom. */
static void close_process(struct process *self)
{
    if (self->replica)
        ab_replica_stop(self->replica);
    for (int i = 0; i < self->n_threads; i++)
        pthread_join(self->threads[i], NULL);
    ab_health_destroy(&self->health); /* it asks all the others how they are */
    timers_stop(&self->timers);
    hold_free(&self->hold);
    ab_replica_destroy(&self->replica);
    for (int i = 0; self->workers && i <= self->n_workers; i++) {
        ab_db_close(&self->workers[i].db);
        ab_arena_destroy(&self->workers[i].arena);
    }
    free(self->workers);
    free(self->threads);
    stats_free(&self->stats);
    ab_conf_destroy(&self->conf);
    ab_close(&self->signal_fd);
}

/* "jobs-host-123-0a1b2c3d": new at each start. */
static void name_instance(struct process *self)
{
    char host[48] = "host", hex[9];
    uint8_t bytes[4];
    (void)gethostname(host, sizeof(host) - 1);
    ab_random(bytes, sizeof(bytes));
    ab_hex(bytes, sizeof(bytes), hex);
    snprintf(self->instance, sizeof(self->instance), "%s-%s-%ld-%s", self->service->name, host,
             (long)getpid(), hex);
}

/* 0 go on, 1 printed something, -1. */
static int read_settings(struct process *self, int argc, char **argv, struct ab_error *err)
{
    char program[64], about[128];
    snprintf(program, sizeof(program), "abies-%s", self->service->name);
    snprintf(about, sizeof(about), "The `%s` service of Abies", self->service->name);
    ab_log_open(self->service->name, self->instance, AB_INFO);
    self->conf = new_conf(self->service);
    int rc = ab_conf_main(self->conf, program, about, ab_yaml_conf, argc, argv, err);
    if (rc != 0)
        return rc;
    int level = ab_level_of(ab_conf_text(self->conf, "log_level"));
    if (level < 0)
        return ab_fail(err, AB_EINVAL, "log_level: `%s` is none of debug, info, warn, error",
                       ab_conf_text(self->conf, "log_level"));
    if (!ab_conf_text(self->conf, "database_url"))
        return ab_fail(err, AB_EINVAL,
                       "database_url is not set: give ABIES_DATABASE_URL or a file that "
                       "holds it by ABIES_DATABASE_URL_FILE");
    if (!ab_conf_bool(self->conf, "plain_bus") && !ab_conf_text(self->conf, "curve_dir"))
        return ab_fail(err, AB_EINVAL,
                       "curve_dir is not set: it names the folder that "
                       "`abies-admin keys init` makes");
    ab_log_open(self->service->name, self->instance, (enum ab_level)level);
    return 0;
}

static int start(struct process *self, int argc, char **argv, struct ab_error *err)
{
    int rc = read_settings(self, argc, argv, err);
    if (rc != 0)
        return rc > 0 ? 0 : -1;
    if (service_join(self->service, err) < 0 || take_signals(self, err) < 0)
        return -1;
    ab_bus_init();
    ab_crypt_init();
    self->stats = stats_new(self->service);
    if (start_health(self, err) < 0)
        return -1;
    return run(self, err);
}

int ab_service_main(const struct ab_service *service, int argc, char **argv)
{
    struct process self = {.service = service, .signal_fd = -1};
    struct ab_error err = {0};
    ab_fault_init();
    name_instance(&self);
    int rc = start(&self, argc, argv, &err);
    if (rc < 0)
        ab_log(AB_ERROR, "service.failed", AB_KV("text", (const char *)err.text));
    else if (atomic_load(&self.stage) == LEAVING)
        ab_log(AB_INFO, "service.ended");
    close_process(&self);
    return rc < 0 ? 1 : 0;
}
