/* lease.h - jobs handed to a session */
#ifndef LEASE_H
#define LEASE_H

#include "service/service.h"

ab_handler_f lease_acquire;
int lease_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
int lease_still_true(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

#endif
