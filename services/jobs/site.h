/* site.h - sites: create, list, read, update, delete, and what waits at one */
#ifndef SITE_H
#define SITE_H

#include "service/service.h"

ab_handler_f site_list, site_create, site_get, site_update, site_delete, site_backlog;
int site_again(struct ab_call *call, const struct ab_ids *ids, struct ab_error *err);

#endif
