/* harness.c - calls without sockets, for service tests */
#include "skeleton.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEADLINE_MS = 30 * 1000
};

static _Thread_local char hints[1024];
static _Thread_local struct {
    char body[128 * 1024];
    size_t len;
} notice;
static _Thread_local int64_t hold_ms;

const char *ab_service_hints(void)
{
    return hints;
}

const void *ab_service_notice(size_t *len)
{
    *len = notice.len;
    return notice.body;
}

int64_t ab_service_hold(void)
{
    return hold_ms;
}

static void note_hint(void *arg, char topic, int64_t owner, const void *body, size_t len)
{
    (void)arg;
    if (topic == 'n') {
        notice.len = len < sizeof(notice.body) ? len : 0;
        memcpy(notice.body, body, notice.len);
    }
    size_t at = strlen(hints);
    snprintf(hints + at, sizeof(hints) - at, "%s%c%" PRId64, at ? " " : "", topic, owner);
}

/* A worker on the caller's connection. The settings are the caller's, or the defaults (owned by
 * us). */
struct stand_in {
    struct ab_worker worker;
    ab_conf_t *conf;
};

static int open_stand_in(struct stand_in *self, const struct ab_service *service, ab_db_t *db,
                         const ab_conf_t *conf, struct ab_error *err)
{
    self->conf = conf ? NULL : ab_service_conf(service);
    self->worker = (struct ab_worker){
        .service = service, .conf = conf ? conf : self->conf, .db = db, .arena = ab_arena_new()};
    hints[0] = '\0';
    notice.len = 0;
    return service_join(service, err) < 0 ? -1 : service_prepare(service, db, err);
}

static void close_stand_in(struct stand_in *self)
{
    ab_arena_destroy(&self->worker.arena);
    ab_conf_destroy(&self->conf);
}

int ab_service_call_as(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                       const struct ab_caller *caller, const char *verb, const void *body,
                       size_t len, struct ab_buf *reply)
{
    AB_AUTO(close_stand_in) struct stand_in self;
    struct ab_error err = {0};
    uint8_t uuid[16];
    ab_uuid7(uuid);
    int status = open_stand_in(&self, service, db, conf, &err);
    if (status < 0) {
        ab_log(AB_ERROR, "harness.failed", AB_KV("text", (const char *)err.text));
        return err.code;
    }
    struct ask ask = {
        .verb = verb,
        .owner_id = caller->owner_id,
        .username = caller->username,
        .scopes = caller->scopes ? caller->scopes : AB_SCOPE_USER,
        .token_site = caller->token_site,
        .key = caller->key,
        .peer = caller->peer,
        .host = caller->host,
        .uuid = caller->uuid ? caller->uuid : uuid,
        .deadline_ms = caller->deadline_ms ? caller->deadline_ms : ab_now_ms() + DEADLINE_MS,
        .body = body,
        .body_len = len,
    };
    struct ab_call call;
    status = worker_call(&self.worker, &ask, &call);
    worker_answered(&self.worker, &call, note_hint, NULL);
    hold_ms = call.hold_ms;
    ab_buf_clear(reply);
    if (call.reply.len)
        ab_buf_add(reply, call.reply.data, call.reply.len);
    ab_buf_free(&call.reply);
    return status;
}

int ab_service_call(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                    const char *verb, int64_t owner_id, const char *key, const void *body,
                    size_t len, struct ab_buf *reply)
{
    struct ab_caller caller = {.owner_id = owner_id, .username = "someone", .key = key};
    return ab_service_call_as(service, db, conf, &caller, verb, body, len, reply);
}

int ab_service_tick(const struct ab_service *service, ab_db_t *db, const ab_conf_t *conf,
                    const char *name, struct ab_error *err)
{
    AB_AUTO(close_stand_in) struct stand_in self;
    if (open_stand_in(&self, service, db, conf, err) < 0)
        return -1;
    const struct ab_timer *timer = service->timers;
    while (timer && timer->name && strcmp(timer->name, name) != 0)
        timer++;
    if (!timer || !timer->name)
        return ab_fail(err, AB_EINTERNAL, "`%s` has no timer `%s`", service->name, name);
    struct ab_call call;
    int rc = worker_tick(&self.worker, timer, &call, err);
    if (rc >= 0)
        worker_hints(&self.worker, &call, note_hint, NULL);
    ab_buf_free(&call.reply);
    return rc;
}
