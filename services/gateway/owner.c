/* owner.c - see owner.h */
#include "owner.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/rand.h"
#include "gateway.h"
#include "loop.h"
#include "schema/pack.h"
#include <stdlib.h>

/* An owner is asked for this often at most, and less often by the time that telling its subscribers
 * takes, times a share: others want the loop, too. */
#define FLUSH_MS 5
#define FAN_SHARE 3 / 2
#define POLL_OWNERS 500    /* in one request */
#define POLLS 4            /* under way at a time */
#define POLL_MS 5000       /* for an answer */
#define SINGLE_MS 10000    /* so long a service of the version before, which knows no polls, has */
#define SINGLE_PER_TICK 64 /* owners fetched one by one */
#define BUCKETS 4096

static struct {
    struct owner *bucket[BUCKETS];
    struct owner *waiting;
    size_t count;
    size_t poll_from; /* bucket where the next tick goes on */
    uv_timer_t flush;
    int64_t armed_ms; /* when flush fires; INT64_MAX: it does not */
    size_t polls;     /* under way */
    int64_t single_until_ms;
    bool started;
    void (*fetch)(struct owner *o);
} owners = {.armed_ms = INT64_MAX};

static void on_flush(uv_timer_t *handle);

static struct owner **bucket(int64_t id)
{
    return &owners.bucket[(uint64_t)id * UINT64_C(0x9E3779B97F4A7C15) >> 52 & (BUCKETS - 1)];
}

struct owner *owner_find(int64_t id)
{
    struct owner *o = *bucket(id);

    while (o && o->id != id)
        o = o->next;
    return o;
}

struct owner *owner_get(int64_t id)
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
    owners.count++;
    return o;
}

void owner_drop(struct owner *o)
{
    struct owner **p;

    if (o->bus)
        ab_bus_cancel(gw.bus, o->bus);
    for (p = &owners.waiting; *p; p = &(*p)->next_waiting)
        if (*p == o) {
            *p = o->next_waiting;
            break;
        }
    for (p = bucket(o->id); *p != o; p = &(*p)->next)
        ;
    *p = o->next;
    owners.count--;
    free(o);
}

/* ---- when an owner is fetched */

static void arm(int64_t due_ms)
{
    int64_t left_ms = due_ms - ab_now_ms();

    uv_update_time(&gw.loop);
    uv_timer_start(&owners.flush, on_flush, left_ms > 0 ? (uint64_t)left_ms : 0, 0);
    owners.armed_ms = due_ms;
}

static void on_flush(uv_timer_t *handle)
{
    struct owner *later = NULL, *o = owners.waiting;
    int64_t now_ms = ab_now_ms(), next_ms = INT64_MAX;

    (void)handle;
    owners.waiting = NULL; /* what a fetch that ends at once puts there arms the timer itself */
    owners.armed_ms = INT64_MAX;
    for (struct owner *next; o; o = next) {
        next = o->next_waiting;
        if (o->due_ms <= now_ms) {
            o->due_ms = 0;
            owners.fetch(o);
            continue;
        }
        next_ms = o->due_ms < next_ms ? o->due_ms : next_ms;
        o->next_waiting = later;
        later = o;
    }
    while ((o = later) != NULL) {
        later = o->next_waiting;
        o->next_waiting = owners.waiting;
        owners.waiting = o;
    }
    if (next_ms < owners.armed_ms)
        arm(next_ms);
}

void owner_at(struct owner *o, int64_t due_ms)
{
    if (o->bus || o->asking) {
        o->again = true;
        return;
    }
    if (!o->at.known || (o->due_ms && o->due_ms <= due_ms))
        return;
    if (!o->due_ms) {
        o->next_waiting = owners.waiting;
        owners.waiting = o;
    }
    o->due_ms = due_ms;
    if (due_ms < owners.armed_ms)
        arm(due_ms);
}

int64_t owner_fan_ms(const struct owner *o)
{
    return o->fan_us * FAN_SHARE / 1000;
}

void owner_soon(struct owner *o)
{
    int64_t now_ms = ab_now_ms();
    int64_t due_ms = o->asked_ms + FLUSH_MS + owner_fan_ms(o);

    owner_at(o, due_ms > now_ms ? due_ms : now_ms);
}

