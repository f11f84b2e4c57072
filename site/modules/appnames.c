/* appnames.c - see appnames.h */
#include "appnames.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "schema/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 1000
#define MOST 4096

struct known {
    int64_t id;
    char *name;
};

struct appnames {
    struct known *apps;
    size_t n, cap;
    int64_t fetch_ms; /* after a failure: not again before */
};

appnames_t *appnames_new(void)
{
    appnames_t *self = calloc(1, sizeof(*self));
    if (!self)
        abort();
    return self;
}

static void forget(appnames_t *self)
{
    for (size_t i = 0; i < self->n; i++)
        free(self->apps[i].name);
    self->n = 0;
}

void appnames_destroy(appnames_t **self)
{
    if (!*self)
        return;
    forget(*self);
    free((*self)->apps);
    free(*self);
    *self = NULL;
}

static const char *find(const appnames_t *self, int64_t app_id)
{
    for (size_t i = 0; i < self->n; i++)
        if (self->apps[i].id == app_id)
            return self->apps[i].name;
    return NULL;
}

static const char *keep(appnames_t *self, int64_t app_id, const char *name)
{
    if (self->n == MOST)
        forget(self);
    if (self->n == self->cap) {
        self->cap = self->cap ? self->cap * 2 : 16;
        self->apps = realloc(self->apps, self->cap * sizeof(*self->apps));
        if (!self->apps)
            abort();
    }
    self->apps[self->n] = (struct known){app_id, strdup(name)};
    return self->apps[self->n++].name;
}

static const char *fetch(appnames_t *self, struct module *m, int64_t app_id, struct ab_error *err)
{
    AB_AUTO(ab_arena_destroy) ab_arena_t *arena = ab_arena_new();
    AB_AUTO(ab_buf_free) struct ab_buf reply = {0};
    struct ab_error why = {0};
    char path[64];

    snprintf(path, sizeof(path), "/apps/%" PRId64, app_id);
    int status = module_call(m, "GET", path, NULL, MODULE_CALL_MS, &reply, &why);
    const struct ab_value *v =
        status == 200 ? ab_value_parse(arena, reply.data, reply.len, NULL) : NULL;
    const char *name = ab_value_text(ab_value_get(v, "name"), NULL);
    if (name && ab_value_int(ab_value_get(v, "site_id"), 0) == module_view(m).site->id)
        return keep(self, app_id, name);
    if (name || status == 404) {
        ab_fail(err, AB_ENOENT, "the centre knows no app %" PRId64 " at this site", app_id);
        return NULL;
    }
    self->fetch_ms = ab_now_ms() + AGAIN_MS;
    ab_fail(err, AB_EBUSY, "app %" PRId64 " cannot be asked for now: %s", app_id, why.text);
    return NULL;
}

const char *appnames_get(appnames_t *self, struct module *m, int64_t app_id, struct ab_error *err)
{
    const char *name = find(self, app_id);

    if (name)
        return name;
    if (ab_now_ms() >= self->fetch_ms)
        return fetch(self, m, app_id, err);
    ab_fail(err, AB_EBUSY, "the apps of this site cannot be asked for now");
    return NULL;
}
