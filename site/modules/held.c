/* held.c - see held.h */
#include "held.h"
#include "base/cleanup.h"
#include "schema/json.h"

#include <stdlib.h>

void held_init(struct held_list *list)
{
    *list = (struct held_list){0};
    list->end = &list->first;
}

int64_t held_add(struct held_list *list, const char *json, size_t len, struct ab_error *err)
{
    ab_arena_t *arena = ab_arena_new();
    struct ab_list jobs = {0};
    int64_t count;

    if (ab_json_read(&ab_schema_job, json, len, arena, &jobs, &count, err) < 0 || !jobs.n) {
        ab_arena_destroy(&arena);
        return jobs.n ? -1 : err && err->code ? -1 : 0;
    }
    struct batch *batch = calloc(1, sizeof(*batch));
    *batch = (struct batch){arena, jobs.n};
    for (size_t i = 0; i < jobs.n; i++) {
        struct held *one = calloc(1, sizeof(*one));
        one->batch = batch;
        one->job = (const struct job *)jobs.v + i;
        *list->end = one;
        list->end = &one->next;
        list->n++;
    }
    return (int64_t)jobs.n;
}

struct held *held_find(struct held_list *list, int64_t job_id)
{
    struct held *one = list->first;
    while (one && one->job->id != job_id)
        one = one->next;
    return one;
}

struct held *held_of_fd(struct held_list *list, int fd)
{
    struct held *one = list->first;
    while (one && (!one->hook || hook_fd(one->hook) != fd))
        one = one->next;
    return one;
}

void held_remove(struct held_list *list, struct held *one)
{
    struct held **at = &list->first;

    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    if (!*at)
        list->end = at;
    list->n--;
    if (one->hook)
        list->running--;
    hook_destroy(&one->hook);
    if (--one->batch->users == 0) {
        ab_arena_destroy(&one->batch->arena);
        free(one->batch);
    }
    free(one);
}

void held_clear(struct held_list *list)
{
    while (list->first)
        held_remove(list, list->first);
}
