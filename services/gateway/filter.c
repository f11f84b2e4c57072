/* filter.c - the query is checked by the descriptor of event.tail, like any other */
#include "filter.h"
#include "base/cleanup.h"
#include "crypt/crypt.h"
#include "schema/pack.h"
#include <stdlib.h>
#include <string.h>

static int by_id(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int take_ids(ab_arena_t *arena, struct ab_cursor q, const char *name, struct ab_ids *out)
{
    struct ab_cursor at;
    uint32_t n;

    if (ab_cursor_find(q, name, &at) < 0 || ab_cursor_array(&at, &n) < 0 || n == 0)
        return 0;
    out->v = ab_alloc(arena, n, sizeof(*out->v));
    for (uint32_t i = 0; i < n; i++)
        if (ab_cursor_int(&at, &out->v[out->n++]) < 0)
            return -1;
    qsort(out->v, out->n, sizeof(*out->v), by_id);
    return 0;
}

static int take_states(ab_arena_t *arena, struct ab_cursor q, struct ab_strs *out)
{
    struct ab_cursor at;
    uint32_t n;

    if (ab_cursor_find(q, "state", &at) < 0 || ab_cursor_array(&at, &n) < 0 || n == 0)
        return 0;
    out->v = ab_alloc(arena, n, sizeof(*out->v));
    for (uint32_t i = 0; i < n; i++) {
        const char *p;
        size_t len;
        if (ab_cursor_str(&at, &p, &len) < 0)
            return -1;
        out->v[out->n++] = ab_strndup(arena, p, len);
    }
    return 0;
}

static int take_tags(ab_arena_t *arena, struct ab_cursor q, const struct ab_value **out)
{
    struct ab_cursor at;
    int8_t type;
    const void *p;
    size_t n;

    if (ab_cursor_find(q, "tags", &at) < 0 || ab_cursor_ext(&at, &type, &p, &n) < 0)
        return 0;
    const struct ab_value *v = ab_value_parse(arena, ab_strndup(arena, p, n), n, NULL);
    if (!v || v->type != AB_V_MAP)
        return -1;
    *out = v->n ? v : NULL;
    return 0;
}

static int take_since(struct ab_cursor q, struct place *since, struct ab_issues *issues)
{
    struct ab_cursor at;
    const char *p;
    size_t n;

    if (ab_cursor_find(q, "since", &at) < 0 || ab_cursor_str(&at, &p, &n) < 0 || n == 0)
        return 0;
    if (place_parse(p, n, since) == 0)
        return 0;
    ab_issue(issues, "[\"query\",\"since\"]", "value_error",
             "not a cursor: take it from the last frame that came", NULL);
    return -1;
}

/* What was asked for, as bytes: the query but for `since`, which is where, not what. */
static void take_digest(struct filter *self, struct ab_cursor q)
{
    static const char *const names[] = {"site_id", "app_id", "job_id", "state", "tags"};
    AB_AUTO(ab_buf_free) struct ab_buf text = {0};
    struct ab_cursor at;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ab_buf_str(&text, names[i]);
        if (ab_cursor_find(q, names[i], &at) < 0)
            continue;
        struct ab_cursor end = at;
        if (ab_cursor_skip(&end) == 0)
            ab_buf_add(&text, at.at, (size_t)(end.at - at.at));
    }
    ab_hash(text.data, text.len, (uint8_t *)self->digest, sizeof(self->digest));
}

int filter_read(struct filter *out, struct place *since, const char *query, size_t len,
                struct ab_issues *issues)
{
    const struct ab_route *route = ab_route_of_verb("event.tail");
    const struct ab_http_parts parts = {.query = query, .query_len = len, .content_json = true};
    AB_AUTO(ab_buf_free) struct ab_buf packed = {0};
    struct ab_cursor q;

    if (len == 0)
        return 0;
    if (ab_json_request(route, &parts, &packed, issues) < 0)
        return -1;
    if (ab_cursor_find(ab_cursor(packed.data, packed.len), "q", &q) < 0)
        return 0;
    if (take_since(q, since, issues) < 0)
        return -1;
    out->arena = ab_arena_new();
    if (take_ids(out->arena, q, "site_id", &out->site) < 0
        || take_ids(out->arena, q, "app_id", &out->app) < 0
        || take_ids(out->arena, q, "job_id", &out->job) < 0
        || take_states(out->arena, q, &out->state) < 0
        || take_tags(out->arena, q, &out->tags) < 0) {
        ab_issue(issues, "[\"query\"]", "value_error", "the filters cannot be read", NULL);
        return -1;
    }
    take_digest(out, q);
    out->any = out->site.n || out->app.n || out->job.n || out->state.n || out->tags;
    return 0;
}

void filter_free(struct filter *self)
{
    ab_arena_destroy(&self->arena);
}

void filter_only_site(struct filter *self, int64_t site)
{
    self->only_site = site;
    self->any = true;
}

static bool among(const struct ab_ids *ids, int64_t id)
{
    return ids->n == 0 || bsearch(&id, ids->v, ids->n, sizeof(id), by_id);
}

static bool state_among(const struct ab_strs *states, const struct happening *e)
{
    for (size_t i = 0; i < states->n; i++)
        if (strlen(states->v[i]) == e->state_len
            && memcmp(states->v[i], e->state, e->state_len) == 0)
            return true;
    return states->n == 0;
}

/* All that were asked for must be there. */
static bool tags_match(const struct ab_value *want, const struct ab_value *have)
{
    if (!have)
        return false;
    for (size_t i = 0; i < want->n; i++) {
        const char *value = ab_value_text(ab_value_get(have, want->keys[i]), NULL);
        const char *wanted = ab_value_text(&want->items[i], "");
        if (!value || strcmp(value, wanted) != 0)
            return false;
    }
    return true;
}

bool filter_passes(const struct filter *self, struct tail *t, struct happening *e)
{
    if (!self->any)
        return true;
    if (self->only_site && e->site != self->only_site)
        return false;
    return among(&self->site, e->site) && among(&self->app, e->app) && among(&self->job, e->job)
           && state_among(&self->state, e)
           && (!self->tags || tags_match(self->tags, tail_tags(t, e)));
}

bool filter_same(const struct filter *a, const struct filter *b)
{
    return a->any == b->any && a->only_site == b->only_site && a->digest[0] == b->digest[0]
           && a->digest[1] == b->digest[1];
}
