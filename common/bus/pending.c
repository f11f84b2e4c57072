/* pending.c - numbers, lists and deadlines of requests that wait */
#include "pending.h"
#include "base/rand.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_BITS 24
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define GENERATION_MASK ((UINT64_C(1) << (63 - SLOT_BITS)) - 1)

static void *need(void *p)
{
    if (!p) {
        fputs("bus: out of memory\n", stderr);
        abort();
    }
    return p;
}

struct ab_shared *ab_shared_new(void *data, size_t len)
{
    struct ab_shared *self = need(malloc(sizeof(*self)));
    atomic_init(&self->refs, 1);
    self->data = data;
    self->len = len;
    return self;
}

struct ab_shared *ab_shared_hold(struct ab_shared *self)
{
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
    return self;
}

void ab_shared_drop(struct ab_shared *self)
{
    if (self && atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) == 1) {
        free(self->data);
        free(self);
    }
}

/* ------------------------------------------------------------------ one request */

static size_t text_size(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static const char *copy_text(char **to, const char *text)
{
    if (!text)
        return NULL;
    size_t n = strlen(text) + 1;
    char *copy = memcpy(*to, text, n);
    *to += n;
    return copy;
}

struct ab_pending *ab_pending_new(struct ab_bus_request *request)
{
    size_t n = text_size(request->verb) + text_size(request->username) + text_size(request->key)
               + text_size(request->trace) + text_size(request->peer) + text_size(request->host);
    struct ab_pending *self = need(calloc(1, sizeof(*self) + n));
    char *to = self->text;

    self->head.verb = copy_text(&to, request->verb);
    self->head.username = copy_text(&to, request->username);
    self->head.key = copy_text(&to, request->key);
    self->head.trace = copy_text(&to, request->trace);
    self->head.peer = copy_text(&to, request->peer);
    self->head.host = copy_text(&to, request->host);
    self->text_len = n;
    self->head.user = request->user;
    self->head.scopes = request->scopes;
    self->head.token_site = request->token_site;
    memcpy(self->head.uuid, request->uuid, sizeof(self->head.uuid));
    self->deadline_ms = request->deadline_ms;
    self->done = request->done;
    self->arg = request->arg;
    self->body = ab_shared_new(request->body, request->body_len);
    request->body = NULL;
    return self;
}

void ab_pending_destroy(struct ab_pending **self_p)
{
    struct ab_pending *self = *self_p;
    if (self) {
        ab_shared_drop(self->body);
        free(self);
        *self_p = NULL;
    }
}

/* ------------------------------------------------------------------ lists */

void ab_pending_append(struct ab_pending_list *list, struct ab_pending *r)
{
    r->list = list;
    r->next = NULL;
    r->prev = list->last;
    if (list->last)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
    list->n++;
}

void ab_pending_prepend(struct ab_pending_list *list, struct ab_pending *r)
{
    r->list = list;
    r->prev = NULL;
    r->next = list->first;
    if (list->first)
        list->first->prev = r;
    else
        list->last = r;
    list->first = r;
    list->n++;
}

void ab_pending_unlink(struct ab_pending *r)
{
    struct ab_pending_list *list = r->list;
    if (!list)
        return;
    if (r->prev)
        r->prev->next = r->next;
    else
        list->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        list->last = r->prev;
    list->n--;
    r->list = NULL;
    r->prev = r->next = NULL;
}

/* ------------------------------------------------------------------ heap of deadlines */

static void heap_set(struct ab_pending_table *self, size_t at, struct ab_pending *r)
{
    self->heap[at] = r;
    r->heap_at = at;
}

static void heap_up(struct ab_pending_table *self, size_t at)
{
    struct ab_pending *r = self->heap[at];
    while (at > 1 && self->heap[at / 2]->deadline_ms > r->deadline_ms) {
        heap_set(self, at, self->heap[at / 2]);
        at /= 2;
    }
    heap_set(self, at, r);
}

static void heap_down(struct ab_pending_table *self, size_t at)
{
    struct ab_pending *r = self->heap[at];
    for (;;) {
        size_t child = 2 * at;
        if (child > self->heap_used)
            break;
        if (child < self->heap_used
            && self->heap[child + 1]->deadline_ms < self->heap[child]->deadline_ms)
            child++;
        if (self->heap[child]->deadline_ms >= r->deadline_ms)
            break;
        heap_set(self, at, self->heap[child]);
        at = child;
    }
    heap_set(self, at, r);
}

static void heap_add(struct ab_pending_table *self, struct ab_pending *r)
{
    if (self->heap_used + 1 >= self->heap_cap) {
        self->heap_cap = self->heap_cap ? self->heap_cap * 2 : 64;
        self->heap = need(realloc(self->heap, self->heap_cap * sizeof(struct ab_pending *)));
    }
    heap_set(self, ++self->heap_used, r);
    heap_up(self, self->heap_used);
}

struct ab_pending *ab_pending_earliest(const struct ab_pending_table *self)
{
    return self->heap_used ? self->heap[1] : NULL;
}

void ab_pending_forget_deadline(struct ab_pending_table *self, struct ab_pending *r)
{
    size_t at = r->heap_at;
    if (at == 0)
        return;
    r->heap_at = 0;
    struct ab_pending *last = self->heap[self->heap_used--];
    if (last == r)
        return;
    heap_set(self, at, last);
    heap_up(self, at);
    heap_down(self, last->heap_at);
}

/* ------------------------------------------------------------------ numbers */

void ab_pending_table_init(struct ab_pending_table *self, uint32_t limit)
{
    memset(self, 0, sizeof(*self));
    self->limit = limit < SLOT_MASK ? limit : SLOT_MASK;
    self->first_generation = 1 + ab_random_below(GENERATION_MASK / 2);
}

void ab_pending_table_free(struct ab_pending_table *self)
{
    free(self->slots);
    free(self->heap);
    memset(self, 0, sizeof(*self));
}

static void grow(struct ab_pending_table *self)
{
    uint32_t n = self->n ? self->n * 2 : 64;
    if (n > self->limit)
        n = self->limit;
    self->slots = need(realloc(self->slots, n * sizeof(self->slots[0])));
    for (uint32_t slot = n; slot-- > self->n;) {
        self->slots[slot] = (struct ab_pending_slot){
            .generation = self->first_generation,
            .next_free = self->free,
        };
        self->free = slot + 1;
    }
    self->n = n;
}

int ab_pending_table_add(struct ab_pending_table *self, struct ab_pending *r)
{
    if (self->free == 0 && self->n < self->limit)
        grow(self);
    if (self->free == 0)
        return -1;
    uint32_t slot = self->free - 1;
    struct ab_pending_slot *s = &self->slots[slot];
    self->free = s->next_free;
    s->r = r;
    r->head.number = s->generation << SLOT_BITS | slot;
    heap_add(self, r);
    return 0;
}

void ab_pending_table_remove(struct ab_pending_table *self, struct ab_pending *r)
{
    uint32_t slot = (uint32_t)(r->head.number & SLOT_MASK);
    struct ab_pending_slot *s = &self->slots[slot];

    ab_pending_forget_deadline(self, r);
    s->r = NULL;
    s->generation = s->generation == GENERATION_MASK ? 1 : s->generation + 1;
    s->next_free = self->free;
    self->free = slot + 1;
}

struct ab_pending *ab_pending_find(const struct ab_pending_table *self, uint64_t number)
{
    uint64_t slot = number & SLOT_MASK;
    if (slot >= self->n || self->slots[slot].generation != number >> SLOT_BITS)
        return NULL;
    return self->slots[slot].r;
}
