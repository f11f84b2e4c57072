/* roster.c - services and replicas, all in short arrays: there are tens of them, not thousands */
#include "roster.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p)
{
    if (!p) {
        fputs("bus: out of memory\n", stderr);
        abort();
    }
    return p;
}

void ab_roster_free(struct ab_roster *self)
{
    for (size_t i = 0; i < self->n_replicas; i++)
        free(self->replicas[i]);
    free(self->replicas);
    for (size_t i = 0; i < self->n_services; i++)
        free(self->services[i]);
    memset(self, 0, sizeof(*self));
}

struct service *ab_roster_service(struct ab_roster *self, const char *name)
{
    for (size_t i = 0; i < self->n_services; i++) {
        if (strcmp(self->services[i]->name, name) == 0)
            return self->services[i];
    }
    if (self->n_services == AB_ROSTER_SERVICES || strlen(name) >= sizeof(self->services[0]->name))
        return NULL;
    struct service *s = need(calloc(1, sizeof(*s)));
    memcpy(s->name, name, strlen(name) + 1);
    s->none_since = self->started_ms;
    self->services[self->n_services++] = s;
    return s;
}

struct replica *ab_roster_find(const struct ab_roster *self, uint64_t peer)
{
    for (size_t i = 0; i < self->n_replicas; i++) {
        if (self->replicas[i]->peer == peer)
            return self->replicas[i];
    }
    return NULL;
}

struct replica *ab_roster_namesake(const struct ab_roster *self, const char *service,
                                   const char *instance)
{
    for (size_t i = 0; i < self->n_replicas; i++) {
        struct replica *r = self->replicas[i];
        if (strcmp(r->instance, instance) == 0 && strcmp(r->service->name, service) == 0)
            return r;
    }
    return NULL;
}

struct replica *ab_roster_add(struct ab_roster *self, uint64_t peer, struct service *service,
                              const char *instance)
{
    if (self->n_replicas == AB_ROSTER_REPLICAS)
        return NULL;
    if (self->n_replicas == self->cap_replicas) {
        self->cap_replicas = self->cap_replicas ? self->cap_replicas * 2 : 16;
        self->replicas =
            need(realloc(self->replicas, self->cap_replicas * sizeof(struct replica *)));
    }
    struct replica *r = need(calloc(1, sizeof(*r)));
    r->peer = peer;
    r->service = service;
    snprintf(r->instance, sizeof(r->instance), "%s", instance);
    self->replicas[self->n_replicas++] = r;
    return r;
}

void ab_roster_remove(struct ab_roster *self, struct replica *replica, int64_t now)
{
    struct service *service = replica->service;

    for (size_t i = 0; i < self->n_replicas; i++) {
        if (self->replicas[i] == replica) {
            self->replicas[i] = self->replicas[--self->n_replicas];
            break;
        }
    }
    free(replica);
    ab_roster_count_live(self, service, now);
}

static bool live(const struct replica *r)
{
    return !r->silent && !r->draining;
}

void ab_roster_count_live(struct ab_roster *self, struct service *service, int64_t now)
{
    int n = 0;
    for (size_t i = 0; i < self->n_replicas; i++) {
        if (self->replicas[i]->service == service && live(self->replicas[i]))
            n++;
    }
    if (n == 0 && service->live > 0)
        service->none_since = now;
    service->live = n;
}

static size_t load(const struct replica *r)
{
    return r->sent.n + r->ghosts;
}

struct replica *ab_roster_pick(struct ab_roster *self, struct service *service, int64_t now)
{
    struct replica *best = NULL;
    size_t start = self->n_replicas ? service->turn++ % self->n_replicas : 0;

    for (size_t i = 0; i < self->n_replicas; i++) {
        struct replica *r = self->replicas[(start + i) % self->n_replicas];
        if (r->service != service || !live(r) || now < r->full_until
            || load(r) >= (size_t)r->capacity)
            continue;
        if (!best || load(r) < load(best))
            best = r;
    }
    return best;
}

void ab_roster_stats(const struct ab_roster *self, const struct service *service,
                     struct ab_bus_service_stats *out)
{
    *out = (struct ab_bus_service_stats){
        .service = service->name,
        .replicas = service->live,
        .queued = (int)service->queue.n,
        .sent = service->sent,
        .resent = service->resent,
        .refused = service->refused,
        .timed_out = service->timed_out,
        .late = service->late,
    };
    for (size_t i = 0; i < self->n_replicas; i++) {
        const struct replica *r = self->replicas[i];
        if (r->service != service)
            continue;
        out->outstanding += (int)r->sent.n;
        if (!r->silent && r->oldest_ms > out->oldest_ms)
            out->oldest_ms = r->oldest_ms;
    }
}
