/* batch.h - batch jobs: the launchers' allocations */
#ifndef BATCH_H
#define BATCH_H

#include "service/service.h"

ab_handler_f batch_list, batch_create, batch_get, batch_update, batch_patch, batch_delete;
int batch_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);
int batches_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

#endif
