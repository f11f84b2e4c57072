/* module.h - the frame of a site module: one file, one table, one process
 *
 * A module is linked to the broker of its site, which alone knows the token: API calls are
 * messages, and so are updates, which the broker writes into its outbox before it confirms them. A
 * module ends on SIGTERM and when its broker is gone.
 *
 *     static const struct module_def def = {.name = "transfer", .size = sizeof(struct transfer),
 * .cycle = cycle, ...}; int main(int argc, char **argv) { return module_main(&def, argc, argv); }
 */
#ifndef SITE_MODULE_H
#define SITE_MODULE_H

#include "base/buf.h"
#include "base/error.h"
#include "settings/settings.h"
#include "sitedir/site.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct module; /* opaque but for what stands here: */
struct module_view {
    const struct ab_site *site;
    const struct ab_settings *settings;
};

struct module_def {
    const char *name;
    size_t size; /* of the module's own struct: zeroed, given to each function as `self` */

    /* Once, when linked. -1 ends the process (the broker starts it again, with back-off). */
    int (*open)(struct module *m, void *self, struct ab_error *err);

    /* Its work. Returns the ms until it wants to run again; module_wake makes it earlier. */
    int64_t (*cycle)(struct module *m, void *self);

    /* There may be new work: the broker has heard so. cycle follows in a moment. NULL if its cycle
     * looks for all work anyway. */
    void (*woken)(struct module *m, void *self);

    /* The answer to module_send; err is set for -1 and >= 300. NULL if it sends nothing. */
    void (*reply)(struct module *m, void *self, uint64_t number, int status,
                  const struct ab_buf *body, const struct ab_error *err);

    /* A watched descriptor is readable. NULL if it watches none. */
    void (*readable)(struct module *m, void *self, int fd);

    /* The end, with the broker still there unless `broker_gone`: give back what is held. At most 5
     * s. */
    void (*close)(struct module *m, void *self, bool broker_gone);
};

int module_main(const struct module_def *def, int argc, char **argv);

struct module_view module_view(const struct module *m);
bool module_stopping(const struct module *m);
void module_wake(struct module *m); /* cycle as soon as possible */

/* ---- the API, through the broker. status as ab_api_call. */
#define MODULE_CALL_MS 30000
int module_call(struct module *m, const char *method, const char *path, const struct ab_buf *body,
                int64_t timeout_ms, struct ab_buf *reply, struct ab_error *err);
/* The same without waiting: def->reply gets the answer. Number, 0 if it cannot be sent. */
uint64_t module_send(struct module *m, const char *method, const char *path,
                     const struct ab_buf *body, int64_t timeout_ms);

/* ---- the outbox. n updates as JSON objects with ids, for "/jobs/", "/transfers/" or
 * "/batch-jobs/". 0: on disk. */
int module_put(struct module *m, const char *target, const struct ab_buf *updates, size_t n,
               struct ab_error *err);
/* Until all that was put for target before has reached the centre (or was refused). -1: not within
 * the time. */
int module_drain(struct module *m, const char *target, int64_t timeout_ms, struct ab_error *err);

/* ---- descriptors (pidfds, timers) that make def->readable run */
void module_watch(struct module *m, int fd);
void module_unwatch(struct module *m, int fd);

/* A warning about something that is tried again all the time: the same one at most once a minute,
 * none while stopping. */
void module_complain(struct module *m, const char *event, const char *why);

/* What health.json shows of this module: a JSON object. */
void module_health(struct module *m, const char *json);

#endif
