/* outbox_lists.c - see outbox_lists.h */
#include "outbox_lists.h"
#include "base/rand.h"

#include <stdlib.h>

void outbox_free_update(struct update *update)
{
    free(update->json);
    free(update);
}

void outbox_free_call(struct call *call)
{
    free(call->updates);
    free(call);
}

struct update *outbox_find_update(outbox_t *self, uint64_t number)
{
    struct update *u = self->first;
    while (u && u->number < number) /* the list is in their order */
        u = u->next;
    return u && u->number == number ? u : NULL;
}

struct call *outbox_find_call(outbox_t *self, uint64_t number)
{
    struct call *call = self->calls;
    while (call && call->number != number)
        call = call->next;
    return call;
}

void outbox_append_update(outbox_t *self, struct update *update)
{
    *self->end = update;
    self->end = &update->next;
    self->waiting++;
    self->bytes += update->len;
    if (update->number > self->last)
        self->last = update->number;
}

void outbox_append_call(outbox_t *self, struct call *call)
{
    struct call **at = &self->calls;
    while (*at)
        at = &(*at)->next;
    *at = call;
    call->number = ++self->last_call;
    for (size_t i = 0; i < call->n; i++)
        call->updates[i]->call = call->number;
}

void outbox_unlink_call(outbox_t *self, struct call *call)
{
    struct call **at = &self->calls;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    call->next = NULL;
}

/* Updates whose call is `gone` leave the list. */
void outbox_remove_updates(outbox_t *self, uint64_t gone)
{
    struct update **at = &self->first;
    while (*at) {
        struct update *u = *at;
        if (u->call == gone) {
            *at = u->next;
            self->waiting--;
            self->bytes -= u->len;
            outbox_free_update(u);
        } else {
            at = &u->next;
        }
    }
    self->end = at;
}

struct call *outbox_new_call(enum outbox_target target, size_t n)
{
    struct call *call = calloc(1, sizeof(*call));
    uint8_t uuid[16];

    ab_uuid7(uuid);
    ab_uuid_text(uuid, call->key);
    call->target = target;
    call->updates = calloc(n ? n : 1, sizeof(*call->updates));
    return call;
}

/* A later call takes its updates over from an earlier one. */
void outbox_take_over(outbox_t *self, struct call *call)
{
    for (struct call *old = self->calls, *next; old; old = next) {
        size_t n = 0;
        next = old->next;
        for (size_t i = 0; i < old->n; i++)
            if (old->updates[i]->call == old->number)
                old->updates[n++] = old->updates[i];
        old->n = n;
        if (!n && old != call) {
            outbox_unlink_call(self, old);
            outbox_free_call(old);
        }
    }
}
