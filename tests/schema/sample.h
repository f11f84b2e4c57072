/* sample.h - a request of any route with every field filled, made from its descriptor */
#ifndef AB_TEST_SAMPLE_H
#define AB_TEST_SAMPLE_H

#include "support.h"

/* The body (JSON or form) with all fields that the route takes, and a query with all of its
 * parameters. */
void sample_body(struct ab_buf *out, const struct ab_route *route);
void sample_query(struct ab_buf *out, const struct ab_schema *query);

#endif
