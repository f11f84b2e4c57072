/* live.c - owners with subscribers, what each was given last, and the fetching */
#include "live.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "conn.h"
#include "filter.h"
#include "schema/pack.h"
#include "stream.h"
#include "tail.h"
#include "ws.h"
#include <stdlib.h>
#include <string.h>

#define FLUSH_MS 5
#define POLL_MS 1000
#define POLLS_PER_TICK 64 /* many owners are polled a little slower, not all at once */
#define BUCKETS 4096

struct owner {
    int64_t id;
    struct owner *next; /* in its bucket */
    struct owner *next_dirty;
    struct live *first; /* subscribers */
    struct place at;    /* everything up to here has gone out to the live ones */
    bool known;         /* `at` is */
    bool dirty, again;  /* asked for; asked for during a fetch */
    uint64_t bus;       /* a fetch is under way */
    int64_t fetched_ms;
};

struct live {
    struct conn *c;
    struct owner *owner; /* NULL: not begun */
    struct live *next, **prev;
    struct filter filter;
    struct place at;  /* given up to here */
    bool joined;      /* has caught up: gets what the owner's fetches bring */
    bool wants_page;  /* catching up: the next page, as soon as the ring is empty */
    uint64_t bus;     /* a page is under way */
    int64_t retry_ms; /* not before */
};

static struct {
    struct owner *bucket[BUCKETS];
    struct owner *dirty;
    size_t owners;
    size_t poll_from; /* bucket where the next tick goes on */
    uv_timer_t flush;
    bool started;
} live;

static void fetch_owner(struct owner *o);
static void fetch_page(struct live *s);

/* ---- owners */

static struct owner **bucket(int64_t id)
{
    return &live.bucket[(uint64_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 52 & (BUCKETS - 1)];
}

static struct owner *owner_find(int64_t id)
{
    struct owner *o = *bucket(id);

    while (o && o->id != id)
        o = o->next;
    return o;
}

static struct owner *owner_get(int64_t id)
{
    struct owner *o = owner_find(id);

    if (o)
        return o;
    o = calloc(1, sizeof(*o));
    if (!o)
        return NULL;
    o->id = id;
    o->next = *bucket(id);
    *bucket(id) = o;
    live.owners++;
    return o;
}

static void owner_drop(struct owner *o)
{
    struct owner **p;

    if (o->bus)
        ab_bus_cancel(gw.bus, o->bus);
    for (p = &live.dirty; *p; p = &(*p)->next_dirty)
        if (*p == o) {
            *p = o->next_dirty;
            break;
        }
    for (p = bucket(o->id); *p != o; p = &(*p)->next)
        ;
    *p = o->next;
    live.owners--;
    free(o);
}

static void on_flush(uv_timer_t *handle)
{
    (void)handle;
    while (live.dirty) {
        struct owner *o = live.dirty;
        live.dirty = o->next_dirty;
        o->dirty = false;
        fetch_owner(o);
    }
}

static void mark_dirty(struct owner *o)
{
    if (o->bus) {
        o->again = true;
        return;
    }
    if (o->dirty || !o->known)
        return;
    o->dirty = true;
    o->next_dirty = live.dirty;
    live.dirty = o;
    if (!uv_is_active((uv_handle_t *)&live.flush))
        uv_timer_start(&live.flush, on_flush, FLUSH_MS, 0);
}

void live_hint(int64_t id)
{
    struct owner *o = owner_find(id);

    if (o)
        mark_dirty(o);
}

/* ---- frames */

static struct frame *make_frame(const char *cursor, const struct tail *t, const struct live *s)
{
    struct ab_buf text = {0};
    size_t n = 0;

