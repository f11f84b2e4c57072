/* bus_rig.c - a gateway's loop, keys and replicas for tests of the mesh */
#include "bus_rig.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/spawn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

struct rig_hint rig_hint;

/* ------------------------------------------------------------------ keys, ports */

static char curve_dir[64];
static pid_t curve_owner;

static void remove_keys(void)
{
    if (curve_owner == getpid())
        (void)ab_remove_tree(curve_dir, NULL);
}

static void allow(const char *name)
{
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    char from[128], to[128];
    struct ab_error err = {0};

    snprintf(from, sizeof(from), "%s/%s.key", curve_dir, name);
    snprintf(to, sizeof(to), "%s/allowed/%s.key", curve_dir, name);
    if (ab_curve_make(curve_dir, name, &err) < 0 || ab_file_read(from, 65536, &text, &err) < 0
        || ab_file_write(to, text.data, text.len, 0644, &err) < 0)
        fail_msg("%s", err.text);
}

const char *rig_curve_dir(void)
{
    char allowed[128];
    struct ab_error err = {0};

    if (curve_owner == getpid())
        return curve_dir;
    ab_bus_init();
    snprintf(curve_dir, sizeof(curve_dir), "/tmp/abies-curve-XXXXXX");
    assert_non_null(mkdtemp(curve_dir));
    curve_owner = getpid();
    atexit(remove_keys);
    snprintf(allowed, sizeof(allowed), "%s/allowed", curve_dir);
    assert_int_equal(ab_mkdirs(allowed, 0700, &err), 0);
    assert_int_equal(ab_curve_make(curve_dir, "gateway", &err), 0);
    allow("jobs");
    allow("auth");
    return curve_dir;
}

