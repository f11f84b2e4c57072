/* request.h - corpora of requests are text: the verb in the first line, what it is asked with
 * behind it */
#ifndef AB_FUZZ_REQUEST_H
#define AB_FUZZ_REQUEST_H

#include "schema/json.h"
#include "schema/pack.h"
#include <string.h>

/* The route that the first line names, else job.create. *rest is what stands behind the line. */
static inline const struct ab_route *fuzz_route(const uint8_t *data, size_t size, const char **rest,
                                                size_t *n)
{
    char verb[32];
    const uint8_t *line = memchr(data, '\n', size < sizeof(verb) ? size : sizeof(verb) - 1);
    const struct ab_route *route = NULL;
    *rest = (const char *)data;
    *n = size;
    if (line) {
        snprintf(verb, sizeof(verb), "%.*s", (int)(line - data), (const char *)data);
        route = ab_route_of_verb(verb);
        *rest = (const char *)line + 1;
        *n = size - (size_t)(line + 1 - data);
    }
    return route ? route : ab_route_of_verb("job.create");
}

#endif