/* ---- those that no hint told of */

struct poll {
    size_t n;
    const struct owner *owner[POLL_OWNERS];
};

static int fetch_those(const void *body, size_t len)
{
    struct ab_cursor at = ab_cursor(body, len);
    uint32_t n;
    int64_t id;

    if (ab_cursor_array(&at, &n) < 0)
        return -1;
    for (; n > 0; n--) {
        if (ab_cursor_int(&at, &id) < 0)
            return -1;
        struct owner *o = owner_find(id);
        if (o)
            owner_at(o, ab_now_ms());
    }
    return 0;
}

static void on_poll(void *arg, int status, const void *body, size_t len)
{
    (void)arg;
    owners.polls--;
    if (status == 404 || (status == 200 && fetch_those(body, len) < 0))
        owners.single_until_ms = ab_now_ms() + SINGLE_MS;
}

static void pack_poll(struct ab_buf *out, const struct poll *poll)
{
    static const char *const names[] = {"owner", "xid", "id"};

    ab_pack_map(out, 1);
    ab_pack_str(out, "q");
    ab_pack_map(out, 3);
    for (int k = 0; k < 3; k++) {
        ab_pack_str(out, names[k]);
        ab_pack_array(out, (uint32_t)poll->n);
        for (size_t i = 0; i < poll->n; i++) {
            const struct owner *o = poll->owner[i];
            const int64_t v[] = {o->id, (int64_t)o->at.xid, (int64_t)o->at.id};
            ab_pack_int(out, v[k]);
        }
    }
}

static void send_poll(struct poll *poll)
{
    struct ab_buf body = {0};
    struct ab_bus_request request = {
        .service = "jobs",
        .verb = "event.moved",
        .scopes = AB_SCOPE_PUBLIC,
        .deadline_ms = ab_now_ms() + (gw.deadline_ms < POLL_MS ? gw.deadline_ms : POLL_MS),
        .done = on_poll,
    };

    if (poll->n == 0)
        return;
    pack_poll(&body, poll);
    poll->n = 0;
    ab_uuid7(request.uuid);
    request.body_len = body.len;
    request.body = ab_buf_take(&body);
    owners.polls++;
    ab_bus_submit(gw.bus, &request);
}

static bool is_due(const struct owner *o, int64_t before_ms)
{
    return !o->bus && !o->asking && !o->due_ms && o->at.known && o->asked_ms <= before_ms;
}

static void fetch_singly(int64_t before_ms)
{
    size_t n = 0;

    for (size_t i = 0; i < BUCKETS && n < SINGLE_PER_TICK; i++) {
        owners.poll_from = (owners.poll_from + 1) % BUCKETS;
        for (struct owner *o = owners.bucket[owners.poll_from], *next; o; o = next) {
            next = o->next;
            if (is_due(o, before_ms)) {
                owners.fetch(o);
                n++;
            }
        }
    }
}

void owners_poll(int64_t every_ms)
{
    struct poll poll = {0};
    int64_t now_ms = ab_now_ms();

    if (owners.count == 0)
        return;
    if (now_ms < owners.single_until_ms) {
        fetch_singly(now_ms - every_ms);
        return;
    }
    for (size_t i = 0; i < BUCKETS && owners.polls < POLLS; i++) {
        owners.poll_from = (owners.poll_from + 1) % BUCKETS;
        for (struct owner *o = owners.bucket[owners.poll_from]; o; o = o->next) {
            if (!is_due(o, now_ms - every_ms))
                continue;
            o->asked_ms = now_ms;
            poll.owner[poll.n++] = o;
            if (poll.n == POLL_OWNERS)
                break; /* the rest of this bucket: next time */
        }
        if (poll.n == POLL_OWNERS)
            send_poll(&poll);
    }
    send_poll(&poll);
}

int owners_init(void (*fetch)(struct owner *o), struct ab_error *err)
{
    if (uv_timer_init(&gw.loop, &owners.flush) != 0)
        return ab_fail(err, AB_EINTERNAL, "the loop takes no timer");
    owners.fetch = fetch;
    owners.started = true;
    return 0;
}

void owners_free(void)
{
    if (owners.started)
        uv_close((uv_handle_t *)&owners.flush, NULL);
    owners.started = false;
}
