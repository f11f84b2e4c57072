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

#endif