    ab_buf_printf(&text, "{\"cursor\":\"%s\",\"events\":[", cursor);
    for (size_t i = 0; t && i < t->n; i++) {
        const struct happening *e = &t->events[i];
        if (s && (place_cmp(&e->at, &s->at) <= 0 || !filter_passes(&s->filter, e)))
            continue;
        if (n++ > 0)
            ab_buf_char(&text, ',');
        ab_buf_add(&text, t->text.data + e->json_at, e->json_len);
    }
    ab_buf_str(&text, "]}");
    struct frame *f = NULL;
    if ((n > 0 || !t) && !text.failed)
        f = frame_new(WS_TEXT, text.data, text.len);
    ab_buf_free(&text);
    return f;
}

static void give(struct live *s, struct frame *f, const struct place *at)
{
    if (f && ws_push(s->c, f) < 0) {
        gw.count.ws_slow++;
        ws_close(s->c, WS_SLOW, s->at.text);
        return; /* s->at stays: that is where to go on */
    }
    if (place_cmp(at, &s->at) > 0)
        s->at = *at;
}

/* The first frame: no events, but a cursor to come back with. */
static void greet(struct live *s)
{
    struct frame *f = make_frame(s->at.text, NULL, NULL);

    if (!f) {
        conn_kill(s->c);
        return;
    }
    give(s, f, &s->at);
    frame_drop(f);
}

/* ---- fetching */

static uint64_t ask(int64_t owner, const char *since,
                    void (*done)(void *, int, const void *, size_t), void *arg)
{
    struct ab_buf body = {0};
    struct ab_bus_request request = {
        .service = "jobs",
        .verb = "event.tail",
        .user = owner,
        .scopes = AB_SCOPE_READ,
        .deadline_ms = ab_now_ms() + gw.deadline_ms,
        .done = done,
        .arg = arg,
    };
    ab_pack_map(&body, 1);
    ab_pack_str(&body, "q");
    ab_pack_map(&body, 2);
    ab_pack_str(&body, "since");
    ab_pack_str(&body, since);
    ab_pack_str(&body, "limit");
    ab_pack_int(&body, TAIL_LIMIT);
    ab_uuid7(request.uuid);
    request.body_len = body.len;
    request.body = ab_buf_take(&body);
    return ab_bus_submit(gw.bus, &request);
}

/* One frame for all that want everything; those with filters, or ahead of the owner, get their own.
 */
static void fan_out(struct owner *o, const struct tail *t)
{
    struct frame *shared = NULL;

    for (struct live *s = o->first, *next; s; s = next) {
        next = s->next;
        if (!s->joined || place_cmp(&s->at, &t->next) >= 0)
            continue;
        if (!s->filter.any && place_cmp(&s->at, &o->at) == 0) {
            if (!shared)
                shared = make_frame(t->next.text, t, NULL);
            give(s, shared, &t->next);
        } else {
            struct frame *own = make_frame(t->next.text, t, s);
            give(s, own, &t->next);
            frame_drop(own);
        }
    }
    frame_drop(shared);
}

static void on_owner(void *arg, int status, const void *body, size_t len)
{
    struct owner *o = owner_find((int64_t)(intptr_t)arg);
    struct tail t = {0};

    if (!o)
        return;
    o->bus = 0;
    o->fetched_ms = ab_now_ms();
    if (status != 200 || tail_read(&t, body, len) < 0) {
        if (status == 200)
            ab_log(AB_WARN, "live.bad_answer", AB_KV("owner", o->id));
        tail_free(&t); /* the next poll tries again */
        return;
    }
    bool more = t.more || o->again;
    o->again = false;
    if (place_cmp(&t.next, &o->at) > 0) {
        fan_out(o, &t);
        o->at = t.next;
    }
    tail_free(&t);
    if (more)
        mark_dirty(o);
}

/* A reply may come inside ab_bus_submit; `bus` is then no number to keep. */
static void fetch_owner(struct owner *o)
{
    int64_t id = o->id;

    if (o->bus || !o->known)
        return;
    o->fetched_ms = 0;
    uint64_t number = ask(id, o->at.text, on_owner, (void *)(intptr_t)id);
    if (owner_find(id) == o && o->fetched_ms == 0)
        o->bus = number;
}

/* ---- catching up with the past, page by page, each when the one before has left */

static void join(struct live *s)
{
    struct owner *o = s->owner;

    if (!o->known) {
        o->at = s->at;
        o->known = true;
    }
    s->joined = true;
    mark_dirty(o);
}

static void on_page(void *arg, int status, const void *body, size_t len)
{
    struct conn *c = conn_find((uint64_t)(uintptr_t)arg);
    struct live *s = c && c->ws ? ws_live(c) : NULL;
    struct tail t = {0};

    if (!s || !s->owner)
        return;
    s->bus = 0;
    s->retry_ms = ab_now_ms() + POLL_MS;
    if (status != 200 || tail_read(&t, body, len) < 0) {
        if (status >= 400 && status < 500)
            ws_close(c, 1011, "the events cannot be read from this cursor on");
        tail_free(&t);
        s->wants_page = true; /* again in a while */
        conn_wake(c);
        return;
    }
    if (s->at.text[0] == '\0') { /* it asked for nothing but from now on */
        s->at = t.next;
        greet(s);
    } else if (t.n > 0) {
        struct frame *own = make_frame(t.next.text, &t, s);
        give(s, own, &t.next);
        frame_drop(own);
    }
    s->retry_ms = 0;
    /* The head is reached, unless the live ones are further already. */
    if (!t.more && (!s->owner->known || place_cmp(&s->at, &s->owner->at) >= 0)) {
        join(s);
    } else {
        s->wants_page = true;
        conn_wake(c);
    }
    tail_free(&t);
}

static void fetch_page(struct live *s)
{
    uint64_t number = s->c->number;

    s->wants_page = false;
    s->retry_ms = -1;
    uint64_t bus = ask(s->owner->id, s->at.text, on_page, (void *)(uintptr_t)number);
    if (s->retry_ms == -1)
        s->bus = bus;
}

void live_drained(struct conn *c, struct live *s)
{
    (void)c;
    if (s->wants_page && !s->bus && ab_now_ms() >= s->retry_ms)
        fetch_page(s);
}

/* ---- subscribers */

struct live *live_new(const char *query, size_t len, struct ab_issues *issues)
{
    struct live *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    if (filter_read(&s->filter, &s->at, query, len, issues) < 0) {
        live_destroy(&s);
        return NULL;
    }
    return s;
}

void live_destroy(struct live **self)
{
    struct live *s = *self;

    if (!s)
        return;
    if (s->bus)
        ab_bus_cancel(gw.bus, s->bus);
    if (s->owner) {
        *s->prev = s->next;
        if (s->next)
            s->next->prev = s->prev;
        if (!s->owner->first)
            owner_drop(s->owner);
    }
    filter_free(&s->filter);
    free(s);
    *self = NULL;
}

void live_begin(struct conn *c, struct live *s, int64_t owner, int64_t site)
{
    struct owner *o = owner_get(owner);

    if (!o) {
        conn_kill(c);
        return;
    }
    s->c = c;
    s->owner = o;
    if (site)
        filter_only_site(&s->filter, site);
    s->next = o->first;
    s->prev = &o->first;
    if (o->first)
        o->first->prev = &s->next;
    o->first = s;

    if (s->at.text[0]) { /* the past first */
        greet(s);
        s->wants_page = true;
        conn_wake(c);
    } else if (o->known) {
        s->at = o->at;
        greet(s);
        join(s);
    } else {
        fetch_page(s); /* where is now? */
    }
}

const char *live_cursor(const struct live *s)
{
    return s->at.text;
}

/* ---- time */

static void check(struct conn *c)
{
    int64_t now_ms = ab_now_ms();

    if (c->state != CONN_WS || c->dying)
        return;
    ws_check(c, now_ms);
    struct live *s = ws_live(c);
    if (s && s->owner && s->wants_page && !s->bus && now_ms >= s->retry_ms)
        conn_wake(c);
}

void live_tick(void)
{
    int64_t now_ms = ab_now_ms();
    size_t polls = 0;

    conn_each(check);
    for (size_t i = 0; i < BUCKETS && polls < POLLS_PER_TICK && live.owners; i++) {
        live.poll_from = (live.poll_from + 1) % BUCKETS;
        for (struct owner *o = live.bucket[live.poll_from], *next; o; o = next) {
            next = o->next;
            if (!o->bus && !o->dirty && o->known && now_ms - o->fetched_ms >= POLL_MS) {
                fetch_owner(o);
                polls++;
            }
        }
    }
}

int live_init(struct ab_error *err)
{
    if (uv_timer_init(&gw.loop, &live.flush) != 0)
        return ab_fail(err, AB_EINTERNAL, "the loop takes no timer");
    live.started = true;
    return 0;
}

void live_free(void)
{
    if (live.started)
        uv_close((uv_handle_t *)&live.flush, NULL);
    live.started = false;
}
