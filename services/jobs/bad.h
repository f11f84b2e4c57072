/* bad.h - which items of a bulk call are to blame
 *
 *     struct bad bad = {call};
 *     ... bad_add(&bad, i, item->id, "no such job, or not yours");
 *     if (bad.n)
 *         return bad_fail(&bad, err, AB_EINVAL, "bad_reference", "%zu jobs are not there", bad.n);
 */
#ifndef BAD_H
#define BAD_H

#include "service/service.h"

struct bad {
    struct ab_call *call;
    struct ab_error_item *items;
    size_t n, room;
};

/* index: place in the request's list; id: 0 if it has none; reason: lives as long as the call. */
void bad_add(struct bad *self, size_t index, int64_t id, const char *reason);

/* Fills err, with the items; returns -1. */
int bad_fail(struct bad *self, struct ab_error *err, int code, const char *kind, const char *format,
             ...) __attribute__((format(printf, 5, 6)));

/* Ids with their places, sorted by id, then by place: to find repeated and missing ones. */
struct place {
    int64_t id;
    size_t index;
};
void place_sort(struct place *places, size_t n);

/* The place of an id, or NULL; places are sorted. */
const struct place *place_find(const struct place *places, size_t n, int64_t id);

/* Distinct ids, ascending, of sorted places. */
struct ab_ids place_ids(struct ab_call *call, const struct place *places, size_t n);

/* For loops over batches: -1 (504) when the call's time is up. Nobody waits for the rest; all is
 * rolled back. */
int check_time(const struct ab_call *call, struct ab_error *err);

/* Bind an array of texts. */
void bind_texts(struct ab_call *call, const char *name, const char *const *texts, size_t n);

#endif
