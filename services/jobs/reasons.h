/* reasons.h - what keeps a job from running, collected */
#ifndef REASONS_H
#define REASONS_H

#include "service/service.h"

struct reasons {
    struct ab_call *call;
    struct reason *list;
    size_t n, room;
};

/* ids: NULL none; copied. */
void reasons_add(struct reasons *self, int code, const struct ab_ids *ids, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Ids, as rows bring them. */
struct ids {
    struct ab_call *call;
    struct ab_ids ids;
    size_t room;
};
void ids_add(struct ids *self, int64_t id);

/* "3 h", "40 s" */
const char *reasons_time(struct ab_call *call, double sec);

/* A text of somebody else's for an answer: NULL and long ones are fine. */
const char *reasons_quote(struct ab_call *call, const PGresult *r, int row, const char *column);

#endif
