/* openapi.h - the descriptors as an OpenAPI 3 document */
#ifndef AB_OPENAPI_H
#define AB_OPENAPI_H

#include "base/buf.h"

void ab_openapi(struct ab_buf *out, const char *version);

#endif
