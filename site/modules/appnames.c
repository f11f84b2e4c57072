/* appnames.c - see appnames.h */
#include "appnames.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "client/api.h"
#include "schema/json.h"

#include <inttypes.h>
#include <stdlib.h>

#define AGAIN_MS 3000

struct appnames {
    ab_arena_t *arena;
    struct ab_list apps; /* of struct app */
    bool known;          /* the last question was answered */
    int64_t fetch_ms;    /* not again before */
};

appnames_t *appnames_new(void)
{
    appnames_t *self = calloc(1, sizeof(*self));
    self->arena = ab_arena_new();
    return self;
}

void appnames_destroy(appnames_t **self)
{
    if (!*self)
        return;
    ab_arena_destroy(&(*self)->arena);
    free(*self);
    *self = NULL;
}

static const char *find(const appnames_t *self, int64_t app_id)
{
    const struct app *apps = self->apps.v;
    for (size_t i = 0; i < self->apps.n; i++)
        if (apps[i].id == app_id)
            return apps[i].name;
    return NULL;
}

static int fetch(appnames_t *self, struct module *m, struct ab_error *err)
{
    AB_AUTO(ab_buf_free) struct ab_buf path = {0}, reply = {0};
    int64_t count;

    ab_buf_str(&path, "/apps/");
    ab_api_query_int(&path, "site_id", module_view(m).site->id);
    int status = module_call(m, "GET", path.data, NULL, MODULE_CALL_MS, &reply, err);
    if (status < 200 || status >= 300)
        return -1;
    ab_arena_reset(self->arena);
    self->apps = (struct ab_list){0};
    self->known = true;
    return ab_json_read(&ab_schema_app, reply.data, reply.len, self->arena, &self->apps, &count,
                        err);
}

const char *appnames_get(appnames_t *self, struct module *m, int64_t app_id, struct ab_error *err)
{
    const char *name = find(self, app_id);

    if (!name && ab_now_ms() >= self->fetch_ms) {
        self->known = false;
        int rc = fetch(self, m, err);
        self->fetch_ms = ab_now_ms() + AGAIN_MS;
        if (rc < 0)
            return NULL;
        name = find(self, app_id);
    }
    if (!name && !self->known)
        ab_fail(err, AB_EBUSY, "the apps of this site cannot be asked for now");
    else if (!name)
        ab_fail(err, AB_ENOENT,
                "the centre knows no app %" PRId64 " at this site; run `abies app sync`", app_id);
    return name;
}
