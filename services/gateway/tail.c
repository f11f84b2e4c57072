/* tail.c - see tail.h */
#include "tail.h"
#include "base/str.h"
#include "schema/pack.h"
#include "stream.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digits(const char *p, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if (n == 0 || n > 20)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -1;
        uint64_t d = (uint64_t)(p[i] - '0');
        if (v > (UINT64_MAX - d) / 10)
            return -1;
        v = v * 10 + d;
    }
    *out = v;
    return 0;
}

int place_parse(const char *text, size_t n, struct place *out)
{
    const char *dash = n ? memchr(text, '-', n) : NULL;

    if (!dash || n >= PLACE_TEXT)
        return -1;
    size_t first = (size_t)(dash - text);
    if (digits(text, first, &out->xid) < 0 || digits(dash + 1, n - first - 1, &out->id) < 0)
        return -1;
    out->known = true;
    return 0;
}

const char *place_text(const struct place *self, char out[PLACE_TEXT])
{
    (void)snprintf(out, PLACE_TEXT, "%" PRIu64 "-%" PRIu64, self->xid, self->id);
    return out;
}

int place_cmp(const struct place *a, const struct place *b)
{
    if (a->xid != b->xid)
        return a->xid < b->xid ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void read_int(struct ab_cursor at, int64_t *out)
{
    if (ab_cursor_int(&at, out) < 0)
        *out = 0; /* nil */
}

static void read_tags(struct ab_cursor at, struct happening *e)
{
    int8_t type;
    const void *p;

    if (ab_cursor_peek(&at) == AB_TK_EXT && ab_cursor_ext(&at, &type, &p, &e->tags_len) == 0
        && type == 1)
        e->tags = p;
}

static bool is(const char *name, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(name, text, n) == 0;
}

/* One member of the row: kept for the filters, and written out unless it is only for them. */
static int read_member(struct tail *self, struct happening *e, const char *name, size_t n,
                       struct ab_cursor value, size_t len, bool *first)
{
    const char *text;
    size_t text_len;

    if (is(name, n, "cursor"))
        return ab_cursor_str(&value, &text, &text_len) < 0 ? -1
                                                           : place_parse(text, text_len, &e->at);
    if (is(name, n, "tags")) {
        read_tags(value, e);
        return 0;
    }
    if (is(name, n, "job_id"))
        read_int(value, &e->job);
    else if (is(name, n, "site_id"))
        read_int(value, &e->site);
    else if (is(name, n, "app_id"))
        read_int(value, &e->app);
    else if (is(name, n, "to_state")) {
        struct ab_cursor at = value;
        if (ab_cursor_str(&at, &e->state, &e->state_len) < 0)
            return -1;
    }
    if (!*first)
        ab_buf_char(&self->text, ',');
    *first = false;
    ab_buf_json_str(&self->text, name, n);
    ab_buf_char(&self->text, ':');
    return render_value(&self->text, value.at, len);
}

static int read_event(struct tail *self, struct ab_cursor *at, struct happening *e)
{
    uint32_t members;
    bool first = true;

    if (ab_cursor_map(at, &members) < 0)
        return -1;
    e->json_at = self->text.len;
    ab_buf_char(&self->text, '{');
    while (members-- > 0) {
        const char *name;
        size_t n;
        if (ab_cursor_str(at, &name, &n) < 0)
            return -1;
        struct ab_cursor value = *at;
        if (ab_cursor_skip(at) < 0
            || read_member(self, e, name, n, value, (size_t)(at->at - value.at), &first) < 0)
            return -1;
    }
    ab_buf_char(&self->text, '}');
    e->json_len = self->text.len - e->json_at;
    return e->at.known ? 0 : -1;
}

static int read_place(struct ab_cursor page, const char *name, struct place *out)
{
    struct ab_cursor at;
    const char *p;
    size_t n;

    return ab_cursor_find(page, name, &at) < 0 || ab_cursor_str(&at, &p, &n) < 0
                   || place_parse(p, n, out) < 0
               ? -1
               : 0;
}

int tail_read(struct tail *self, const void *body, size_t len)
{
    struct ab_cursor page = ab_cursor(body, len), at;
    uint32_t n;

    *self = (struct tail){0};
    if (read_place(page, "next", &self->next) < 0 || ab_cursor_find(page, "results", &at) < 0
        || ab_cursor_array(&at, &n) < 0 || n > len)
        return -1;
    if (read_place(page, "head", &self->head) < 0)
        self->head = (struct place){0};
    self->events = calloc(n ? n : 1, sizeof(*self->events));
    if (!self->events)
        return -1;
    for (self->n = 0; self->n < n; self->n++)
        if (read_event(self, &at, &self->events[self->n]) < 0)
            return -1;
    if (ab_cursor_find(page, "more", &at) < 0 || ab_cursor_bool(&at, &self->more) < 0)
        self->more = n >= TAIL_LIMIT;
    if (ab_cursor_find(page, "held", &at) < 0 || ab_cursor_bool(&at, &self->held) < 0)
        self->held = false;
    return self->text.failed ? -1 : 0;
}

void tail_free(struct tail *self)
{
    free(self->events);
    ab_buf_free(&self->text);
    ab_arena_destroy(&self->arena);
    *self = (struct tail){0};
}

const struct ab_value *tail_tags(struct tail *self, struct happening *e)
{
    if (e->tags_read || !e->tags)
        return e->tags_map;
    if (!self->arena)
        self->arena = ab_arena_new();
    e->tags_read = true;
    e->tags_map = ab_value_parse(self->arena, ab_strndup(self->arena, e->tags, e->tags_len),
                                 e->tags_len, NULL);
    if (e->tags_map && e->tags_map->type != AB_V_MAP)
        e->tags_map = NULL;
    return e->tags_map;
}
