/* live.c - what each subscriber was given last, and the fetching */
#include "live.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rand.h"
#include "conn.h"
#include "filter.h"
#include "metrics.h"
#include "owner.h"
#include "schema/pack.h"
#include "stream.h"
#include "tail.h"
#include "ws.h"
#include <stdlib.h>
#include <string.h>

#define HELD_MS 5       /* events wait for an open transaction: look again, */
#define HELD_CAP_MS 100 /* less and less often up to this */
#define POLL_MS 1000
#define GROUPS                                                                                     \
    64 /* of subscribers with the same filter, whose frame is remembered during a fan-out */

struct live {
    struct conn *c;
    struct owner *owner; /* NULL: not begun */
    struct live *next, **prev;
    struct filter filter;
    struct place at;   /* given up to here */
    struct place told; /* cursor of the last frame */
    bool joined;       /* has caught up: gets what the owner's fetches bring */
    bool wants_page;   /* catching up: the next page, as soon as the ring is empty */
    bool asking;
    uint64_t bus;     /* a page is under way */
    int64_t retry_ms; /* not before */
};

static void fetch_page(struct live *s);

void live_hint(int64_t id)
{
    struct owner *o = owner_find(id);

    if (!o)
        return;
    if (!o->hint_us)
        o->hint_us = ab_now_us();
    owner_soon(o);
}

/* ---- frames */

static bool is_wanted(const struct live *s, struct tail *t, struct happening *e)
{
    return !s || (place_cmp(&e->at, &s->at) > 0 && filter_passes(&s->filter, t, e));
}

/* What s wants of the page, or all of it; NULL: that is nothing. Without a page only the cursor. */
static struct frame *make_frame(const struct place *cursor, struct tail *t, const struct live *s)
{
    struct ab_buf text = {0};
    char place[PLACE_TEXT];
    size_t i = 0;

    while (t && i < t->n && !is_wanted(s, t, &t->events[i]))
        i++;
    if (t && i == t->n)
        return NULL;
    ab_buf_printf(&text, "{\"cursor\":\"%s\",\"events\":[", place_text(cursor, place));
    for (bool first = true; t && i < t->n; i++) {
        const struct happening *e = &t->events[i];
        if (!first && !is_wanted(s, t, &t->events[i]))
            continue;
        if (!first)
            ab_buf_char(&text, ',');
        first = false;
        ab_buf_add(&text, t->text.data + e->json_at, e->json_len);
    }
    ab_buf_str(&text, "]}");
    struct frame *f = text.failed ? NULL : frame_new(WS_TEXT, text.data, text.len);
    ab_buf_free(&text);
    return f;
}

/* No frame: there was nothing for this one. */
static void give(struct live *s, struct frame *f, const struct place *at)
{
    char place[PLACE_TEXT];

    if (f && ws_push(s->c, f) < 0) {
        gw.count.ws_slow++;
        ws_close(s->c, WS_SLOW, place_text(&s->at, place));
        return; /* s->at stays: that is where to go on */
    }
    if (f)
        s->told = *at;
    if (place_cmp(at, &s->at) > 0)
        s->at = *at;
}

/* No events, but a cursor to come back with: the first frame, and one now and then. */
static void give_cursor(struct live *s)
{
    struct frame *f = make_frame(&s->at, NULL, NULL);

    if (!f) {
        conn_kill(s->c);
        return;
    }
    give(s, f, &s->at);
    frame_drop(f);
}

void live_remind(struct live *s)
{
    if (s->joined && place_cmp(&s->told, &s->at) != 0)
        give_cursor(s);
}

/* ---- fetching */

/* since not known: from now on. */
static uint64_t ask(int64_t owner, const struct place *since,
                    void (*done)(void *, int, const void *, size_t), void *arg)
{
    struct ab_buf body = {0};
    char place[PLACE_TEXT];
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
    ab_pack_str(&body, since->known ? place_text(since, place) : "");
    ab_pack_str(&body, "limit");
    ab_pack_int(&body, TAIL_LIMIT);
    ab_uuid7(request.uuid);
    request.body_len = body.len;
    request.body = ab_buf_take(&body);
    return ab_bus_submit(gw.bus, &request);
}

/* Frames of this fan-out, by who asks for the same. */
struct group {
    const struct filter *filter;
    struct frame *frame; /* NULL: there is nothing for them */
};

static struct frame *frame_of_group(struct group *groups, struct tail *t, const struct live *s)
{
    struct group *g = &groups[s->filter.digest[0] % GROUPS];

    if (g->filter && filter_same(g->filter, &s->filter))
        return g->frame;
    frame_drop(g->frame);
    g->filter = &s->filter;
    g->frame = make_frame(&t->next, t, s->filter.any ? s : NULL);
    return g->frame;
}

/* One frame for all that want the same; who is ahead of the owner gets its own. */
static void fan_out(struct owner *o, struct tail *t)
{
    int64_t from_us = ab_now_us();
    struct group groups[GROUPS] = {0};

    for (struct live *s = o->first, *next; s; s = next) {
        next = s->next;
        if (!s->joined || place_cmp(&s->at, &t->next) >= 0)
            continue;
        if (place_cmp(&s->at, &o->at) == 0) {
            give(s, frame_of_group(groups, t, s), &t->next);
        } else {
            struct frame *own = make_frame(&t->next, t, s);
            give(s, own, &t->next);
            frame_drop(own);
        }
    }
    for (size_t i = 0; i < GROUPS; i++)
        frame_drop(groups[i].frame);
    o->fan_us = ab_now_us() - from_us;
}