static int bound(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int rig_free_port(void)
{
    for (;;) {
        struct sockaddr_in a;
        socklen_t len = sizeof(a);
        int fd = bound(0);
        assert_true(fd >= 0);
        getsockname(fd, (struct sockaddr *)&a, &len);
        int port = ntohs(a.sin_port), next = port < 65535 ? bound(port + 1) : -1;
        close(fd);
        if (next < 0)
            continue;
        close(next);
        return port;
    }
}

/* ------------------------------------------------------------------ the gateway's loop */

ab_bus_t *rig_bus(const char *listen, const char *dir, int64_t beat_ms, int64_t dead_ms)
{
    struct ab_error err = {0};
    struct ab_bus_options options = {
        .listen = listen, .curve_dir = dir, .beat_ms = beat_ms, .dead_ms = dead_ms};
    ab_bus_t *bus = ab_bus_new(&options, &err);
    if (!bus)
        fail_msg("%s", err.text);
    return bus;
}

static void on_hint(void *arg, char topic, int64_t owner, const void *body, size_t len)
{
    struct rig_hint *hint = arg;
    hint->calls++;
    hint->topic = topic;
    hint->owner = owner;
    len = len < sizeof(hint->body) ? len : sizeof(hint->body) - 1;
    memcpy(hint->body, body, len);
    hint->body[len] = '\0';
}

/* As the gateway does: drain all before every sleep, because the descriptors are edge triggered. */
static void turn_once(ab_bus_t *bus, int64_t until)
{
    int64_t next = ab_bus_tick(bus, ab_now_ms());
    bool more;
    do {
        more = ab_bus_drain(bus, 256);
        more |= ab_bus_hint_drain(bus, 256, on_hint, &rig_hint);
    } while (more);
    int64_t left = until - ab_now_ms();
    struct pollfd fds[] = {{ab_bus_fd(bus), POLLIN, 0}, {ab_bus_hint_fd(bus), POLLIN, 0}};
    if (left > 0)
        (void)poll(fds, 2, (int)(next < left ? next : left));
}

static bool flag_set(ab_bus_t *bus, void *arg)
{
    (void)bus;
    return arg && *(const int *)arg;
}

bool rig_turn_until(ab_bus_t *bus, bool (*test)(ab_bus_t *bus, void *arg), void *arg, int64_t ms)
{
    int64_t until = ab_now_ms() + ms;
    while (!test(bus, arg)) {
        if (ab_now_ms() >= until)
            return false;
        turn_once(bus, until);
    }
    return true;
}

bool rig_turn(ab_bus_t *bus, const int *flag, int64_t ms)
{
    return rig_turn_until(bus, flag_set, (void *)(uintptr_t)flag, ms);
}

int rig_live(ab_bus_t *bus, const char *service)
{
    struct ab_bus_service_stats s;
    for (size_t i = 0; ab_bus_stats(bus, i, &s); i++) {
        if (strcmp(s.service, service) == 0)
            return s.replicas;
    }
    return 0;
}

struct wanted {
    const char *service;
    int n;
};

static bool enough(ab_bus_t *bus, void *arg)
{
    struct wanted *w = arg;
    return rig_live(bus, w->service) == w->n;
}

bool rig_wait_live(ab_bus_t *bus, const char *service, int n, int64_t ms)
{
    return rig_turn_until(bus, enough, &(struct wanted){service, n}, ms);
}

static void on_answer(void *arg, int status, const void *body, size_t len)
{
    struct rig_call *call = arg;
    call->done++;
    call->status = status;
    call->body = realloc(call->body, len + 1);
    memcpy(call->body, body, len);
    call->body[len] = '\0';
    call->len = len;
    call->took_ms = ab_now_ms() - call->asked_ms;
}

uint64_t rig_ask(ab_bus_t *bus, struct rig_call *call, const char *service, const char *verb,
                 const void *body, size_t len, int64_t timeout_ms)
{
    struct ab_bus_request request = {
        .service = service,
        .verb = verb,
        .user = 42,
        .username = "tenant",
        .scopes = 5,
        .token_site = 9,
        .key = "a key",
        .trace = "trace-1",
        .peer = "192.0.2.7",
        .deadline_ms = ab_now_ms() + timeout_ms,
        .body = malloc(len ? len : 1),
        .body_len = len,
        .done = on_answer,
        .arg = call,
    };
    memcpy(request.body, body, len);
    ab_uuid7(request.uuid);
    call->asked_ms = ab_now_ms();
    return ab_bus_submit(bus, &request);
}

void rig_call_free(struct rig_call *call)
{
    free(call->body);
    memset(call, 0, sizeof(*call));
}

/* ------------------------------------------------------------------ replicas */

static void reply_boom(struct rig_replica *self, ab_task_t **task)
{
    struct ab_error_item item = {.index = 3, .id = 77, .reason = "lost"};
    struct ab_error err = {0};
    struct ab_buf body = {0};

    (void)ab_fail(&err, AB_ECONFLICT, "the lease is lost");
    err.items = &item;
    err.n_items = 1;
    ab_bus_error_pack(&body, &err);
    ab_replica_reply(self->replica, task, 409, body.data, body.len, true);
}

static void handle(struct rig_replica *self, ab_task_t *task)
{
    const struct ab_task_info *i = ab_task_info(task);
    char text[512];

    if (strcmp(i->verb, "echo") == 0) {
        void *copy = malloc(i->body_len ? i->body_len : 1);
        memcpy(copy, i->body, i->body_len);
        ab_replica_reply(self->replica, &task, 200, copy, i->body_len, true);
    } else if (strcmp(i->verb, "boom") == 0) {
        reply_boom(self, &task);
    } else if (strcmp(i->verb, "head") == 0) {
        snprintf(text, sizeof(text),
                 "user=%" PRId64 " username=%s scopes=%u site=%" PRId64
                 " key=%s trace=%s peer=%s try=%d left=%d",
                 i->user, i->username, i->scopes, i->token_site, i->key, i->trace, i->peer, i->try,
                 (int)((i->deadline_ms - ab_now_ms() + 500) / 1000));
        ab_replica_hint(self->replica, 'e', i->user, "newest", 6);
        ab_replica_reply(self->replica, &task, 200, text, strlen(text), false);
    } else {
        if (strcmp(i->verb, "sleep") == 0) {
            char ms[16] = "";
            memcpy(ms, i->body, i->body_len < 15 ? i->body_len : 15);
            usleep((useconds_t)atoi(ms) * 1000);
        }
        ab_replica_reply(self->replica, &task, 200, self->instance, strlen(self->instance), false);
    }
}

static void *work(void *arg)
{
    struct rig_replica *self = arg;
    ab_task_t *task;
    while ((task = ab_replica_take(self->replica)) != NULL)
        handle(self, task);
    return NULL;
}

static void *run(void *arg)
{
    struct rig_replica *self = arg;
    struct ab_error err = {0};
    self->rc = ab_replica_run(self->replica, -1, &err);
    return NULL;
}

static void make(struct rig_replica *self, const char *service, const char *instance,
                 const char *const *gateways, const char *dir, int workers, int64_t beat_ms,
                 int64_t dead_ms)
{
    struct ab_error err = {0};
    struct ab_replica_options options = {
        .service = service,
        .instance = instance,
        .capacity = 4 * workers,
        .gateways = gateways,
        .curve_dir = dir,
        .beat_ms = beat_ms,
        .dead_ms = dead_ms,
    };
    memset(self, 0, sizeof(*self));
    snprintf(self->instance, sizeof(self->instance), "%s", instance);
    self->replica = ab_replica_new(&options, &err);
    if (!self->replica)
        fail_msg("%s", err.text);
    self->n_workers = workers;
    for (int i = 0; i < workers; i++)
        assert_int_equal(pthread_create(&self->workers[i], NULL, work, self), 0);
}

static void join_workers(struct rig_replica *self)
{
    for (int i = 0; i < self->n_workers; i++)
        pthread_join(self->workers[i], NULL);
}

void rig_replica_start(struct rig_replica *self, const char *service, const char *instance,
                       const char *const *gateways, const char *dir, int workers, int64_t beat_ms,
                       int64_t dead_ms)
{
    make(self, service, instance, gateways, dir, workers, beat_ms, dead_ms);
    assert_int_equal(pthread_create(&self->io, NULL, run, self), 0);
}

void rig_replica_stop(struct rig_replica *self)
{
    ab_replica_stop(self->replica);
    pthread_join(self->io, NULL);
    join_workers(self);
    ab_replica_destroy(&self->replica);
}

pid_t rig_replica_spawn(const char *service, const char *instance, const char *gateway,
                        const char *dir, int workers, int64_t beat_ms, int64_t dead_ms)
{
    char n[16], beat[24], dead[24];
    struct ab_error err = {0};
    pid_t pid = 0;

    snprintf(n, sizeof(n), "%d", workers);
    snprintf(beat, sizeof(beat), "%d", (int)beat_ms);
    snprintf(dead, sizeof(dead), "%d", (int)dead_ms);
    const char *argv[] = {"/proc/self/exe", "replica", service, instance, gateway,
                          dir ? dir : "",   n,         beat,    dead,     NULL};
    struct ab_spawn what = {.argv = argv, .in = -1, .out = 1, .err = 2, .die_with_parent = true};
    if (ab_spawn(&what, &pid, &err) < 0)
        fail_msg("%s", err.text);
    return pid;
}

void rig_replica_main(int argc, char **argv)
{
    static struct rig_replica self;
    struct ab_error err = {0};
    sigset_t term;

    if (argc != 9 || strcmp(argv[1], "replica") != 0)
        return;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    ab_log_open(argv[2], argv[3], AB_WARN);
    int fd = signalfd(-1, &term, SFD_CLOEXEC | SFD_NONBLOCK);
    const char *gateways[] = {argv[4], NULL};
    make(&self, argv[2], argv[3], gateways, argv[5][0] ? argv[5] : NULL, atoi(argv[6]),
         atoi(argv[7]), atoi(argv[8]));
    int rc = ab_replica_run(self.replica, fd, &err);
    join_workers(&self);
    ab_replica_destroy(&self.replica);
    exit(rc == 0 ? 0 : 1);
}
