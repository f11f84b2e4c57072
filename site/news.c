/* news.c - see news.h */
#include "news.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/events.h"
#include "schema/json.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 300    /* for the end */
#define AGAIN_MS 30000 /* after a refusal */

/* A job that comes into this state is work for that module. */
static const struct {
    const char *state;
    unsigned who;
} states[] = {
    {"READY", NEWS_TRANSFER},       {"POSTPROCESSED", NEWS_TRANSFER},
    {"STAGED_IN", NEWS_PROCESSING}, {"RUN_DONE", NEWS_PROCESSING},
    {"RUN_ERROR", NEWS_PROCESSING}, {"RUN_TIMEOUT", NEWS_PROCESSING},
};

struct news {
    const struct ab_client_file *file;
    struct ab_buf query;
    ab_events_t *events;
    pthread_t thread;
    bool started, refused;
    int64_t not_before_ms;
    int event;
    atomic_uint who;
    atomic_int stop;
};

static unsigned who_of(const char *text, size_t len)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    const struct ab_value *list = ab_value_get(ab_value_parse(arena, text, len, NULL), "events");
    unsigned who = 0;

    for (size_t i = 0; list && list->type == AB_V_LIST && i < list->n; i++) {
        const char *state = ab_value_text(ab_value_get(&list->items[i], "to_state"), "");
        for (size_t k = 0; k < AB_COUNT(states); k++)
            if (strcmp(states[k].state, state) == 0)
                who |= states[k].who;
    }
    return who;
}

static void tell(news_t *self, unsigned who)
{
    uint64_t one = 1;

    if (!who)
        return;
    atomic_fetch_or(&self->who, who);
    (void)!write(self->event, &one, sizeof(one));
}

static void give_up(news_t *self, const struct ab_error *err)
{
    if (!self->refused)
        ab_log(AB_WARN, "events.refused", AB_KV("why", err->text));
    self->refused = true;
    ab_events_destroy(&self->events);
    self->not_before_ms = ab_now_ms() + AGAIN_MS;
}

/* One look. What happened before the first frame of a stream is found by looking, too. */
static void look(news_t *self)
{
    struct ab_error err = {0};
    const char *text;
    size_t len;

    if (!self->events)
        self->events = ab_events_new(self->file, self->query.data, NULL, &err);
    int got = self->events ? ab_events_next(self->events, LOOK_MS, &text, &len, &err) : -1;
    if (got < 0)
        give_up(self, &err);
    if (got <= 0)
        return;
    if (self->refused)
        ab_log(AB_INFO, "events.again");
    self->refused = false;
    tell(self, who_of(text, len));
}

static void *listen_to(void *arg)
{
    news_t *self = arg;

    while (!self->stop) {
        if (ab_now_ms() < self->not_before_ms)
            (void)poll(NULL, 0, LOOK_MS);
        else
            look(self);
    }
    return NULL;
}

news_t *news_new(const struct ab_client_file *file, int64_t site_id, int event,
                 struct ab_error *err)
{
    AB_AUTO(news_destroy) news_t *self = calloc(1, sizeof(*self));

    self->file = file;
    self->event = event;
    ab_buf_printf(&self->query, "site_id=%" PRId64, site_id);
    for (size_t i = 0; i < AB_COUNT(states); i++)
        ab_buf_printf(&self->query, "&state=%s", states[i].state);
    if (pthread_create(&self->thread, NULL, listen_to, self) != 0) {
        ab_fail(err, AB_EINTERNAL, "cannot start a thread for events");
        return NULL;
    }
    self->started = true;
    return AB_TAKE(self);
}

void news_destroy(news_t **self)
{
    if (!*self)
        return;
    (*self)->stop = 1;
    if ((*self)->started)
        pthread_join((*self)->thread, NULL);
    ab_events_destroy(&(*self)->events);
    ab_buf_free(&(*self)->query);
    free(*self);
    *self = NULL;
}

unsigned news_take(news_t *self)
{
    return atomic_exchange(&self->who, 0);
}
