/* page.h - what the gateway answers by itself: /, /healthz, /readyz, /metrics, /openapi.json, /docs
 */
#ifndef PAGE_H
#define PAGE_H

#include "base/error.h"

struct conn;

int page_init(struct ab_error *err); /* renders the OpenAPI document once */
void page_free(void);
/* Where a person types the code that a device shows. */
void page_user_code(struct conn *c);

void page_serve(struct conn *c);

#endif
