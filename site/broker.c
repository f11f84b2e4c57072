/* broker.c - see broker.h */
#include "broker.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/spawn.h"
#include "base/supervise.h"
#include "bus/local.h"
#include "client/api.h"
#include "health.h"
#include "hub.h"
#include "monitor.h"
#include "news.h"
#include "outbox.h"
#include "post.h"
#include "settings/settings.h"
#include "sync.h"
#include "uplink.h"
#include "wire.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LANES 4 /* calls to the centre at a time */
#define TOUCH_MS 30000
#define STOP_MS 7000  /* for modules to give back what they hold */
#define GRACE_MS 1000 /* for the outbox after that */
#define WAIT_MAX_MS 10000

struct broker {
    const struct ab_site *site;
    struct ab_settings *settings;
    struct ab_client_file file;
    ab_site_lock_t *lock;
    outbox_t *outbox;
    post_t *post;
    uplink_t *uplink;
    news_t *news; /* NULL: not asked for */
    ab_hub_t *socket;
    hub_t *hub;
    ab_supervise_t *modules;
    health_t *health;
    monitor_t *monitor;
    struct sync sync;
    int signals, event; /* descriptors: SIGTERM; a call of the outbox has ended, or news came */
    int64_t touch_ms;
    bool stopping, lost;
};

/* ------------------------------------------------------------------ modules */

static const struct {
    const char *name;
    size_t on; /* of the flag in settings */
} modules[] = {
    {"scheduler", offsetof(struct ab_settings, scheduler.on)},
    {"queue_maintainer", offsetof(struct ab_settings, queue_maintainer.on)},
    {"elastic_queue", offsetof(struct ab_settings, elastic_queue.on)},
    {"processing", offsetof(struct ab_settings, processing.on)},
    {"transfer", offsetof(struct ab_settings, transfers.on)},
    {"file_cleaner", offsetof(struct ab_settings, file_cleaner.on)},
};

static int add_module(struct broker *b, const char *name, struct ab_error *err)
{
    AB_AUTO(ab_buf_free)
    struct ab_buf program = {0}, log = {0}, endpoint = {0}, pid = {0}, site = {0};

    ab_buf_printf(&program, "abies-module-%s", name);
    const char *path = ab_find_program(program.data);
    if (!path)
        return ab_fail(err, AB_ENOENT, "the program %s is not installed beside abies-site",
                       program.data);
    ab_buf_printf(&log, "%s/log/%s.log", b->site->path, name);
    ab_buf_printf(&endpoint, WIRE_ENDPOINT "=%s", ab_hub_endpoint(b->socket));
    ab_buf_printf(&pid, WIRE_PID "=%d", (int)getpid());
    ab_buf_printf(&site, "ABIES_SITE_PATH=%s", b->site->path);
    const char *argv[] = {path, NULL};
    const char *env[] = {endpoint.data, pid.data, site.data, NULL};
    struct ab_ward ward = {
        .name = name,
        .argv = argv,
        .env = env,
        .cwd = b->site->path,
        .log_path = log.data,
        .stop_ms = STOP_MS,
    };
    return ab_supervise_add(b->modules, &ward, err);
}

static int start_modules(struct broker *b, struct ab_error *err)
{
    for (size_t i = 0; i < AB_COUNT(modules); i++) {
        bool on = *(const bool *)((const char *)b->settings + modules[i].on);
        if (on && add_module(b, modules[i].name, err) < 0)
            return -1;
    }
    return 0;
}

static void on_change(void *arg, const char *name)
{
    struct broker *b = arg;

    (void)name;
    health_change(b->health);
}

static void on_word(void *arg, const char *link, const char *json, size_t len)
{
    struct broker *b = arg;
    health_word(b->health, link, json, len);
}

/* ------------------------------------------------------------------ start */

static int open_descriptors(struct broker *b, struct ab_error *err)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP); /* a terminal that closes does not end the site */
    sigprocmask(SIG_BLOCK, &set, NULL);
    b->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    b->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->signals < 0 || b->event < 0)
        return ab_fail_errno(err, AB_EINTERNAL, "signalfd, eventfd");
    return 0;
}

static int open_site(struct broker *b, struct ab_error *err)
{
    static const char *const folders[] = {"run", "log", "data", "qsubmit", "apps"};
    AB_AUTO(ab_free) char *file = ab_site_path(b->site, "settings.yml");

    b->settings = ab_settings_load(file, err);
    if (!b->settings || ab_client_file_load(&b->file, b->site->path, err) < 0)
        return -1;
    ab_log_open("site", "broker", (enum ab_level)ab_level_of(b->settings->logging.level));
    for (size_t i = 0; i < AB_COUNT(folders); i++) {
        AB_AUTO(ab_free) char *folder = ab_site_path(b->site, folders[i]);
        if (ab_mkdirs(folder, 0700, err) < 0)
            return -1;
    }
    b->lock = ab_site_lock(b->site, err);
    return b->lock ? 0 : -1;
}

static int open_socket(struct broker *b, struct ab_error *err)
{
    AB_AUTO(ab_free) char *folder = ab_site_runtime_dir(b->site, err);
    AB_AUTO(ab_buf_free) struct ab_buf endpoint = {0};

    if (!folder)
        return -1;
    ab_buf_printf(&endpoint, "ipc://%s/broker.sock", folder);
    (void)unlink(endpoint.data + strlen("ipc://")); /* we hold the lock: it is a dead one's */
    struct ab_local_options options = {
        .endpoint = endpoint.data,
        .beat_ms = WIRE_BEAT_MS,
        .dead_ms = WIRE_DEAD_MS,
    };
    b->socket = ab_hub_new(&options, err);
    return b->socket ? 0 : -1;
}