/* Something may be there now, or be held back by a transaction that is still open, perhaps not even
 * of this owner: nobody will give us a hint when it ends. */
static void fetch_again(struct owner *o, bool more, bool held)
{
    bool again = o->again;

    o->again = false;
    if (!held)
        o->held_ms = 0;
    if (more)
        owner_at(o, ab_now_ms());
    else if (again)
        owner_soon(o);
    if (more || !held)
        return;
    o->held_ms = !o->held_ms ? HELD_MS : 2 * o->held_ms;
    o->held_ms = o->held_ms < HELD_CAP_MS ? o->held_ms : HELD_CAP_MS;
    owner_at(o, ab_now_ms() + o->held_ms + owner_fan_ms(o));
}

static void on_owner(void *arg, int status, const void *body, size_t len)
{
    struct owner *o = owner_find((int64_t)(intptr_t)arg);
    struct tail t = {0};

    if (!o)
        return;
    o->bus = 0;
    o->asking = false;
    if (status != 200 || tail_read(&t, body, len) < 0) {
        if (status == 200)
            ab_log(AB_WARN, "live.bad_answer", AB_KV("owner", o->id));
        tail_free(&t);
        o->again = false; /* the next poll tries again */
        return;
    }
    if (place_cmp(&t.next, &o->at) > 0) {
        fan_out(o, &t);
        o->at = t.next;
        if (o->hint_us)
            metrics_event_lag(ab_now_us() - o->hint_us);
        o->hint_us = 0;
    }
    fetch_again(o, t.more, t.held);
    tail_free(&t);
}

/* A reply may come inside ab_bus_submit; `bus` is then no number to keep. */
static void fetch_owner(struct owner *o)
{
    int64_t id = o->id;

    if (o->bus || o->asking || !o->at.known)
        return;
    o->asked_ms = ab_now_ms();
    o->asking = true;
    uint64_t number = ask(id, &o->at, on_owner, (void *)(intptr_t)id);
    if (owner_find(id) == o && o->asking) {
        o->asking = false;
        o->bus = number;
    }
}

/* ---- catching up with the past, page by page, each when the one before has left */

static void join(struct live *s)
{
    struct owner *o = s->owner;

    if (!o->at.known)
        o->at = s->at;
    else if (place_cmp(&o->at, &s->at) > 0)
        s->at = o->at; /* there was nothing in between */
    s->joined = true;
    owner_soon(o);
}

/* It has been given all that the live ones have been given: the page reaches as far as the owner's
 * last fetch, or it knows that there is nothing up to there. */
static bool has_caught_up(const struct live *s, const struct tail *t)
{
    const struct owner *o = s->owner;

    if (t->more)
        return false;
    return !o->at.known || place_cmp(&s->at, &o->at) >= 0
           || (t->head.known && place_cmp(&t->head, &o->at) >= 0);
}

static void on_page(void *arg, int status, const void *body, size_t len)
{
    struct conn *c = conn_find((uint64_t)(uintptr_t)arg);
    struct live *s = c && c->ws ? ws_live(c) : NULL;
    struct tail t = {0};

    if (!s || !s->owner)
        return;
    s->bus = 0;
    s->asking = false;
    s->retry_ms = ab_now_ms() + POLL_MS;
    if (status != 200 || tail_read(&t, body, len) < 0) {
        if (status == 410)
            ws_close(c, WS_FORGOTTEN, "events behind this cursor are kept no longer");
        else if (status >= 400 && status < 500)
            ws_close(c, 1011, "the events cannot be read from this cursor on");
        tail_free(&t);
        s->wants_page = true; /* again in a while */
        conn_wake(c);
        return;
    }
    if (!s->at.known) { /* it asked for nothing but from now on */
        s->at = t.next;
        give_cursor(s);
    } else if (t.n > 0) {
        struct frame *own = make_frame(&t.next, &t, s);
        give(s, own, &t.next);
        frame_drop(own);
    }
    if (t.more || t.n > 0)
        s->retry_ms = 0; /* else an older answer than the owner's: nothing is gained by hurry */
    if (has_caught_up(s, &t)) {
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
    s->asking = true;
    uint64_t bus = ask(s->owner->id, &s->at, on_page, (void *)(uintptr_t)number);
    if (s->asking) {
        s->asking = false;
        s->bus = bus;
    }
}

void live_drained(struct conn *c, struct live *s)
{
    int64_t now_ms = ab_now_ms();

    (void)c;
    if (!s->wants_page || s->bus || now_ms < s->retry_ms)
        return;
    if (ws_crowded())
        s->retry_ms = now_ms + POLL_MS; /* the tick comes back to it */
    else
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

    if (s->at.known) { /* the past first */
        give_cursor(s);
        s->wants_page = true;
        conn_wake(c);
    } else if (o->at.known) {
        s->at = o->at;
        give_cursor(s);
        join(s);
    } else {
        fetch_page(s); /* where is now? */
    }
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
    conn_each(check);
    owners_poll(POLL_MS);
}

int live_init(struct ab_error *err)
{
    return owners_init(fetch_owner, err);
}

void live_free(void)
{
    owners_free();
}
