/* transfer.h - list, read and update transfer items */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "service/service.h"

ab_handler_f transfer_list, transfer_get, transfer_update, transfer_patch;
int transfer_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
int transfers_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
int transfer_wake(struct ab_call *call, struct ab_error *err); /* a timer */

#endif
