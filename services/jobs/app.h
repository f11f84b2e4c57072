/* app.h - apps of a site */
#ifndef APP_H
#define APP_H

#include "service/service.h"

ab_handler_f app_list, app_create, app_get, app_update, app_delete;
int app_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

/* All jobs of an app that the caller has locked FOR UPDATE, held ones too. 1 there are none any more,
 * 0 the piece is full, -1. piece->v[0] and v[1] say where it stands. */
int app_delete_jobs(struct ab_call *call, int64_t app_id, struct ab_piece *piece,
                    struct ab_error *err);

#endif