static int open_all(struct broker *b, struct ab_error *err)
{
    if (open_descriptors(b, err) < 0 || open_site(b, err) < 0)
        return -1;
    health_end_leftovers(b->site);
    AB_AUTO(ab_free) char *folder = ab_site_path(b->site, "run/outbox");
    b->health = health_new(b->site);
    if (!(b->outbox = outbox_open(folder, OUTBOX_LIMIT, err))
        || !(b->post = post_new(b->outbox, &b->file, b->event, err))
        || !(b->uplink = uplink_new(&b->file, LANES, err)) || open_socket(b, err) < 0)
        return -1;
    if (!(b->monitor = monitor_new(b->site, b->settings->metrics.listen, err)))
        return -1;
    if (b->settings->events.live && !(b->news = news_new(&b->file, b->site->id, b->event, err)))
        return -1;
    health_metrics(b->health, monitor_address(b->monitor));
    b->hub = hub_new(b->socket, b->outbox, b->post, b->uplink, on_word, b);
    if (!(b->modules = ab_supervise_new(err)))
        return -1;
    ab_supervise_on_change(b->modules, on_change, b);
    return start_modules(b, err);
}

/* ------------------------------------------------------------------ the loop */

static void read_signals(struct broker *b)
{
    struct signalfd_siginfo info;

    while (read(b->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGHUP || b->stopping)
            continue;
        ab_log(AB_INFO, "site.stops", AB_KV("signal", (int64_t)info.ssi_signo));
        b->stopping = true;
        ab_supervise_stop(b->modules);
    }
}

static void read_sync(struct broker *b, const struct uplink_reply *reply)
{
    sync_reply(&b->sync, b->settings, b->site->id, b->uplink, reply);
    health_settings(b->health, b->sync.at == SYNC_DONE, b->sync.why);
}

static void read_answers(struct broker *b)
{
    for (struct uplink_reply *reply; (reply = uplink_take(b->uplink));) {
        if (*reply->link)
            hub_answer(b->hub, reply);
        else
            read_sync(b, reply);
        uplink_reply_free(reply);
    }
}

static void wake_modules(struct broker *b)
{
    unsigned who = b->news ? news_take(b->news) : 0;

    if (who & NEWS_TRANSFER)
        hub_wake(b->hub, "transfer");
    if (who & NEWS_PROCESSING)
        hub_wake(b->hub, "processing");
}

static void read_event(struct broker *b)
{
    uint64_t count;

    if (read(b->event, &count, sizeof(count)) == sizeof(count)) {
        wake_modules(b);
        hub_drained(b->hub);
        health_change(b->health);
    }
}

/* Somebody else has our lock (we were stopped for minutes): the site is theirs. */
static int64_t touch(struct broker *b)
{
    struct ab_error err = {0};
    int64_t now = ab_now_ms();

    if (now < b->touch_ms)
        return b->touch_ms - now;
    b->touch_ms = now + TOUCH_MS;
    if (!b->stopping && ab_site_lock_touch(b->lock, &err) < 0) {
        ab_log(AB_ERROR, "lock.lost", AB_KV("why", err.text));
        if (err.code == AB_ECONFLICT) {
            b->lost = b->stopping = true;
            ab_supervise_stop(b->modules);
        }
    }
    return TOUCH_MS;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void loop(struct broker *b)
{
    const int fds[] = {b->signals, b->event, uplink_fd(b->uplink), ab_supervise_fd(b->modules)};

    while (!b->stopping || ab_supervise_running(b->modules) > 0) {
        int64_t wait = least(WAIT_MAX_MS, ab_hub_tick(b->socket, ab_now_ms()));
        wait = least(wait, touch(b));
        wait = least(wait, health_step(b->health, b->modules, b->outbox, b->post, b->uplink));
        wait = least(wait, monitor_step(b->monitor, b->modules, b->outbox, b->post, b->uplink,
                                        b->sync.at == SYNC_DONE));
        wait = least(wait, sync_step(&b->sync, b->site->id, b->uplink));
        (void)ab_hub_wait(b->socket, fds, AB_COUNT(fds), wait);
        read_signals(b);
        ab_supervise_step(b->modules);
        read_answers(b);
        read_event(b);
        hub_receive(b->hub);
    }
}

static void close_all(struct broker *b)
{
    monitor_destroy(&b->monitor);
    ab_supervise_destroy(&b->modules);
    news_destroy(&b->news);
    post_destroy(&b->post, GRACE_MS);
    hub_destroy(&b->hub);
    ab_hub_destroy(&b->socket);
    uplink_destroy(&b->uplink);
    outbox_close(&b->outbox);
    health_destroy(&b->health);
    ab_site_unlock(&b->lock);
    ab_client_file_free(&b->file);
    ab_settings_destroy(&b->settings);
    ab_close(&b->signals);
    ab_close(&b->event);
}

int broker_run(const struct ab_site *site)
{
    struct broker b = {.site = site, .signals = -1, .event = -1};
    struct ab_error err = {0};

    ab_log_open("site", "broker", AB_INFO);
    int rc = open_all(&b, &err);
    if (rc == 0) {
        ab_log(AB_INFO, "site.runs", AB_KV("site", site->id), AB_KV("path", site->path),
               AB_KV("centre", b.file.api_root));
        loop(&b);
        ab_log(AB_INFO, "site.stopped");
    } else {
        ab_log(AB_ERROR, "site.fails", AB_KV("why", err.text));
    }
    close_all(&b);
    if (rc < 0)
        return err.code == AB_ECONFLICT ? 3 : 1;
    return b.lost ? 1 : 0;
}
