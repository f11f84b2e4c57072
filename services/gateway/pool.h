/* pool.h - large requests are parsed off the loop: buffer in, buffer out
 *
 * A job touches no connection, no lws, no bus. Whoever waited for it is found again by number, and
 * may be gone. What is queued is bounded by the budget, which every buffer in here has been counted
 * in.
 */
#ifndef POOL_H
#define POOL_H

#include "base/error.h"
#include "schema/json.h"
#include <stdatomic.h>
#include <stdint.h>

#define POOL_THREADS 2
#define POOL_FROM 16384 /* line or body larger than this */

struct parse {
    struct parse *next;
    uint64_t conn;
    const struct ab_route *route;
    char *bytes;    /* the whole request; parts point into it */
    size_t counted; /* of the budget */
    struct ab_http_parts parts;
    char *params;          /* decoded path parameters; NULL none */
    struct ab_buf form;    /* the body, if it came as multipart: parts.body points in here */
    atomic_bool cancelled; /* nobody waits any more */
    /* result, as of ab_json_request */
    int rc;
    struct ab_buf packed;
    struct ab_issues issues;
};

int pool_start(struct ab_error *err);
void pool_stop(void);
void pool_submit(struct parse *p); /* takes it; http_parsed is called on the loop */

void pool_cancel(struct parse *p); /* it comes back all the same, perhaps unparsed */

void parse_run(struct parse *p);
void parse_free(struct parse *p); /* the content; gives the budget back */

#endif
