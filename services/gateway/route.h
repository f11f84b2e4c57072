/* route.h - method and path -> row of api.def, or one of the gateway's own pages */
#ifndef ROUTE_H
#define ROUTE_H

#include "base/error.h"
#include "schema/schema.h"
#include <stdbool.h>
#include <stddef.h>

enum own_page {
    PAGE_NONE,
    PAGE_ROOT,
    PAGE_HEALTHZ,
    PAGE_READYZ,
    PAGE_METRICS,
    PAGE_OPENAPI,
    PAGE_DOCS,
    PAGE_SUBSCRIBE_USER,
    PAGE_EVENTS_STREAM,
};

struct route_match {
    const struct ab_route *route; /* NULL: own page, 404 or 405 */
    enum own_page page;
    unsigned allow; /* of the path, bits of enum route_method; 0: unknown path */
    size_t id_at, id_n, name_at, name_n; /* parameters, still encoded, within the path */
};

enum route_method {
    M_GET = 1,
    M_POST = 2,
    M_PUT = 4,
    M_PATCH = 8,
    M_DELETE = 16
};

/* Once at start: the table of paths. -1 if two rows cannot be told apart. */
int route_init(struct ab_error *err);
void route_free(void);

/* path: encoded, without query, one trailing slash is ignored. */
void route_find(const char *method, size_t method_n, const char *path, size_t path_n,
                struct route_match *out);

/* "GET, POST" */
void route_allow_text(unsigned allow, char *out, size_t size);

#endif
