/* notice.h - what subscribers of /subscribe-user are told (contract, rest-api.md 6) */
#ifndef NOTICE_H
#define NOTICE_H

#include "service/service.h"

/* The resource as in the reply. Call after the reply has been written. */
void notice_reply(struct ab_call *call, const char *action, const char *type);

/* The fields of an update that were sent, and the id. */
void notice_changes(struct ab_call *call, const char *type, const struct ab_schema *schema,
                    const void *fields, int64_t id);

void notice_id(struct ab_call *call, const char *action, const char *type, int64_t id);
void notice_ids(struct ab_call *call, const char *action, const char *type, const int64_t *ids,
                size_t n);

/* ---- jobs: whole ones or their changed fields when they are few and small, else {"ids", "count"},
 * with at most 5000 ids */

/* whole: call->reply is the list of them. */
void notice_created(struct ab_call *call, const int64_t *ids, size_t n, bool whole);

/* The fields that were sent for each job; of a state, the one where it came to. */
struct ab_step_result;
void notice_changed(struct ab_call *call, const struct job *items, size_t n,
                    const struct ab_step_result *step);

void notice_many(struct ab_call *call, const char *action, const int64_t *ids, size_t n,
                 int64_t count);

#endif
